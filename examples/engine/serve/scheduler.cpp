#include "serve/scheduler.hpp"

#include "serve/prompt_lookup.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace engine {

namespace {

template <class Requests> auto place_of(Requests& requests, std::uint64_t number) {
    return std::lower_bound(
        requests.begin(), requests.end(), number,
        [](const std::unique_ptr<Request>& request, std::uint64_t n) {
            return request->number < n;
        });
}

/// The last branch that holds pages, if it can be one with nothing to do; NULL when none holds any.
Branch* last_holder(const Request& request) {
    Branch* last = nullptr;
    for (auto branch = request.branches.rbegin(); branch != request.branches.rend(); ++branch) {
        if ((*branch)->idle()) return branch->get();
        if (last == nullptr && (*branch)->holds_pages()) last = branch->get();
    }
    return last;
}

/// New tokens of a branch in a step. Chunks of prompts share the budget, and end where states are
/// to be saved; a generated token is always computed.
std::size_t step_count(const Branch& branch, std::size_t budget) {
    std::size_t count = branch.to_compute();
    if (count <= 1) return count;
    for (const std::size_t place : branch.save_at)
        if (place > branch.computed) count = std::min(count, place - branch.computed);
    return std::min(count, budget);
}

}  // namespace

void Scheduler::add(std::unique_ptr<Request> request) {
    requests_.insert(place_of(requests_, request->number), std::move(request));
}

Request* Scheduler::find(std::uint64_t number) {
    const auto place = place_of(requests_, number);
    return place != requests_.end() && (*place)->number == number ? place->get() : nullptr;
}

std::unique_ptr<Request> Scheduler::remove(std::uint64_t number) {
    if (find(number) == nullptr) return nullptr;
    const auto place = place_of(requests_, number);
    std::unique_ptr<Request> request = std::move(*place);
    requests_.erase(place);
    for (const auto& branch : request->branches) branch->release_pages();
    if (Tiers* tiers = kv_.tiers(); tiers != nullptr && request->prefetch.value_or(0) != 0)
        tiers->cancel_prefetch(*request->prefetch);
    return request;
}

std::size_t Scheduler::running() const {
    const auto count = std::count_if(requests_.begin(), requests_.end(),
                                     [](const auto& request) { return request->holds_pages(); });
    return static_cast<std::size_t>(count);
}

std::uint64_t Scheduler::blamed() const {
    if (blamed_ != 0 || requests_.empty()) return blamed_;
    if (!rows_.empty()) return rows_.back().request->number;
    const Request* holds = nullptr;
    const Request* runs = nullptr;
    for (const auto& request : requests_) {
        for (const auto& branch : request->branches) {
            if (!branch->holds_pages()) continue;
            holds = request.get();
            // Whose pages are on their way holds some, and waits.
            if (branch->to_compute() > 0) runs = request.get();
        }
    }
    if (runs != nullptr) return runs->number;
    return holds != nullptr ? holds->number : requests_.back()->number;
}

/// Sequences that hold pages.
std::size_t Scheduler::holding() const {
    std::size_t count = 0;
    for (const auto& request : requests_)
        for (const auto& branch : request->branches) count += branch->holds_pages() ? 1 : 0;
    return count;
}

const std::vector<StepRow>& Scheduler::plan() {
    rows_.clear();
    forget_drafts();
    std::size_t budget = config_.chunk_size > 0 ? config_.chunk_size
                                                : std::numeric_limits<std::size_t>::max();
    const bool preempted = plan_running(budget);
    // What was just taken from one sequence is for those that run, not for another to begin with.
    if (!preempted || rows_.empty()) admit(budget);
    prefetch_waiting();
    // Whoever was looked at last may wait: what comes now is none of its concern.
    blamed_ = 0;
    add_drafts();
    return rows_;
}

/// Tells the sequences that run the tokens that were generated, in one call. Where there is no page
/// left for one, nothing is told of it: extend() does that, once others have given way.
void Scheduler::extend_running() {
    blamed_ = 0;
    added_.clear();
    extended_.clear();
    for (const auto& request : requests_) {
        for (const auto& branch : request->branches) {
            const std::size_t known = branch->sequence_tokens;
            if (!branch->holds_pages() || branch->to_compute() == 0) continue;
            if (known == branch->tokens.size()) continue;
            added_.push_back({branch->sequence.get(), branch->tokens.data() + known,
                              branch->tokens.size() - known, nullptr});
            extended_.push_back(branch.get());
        }
    }
    statuses_.resize(added_.size());
    kv_.cache().append_many(added_, statuses_);
    for (std::size_t i = 0; i < extended_.size(); ++i)
        if (statuses_[i] == RKV_STATUS_OK) extended_[i]->knows_all();
}

/// Returns whether a sequence lost its pages.
bool Scheduler::plan_running(std::size_t& budget) {
    bool preempted = false;
    extend_running();
    // Whoever gives way is behind the branch at hand, or is it, or has no row: rows_ stays good.
    for (const auto& request : requests_) {
        blamed_ = request->number;
        for (const auto& branch : request->branches) {
            if (!branch->holds_pages() || branch->to_compute() == 0) continue;
            while (branch->holds_pages() && !(extend(*branch) && allocate(*branch, budget))) {
                preempt_last();
                preempted = true;
            }
            if (branch->holds_pages()) take_row(*request, *branch, budget);
        }
    }
    return preempted;
}

/// A sequence begins only in a step that computes some of it: so it finds in the cache what others
/// have published up to then. Whoever came first begins first; the others wait for it.
void Scheduler::admit(std::size_t& budget) {
    for (const auto& request : requests_) {
        for (const auto& branch : request->branches) {
            if (branch->holds_pages() || branch->to_compute() == 0) continue;
            if (budget == 0) return;
            if (request->computes_prompt()) break;
            if (!admit_branch(*request, *branch)) return;
            if (branch->fetches) continue;
            // The library begins a sequence that has room for a window and a token of its chunk.
            while (!allocate(*branch, budget))
                if (!preempt_idle(*request)) return;
            take_row(*request, *branch, budget);
        }
    }
}

bool Scheduler::admit_branch(Request& request, Branch& branch) {
    blamed_ = request.number;
    while (!has_slot(request) || !may_fit(request, branch) || !begin(request, branch))
        if (!preempt_idle(request)) return false;
    return true;
}

void Scheduler::take_row(Request& request, Branch& branch, std::size_t& budget) {
    const std::size_t count = step_count(branch, budget);
    if (branch.to_compute() > 1) budget -= count;
    if (count > 0) rows_.push_back({&request, &branch, branch.computed, count, {}});
}

/// The pages of all that is known. False when there are none.
bool Scheduler::allocate_all(Branch& branch) {
    try {
        branch.sequence.allocate(branch.sequence_tokens);
    } catch (const rkv::OutOfPages&) {
        return false;
    }
    branch.allocated = branch.sequence_tokens;
    return true;
}

/// The pages of what a step is to compute. False when there are none: others have grown since the
/// prompt began.
bool Scheduler::allocate(Branch& branch, std::size_t budget) {
    const std::size_t end = branch.computed + step_count(branch, budget);
    while (end > branch.allocated) {
        try {
            branch.sequence.allocate(end);
            branch.allocated = end;
        } catch (const rkv::OutOfPages& error) {
            // Others that run give way by themselves, or end. Windows of a chunk may lack even
            // where it is alone: what is retained keeps some.
            if (holding() > 1 || !make_room(error.shortage())) return false;
        }
    }
    return true;
}

/// Drops retained sequences for what lacks. False if there was none.
bool Scheduler::make_room(const rkv_shortage& lack) {
    const auto lacking =
        lack.needed_page_count - lack.free_page_count - lack.reclaimable_page_count;
    return retained_.make_room(lack.pool, lacking);
}

/// Tells one sequence the token that was generated, if it doesn't know it yet. False when there is
/// no page for it.
bool Scheduler::extend(Branch& branch) {
    if (branch.sequence_tokens == branch.tokens.size()) return true;
    const rkv::span<const std::uint32_t> added(branch.tokens.data() + branch.sequence_tokens,
                                               branch.tokens.size() - branch.sequence_tokens);
    try {
        branch.sequence.append(added);
    } catch (const rkv::OutOfPages&) {
        return false;
    }
    branch.knows_all();
    return true;
}

/// A request of many sequences does not begin before it can have them all at once, unless it is
/// alone.
bool Scheduler::has_slot(const Request& request) const {
    if (request.holds_pages()) return holding() < config_.max_running;
    std::size_t taken = 0;
    for (const auto& other : requests_) taken += other->holds_pages() ? other->width() : 0;
    return taken == 0 || taken + request.width() <= config_.max_running;
}

/// Pages of a group that the sequences that run will still take, and the children of a request.
std::uint64_t Scheduler::growth(std::uint32_t group, const Request& request) const {
    std::uint64_t growing = request.branched ? 0 : request.width() - 1;
    const bool is_state = kv_.groups().list()[group].kind == LayerKind::delta_net;
    for (const auto& other : requests_) {
        for (const auto& one : other->branches) {
            if (!one->holds_pages() || one->idle()) continue;
            const std::uint64_t needed = pages_needed(group, one->sequence_tokens);
            growing += needed - std::min(kv_.pages_for(one->allocated), needed);
            // By a page as it generates, unless a draft had it take that; a state stays one.
            const bool has_more =
                kv_.pages_for(one->paged()) > kv_.pages_for(one->sequence_tokens);
            growing += is_state || has_more ? 0 : 1;
        }
    }
    return growing;
}

std::uint64_t Scheduler::pages_needed(std::uint32_t group, std::uint64_t positions) const {
    return kv_.groups().pages_for(group, positions, config_.chunk_size, kv_.cache().page_size());
}

/// Whether it is worth trying to begin. Each sequence that runs, and each that a request will have,
/// is left a page to grow by, and each prompt the pages of its chunks to come; what is cached of
/// the tokens needs no new page.
bool Scheduler::may_fit(const Request& request, const Branch& branch) const {
    if (holding() == 0) return true;
    // In other groups nothing of what is cached is taken off: windows and states are few.
    for (std::uint32_t group = 1; group < kv_.groups().list().size(); ++group) {
        const rkv_pool_stats pool = kv_.table().pool_stats(group);
        if (pages_needed(group, branch.tokens.size()) + growth(group, request) >
            pool.free_page_count + pool.reclaimable_page_count)
            return false;
    }
    const std::uint64_t growing = growth(0, request);
    const std::size_t headroom = growing * kv_.cache().page_size();
    if (kv_.table().can_reserve_new(branch.tokens.size() + headroom)) return true;
    const rkv::Probe probe = kv_.cache().probe(branch.tokens, request.name_space);
    const rkv_page_table_stats pages = kv_.table().stats();
    const std::uint64_t shared = probe.position_count / kv_.cache().page_size();
    return kv_.pages_for(branch.tokens.size()) - shared + growing <=
           pages.free_page_count + pages.reclaimable_page_count;
}

/// The library says where the next request will look for states.
std::array<std::size_t, 2> Scheduler::where_to_save(const Request& request,
                                                    const Branch& branch) const {
    if (!kv_.has_states() || !request.publishes) return {};
    const rkv_group_depths depths =
        kv_.cache().probe_groups(branch.tokens, request.name_space).depths;
    return {static_cast<std::size_t>(depths.checkpoint_at[0]),
            static_cast<std::size_t>(depths.checkpoint_at[1])};
}

bool Scheduler::begin(Request& request, Branch& branch) {
    auto state = rkv::sized<rkv_sequence_info>();
    branch.save_at = where_to_save(request, branch);
    for (;;) {
        try {
            branch.sequence = open(request, branch, state);
            break;
        } catch (const rkv::OutOfPages& error) {
            // Others that run give way by themselves, or end.
            if (holding() > 0) return false;
            // With nothing running, the pool without retained sequences holds any request that was
            // accepted. They are kept as long as nobody has to wait for ever because of them.
            if (!make_room(error.shortage())) throw;
        }
    }
    branch.sequence_tokens = branch.tokens.size();
    const std::uint64_t in_pages = state.page_count * kv_.cache().page_size();
    branch.allocated = std::min(static_cast<std::size_t>(in_pages), branch.sequence_tokens);
    branch.computed = static_cast<std::size_t>(state.cached_token_count);
    branch.published_pages = branch.computed / kv_.cache().page_size();
    if (!request.began) count_begin(request, state);
    // What comes goes into pages that are there: of one group those of the whole prompt. With
    // several groups the fetch takes what it needs, of windows the last pages alone.
    if (Tiers* tiers = kv_.tiers(); tiers != nullptr && request.publishes &&
                                    tiers->looks_good(branch.sequence) &&
                                    (!kv_.groups().is_single() || allocate_all(branch)))
        branch.fetches = tiers->fetch(branch.sequence);
    if (!branch.fetches) kv_.carry_out_copies(branch.sequence);
    return true;
}

/// A continuation goes on from its parent. Whoever lost its pages begins by a lookup: it finds what
/// the parent has, and what it had itself. There must be pages for the whole prompt; what is not
/// reused gets them chunk by chunk.
rkv::Sequence Scheduler::open(const Request& request, const Branch& branch,
                              rkv_sequence_info& state) {
    rkv::Cache& cache = kv_.cache();
    if (request.spec.continuation && !request.began) {
        if (const auto parent = retained_.parent_of(*request.spec.continuation)) {
            const rkv::span<const std::uint32_t> suffix(
                branch.tokens.data() + parent->sequence_tokens,
                branch.tokens.size() - parent->sequence_tokens);
            return cache.continue_or_begin(parent->sequence, suffix, branch.tokens,
                                           request.name_space, 0, 0, &state, 1);
        }
    }
    return cache.begin(branch.tokens, request.name_space, 0, &state, 1);
}

void Scheduler::count_begin(Request& request, const rkv_sequence_info& state) {
    request.began = true;
    request.cached_tokens = static_cast<std::size_t>(state.cached_token_count);
    metrics_.prompt_tokens += request.spec.prompt.size();
    if (state.inherited_position_count > 0) {
        request.inherited_tokens = request.cached_tokens;
        metrics_.inherited_tokens += request.inherited_tokens;
        ++metrics_.continuations;
        return;
    }
    if (request.spec.continuation) ++metrics_.continuation_fallbacks;
    metrics_.cached_tokens += request.cached_tokens;
    ++(request.cached_tokens > 0 ? metrics_.cache_hits : metrics_.cache_misses);
}

/// What it published may still be there when its turn comes again.
void Scheduler::preempt(Request& request, Branch& branch) {
    branch.release_pages();
    ++request.preemptions;
    ++metrics_.preemptions;
}

/// The request that came last gives back the memory of a sequence, which waits with all that it has
/// generated.
void Scheduler::preempt_last() {
    const auto last = std::find_if(requests_.rbegin(), requests_.rend(),
                                   [](const auto& request) { return request->holds_pages(); });
    preempt(**last, *last_holder(**last));
}

/// Makes room for a sequence that wants to begin: of its own request, a beam that waits for the
/// others gives way to them. When nothing is left that could be computed, so do other requests'.
bool Scheduler::preempt_idle(const Request& claimant) {
    for (auto request = requests_.rbegin(); request != requests_.rend(); ++request) {
        if (request->get() != &claimant && !rows_.empty()) continue;
        Branch* branch = last_holder(**request);
        if (branch == nullptr || !branch->idle()) continue;
        preempt(**request, *branch);
        return true;
    }
    return false;
}

/// Pages are published after every chunk, and as generated tokens fill them.
void Scheduler::note_computed(const std::vector<StepRow>& rows) {
    to_publish_.clear();
    for (const StepRow& row : rows) {
        Branch& branch = *row.branch;
        branch.computed += row.count;
        if (!row.request->publishes && kv_.has_windows())
            branch.sequence.slide(branch.computed);
        if (row.request->publishes &&
            branch.computed / kv_.cache().page_size() != branch.published_pages)
            to_publish_.push_back(&branch);
    }
    publish_many(to_publish_);
    for (const StepRow& row : rows) {
        Branch& branch = *row.branch;
        if (saves_states(*row.request, branch))
            ++(kv_.save_states(branch.sequence) ? metrics_.saved_states : metrics_.unsaved_states);
    }
}

/// Where the next request will look for states; and where a page of an answer ends, since the next
/// turn goes on from its last one. Of those the cache keeps a few.
bool Scheduler::saves_states(const Request& request, const Branch& branch) const {
    if (!kv_.has_states() || !request.publishes || branch.computed == 0) return false;
    const auto& places = branch.save_at;
    if (std::find(places.begin(), places.end(), branch.computed) != places.end()) return true;
    return branch.computed > request.spec.prompt.size() &&
           branch.computed % kv_.cache().page_size() == 0;
}

void Scheduler::publish(Branch& branch) {
    branch.sequence.publish(branch.computed);
    branch.published_pages = branch.computed / kv_.cache().page_size();
}

/// The same for many in one call. One that fails is asked again alone, and throws.
void Scheduler::publish_many(const std::vector<Branch*>& branches) {
    published_.clear();
    for (const Branch* branch : branches)
        published_.push_back({branch->sequence.get(), branch->computed});
    const rkv::PublishedMany done = kv_.cache().publish_many(published_);
    for (std::size_t i = 0; i < branches.size(); ++i) {
        if (done.statuses[i] != RKV_STATUS_OK) publish(*branches[i]);
        branches[i]->published_pages = branches[i]->computed / kv_.cache().page_size();
    }
}

std::vector<rkv::Sequence> Scheduler::fork(Branch& parent, std::size_t count) {
    count = std::min<std::size_t>(count, kv_.table().stats().free_slot_count);
    if (count == 0 || !parent.holds_pages()) return {};
    // Children take over what is computed as far as the library knows of it.
    publish(parent);
    std::vector<rkv::Sequence> children;
    try {
        children = parent.sequence.fork(count);
    } catch (const rkv::OutOfPages&) {
    }
    try {
        while (children.size() < count)
            children.push_back(std::move(parent.sequence.fork(1).front()));
    } catch (const rkv::OutOfPages&) {
    }
    for (rkv::Sequence& child : children) kv_.carry_out_copies(child);
    return children;
}

}  // namespace engine
