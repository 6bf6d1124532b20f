// Who a benchmark talks to: the engine itself, or a server over HTTP.
#ifndef ENGINE_BENCH_CLIENT_HPP
#define ENGINE_BENCH_CLIENT_HPP

#include "bench/workload.hpp"
#include "serve/engine.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace engine {

/// What became of one request.
struct BenchRecord {
    /// When each token came.
    std::vector<Clock::time_point> token_times;
    std::vector<std::uint32_t> tokens;
    std::size_t prompt_tokens = 0, cached_tokens = 0;
    /// Empty when all went well.
    std::string error;
};

class Client {
public:
    using Done = std::function<void(BenchRecord)>;

    virtual ~Client() = default;
    /// Starts a request with greedy sampling and returns at once. `done` is called on any thread.
    virtual void start(const BenchRequest& request, Done done) = 0;
};

/// Calls the engine without a network in between.
class DirectClient final : public Client {
public:
    explicit DirectClient(Engine& engine) : engine_(engine) {}
    void start(const BenchRequest& request, Done done) override;

private:
    Engine& engine_;
};

/// Streams over HTTP, a connection and a thread for each request.
class HttpClient final : public Client {
public:
    /// E.g. "http://127.0.0.1:8080".
    explicit HttpClient(std::string url) : url_(std::move(url)) {}
    ~HttpClient() override;
    void start(const BenchRequest& request, Done done) override;

private:
    std::string url_;
    std::vector<std::thread> threads_;
};

}  // namespace engine

#endif  // ENGINE_BENCH_CLIENT_HPP
