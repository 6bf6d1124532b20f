// Threads of a block: fibers, which give way only where the emulator says so.
#pragma once
#include <cstdint>
#include <memory>

#if !defined(__x86_64__) || defined(RKV_USE_UCONTEXT)
#include <ucontext.h>
#endif

namespace rkv::emulation {

using FiberBody = void (*)();

#if defined(__x86_64__) && !defined(RKV_USE_UCONTEXT)

// Saves what a call must preserve, and goes on where `to` left off.
extern "C" void rkv_emulation_switch(void **from, void *to);

class Context {
  public:
    void prepare(uint8_t *stack, size_t bytes, FiberBody body) {
        auto top = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15};
        void **at = reinterpret_cast<void **>(top);
        *--at = nullptr; // no caller
        *--at = reinterpret_cast<void *>(body);
        for (int i = 0; i < 6; i++) {
            *--at = nullptr;
        }
        pointer_ = at;
    }
    void switch_to(Context &other) { rkv_emulation_switch(&pointer_, other.pointer_); }

  private:
    void *pointer_ = nullptr;
};

#else

class Context {
  public:
    void prepare(uint8_t *stack, size_t bytes, FiberBody body) {
        getcontext(&context_);
        context_.uc_stack.ss_sp = stack;
        context_.uc_stack.ss_size = bytes;
        context_.uc_link = nullptr;
        makecontext(&context_, body, 0);
    }
    void switch_to(Context &other) { swapcontext(&context_, &other.context_); }

  private:
    ucontext_t context_{};
};

#endif

struct Fiber {
    static constexpr size_t kStackBytes = 64 << 10;
    Context context;
    std::unique_ptr<uint8_t[]> stack;
    bool is_done = false;
};

} // namespace rkv::emulation
