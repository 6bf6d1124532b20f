// The threads that all computing is done with: the layers' own, and through rkv_parallel_for the
// attention too. Two pools on the same cores would get in each other's way.
#ifndef ENGINE_COMPUTE_THREAD_POOL_HPP
#define ENGINE_COMPUTE_THREAD_POOL_HPP

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace engine {

/// Runs numbered tasks on a fixed set of threads. One thread at a time may call run(), and no task
/// may; tasks must not throw.
class ThreadPool {
public:
    using Task = void (*)(void* task, std::size_t index);

    /// thread_count includes the thread that calls run(). 0: as many as the process may use.
    explicit ThreadPool(std::size_t thread_count);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    [[nodiscard]] std::size_t thread_count() const noexcept { return workers_.size() + 1; }

    /// Calls task(argument, i) for each i below count, in any order and on any thread. Returns when
    /// all have returned.
    void run(std::size_t count, Task task, void* argument);

    /// The same with anything callable as f(i).
    template <class F> void run(std::size_t count, F&& f) {
        using Callable = std::remove_reference_t<F>;
        run(
            count,
            [](void* task, std::size_t index) { (*static_cast<Callable*>(task))(index); }, &f);
    }

    /// Cuts [0, count) into a few equal ranges and calls f(begin, end) for each. No range is
    /// shorter than `grain`, except when there is only one: small work is not worth a wake-up.
    template <class F> void ranges(std::size_t count, std::size_t grain, F&& f) {
        const std::size_t most = thread_count() > 1 ? thread_count() * 4 : 1;
        std::size_t parts = count / (grain > 0 ? grain : 1);
        if (parts > most) parts = most;
        if (parts < 2) return count > 0 ? f(std::size_t{0}, count) : void();
        run(parts, [&](std::size_t part) {
            f(count * part / parts, count * (part + 1) / parts);
        });
    }

    /// An rkv_parallel_for whose user_data is a ThreadPool.
    static void parallel_for(void* pool, std::size_t count, Task task, void* argument) {
        static_cast<ThreadPool*>(pool)->run(count, task, argument);
    }

private:
    // Which job is current (upper half) and how many of its tasks are taken (lower half). In one
    // word, so that a thread that wakes up late can never take a task of the next job for one of
    // the job it has read.
    std::atomic<std::uint64_t> ticket_{0};
    std::atomic<Task> task_{nullptr};
    std::atomic<void*> argument_{nullptr};
    std::atomic<std::size_t> count_{0};
    std::atomic<std::size_t> unfinished_{0};

    std::mutex mutex_;
    std::condition_variable work_;
    std::atomic<std::size_t> sleeping_{0};
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> workers_;

    void worker();
    void take_tasks(std::uint32_t job);
    [[nodiscard]] std::uint32_t job() const noexcept {
        return static_cast<std::uint32_t>(ticket_.load(std::memory_order_acquire) >> 32);
    }
};

}  // namespace engine

#endif  // ENGINE_COMPUTE_THREAD_POOL_HPP
