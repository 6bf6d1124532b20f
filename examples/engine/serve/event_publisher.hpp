// Tells routers what the cache holds: events of the library, sent by its second library.
#ifndef ENGINE_SERVE_EVENT_PUBLISHER_HPP
#define ENGINE_SERVE_EVENT_PUBLISHER_HPP

#include "serve/core.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace engine {

/// Where events go.
struct EventConfig {
    /// Where subscribers hear them, as tcp://*:5557; empty for nowhere.
    std::string endpoint;
    /// Where they ask for what they missed; empty for nowhere.
    std::string replay_endpoint;
};

/// Publishes what comes into the cache and leaves it, on a thread of its own that only reads. It
/// needs libradixkv_net.so.
class EventPublisher {
public:
    /// The core, whose cache must have a journal, outlives it. Throws std::runtime_error.
    EventPublisher(const Core& core, const EventConfig& config);
    ~EventPublisher();
    EventPublisher(const EventPublisher&) = delete;
    EventPublisher& operator=(const EventPublisher&) = delete;

private:
    class Library;

    std::unique_ptr<Library> library_;
    rkv::EventEncoder encoder_;
    std::mutex mutex_;
    std::condition_variable ends_;
    bool stopping_ = false;
    std::thread thread_;

    void run();
    /// Publishes all that is new.
    void publish();
};

}  // namespace engine

#endif  // ENGINE_SERVE_EVENT_PUBLISHER_HPP
