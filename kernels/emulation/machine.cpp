#include "machine.hpp"
#include <algorithm>
#include <numeric>

#if defined(__x86_64__) && !defined(RKV_USE_UCONTEXT)
asm(R"(
.text
.globl rkv_emulation_switch
.type rkv_emulation_switch, @function
rkv_emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size rkv_emulation_switch, .-rkv_emulation_switch
)");
#endif

namespace rkv::emulation {

Machine &machine() {
    static Machine instance;
    return instance;
}

std::deque<Kernel> &kernels() {
    static std::deque<Kernel> list;
    return list;
}

const Kernel *find_kernel(const std::string &name) {
    for (const Kernel &kernel : kernels()) {
        if (name == kernel.name) {
            return &kernel;
        }
    }
    return nullptr;
}

void fail(const char *what) { machine().give_up(what); }

static void fiber_entry() { machine().run_body(); }

void Machine::run_body() {
    body_();
    if (is_early_ && !threads_[current_].has_waited) {
        // Whoever waits for this launch would not have waited for the one before it.
        give_up("a thread ends that has not waited for the launch before");
    }
    threads_[current_].fiber.is_done = true;
    progress_++;
    for (;;) {
        pause();
    }
}

void Machine::give_up(const char *what) {
    if (failure_.empty()) {
        failure_ = std::string(what) + " (thread " + std::to_string(current_) + " of block " +
                   std::to_string(block_[0]) + ", " + std::to_string(block_[1]) + ", " +
                   std::to_string(block_[2]) + ")";
    }
    for (;;) {
        pause();
    }
}

void Machine::pause() { threads_[current_].fiber.context.switch_to(main_); }

bool Machine::advance(int thread) {
    if (threads_[thread].fiber.is_done) {
        return false;
    }
    current_ = thread;
    main_.switch_to(threads_[thread].fiber.context);
    return true;
}

std::string Machine::run(const Launch &launch) {
    failure_.clear();
    random_.seed(settings.seed);
    body_ = launch.body;
    const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    std::vector<uint64_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (uint64_t block : order) {
        block_[0] = static_cast<uint32_t>(block % launch.grid[0]);
        block_[1] = static_cast<uint32_t>(block / launch.grid[0] % launch.grid[1]);
        block_[2] = static_cast<uint32_t>(block / launch.grid[0] / launch.grid[1]);
        run_block(launch);
        if (!failure_.empty()) {
            break;
        }
    }
    body_ = nullptr;
    return failure_;
}

void Machine::run_block(const Launch &launch) {
    count_ = static_cast<int>(launch.threads);
    threads_.resize(std::max<size_t>(threads_.size(), launch.threads));
    warps_.assign((launch.threads + 31) / 32, Warp{});
    is_hopper_ = launch.is_hopper;
    is_early_ = launch.is_early;
    if (is_hopper_) {
        units_.reset(count_, launch.shared_bytes);
    }
    shared_.reset(launch.shared_bytes, is_hopper_ ? &units_.clocks() : nullptr);
    at_barrier_ = 0;
    barrier_generation_ = 0;
    for (int i = 0; i < count_; i++) {
        Thread &thread = threads_[i];
        if (!thread.fiber.stack) {
            thread.fiber.stack.reset(new uint8_t[Fiber::kStackBytes]);
        }
        thread.fiber.is_done = false;
        thread.has_waited = false;
        thread.fiber.context.prepare(thread.fiber.stack.get(), Fiber::kStackBytes, fiber_entry);
        thread.groups.clear();
        thread.open.clear();
    }
    std::vector<int> order(settings.schedule == Schedule::kGreedy ? warps_.size() : launch.threads);
    std::iota(order.begin(), order.end(), 0);
    for (;;) {
        const uint64_t before = progress_;
        std::shuffle(order.begin(), order.end(), random_);
        bool alive = false;
        for (int i : order) {
            if (settings.schedule == Schedule::kGreedy) {
                run_warp_greedily(i);
            } else {
                alive |= advance(i);
            }
            if (!failure_.empty()) {
                return;
            }
        }
        if (settings.schedule == Schedule::kGreedy) {
            for (int i = 0; i < count_; i++) {
                alive |= !threads_[i].fiber.is_done;
            }
        }
        if (!alive) {
            const char *wrong = is_hopper_ ? units_.unfinished() : nullptr;
            failure_ = wrong != nullptr ? wrong : "";
            return;
        }
        if (before == progress_ && !(is_hopper_ && units_.land_some())) {
            failure_ = "deadlock: threads wait for others that will not come";
            return;
        }
    }
}

void Machine::run_warp_greedily(int warp) {
    for (;;) {
        const uint64_t before = progress_;
        for (int lane = warp * 32; lane < std::min(count_, warp * 32 + 32); lane++) {
            advance(lane);
            if (!failure_.empty()) {
                return;
            }
        }
        if (before == progress_) {
            return;
        }
    }
}

void Machine::barrier() {
    if (is_hopper_) {
        units_.sync_some(0, count_);
        return;
    }
    const uint64_t generation = barrier_generation_;
    progress_++;
    if (++at_barrier_ == count_) {
        at_barrier_ = 0;
        barrier_generation_++;
        shared_.barrier();
    } else {
        while (barrier_generation_ == generation) {
            pause();
        }
    }
}

void Machine::warp(const char *kind, void *argument, WarpOperation operation) {
    Warp &warp = warps_[current_ / 32];
    const uint64_t generation = warp.generation;
    if (warp.arrived > 0 && warp.kind != kind) {
        give_up("lanes of a warp meet in different instructions");
    }
    warp.kind = kind;
    warp.arguments[current_ % 32] = argument;
    progress_++;
    if (++warp.arrived == 32) {
        operation(warp.arguments);
        warp.arrived = 0;
        warp.generation++;
    } else {
        while (warp.generation == generation) {
            pause();
        }
    }
}

void Machine::order_warp() {
    if (!is_hopper_) {
        return;
    }
    Clocks &clocks = units_.clocks();
    const int first = current_ / 32 * 32;
    Clock known;
    for (int lane = first; lane < first + 32; lane++) {
        clocks.release(lane, known);
    }
    for (int lane = first; lane < first + 32; lane++) {
        clocks.acquire(lane, known);
    }
}

void Machine::land(PendingCopy &copy) {
    if (!copy.landed) {
        shared_.end_copy(copy.to, copy.from, 16, current_);
        copy.landed = true;
    }
}

void Machine::copy(uint32_t to, const void *from) {
    if (from != nullptr) {
        touch_global(from, 16, 16);
    }
    shared_.begin_copy(to, 16, current_);
    // Where data lands early nobody may rely on it: it counts as under way until it is waited for.
    threads_[current_].open.push_back({to, from, false});
}

void Machine::copy_commit() {
    Thread &thread = threads_[current_];
    thread.groups.push_back(std::move(thread.open));
    thread.open.clear();
}

void Machine::copy_wait(size_t pending) {
    Thread &thread = threads_[current_];
    const bool early = settings.landing == Landing::kEarly ||
                       (settings.landing == Landing::kRandom && random_() % 2 == 0);
    if (early) {
        pending = std::min<size_t>(pending, random_() % 3);
    }
    while (thread.groups.size() > pending) {
        for (PendingCopy &copy : thread.groups.front()) {
            land(copy);
        }
        thread.groups.erase(thread.groups.begin());
    }
}

void Machine::touch_global(const void *at, size_t bytes, size_t alignment) {
    if (reinterpret_cast<uintptr_t>(at) % alignment != 0) {
        give_up("global memory is touched at a misaligned place");
    }
    if (is_early_ && !threads_[current_].has_waited) {
        give_up("global memory is touched before the launch before has ended");
    }
    if (global_check != nullptr && !global_check(at, bytes)) {
        give_up("global memory is touched outside every allocation");
    }
}

} // namespace rkv::emulation
