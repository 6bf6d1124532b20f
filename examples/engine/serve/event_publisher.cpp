#include "serve/event_publisher.hpp"
#include "serve/net_library.hpp"
#include "serve/without_memory.hpp"

#include <chrono>
#include <cstdio>
#include <exception>

namespace engine {

namespace {

// How often it is looked whether something is new.
constexpr std::chrono::milliseconds pause{10};

double seconds_now() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

}  // namespace

/// The functions of libradixkv_net.so that are used, and a publisher.
class EventPublisher::Library {
public:
    explicit Library(const EventConfig& config) : library_("--events") {
        decltype(&rkv_net_publisher_create) create = nullptr;
        library_.find("rkv_net_publisher_create", create);
        library_.find("rkv_net_publisher_publish", publish_);
        library_.find("rkv_net_publisher_destroy", destroy_);
        rkv_net_publisher_config given{};
        given.struct_size = sizeof given;
        given.endpoint = config.endpoint.c_str();
        if (!config.replay_endpoint.empty()) given.replay_endpoint = config.replay_endpoint.c_str();
        library_.check(create(&given, &publisher_));
    }
    ~Library() { destroy_(publisher_); }
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    void publish(rkv::span<const std::uint8_t> payload) {
        library_.check(publish_(publisher_, payload.data(), payload.size(), nullptr));
    }

private:
    NetLibrary library_;
    decltype(&rkv_net_publisher_publish) publish_ = nullptr;
    decltype(&rkv_net_publisher_destroy) destroy_ = nullptr;
    rkv_net_publisher* publisher_ = nullptr;
};

EventPublisher::EventPublisher(const Core& core, const EventConfig& config)
    : library_(std::make_unique<Library>(config)),
      encoder_(core.kv().cache()),
      thread_([this] { run(); }) {}

EventPublisher::~EventPublisher() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    ends_.notify_all();
    thread_.join();
}

void EventPublisher::run() {
    try {
        for (;;) {
            publish();
            std::unique_lock<std::mutex> lock(mutex_);
            if (ends_.wait_for(lock, pause, [this] { return stopping_; })) return;
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "no events any more: %s\n", error.what());
    }
}

void EventPublisher::publish() {
    for (;;) {
        const auto batch = unless_out_of_memory([&] { return encoder_.encode(seconds_now()); });
        // Records are lost faster than the contents are read, or there is no memory to tell of
        // them, and then none is lost: both go better after a pause.
        if (!batch || batch->payload.size() == 0) return;
        if (batch->info.lost_record_count > 0)
            std::fprintf(stderr, "the journal is too short for events: everything is told anew\n");
        library_->publish(batch->payload);
        if (!batch->has_more()) return;
    }
}

}  // namespace engine
