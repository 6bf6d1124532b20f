// The engine with its thread: what a server talks to.
#ifndef ENGINE_SERVE_ENGINE_HPP
#define ENGINE_SERVE_ENGINE_HPP

#include "serve/core.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace engine {

class Engine {
public:
    /// Loads the model and starts the thread. Throws what Core throws.
    explicit Engine(const EngineConfig& config, std::size_t max_waiting = 1024);
    /// Cancels what is not finished, and ends the thread.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Hands a request to the engine's thread. Throws InvalidRequest, Overloaded or std::bad_alloc,
    /// and then the listener hears nothing. Any thread.
    void submit(RequestSpec spec, std::shared_ptr<Listener> listener);
    /// Ends the request of a listener soon. Nothing happens when it is over already. It takes no
    /// memory: where there is none, clients leave. Any thread.
    void cancel(Listener& listener) noexcept;
    /// Cancels every request that is here now. Any thread.
    void cancel_all();
    /// Drops what was retained under an id. False when there is nothing. Any thread.
    bool drop(const std::string& id) { return core_.drop(id); }
    /// Waits until there is no request left, or until the time is over. Any thread.
    bool wait_idle(std::chrono::milliseconds time);

    [[nodiscard]] bool healthy() const noexcept { return core_.healthy(); }
    [[nodiscard]] const Core& core() const noexcept { return core_; }

private:
    struct Arrival {
        std::uint64_t number;
        RequestSpec spec;
        std::shared_ptr<Listener> listener;
        Clock::time_point time;
    };

    Core core_;
    const std::size_t max_waiting_;
    std::mutex mutex_;
    std::condition_variable work_, idle_;
    std::vector<Arrival> arrivals_;
    bool cancel_left_ = false, cancel_all_ = false, stopping_ = false, busy_ = false;
    std::uint64_t last_number_ = 0;
    std::thread thread_;

    void run();
    [[nodiscard]] bool has_messages() const {
        return !arrivals_.empty() || cancel_left_ || cancel_all_ || stopping_;
    }
    void take_messages();
};

}  // namespace engine

#endif  // ENGINE_SERVE_ENGINE_HPP
