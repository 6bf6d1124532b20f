// The open connections: how many there may be, who gives way, and how long a client may keep the
// server waiting.
#ifndef ENGINE_HTTP_CONNECTIONS_HPP
#define ENGINE_HTTP_CONNECTIONS_HPP

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

namespace engine {

struct ConnectionLimits {
    /// Open at once. Each has a thread that mostly sleeps.
    std::size_t count = 768;
    /// Of a request: its first line with all header fields, and its body as it is sent.
    std::size_t head_bytes = std::size_t{64} << 10;
    std::size_t body_bytes = std::size_t{4} << 20;
    /// Until a request begins; from then until its head is there, and then until its body is. Each
    /// is a deadline: a byte now and then doesn't move it.
    std::chrono::milliseconds idle{5000};
    std::chrono::milliseconds head{10000};
    std::chrono::milliseconds body{30000};
    /// How long a client may take nothing of what is sent to it.
    std::chrono::milliseconds write{10000};
};

/// Gives each connection a thread. When there are too many, the one whose client has kept the
/// server waiting for longest is cut, so that whoever sends a request in one go is served, however
/// many don't. Any thread.
class Connections {
public:
    using Clock = std::chrono::steady_clock;

    explicit Connections(std::size_t most) : most_(most) {}
    Connections(const Connections&) = delete;
    Connections& operator=(const Connections&) = delete;
    ~Connections() { close(); }

    /// Runs `talk` with this socket on a thread of its own, and closes it. Waits for a place.
    void start(int socket, std::function<void()> talk);
    /// For talk(): waits until the client has sent something, or with POLLOUT taken something.
    /// `since` is when it began to keep the server waiting. False when the time is over, or when
    /// this connection was cut.
    [[nodiscard]] bool wait(int socket, short events, Clock::time_point since,
                            Clock::time_point deadline);
    /// No request begins any more. Waits until the last connection is closed.
    void close();

private:
    /// Connections, by when their clients began to keep the server waiting.
    using Waiting = std::set<std::pair<Clock::time_point, int>>;

    const std::size_t most_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t count_ = 0;
    /// Whose clients do so now; and those that were cut, and are not closed yet.
    Waiting waiting_, cut_;
    bool closing_ = false;

    void cut_first();
    [[nodiscard]] Waiting::iterator find_cut(int socket);
    void end(int socket);
};

}  // namespace engine

#endif  // ENGINE_HTTP_CONNECTIONS_HPP
