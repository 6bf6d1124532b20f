// The HTTP library's server, on connections with limits.
#ifndef ENGINE_HTTP_LIMITED_SERVER_HPP
#define ENGINE_HTTP_LIMITED_SERVER_HPP

#include "http/connection.hpp"
#include "http/connections.hpp"

#include <httplib.h>

#include <functional>
#include <memory>

namespace engine {

/// The library takes requests apart and routes them; what it reads and writes, and when, is
/// Connection's business, and the threads are those of Connections. Its own thread pool would be
/// full of clients that say nothing, its time limits begin again with each byte, and it takes any
/// number of header fields and a chunked body of any length.
class LimitedServer final : public httplib::Server {
public:
    /// `check_head` throws an ApiError for a head whose body nobody wants to read. The limits must
    /// outlive the server.
    LimitedServer(const ConnectionLimits& limits,
                  std::function<void(const httplib::Request&)> check_head);

    /// For handlers: keeps something until the answer is written, which is done when the handler
    /// has returned.
    static void keep(std::shared_ptr<const void> what);

private:
    class InPlace;

    const ConnectionLimits& limits_;
    const std::function<void(const httplib::Request&)> check_head_;
    Connections connections_;

    bool process_and_close_socket(socket_t socket) override;
    [[nodiscard]] bool answer_one(Connection& connection, bool is_last);
};

}  // namespace engine

#endif  // ENGINE_HTTP_LIMITED_SERVER_HPP
