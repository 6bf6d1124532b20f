// Whether an address can be reached from this machine alone, and whether a browser means it.
#ifndef ENGINE_HTTP_LOOPBACK_HPP
#define ENGINE_HTTP_LOOPBACK_HPP

#include <string>

namespace engine {

/// Of an address to listen on: 127.0.0.0/8, ::1, localhost.
[[nodiscard]] bool is_loopback(const std::string& host);

/// Whether the `Host` field of a request names such an address, with any port: there may be a
/// tunnel. A site that lets its own name point at 127.0.0.1 has that name there.
[[nodiscard]] bool names_loopback(const std::string& host_field);

}  // namespace engine

#endif  // ENGINE_HTTP_LOOPBACK_HPP
