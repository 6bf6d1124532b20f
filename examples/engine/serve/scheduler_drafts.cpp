// What sequences that generate are told ahead: drafts, and which pages those may have.
#include "serve/scheduler.hpp"

#include <algorithm>
#include <exception>

namespace engine {

/// A step that failed before it was computed left the drafts that were told for it: what comes next
/// would be told behind them, and be found by whoever has them there.
void Scheduler::forget_drafts() {
    for (const auto& request : requests_) {
        for (const auto& branch : request->branches) {
            if (branch->drafted == 0) continue;
            blamed_ = request->number;
            branch->sequence.truncate(branch->sequence_tokens);
            branch->drafted = 0;
        }
    }
}

/// Whether there are pages for all that runs, up to the last token of each. Then a draft that ends
/// where its sequence may get to takes nothing from others: only sooner what it is to have.
bool Scheduler::has_plenty() const {
    for (std::uint32_t group = 0; group < kv_.groups().list().size(); ++group) {
        // A window passes by what a draft takes.
        const std::uint64_t beside = group > 0 ? kv_.pages_for(tree_limit) + 1 : 0;
        std::uint64_t needed = 0;
        for (const auto& request : requests_) {
            if (!request->holds_pages()) continue;
            const RequestSpec& spec = request->spec;
            const std::uint64_t all =
                pages_needed(group, spec.prompt.size() - 1 + spec.max_tokens) + beside;
            needed += request->width() * all;
            for (const auto& branch : request->branches)
                needed -= std::min(kv_.pages_for(branch->paged()), all - beside);
        }
        const rkv_pool_stats pool = kv_.table().pool_stats(group);
        if (needed > pool.free_page_count + pool.reclaimable_page_count) return false;
    }
    return true;
}

void Scheduler::add_drafts() {
    if (config_.speculate == 0) return;
    const bool plenty = has_plenty();
    for (StepRow& row : rows_) add_draft(row, plenty);
}

/// Tells a sequence that generates what may come next. A state can't be taken back to where a draft
/// goes wrong; beams are not drawn; and a stop string might end the text inside of what is
/// retained. The library leaves a sequence the pages of what did not hold: so where pages may get
/// short, a draft has room in those that the sequence has.
void Scheduler::add_draft(StepRow& row, bool plenty) {
    const RequestSpec& spec = row.request->spec;
    Branch& branch = *row.branch;
    const std::size_t generated = row.request->generated(branch);
    if (row.count != 1 || !row.reaches_end() || generated == 0) return;
    if (spec.searches() || kv_.has_states() || (spec.retain && !spec.stop.empty())) return;
    // The last token is drawn, not computed.
    std::size_t most = spec.max_tokens - generated - 1;
    const std::uint64_t room = kv_.pages_for(branch.paged()) * kv_.cache().page_size();
    if (!plenty) most = std::min<std::size_t>(most, room - branch.sequence_tokens);
    const std::size_t of_branch = std::min(config_.speculate, most);
    try {
        row.draft = prompt_lookup(branch.tokens, of_branch, config_.speculate_branches, most);
        if (row.draft.empty()) return;
        branch.sequence.append(row.draft.tokens);
    } catch (const std::exception&) {
        // There are no pages, no memory, or the text may not get so long; it does without.
        row.draft = {};
        return;
    }
    branch.drafted = row.draft.size();
    branch.longest_draft = std::max(branch.longest_draft, branch.sequence_tokens + branch.drafted);
    metrics_.drafted_tokens += row.draft.size();
}

void Scheduler::settle_draft(const StepRow& row, const std::vector<std::size_t>& accepted) {
    // The pages stay the sequence's, so there are some for what is appended again.
    row.branch->sequence.truncate(row.start + row.count);
    row.branch->drafted = 0;
    if (!accepted.empty()) row.branch->sequence.append(row.draft.path(accepted));
}

}  // namespace engine
