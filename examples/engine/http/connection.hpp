// One connection, as the HTTP library reads and writes it, within the limits.
#ifndef ENGINE_HTTP_CONNECTION_HPP
#define ENGINE_HTTP_CONNECTION_HPP

#include "http/api_error.hpp"
#include "http/connections.hpp"

#include <httplib.h>

#include <array>
#include <cstddef>
#include <string>

namespace engine {

/// Without "override": the library's later versions ask for more than the earlier ones.
class Connection final : public httplib::Stream {
public:
    Connection(int socket, const ConnectionLimits& limits, Connections& connections)
        : socket_(socket), limits_(limits), connections_(connections) {}

    /// Waits for the first byte of another request. False when none comes.
    [[nodiscard]] bool begin_head();
    /// Its head is read.
    void begin_body();
    /// Answers by itself what the library must not go on with. Nothing can be read or written
    /// afterwards.
    void refuse(const ApiError& error);
    /// Nothing more is read or written, but the client gets what was written.
    void hang_up();

    ssize_t read(char* to, std::size_t size);
    ssize_t write(const char* from, std::size_t size);
    bool is_readable() const { return begin_ < end_; }
    bool wait_readable() const { return is_readable(); }
    /// Waits while the client takes nothing. False when it is gone.
    bool is_writable() const;
    bool wait_writable() const { return is_writable(); }
    bool is_peer_alive() const { return is_writable(); }
    void get_remote_ip_and_port(std::string&, int&) const {}
    void get_local_ip_and_port(std::string&, int&) const {}
    socket_t socket() const { return socket_; }
    time_t duration() const { return 0; }

private:
    using Clock = Connections::Clock;
    enum class Part { head, body };

    const int socket_;
    const ConnectionLimits& limits_;
    Connections& connections_;
    Part part_ = Part::head;
    /// When this part began, and what is left for it.
    Clock::time_point since_ = Clock::now();
    Clock::time_point deadline_;
    std::size_t bytes_left_ = 0;
    bool over_ = false;
    std::array<char, 16384> buffer_;
    std::size_t begin_ = 0, end_ = 0;

    void begin_part(Part part, std::chrono::milliseconds time, std::size_t bytes);
    [[nodiscard]] bool receive();
    [[nodiscard]] bool wait_to_write() const;
    [[nodiscard]] bool send_all(const char* from, std::size_t size);
};

}  // namespace engine

#endif  // ENGINE_HTTP_CONNECTION_HPP
