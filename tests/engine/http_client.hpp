// HTTP by hand, over a real socket: so that a test can send what no library would.
#ifndef RADIXKV_TESTS_ENGINE_HTTP_CLIENT_HPP
#define RADIXKV_TESTS_ENGINE_HTTP_CLIENT_HPP

#include "../cpp/check.hpp"

#include <nlohmann/json.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace test {

/// A connection to 127.0.0.1. Reading gives up after 30 seconds. What the server may send ahead of
/// that can be limited.
class Socket {
public:
    explicit Socket(int port, int receive_bytes = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
        // Before it is connected: afterwards it has been promised more.
        if (receive_bytes > 0)
            setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const timeval patience{30, 0};
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            fail("Socket", port, "cannot connect");
    }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() { hang_up(); }

    /// False when the other side is gone.
    bool send(const std::string& bytes) const {
        return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(bytes.size());
    }
    /// Reads on until `text` contains `end`, or the other side closes. False then.
    bool read_until(const std::string& end, std::string& text) const {
        while (text.find(end) == std::string::npos) {
            char buffer[4096];
            const ssize_t count = recv(fd_, buffer, sizeof buffer, 0);
            if (count <= 0) return false;
            text.append(buffer, static_cast<std::size_t>(count));
        }
        return true;
    }
    std::string read_all() const {
        std::string text;
        for (char buffer[4096];;) {
            const ssize_t count = recv(fd_, buffer, sizeof buffer, 0);
            if (count <= 0) return text;
            text.append(buffer, static_cast<std::size_t>(count));
        }
    }
    void hang_up() {
        if (fd_ >= 0) close(fd_);
        fd_ = -1;
    }

private:
    int fd_;
};

struct Response {
    int status = 0;
    std::string head, body;

    [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(body); }
};

/// Puts the chunks of a body together; all of it, the end included, must be there.
inline std::string unchunked(const std::string& body) {
    std::string out;
    for (std::size_t at = 0;;) {
        const std::size_t line = body.find("\r\n", at);
        if (line == std::string::npos) fail("unchunked", 0, "a body that was cut");
        const std::size_t size = std::strtoul(body.c_str() + at, nullptr, 16);
        if (size == 0) return out;
        out += body.substr(line + 2, size);
        at = line + 2 + size + 2;
    }
}

inline Response parse_response(const std::string& text) {
    Response response;
    const std::size_t end = text.find("\r\n\r\n");
    if (text.compare(0, 9, "HTTP/1.1 ") != 0 || end == std::string::npos)
        fail("parse_response", 0, "no HTTP response: " + text);
    response.status = std::atoi(text.c_str() + 9);
    response.head = text.substr(0, end);
    response.body = text.substr(end + 4);
    if (response.head.find("Transfer-Encoding: chunked") != std::string::npos)
        response.body = unchunked(response.body);
    return response;
}

inline std::string http_text(const std::string& method, const std::string& path,
                             const std::string& body) {
    return method + " " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

inline Response http(int port, const std::string& method, const std::string& path,
                     const std::string& body = {}) {
    const Socket socket(port);
    CHECK(socket.send(http_text(method, path, body)));
    return parse_response(socket.read_all());
}

inline Response post(int port, const nlohmann::json& body) {
    return http(port, "POST", "/v1/completions", body.dump());
}

/// The objects of a stream of server-sent events, which must end as it should.
inline std::vector<nlohmann::json> events_of(const Response& response) {
    std::vector<nlohmann::json> events;
    std::size_t at = 0;
    for (std::size_t end; (end = response.body.find("\n\n", at)) != std::string::npos;
         at = end + 2) {
        const std::string event = response.body.substr(at, end - at);
        if (event.compare(0, 6, "data: ") != 0) fail("events_of", 0, "no event: " + event);
        if (event == "data: [DONE]") {
            if (end + 2 != response.body.size()) fail("events_of", 0, "more after the end");
            return events;
        }
        events.push_back(nlohmann::json::parse(event.substr(6)));
    }
    fail("events_of", 0, "the stream has no end");
}

}  // namespace test

#endif  // RADIXKV_TESTS_ENGINE_HTTP_CLIENT_HPP
