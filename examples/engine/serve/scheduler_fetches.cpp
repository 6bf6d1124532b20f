// What tiers below the device bring to requests: to those that run, and ahead to those that wait.
#include "serve/scheduler.hpp"

#include <algorithm>
#include <exception>

namespace engine {

namespace {

/// Requests that wait, so many of them, have their prompts brought nearer.
constexpr std::size_t prefetch_depth = 8;

}  // namespace

bool Scheduler::take_fetched() {
    // Those of the step before, which may have gone: nobody is in this one yet.
    rows_.clear();
    Tiers* tiers = kv_.tiers();
    if (tiers == nullptr) return false;
    blamed_ = 0;
    const bool worked = tiers->step();
    // The others hear of their ends, whatever becomes of one.
    std::exception_ptr failed;
    for (const rkv_fetch_end& end : tiers->ended()) {
        for (const auto& request : requests_) {
            for (const auto& branch : request->branches) {
                if (!branch->fetches || branch->sequence.get() != end.sequence) continue;
                const auto positions = static_cast<std::size_t>(end.position_count);
                const std::size_t more = positions - std::min(positions, branch->computed);
                branch->fetches = false;
                try {
                    kv_.carry_out_copies(branch->sequence);
                } catch (...) {
                    failed = std::current_exception();
                    blamed_ = request->number;
                    // Several may fail, and one of them is blamed: none goes on without its copies.
                    preempt(*request, *branch);
                    continue;
                }
                branch->computed = positions;
                // Rows that were shorter have pages up to there now.
                branch->allocated = std::max(branch->allocated, positions);
                branch->published_pages = positions / kv_.cache().page_size();
                // Who lost its pages had computed them itself, and samples share their prompt.
                if (request->preemptions == 0 && !request->branched)
                    request->cached_tokens += more;
                metrics_.fetched_tokens += more;
            }
        }
    }
    if (failed) std::rethrow_exception(failed);
    return worked;
}

bool Scheduler::is_fetching() const {
    for (const auto& request : requests_)
        for (const auto& branch : request->branches)
            if (branch->fetches) return true;
    return false;
}

/// Whoever has not begun waits for pages, a slot or its turn: what the disk or a server has of its
/// prompt comes to host memory meanwhile.
void Scheduler::prefetch_waiting() {
    Tiers* tiers = kv_.tiers();
    if (tiers == nullptr) return;
    std::size_t count = 0;
    for (const auto& request : requests_) {
        if (request->began || !request->publishes) continue;
        if (++count > prefetch_depth) return;
        if (request->prefetch) continue;
        blamed_ = request->number;
        request->prefetch = tiers->prefetch(request->spec.prompt, request->name_space);
        if (!request->prefetch) return;
    }
}

}  // namespace engine
