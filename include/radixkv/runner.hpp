/**
 * @file runner.hpp
 * @brief The runner: KV memory, and attention over the rows of a group of a page table.
 */

#ifndef RADIXKV_RUNNER_HPP
#define RADIXKV_RUNNER_HPP

#include "callback.hpp"
#include "page_table.hpp"
#include "plan.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

namespace rkv {

/// What an engine's threads run for a runner: tasks(i) runs task i. May be called from any thread,
/// until the parallel_for that it was given to returns.
class Tasks {
public:
    Tasks(rkv_parallel_task run, void* task) noexcept : run_(run), task_(task) {}
    void operator()(std::size_t index) const noexcept { run_(task_, index); }

private:
    rkv_parallel_task run_;
    void* task_;
};

/// Parameters of attention beside the tensors; what each means stands at
/// rkv_runner_append_prefill_args.
struct AttentionParams {
    float scale = 0;
    float soft_cap = 0;
    std::uint32_t window = 0;
    float k_scale = 0;
    float v_scale = 0;
    /// Both empty, or one for each KV head; v_scales empty of a latent runner.
    span<const float> k_scales;
    span<const float> v_scales;
    /// Empty, or one for each query head.
    span<const float> sinks;
    /// On CUDA the CUstream to work on.
    void* stream = nullptr;
};

/// Owns an rkv_runner.
class Runner {
public:
    /// rkv_runner_config_init(). Set the counts of layers and heads, they have no defaults.
    [[nodiscard]] static rkv_runner_config config() {
        rkv_runner_config config{};
        check(rkv_runner_config_init(&config, sizeof config));
        return config;
    }
    /// rkv_runner_supports(): throws RKV_STATUS_UNSUPPORTED, or returns the bytes of one page.
    [[nodiscard]] static std::uint64_t supports(const rkv_runner_config& config,
                                                std::uint32_t page_size) {
        std::uint64_t page_bytes = 0;
        check(rkv_runner_supports(&config, page_size, &page_bytes));
        return page_bytes;
    }

    /// rkv_runner_create().
    Runner(PageTable& table, const rkv_runner_config& config) : Runner(nullptr, config) {
        rkv_runner* runner = nullptr;
        check(rkv_runner_create(table.get(), &config, &runner));
        handle_.reset(runner);
    }
    /// rkv_runner_create() over threads of the engine: parallel_for(task_count, Tasks) calls the
    /// tasks 0 to task_count - 1, once each, and returns when all have returned. It is moved or
    /// copied to where it lives as long as the runner does. Several threads may call it at once.
    /// If it throws the process ends, with a message.
    template <class F>
    Runner(PageTable& table, rkv_runner_config config, F&& parallel_for)
        : Runner(nullptr, config) {
        using Function = std::decay_t<F>;
        auto threads = std::make_shared<Function>(std::forward<F>(parallel_for));
        config.parallel_for = call<Function>;
        config.parallel_user_data = threads.get();
        handle_.get_deleter().threads = std::move(threads);
        rkv_runner* runner = nullptr;
        check(rkv_runner_create(table.get(), &config, &runner));
        handle_.reset(runner);
    }
    /// Takes over a handle that C code created from this config.
    Runner(rkv_runner* owned, const rkv_runner_config& config) noexcept
        : handle_(owned), query_heads_(config.query_head_count), kv_heads_(config.kv_head_count),
          head_dim_(config.head_dim),
          v_head_dim_(config.v_head_dim != 0 ? config.v_head_dim : config.head_dim),
          is_latent_((config.flags & RKV_RUNNER_LATENT) != 0),
          element_bytes_(config.dtype == RKV_DTYPE_F32 ? 4 : 2) {}

    [[nodiscard]] rkv_runner* get() const noexcept { return handle_.get(); }
    /// Gives the handle up, without rkv_runner_destroy(). What threads() returns must be kept for
    /// as long as C code uses it.
    [[nodiscard]] rkv_runner* release() noexcept { return handle_.release(); }
    /// The parallel_for that the runner was made with; nothing if there was none.
    [[nodiscard]] std::shared_ptr<const void> threads() const noexcept {
        return handle_.get_deleter().threads;
    }
    /// rkv_runner_destroy() now.
    void reset() noexcept { handle_.reset(); }

    /// rkv_runner_read_stats().
    [[nodiscard]] rkv_runner_stats stats() const {
        auto stats = sized<rkv_runner_stats>();
        check(rkv_runner_read_stats(get(), &stats));
        return stats;
    }
    /// rkv_runner_read_kv_memory().
    [[nodiscard]] rkv_runner_kv_memory kv_memory(std::uint32_t layer) const {
        rkv_runner_kv_memory memory{};
        check(rkv_runner_read_kv_memory(get(), layer, &memory, sizeof(rkv_runner_kv_memory)));
        return memory;
    }
    /// rkv_runner_copy_tier_pages(); Cache::complete() is for the caller to call.
    void copy_tier_pages(span<const rkv_copy_job> jobs) {
        check(rkv_runner_copy_tier_pages(get(), jobs.data(), jobs.size(), sizeof(rkv_copy_job)));
    }
    /// rkv_runner_copy_pages().
    void copy_pages(span<const rkv_page_copy> copies) {
        check(rkv_runner_copy_pages(get(), copies.data(), copies.size(), sizeof(rkv_page_copy)));
    }
    /// rkv_runner_reserve_plan(), after Plan::reserve().
    void reserve_plan(const Plan& plan) { check(rkv_runner_reserve_plan(get(), plan.get())); }
    /// rkv_runner_prepare_plan(). On CUDA with the CUstream to work on.
    void prepare_plan(const Plan& plan, std::uint32_t flags = 0, void* stream = nullptr) {
        check(rkv_runner_prepare_plan(get(), plan.get(), flags, stream));
    }

    /// rkv_runner_keep_branches(), after the plan was computed in every layer.
    void keep_branches(const Plan& plan, span<const rkv_kept_branch> branches,
                       void* stream = nullptr) {
        check(rkv_runner_keep_branches(get(), plan.get(), branches.data(), branches.size(),
                                       sizeof(rkv_kept_branch), stream));
    }

    /// rkv_runner_append_prefill() of anything that C can say: strides, half-precision types of
    /// the engine's own. Begin with sized<rkv_runner_append_prefill_args>().
    void append_prefill(const Plan& plan, const rkv_runner_append_prefill_args& args) {
        check(rkv_runner_append_prefill(get(), plan.get(), &args));
    }
    /// rkv_runner_append_prefill() of dense tensors in f32, whose sizes are checked. k and v are
    /// empty when they are in the pages already, lse when it is not wanted.
    void append_prefill(const Plan& plan, std::uint32_t layer, span<const float> q,
                        span<const float> k, span<const float> v, span<float> out,
                        span<float> lse = {}, const AttentionParams& params = {}) {
        append_prefill_dense(plan, layer, q, k, v, out, lse, params);
    }
    /// The same in f16 or bf16, by their bits.
    void append_prefill(const Plan& plan, std::uint32_t layer, span<const std::uint16_t> q,
                        span<const std::uint16_t> k, span<const std::uint16_t> v,
                        span<std::uint16_t> out, span<float> lse = {},
                        const AttentionParams& params = {}) {
        append_prefill_dense(plan, layer, q, k, v, out, lse, params);
    }
    /// rkv_runner_merge_states(). Begin with sized<rkv_runner_merge_states_args>().
    void merge_states(const rkv_runner_merge_states_args& args) {
        check(rkv_runner_merge_states(get(), &args));
    }
    /// rkv_runner_merge_states() of as many states as there are outs, which is as many as lses.
    void merge_states(span<const void* const> outs, span<const float* const> lses,
                      std::uint64_t position_count, void* out, float* lse = nullptr,
                      void* stream = nullptr) {
        require(outs.size() == lses.size(), "lses: not as many as outs");
        require(outs.size() <= std::numeric_limits<std::uint32_t>::max(), "outs: too many");
        auto args = sized<rkv_runner_merge_states_args>();
        args.state_count = static_cast<std::uint32_t>(outs.size());
        args.position_count = position_count;
        args.outs = outs.data();
        args.lses = lses.data();
        args.out = out;
        args.lse = lse;
        args.stream = stream;
        merge_states(args);
    }

private:
    struct Destroy {
        std::shared_ptr<const void> threads;
        void operator()(rkv_runner* runner) const noexcept { rkv_runner_destroy(runner); }
    };

    template <class F>
    static void call(void* user_data, std::size_t task_count, rkv_parallel_task run,
                     void* task) noexcept {
        detail::must_not_throw("the parallel_for of a runner", [&] {
            (*static_cast<F*>(user_data))(task_count, Tasks(run, task));
        });
    }

    template <class T>
    void append_prefill_dense(const Plan& plan, std::uint32_t layer, span<const T> q,
                              span<const T> k, span<const T> v, span<T> out, span<float> lse,
                              const AttentionParams& params) {
        require(sizeof(T) == element_bytes_, "q is not of the runner's dtype");
        const std::uint64_t positions = plan.position_count();
        const std::uint64_t query_elements = positions * query_heads_ * head_dim_;
        const std::uint64_t out_elements = positions * query_heads_ * v_head_dim_;
        const std::uint64_t k_elements = positions * kv_heads_ * head_dim_;
        const std::uint64_t v_elements = positions * kv_heads_ * v_head_dim_;
        const bool present = k.size() == 0 && v.size() == 0;
        const bool has_v = !present && !is_latent_;
        require(q.size() == query_elements, "q: not [positions][query_head_count][head_dim]");
        require(present || k.size() == k_elements, "k: not [positions][kv_head_count][head_dim]");
        require(v.size() == (has_v ? v_elements : 0),
                "v: not [positions][kv_head_count][v_head_dim], and none of a latent runner");
        require(out.size() == out_elements, "out: not [positions][query_head_count][v_head_dim]");
        require(lse.size() == 0 || lse.size() == positions * query_heads_,
                "lse: not [positions][query_head_count]");
        require(params.sinks.size() == 0 || params.sinks.size() == query_heads_,
                "sinks: not [query_head_count]");
        for (const auto* scales : {&params.k_scales, &params.v_scales})
            require(scales->size() == 0 || scales->size() == kv_heads_,
                    "k_scales, v_scales: not [kv_head_count]");
        auto args = sized<rkv_runner_append_prefill_args>();
        args.layer = layer;
        args.q = q.data();
        args.k = present ? nullptr : k.data();
        args.v = has_v ? v.data() : nullptr;
        args.out = out.data();
        args.lse = lse.size() != 0 ? lse.data() : nullptr;
        args.sinks = params.sinks.size() != 0 ? params.sinks.data() : nullptr;
        args.scale = params.scale;
        args.soft_cap = params.soft_cap;
        args.window = params.window;
        args.k_scale = params.k_scale;
        args.v_scale = params.v_scale;
        args.k_scales = params.k_scales.size() != 0 ? params.k_scales.data() : nullptr;
        args.v_scales = params.v_scales.size() != 0 ? params.v_scales.data() : nullptr;
        args.stream = params.stream;
        append_prefill(plan, args);
    }
    static void require(bool condition, const char* otherwise) {
        if (!condition) throw Error(RKV_STATUS_INVALID_ARGUMENT, otherwise);
    }

    std::unique_ptr<rkv_runner, Destroy> handle_;
    std::uint64_t query_heads_;
    std::uint64_t kv_heads_;
    std::uint64_t head_dim_;
    std::uint64_t v_head_dim_;
    bool is_latent_;
    std::size_t element_bytes_;
};

}  // namespace rkv

#endif  // RADIXKV_RUNNER_HPP
