#include "compute/thread_pool.hpp"

#include <sched.h>

namespace engine {

namespace {

// A step of the engine is some dozens of short jobs with pauses of microseconds between them, and
// steps follow each other: a worker that slept in a pause would come late to the next job. It looks
// for this long (about a millisecond) before it sleeps.
constexpr int looks_before_sleep = 40000;
// How often the caller of run() looks before it lets others have its core: the worker that it
// waits for may need it.
constexpr int looks_before_yield = 500;

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

std::size_t usable_cores() {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
    const int count = CPU_COUNT(&cores);
    return count > 0 ? static_cast<std::size_t>(count) : 1;
}

}  // namespace

ThreadPool::ThreadPool(std::size_t thread_count) {
    if (thread_count == 0) thread_count = usable_cores();
    workers_.reserve(thread_count - 1);
    for (std::size_t i = 1; i < thread_count; ++i) workers_.emplace_back([this] { worker(); });
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::size_t count, Task task, void* argument) {
    if (workers_.empty() || count <= 1) {
        for (std::size_t i = 0; i < count; ++i) task(argument, i);
        return;
    }
    // The job before is finished and its number is passed: nobody uses these until the new ticket.
    task_.store(task, std::memory_order_relaxed);
    argument_.store(argument, std::memory_order_relaxed);
    count_.store(count, std::memory_order_relaxed);
    unfinished_.store(count, std::memory_order_relaxed);
    const std::uint32_t number = job() + 1;
    ticket_.store(std::uint64_t{number} << 32, std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst) > 0) {
        // Whoever counted itself as sleeping holds the mutex until it really sleeps.
        const std::lock_guard<std::mutex> lock(mutex_);
        work_.notify_all();
    }
    take_tasks(number);
    for (int looks = 0; unfinished_.load(std::memory_order_acquire) > 0; ++looks) {
        if (looks < looks_before_yield)
            pause_briefly();
        else
            sched_yield();
    }
}

void ThreadPool::take_tasks(std::uint32_t number) {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(ticket >> 32) == number) {
        const auto index = static_cast<std::uint32_t>(ticket);
        const Task task = task_.load(std::memory_order_relaxed);
        void* const argument = argument_.load(std::memory_order_relaxed);
        if (index >= count_.load(std::memory_order_relaxed)) return;
        // Success proves that the job is still the one that was read.
        if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel))
            continue;
        task(argument, index);
        unfinished_.fetch_sub(1, std::memory_order_acq_rel);
        ticket = ticket_.load(std::memory_order_acquire);
    }
}

void ThreadPool::worker() {
    std::uint32_t seen = 0;
    for (;;) {
        for (int looks = 0; job() == seen && looks < looks_before_sleep; ++looks) pause_briefly();
        if (job() == seen) {
            std::unique_lock<std::mutex> lock(mutex_);
            sleeping_.fetch_add(1, std::memory_order_seq_cst);
            work_.wait(lock, [&] { return stopping_ || job() != seen; });
            sleeping_.fetch_sub(1, std::memory_order_seq_cst);
        }
        if (stopping_) return;
        seen = job();
        take_tasks(seen);
    }
}

}  // namespace engine
