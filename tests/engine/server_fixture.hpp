// A server with its engine for a test, and requests to it.
#ifndef RADIXKV_TESTS_ENGINE_SERVER_FIXTURE_HPP
#define RADIXKV_TESTS_ENGINE_SERVER_FIXTURE_HPP

#include "fixture.hpp"
#include "http/server.hpp"
#include "http_client.hpp"

#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace test {

using Json = nlohmann::json;
using namespace std::chrono_literals;

inline const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

/// A server with its engine, on a port of its own.
class Running {
public:
    explicit Running(std::function<void(engine::EngineConfig&)> change = {},
                     std::size_t max_waiting = 64,
                     const std::function<void(engine::ServerConfig&)>& change_server = {})
        : engine_(engine_config(change), max_waiting),
          server_(server_config(change_server), engine_),
          thread_([this] { server_.run(); }) {}
    ~Running() {
        if (thread_.joinable()) shutdown();
    }
    void shutdown() {
        server_.shutdown();
        thread_.join();
    }
    [[nodiscard]] int port() const { return server_.port(); }
    engine::Engine& engine() { return engine_; }
    engine::Server& server() { return server_; }
    [[nodiscard]] const engine::Metrics& metrics() const { return engine_.core().metrics(); }

    /// Nothing runs, and no page is lost.
    void audit_idle() {
        CHECK(engine_.wait_idle(20s));
        const engine::Kv& kv = engine_.core().kv();
        audit(kv.table(), kv.cache());
        CHECK_EQ(kv.table().stats().private_page_count, 0U);
        CHECK_EQ(kv.cache().stats().sequence_count, 0U);
        CHECK_EQ(kv.table().stats().reclaimable_page_count,
                 kv.table().stats().cached_page_count);
    }

private:
    static engine::EngineConfig engine_config(
        const std::function<void(engine::EngineConfig&)>& change) {
        engine::EngineConfig config = tiny_config(model());
        if (change) change(config);
        return config;
    }
    static engine::ServerConfig server_config(
        const std::function<void(engine::ServerConfig&)>& change) {
        engine::ServerConfig config;
        config.port = 0;
        config.served_model = "tiny";
        config.connections.body_bytes = 100000;
        config.drain = 10s;
        if (change) change(config);
        return config;
    }
    engine::Engine engine_;
    engine::Server server_;
    std::thread thread_;
};

inline Json request(const std::string& prompt, std::size_t max_tokens) {
    return {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
}

inline Json with(Json request, const std::string& field, Json value) {
    request[field] = std::move(value);
    return request;
}

inline bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
        if (condition()) return true;
        std::this_thread::sleep_for(10ms);
    }
    return false;
}

inline const Json& choice_of(const Json& body) { return body["choices"][0]; }

}  // namespace test

#endif  // RADIXKV_TESTS_ENGINE_SERVER_FIXTURE_HPP
