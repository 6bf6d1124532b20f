// Runs the blocks of a launch, one after another, their threads as fibers.
//
// Order is adversarial: with Schedule::kGreedy one warp runs as far as it can while all others
// starve. Asynchronous copies land when they are issued, as late as is legal, or as a die says.
#pragma once
#include "../arguments.cuh"
#include "fiber.hpp"
#include "shared.hpp"
#include "units.hpp"
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace rkv {
enum class Fault : int;
}

namespace rkv::emulation {

enum class Schedule { kFair, kGreedy };
enum class Landing { kEarly, kLate, kRandom };

struct Settings {
    Schedule schedule = Schedule::kFair;
    Landing landing = Landing::kEarly;
    uint32_t seed = 1;
    int fault = 0;
};

struct Launch {
    uint32_t grid[3];
    uint32_t threads;
    uint32_t shared_bytes;
    bool is_hopper; // has units, and is looked after by clocks
    bool is_early;  // may begin before what was launched before it has ended
    std::function<void()> body;
};

// Whether memory may be touched: nullptr says that all may.
using GlobalCheck = bool (*)(const void *at, size_t bytes);

class Machine {
  public:
    Settings settings;
    GlobalCheck global_check = nullptr;

    // Runs a launch; returns what was wrong, empty when nothing was.
    std::string run(const Launch &launch);

    int thread() const { return current_; }
    uint32_t block(int axis) const { return block_[axis]; }
    SharedMemory &shared() { return shared_; }
    Units &units() { return units_; }

    void barrier();
    void wait_for_launch() { threads_[current_].has_waited = true; }
    void copy(uint32_t to, const void *from);
    void copy_commit();
    void copy_wait(size_t pending);
    void touch_global(const void *at, size_t bytes, size_t alignment);

    // An instruction that all lanes of a warp carry out together: `operation` gets the 32
    // arguments once all are there. `kind` tells instructions apart.
    using WarpOperation = void (*)(void **arguments);
    void warp(const char *kind, void *argument, WarpOperation operation);
    // What lanes of the warp at hand did is known to all of them.
    void order_warp();

    // For instructions that wait: others run meanwhile.
    template <class Done>
    void wait_until(Done done) {
        while (!done()) {
            pause();
        }
        progress_++;
    }
    void progress() { progress_++; }
    uint32_t die(uint32_t sides) { return random_() % sides; }

    [[noreturn]] void give_up(const char *what);
    void run_body();

  private:
    struct PendingCopy {
        uint32_t to;
        const void *from;
        bool landed;
    };
    struct Thread {
        Fiber fiber;
        std::vector<std::vector<PendingCopy>> groups;
        std::vector<PendingCopy> open;
        uint64_t steps = 0;
        bool has_waited = false; // for the launches before
    };
    struct Warp {
        int arrived = 0;
        uint64_t generation = 0;
        const char *kind = nullptr;
        void *arguments[32];
    };

    void run_block(const Launch &launch);
    bool advance(int thread);
    void run_warp_greedily(int warp);
    void pause();
    void land(PendingCopy &copy);

    std::vector<Thread> threads_;
    std::vector<Warp> warps_;
    SharedMemory shared_;
    Units units_{*this};
    bool is_hopper_ = false, is_early_ = false;
    Context main_;
    std::function<void()> body_;
    std::mt19937 random_;
    std::string failure_;
    uint32_t block_[3]{};
    int count_ = 0, current_ = 0, at_barrier_ = 0;
    uint64_t barrier_generation_ = 0, progress_ = 0;
};

Machine &machine();

// Kernels by name. They stay where they are when others are loaded.
struct Kernel {
    const char *name;
    uint32_t threads;
    uint32_t shared_bytes;
    uint32_t argument_bytes;
    bool is_hopper;
    void (*call)(const void *arguments);
};
std::deque<Kernel> &kernels();
const Kernel *find_kernel(const std::string &name);

struct KernelEntry {
    explicit KernelEntry(const Kernel &kernel) { kernels().push_back(kernel); }
};

} // namespace rkv::emulation
