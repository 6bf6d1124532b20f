// The engine without its thread: requests in, one step at a time, tokens out.
#ifndef ENGINE_SERVE_CORE_HPP
#define ENGINE_SERVE_CORE_HPP

#include "compute/linear.hpp"
#include "compute/thread_pool.hpp"
#include "model/model.hpp"
#include "serve/decoder.hpp"
#include "serve/kv.hpp"
#include "serve/metrics.hpp"
#include "serve/request.hpp"
#include "serve/retained.hpp"
#include "serve/scheduler.hpp"
#include "serve/tokenizer.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace engine {

struct EngineConfig {
    std::filesystem::path model;
    KvConfig kv;
    SchedulerConfig scheduler;
    /// Publish what is computed, so that later requests find it.
    bool prefix_caching = true;
    /// What computes. Settings of products and threads are the processor's.
    Device device = Device::cpu;
    Gemm gemm = Gemm::packed;
    /// On a GPU: steps of one token for each sequence are recorded, and launched as a whole.
    bool graphs = true;
    /// Refuse requests that ask to be retained.
    bool retain_nothing = false;
    /// Longest text in tokens; 0: as the model says.
    std::size_t max_positions = 0;
    /// 0: as many as the process may use.
    std::size_t thread_count = 0;
    /// Called before each forward pass with its number of tokens. What it throws ends the requests
    /// of the step, as any other failure would.
    std::function<void(std::size_t)> before_forward;
};

/// Not for several threads at once, except metrics(), drop() and what is const.
class Core {
public:
    /// Throws std::runtime_error or rkv::Error saying what is wrong.
    explicit Core(const EngineConfig& config);

    /// The request as it is to be added: a continuation has all of its tokens for a prompt, and is
    /// none any more when its parent is gone. Throws InvalidRequest with the reason why the request
    /// can never be served. Changes nothing.
    [[nodiscard]] RequestSpec accept(RequestSpec spec) const;
    /// Adds a request that accept() returned. Numbers must ascend. Where there is no memory for
    /// it, its listener hears so.
    void add(std::uint64_t number, RequestSpec spec, std::shared_ptr<Listener> listener,
             Clock::time_point submitted = Clock::now());
    /// Ends a request with Finish::cancelled. Nothing happens when it is over already.
    void cancel(std::uint64_t number);
    /// Those whose listeners have left.
    void cancel_left();
    void cancel_all();
    /// Drops what was retained under an id. False when there is nothing.
    bool drop(const std::string& id) { return retained_.drop(id); }

    /// Computes one step. False when there is no request.
    bool step();

    /// False once the library has reported a bug of its own, or the device is lost: nothing more
    /// can be served.
    [[nodiscard]] bool healthy() const noexcept { return healthy_.load(); }
    [[nodiscard]] const ModelConfig& model_config() const noexcept { return model_->config(); }
    [[nodiscard]] std::size_t position_limit() const noexcept { return model_->position_limit(); }
    /// Prompt and output together have at most so many tokens.
    [[nodiscard]] std::size_t longest_text() const;
    [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
    [[nodiscard]] const Kv& kv() const noexcept { return kv_; }
    [[nodiscard]] bool has_tiers() const noexcept { return config_.kv.tiers.host_bytes > 0; }
    [[nodiscard]] const Metrics& metrics() const noexcept { return metrics_; }
    /// What steps took, by any thread.
    [[nodiscard]] const StepTimes& step_times() const noexcept { return model_->times(); }

private:
    EngineConfig config_;
    ThreadPool pool_;
    std::unique_ptr<Model> model_;
    std::unique_ptr<Tokenizer> tokenizer_;
    Metrics metrics_;
    Kv kv_;
    Retained retained_;
    Scheduler scheduler_;
    Decoder decoder_;
    StepTokens tokens_;
    std::vector<rkv_plan_row> plan_rows_;
    /// Of the rows' drafts that branch, and which tokens of each draft hold.
    std::vector<std::vector<std::uint64_t>> tree_masks_;
    std::vector<std::vector<std::size_t>> accepted_;
    /// The requests of the step at hand, one for each row.
    std::vector<std::uint64_t> in_step_;
    std::atomic<bool> healthy_{true};

    void resolve(RequestSpec& spec) const;
    void validate(const RequestSpec& spec) const;
    /// Pages of a group there are, and that a request of so many positions needs.
    [[nodiscard]] std::uint64_t pages_of(std::uint32_t group) const;
    [[nodiscard]] std::uint64_t pages_needed(std::uint32_t group,
                                             std::uint64_t position_count) const;
    void set_namespace(Request& request);
    bool try_step();
    void compute(const std::vector<StepRow>& rows, StepClock& clock);
    void settle_drafts(const std::vector<StepRow>& rows, const float* logits);
    void take_row(const StepRow& row, std::uint64_t number,
                  const std::vector<std::size_t>& accepted, const float* logits,
                  Clock::time_point now);
    void take(std::uint64_t number, Branch& branch, const float* logits, Clock::time_point now);
    void finish(std::uint64_t number, Finish why, const char* error = "");
    void answer(Request& request, RequestResult& result);
    [[nodiscard]] std::string retain(const Request& request, Branch& branch, std::size_t choice);
    void fail_step(const char* message);
    void update_gauges();
};

}  // namespace engine

#endif  // ENGINE_SERVE_CORE_HPP
