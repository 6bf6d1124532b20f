#include "http/connections.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <thread>

namespace engine {

void Connections::start(int socket, std::function<void()> talk) {
    {
        std::unique_lock<std::mutex> lock(mutex_);
        while (count_ >= most_) {
            // One at a time: it is closed as soon as its thread wakes up.
            if (cut_.empty()) cut_first();
            changed_.wait(lock);
        }
        ++count_;
    }
    try {
        std::thread([this, socket, talk = std::move(talk)] {
            talk();
            end(socket);
        }).detach();
    } catch (const std::exception&) {  // the system has no more threads, or no memory for one
        end(socket);
    }
}

bool Connections::wait(int socket, short events, Clock::time_point since,
                       Clock::time_point deadline) {
    pollfd file{socket, events, 0};
    if (poll(&file, 1, 0) > 0) return true;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if ((closing_ && events == POLLIN) || find_cut(socket) != cut_.end()) return false;
        waiting_.emplace(since, socket);
        changed_.notify_all();
    }
    int ready = 0;
    do {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
        ready = poll(&file, 1, static_cast<int>(std::max<decltype(left)>(left, 0)));
    } while (ready < 0 && errno == EINTR);
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool was_cut = waiting_.erase({since, socket}) == 0;
    return ready > 0 && !was_cut;
}

void Connections::close() {
    std::unique_lock<std::mutex> lock(mutex_);
    closing_ = true;
    while (count_ > 0) {
        while (!waiting_.empty()) cut_first();
        changed_.wait(lock);
    }
}

/// With the mutex held; so the socket is open still.
void Connections::cut_first() {
    if (waiting_.empty()) return;
    shutdown(waiting_.begin()->second, SHUT_RDWR);
    // As it is, for which no memory is needed: nobody could do without.
    cut_.insert(waiting_.extract(waiting_.begin()));
}

Connections::Waiting::iterator Connections::find_cut(int socket) {
    return std::find_if(cut_.begin(), cut_.end(),
                        [socket](const auto& one) { return one.second == socket; });
}

void Connections::end(int socket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    // Not before: its number could be another connection's by then.
    ::close(socket);
    if (const auto cut = find_cut(socket); cut != cut_.end()) cut_.erase(cut);
    --count_;
    changed_.notify_all();
}

}  // namespace engine
