#include "http/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace engine {

namespace {

// How long what is on its way is thrown away before a connection is closed; as much as a body.
constexpr std::chrono::seconds linger{1};

ApiError too_long(bool is_body) {
    if (is_body) return {413, "the body is too long"};
    return {431, "the header fields are too long"};
}

ApiError too_slow(bool is_body) {
    return {408, is_body ? "the body did not come in time" : "the head did not come in time"};
}

}  // namespace

bool Connection::begin_head() {
    begin_part(Part::head, limits_.idle, limits_.head_bytes);
    if (begin_ == end_ && !connections_.wait(socket_, POLLIN, since_, deadline_)) return false;
    begin_part(Part::head, limits_.head, limits_.head_bytes);
    return true;
}

void Connection::begin_body() { begin_part(Part::body, limits_.body, limits_.body_bytes); }

void Connection::begin_part(Part part, std::chrono::milliseconds time, std::size_t bytes) {
    part_ = part;
    since_ = Clock::now();
    deadline_ = since_ + time;
    bytes_left_ = bytes;
}

ssize_t Connection::read(char* to, std::size_t size) {
    if (over_) return -1;
    const bool is_body = part_ == Part::body;
    // Also when there always is something to read.
    if (Clock::now() > deadline_) {
        refuse(too_slow(is_body));
        return -1;
    }
    if (begin_ == end_ && !receive()) return over_ ? -1 : 0;
    const std::size_t count = std::min(size, end_ - begin_);
    if (count > bytes_left_) {
        refuse(too_long(is_body));
        return -1;
    }
    bytes_left_ -= count;
    std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), count, to);
    begin_ += count;
    return static_cast<ssize_t>(count);
}

/// Fills the buffer. False at the end of what comes.
bool Connection::receive() {
    if (!connections_.wait(socket_, POLLIN, since_, deadline_)) {
        if (Clock::now() >= deadline_) refuse(too_slow(part_ == Part::body));
        over_ = true;
        return false;
    }
    const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (count <= 0) return false;
    begin_ = 0;
    end_ = static_cast<std::size_t>(count);
    return true;
}

ssize_t Connection::write(const char* from, std::size_t size) {
    if (over_ || !send_all(from, size)) {
        over_ = true;
        return -1;
    }
    return static_cast<ssize_t>(size);
}

bool Connection::send_all(const char* from, std::size_t size) {
    while (size > 0) {
        const ssize_t count = send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) {
            from += count;
            size -= static_cast<std::size_t>(count);
        } else if ((errno != EAGAIN && errno != EINTR) || !wait_to_write()) {
            return false;
        }
    }
    return true;
}

bool Connection::wait_to_write() const {
    const Clock::time_point now = Clock::now();
    return connections_.wait(socket_, POLLOUT, now, now + limits_.write);
}

bool Connection::is_writable() const {
    // To look for the end of what can be read would not do: something unread may lie before it.
    pollfd gone{socket_, POLLRDHUP, 0};
    if (over_ || poll(&gone, 1, 0) > 0) return false;
    return wait_to_write();
}

void Connection::refuse(const ApiError& error) {
    if (over_) return;
    over_ = true;
    const std::string body = error.body();
    std::string text = "HTTP/1.1 " + std::to_string(error.status()) + " Refused\r\n";
    for (const auto& [name, value] : error.headers()) text += name + ": " + value + "\r\n";
    text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\nConnection: close\r\n\r\n" + body;
    if (send_all(text.data(), text.size())) hang_up();
}

void Connection::hang_up() {
    over_ = true;
    // Closed with something unread, the connection would be reset, and the answer might be lost.
    shutdown(socket_, SHUT_WR);
    const Clock::time_point now = Clock::now();
    for (std::size_t left = limits_.body_bytes;
         Clock::now() < now + linger && connections_.wait(socket_, POLLIN, now, now + linger);) {
        const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), 0);
        if (count <= 0 || static_cast<std::size_t>(count) > left) break;
        left -= static_cast<std::size_t>(count);
    }
}

}  // namespace engine
