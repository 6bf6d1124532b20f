// Where the time of a step goes.
#ifndef ENGINE_MODEL_STEP_TIMES_HPP
#define ENGINE_MODEL_STEP_TIMES_HPP

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace engine {

/// What a step consists of.
enum class Work {
    /// Lookups, pages, who is next.
    schedule,
    /// Waiting for KV from host memory, a disk or a remote store.
    fetch,
    plan,
    /// Of the layers: products with their matrices; attention, and writing K and V; the others. A
    /// GPU's forward pass is all products.
    products,
    attention,
    rest,
    /// The product that makes logits.
    logits,
    /// Drawing tokens, publishing, telling the client.
    draw
};

constexpr std::array<const char*, 8> work_names = {"schedule",  "fetch", "plan",   "products",
                                                   "attention", "rest",  "logits", "draw"};

/// Nanoseconds by work, since the beginning. Written by the engine's thread, read by any.
using StepTimes = std::array<std::atomic<std::uint64_t>, work_names.size()>;

/// Charges time to what it was spent on.
class StepClock {
public:
    explicit StepClock(StepTimes& times) : times_(times), last_(Now::now()) {}
    /// What was since the last call, or since the beginning.
    void charge(Work work) {
        const Now::time_point now = Now::now();
        const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_);
        times_[static_cast<std::size_t>(work)].fetch_add(static_cast<std::uint64_t>(spent.count()),
                                                         std::memory_order_relaxed);
        last_ = now;
    }

    /// What was since then is charged already, by another clock.
    void skip() { last_ = Now::now(); }

private:
    using Now = std::chrono::steady_clock;
    StepTimes& times_;
    Now::time_point last_;
};

}  // namespace engine

#endif  // ENGINE_MODEL_STEP_TIMES_HPP
