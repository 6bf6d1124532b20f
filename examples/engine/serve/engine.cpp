#include "serve/engine.hpp"

#include <utility>

namespace engine {

Engine::Engine(const EngineConfig& config, std::size_t max_waiting)
    : core_(config), max_waiting_(max_waiting), thread_([this] { run(); }) {}

Engine::~Engine() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    work_.notify_all();
    thread_.join();
}

void Engine::submit(RequestSpec spec, std::shared_ptr<Listener> listener) {
    spec = core_.accept(std::move(spec));
    const Clock::time_point now = Clock::now();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (arrivals_.size() + core_.metrics().waiting >= max_waiting_)
            throw Overloaded("too many requests are waiting: " + std::to_string(max_waiting_));
        arrivals_.push_back({last_number_ + 1, std::move(spec), std::move(listener), now});
        ++last_number_;
    }
    work_.notify_one();
}

void Engine::cancel(Listener& listener) noexcept {
    listener.leave();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        cancel_left_ = true;
    }
    work_.notify_one();
}

void Engine::cancel_all() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        cancel_all_ = true;
    }
    work_.notify_one();
}

bool Engine::wait_idle(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    return idle_.wait_for(lock, time, [&] { return !busy_ && !has_messages(); });
}

void Engine::run() {
    for (;;) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            if (!busy_) idle_.notify_all();
            const auto has_work = [&] { return busy_ || has_messages(); };
            // What was published last is still to be stored.
            if (core_.has_tiers())
                (void)work_.wait_for(lock, std::chrono::milliseconds(20), has_work);
            else
                work_.wait(lock, has_work);
            busy_ = true;
        }
        take_messages();
        const bool worked = core_.step();
        const std::lock_guard<std::mutex> lock(mutex_);
        if (stopping_) break;
        busy_ = worked;
    }
    take_messages();
    core_.cancel_all();
}

void Engine::take_messages() {
    std::vector<Arrival> arrivals;
    bool left = false, all = false;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::swap(arrivals, arrivals_);
        std::swap(left, cancel_left_);
        std::swap(all, cancel_all_);
    }
    for (Arrival& arrival : arrivals)
        core_.add(arrival.number, std::move(arrival.spec), std::move(arrival.listener),
                  arrival.time);
    if (left) core_.cancel_left();
    if (all) core_.cancel_all();
}

}  // namespace engine
