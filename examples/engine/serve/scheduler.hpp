// Which requests take part in the next step, and with how many tokens. Memory is asked for here
// alone: pages for prompts that begin, pages for tokens that were generated.
#ifndef ENGINE_SERVE_SCHEDULER_HPP
#define ENGINE_SERVE_SCHEDULER_HPP

#include "serve/kv.hpp"
#include "serve/metrics.hpp"
#include "serve/request.hpp"
#include "serve/text.hpp"

#include <radixkv.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace engine {

using Clock = std::chrono::steady_clock;

/// A request inside the engine.
struct Request {
    Request(std::uint64_t number, RequestSpec what, std::shared_ptr<Listener> who);

    /// Order of arrival: who came first is served first and gives way last.
    std::uint64_t number;
    RequestSpec spec;
    std::shared_ptr<Listener> listener;
    rkv::Namespace name_space;
    /// The prompt and what was generated.
    std::vector<std::uint32_t> tokens;
    /// Owns the pages; empty while the request waits.
    rkv::Sequence sequence;
    /// Tokens that the sequence knows of: all but at most the one just generated.
    std::size_t sequence_tokens = 0;
    /// Tokens whose KV is in the pages. What is left of `tokens` is to be computed.
    std::size_t computed = 0;
    /// Whole pages of the beginning that are in the cache.
    std::size_t published_pages = 0;
    OutputText text;
    /// When it came, and when its latest token did.
    Clock::time_point submitted = Clock::now(), latest;
    std::size_t cached_tokens = 0, preemptions = 0;
    bool began = false;

    [[nodiscard]] std::size_t generated() const { return tokens.size() - spec.prompt.size(); }
    [[nodiscard]] std::size_t to_compute() const { return tokens.size() - computed; }
};

/// New tokens of one request in a step.
struct StepRow {
    Request* request;
    std::size_t start;
    std::size_t count;

    /// Whether the step computes the request's last token, after which the next one can be drawn.
    [[nodiscard]] bool reaches_end() const { return start + count == request->tokens.size(); }
};

struct SchedulerConfig {
    /// Requests that run at once.
    std::size_t max_running = 64;
    /// Prompt tokens that a step computes, of all its requests together; 0: no limit. Generated
    /// tokens are computed in every step, so a long prompt delays the others by a chunk at most.
    std::size_t chunk_size = 512;
};

class Scheduler {
public:
    Scheduler(const SchedulerConfig& config, Kv& kv, Metrics& metrics)
        : config_(config), kv_(kv), metrics_(metrics) {}

    void add(std::unique_ptr<Request> request);
    /// Takes a request out, its memory with it. NULL when it isn't here (any more).
    [[nodiscard]] std::unique_ptr<Request> remove(std::uint64_t number);

    [[nodiscard]] bool empty() const { return waiting_.empty() && running_.empty(); }
    [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
    [[nodiscard]] std::size_t running() const { return running_.size(); }
    /// The numbers of all requests here.
    [[nodiscard]] std::vector<std::uint64_t> numbers() const;

    /// The rows of the next step, in order of arrival. When memory is short, the requests that came
    /// last give theirs back and wait. Empty only when no request is here. Throws rkv::Error when
    /// the library reports other than a shortage; then blamed() says whose call that was.
    [[nodiscard]] const std::vector<StepRow>& plan();
    /// The request that plan() was busy with when it threw.
    [[nodiscard]] std::uint64_t blamed() const { return blamed_; }

private:
    SchedulerConfig config_;
    Kv& kv_;
    Metrics& metrics_;
    /// Both in order of arrival.
    std::deque<std::unique_ptr<Request>> waiting_;
    std::vector<std::unique_ptr<Request>> running_;
    std::vector<StepRow> rows_;
    std::uint64_t blamed_ = 0;

    void plan_running(std::size_t& budget, bool& preempted);
    void admit(std::size_t& budget);
    void take_row(Request& request, std::size_t& budget);
    [[nodiscard]] bool extend(Request& request);
    [[nodiscard]] bool begin(Request& request);
    [[nodiscard]] bool may_fit(const Request& request) const;
    void preempt_last();
};

}  // namespace engine

#endif  // ENGINE_SERVE_SCHEDULER_HPP
