// What a request says of itself before its body.
#ifndef ENGINE_HTTP_REQUEST_HEAD_HPP
#define ENGINE_HTTP_REQUEST_HEAD_HPP

#include <httplib.h>

#include <cstddef>

namespace engine {

/// Throws ApiError for a request whose body must not be read: nothing has this path, or not with
/// this method; its end is unclear; it is longer than `max_body_bytes`; it would have to be
/// unpacked.
void check_head(const httplib::Request& request, std::size_t max_body_bytes);

}  // namespace engine

#endif  // ENGINE_HTTP_REQUEST_HEAD_HPP
