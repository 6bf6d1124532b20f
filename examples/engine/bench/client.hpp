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
    /// When each token came; of a beam search, none.
    std::vector<Clock::time_point> token_times;
    /// When the answer was complete.
    Clock::time_point finished;
    /// Those of the first choice.
    std::vector<std::uint32_t> tokens;
    /// Those of the other ones, of the best beam first.
    std::vector<std::vector<std::uint32_t>> other_choices;
    std::size_t prompt_tokens = 0, cached_tokens = 0, inherited_tokens = 0;
    /// As the engine measured it, from the arrival there.
    double first_token_seconds = 0;
    /// Under which others can go on from it.
    std::string retained_id;
    /// Empty when all went well.
    std::string error;
};

class Client {
public:
    using Done = std::function<void(BenchRecord)>;

    virtual ~Client() = default;
    /// Starts a request and returns at once. `done` is called on any thread.
    virtual void start(const BenchRequest& request, Done done) = 0;
};

/// Calls the engine without a network in between.
class DirectClient final : public Client {
public:
    explicit DirectClient(Engine& engine) : engine_(engine) {}
    void start(const BenchRequest& request, Done done) override;

private:
    Engine& engine_;
    std::uint64_t last_id_ = 0;
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
