// M08: an exception that leaves a callback does not pass through the library. The process ends,
// here a child, and standard error says which callback it was.
#include "check.hpp"

#include <csignal>
#include <functional>
#include <stdexcept>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using test::ids;

/// Runs f in a child process, which must be aborted; returns what it wrote to standard error.
std::string aborted(const std::function<void()>& f) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        const rlimit no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        try {
            f();
        } catch (...) {
            std::fprintf(stderr, "it was thrown through the library\n");
        }
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    char buffer[256];
    for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(count));
    close(ends[0]);
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        test::fail(__FILE__, __LINE__, "the child was not aborted: " + text);
    return text;
}

/// The message names the callback.
void check_names(const std::string& text, const std::string& name) {
    if (text.find(name) == std::string::npos)
        test::fail(__FILE__, __LINE__, name + " is not named: " + text);
}

rkv_runner_config small() {
    rkv_runner_config config = rkv::Runner::config();
    config.layer_count = 1;
    config.query_head_count = 4;
    config.kv_head_count = 4;
    config.head_dim = 64;
    config.thread_count = 2;
    return config;
}

/// A step that is large enough for several threads.
void compute(rkv::PageTable& table, rkv::Runner& runner) {
    const std::uint32_t slot = table.allocate_slot();
    table.reserve(slot, 32);
    rkv::Plan plan = runner.plan();
    plan.set({rkv::plan_row_of_slot(slot, 0, 32)});
    const std::vector<float> in(32 * 4 * 64, 1.0F);
    std::vector<float> out(32 * 4 * 64);
    runner.append_prefill(plan, 0, in, in, in, out);
}

void compute_with(rkv_parallel_for parallel_for) {
    rkv::PageTable table = test::table(17, 4);
    rkv_runner_config config = small();
    config.parallel_for = parallel_for;
    rkv::Runner runner(table, config);
    compute(table, runner);
}

void throws_from_parallel_for() {
    const auto throwing = [](void*, std::size_t, rkv_parallel_task, void*) {
        throw std::runtime_error("no thread is left");
    };
    const char* name = "rkv_runner_config.parallel_for threw an exception";
    check_names(aborted([&] { compute_with(throwing); }), name);
    // The log callback hears of it, too.
    const std::string logged = aborted([&] {
        auto log = [](std::uint32_t, const char* message) {
            std::fprintf(stderr, "logged: %s\n", message);
        };
        rkv::set_log_callback(RKV_LOG_ERROR, log);
        compute_with(throwing);
    });
    check_names(logged, std::string("radixkv: ") + name);
    check_names(logged, std::string("logged: ") + name);
}

void ends_its_thread_in_parallel_for() {
    const auto ending = [](void*, std::size_t, rkv_parallel_task, void*) {
        pthread_exit(nullptr);
    };
    check_names(aborted([&] { compute_with(ending); }), "parallel_for");
}

void throws_from_a_parallel_for_in_cpp() {
    const std::string text = aborted([] {
        rkv::PageTable table = test::table(17, 4);
        rkv::Runner runner(table, small(), [](std::size_t, const rkv::Tasks&) {
            throw std::runtime_error("no thread is left");
        });
        compute(table, runner);
    });
    check_names(text, "the parallel_for of a runner threw: no thread is left");
}

void throws_from_a_destructor() {
    const auto fill = [](rkv::SnapshotCache& cache) {
        auto args = rkv::sized<rkv_snapshot_cache_insert_args>();
        const auto list = ids(1, 3);
        const rkv::TokenView tokens(list);
        args.tokens = tokens.get();
        args.destructor = [](void*, std::uint64_t, void*) { throw 7; };
        cache.insert(args);
    };
    const char* name = "rkv_snapshot_cache_insert_args.destructor threw an exception";
    check_names(aborted([&] {
                    rkv::SnapshotCache cache;
                    fill(cache);
                    (void)cache.remove(ids(1, 3));
                }),
                name);
    check_names(aborted([&] {
                    rkv::SnapshotCache cache;
                    fill(cache);
                }),
                name);
    check_names(aborted([&] {
                    rkv::SnapshotCache cache;
                    fill(cache);
                    rkv::SnapshotPin pin = cache.match(ids(1, 3));
                    cache.reset();
                    pin.reset();
                }),
                name);
}

struct Throws {
    ~Throws() noexcept(false) { throw std::logic_error("not now"); }
};

void throws_from_a_destructor_in_cpp() {
    const std::string text = aborted([] {
        rkv::SnapshotCache cache;
        cache.insert(ids(1, 3), std::make_unique<Throws>(), 1);
        cache.clear();
    });
    check_names(text, "the destructor of a snapshot threw: not now");
}

#ifdef RKV_FAULT_INJECTION
void throws_from_the_log() {
    const auto panic = [] {
        rkv::PageTable table = test::table(17, 4);
        rkv::Cache cache(table);
        [[maybe_unused]] const rkv_status status = rkv_fault_panic(cache.get());
    };
    const std::string raw = aborted([&] {
        rkv_set_log_callback(
            RKV_LOG_ERROR, [](std::uint32_t, const char*, void*) { throw 7; }, nullptr);
        panic();
    });
    check_names(raw, "the callback of rkv_set_log_callback() threw an exception");
    const std::string text = aborted([&] {
        auto log = [](std::uint32_t, const char*) { throw std::runtime_error("disk full"); };
        rkv::set_log_callback(RKV_LOG_ERROR, log);
        panic();
    });
    check_names(text, "the log callback threw: disk full");
}
#endif

}  // namespace

int main() {
    throws_from_parallel_for();
    ends_its_thread_in_parallel_for();
    throws_from_a_parallel_for_in_cpp();
    throws_from_a_destructor();
    throws_from_a_destructor_in_cpp();
#ifdef RKV_FAULT_INJECTION
    throws_from_the_log();
#endif
}
