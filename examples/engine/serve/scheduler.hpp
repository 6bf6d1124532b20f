// Which sequences take part in the next step, and with how many tokens. Memory is asked for here
// alone: pages for the chunks of prompts, pages for tokens that were generated, children of a fork.
#ifndef ENGINE_SERVE_SCHEDULER_HPP
#define ENGINE_SERVE_SCHEDULER_HPP

#include "serve/kv.hpp"
#include "serve/metrics.hpp"
#include "serve/prompt_lookup.hpp"
#include "serve/request_state.hpp"
#include "serve/retained.hpp"

#include <radixkv.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace engine {

/// New tokens of one sequence in a step.
struct StepRow {
    Request* request;
    Branch* branch;
    std::size_t start;
    std::size_t count;
    /// Tokens that may follow, computed with the others: a draft, which the next tokens of the
    /// branch are compared with.
    Draft draft;

    /// Whether the step computes the branch's last token, after which the next one can be drawn.
    [[nodiscard]] bool reaches_end() const { return start + count == branch->tokens.size(); }
};

struct SchedulerConfig {
    /// Sequences that hold pages at once.
    std::size_t max_running = 64;
    /// Prompt tokens that a step computes, of all its requests together; 0: no limit. Generated
    /// tokens are computed in every step, so a long prompt delays the others by a chunk at most.
    std::size_t chunk_size = 512;
    /// Tokens that a step drafts for each sequence that generates, in each branch; 0: none.
    std::size_t speculate = 0;
    /// Branches of a draft.
    std::size_t speculate_branches = 1;
};

class Scheduler {
public:
    Scheduler(const SchedulerConfig& config, Kv& kv, Retained& retained, Metrics& metrics)
        : config_(config), kv_(kv), retained_(retained), metrics_(metrics) {}

    void add(std::unique_ptr<Request> request);
    /// NULL when it isn't here (any more).
    [[nodiscard]] Request* find(std::uint64_t number);
    /// Takes a request out, its memory with it. NULL when it isn't here (any more).
    [[nodiscard]] std::unique_ptr<Request> remove(std::uint64_t number);

    /// Requests that hold no pages, and those that do.
    [[nodiscard]] std::size_t waiting() const { return requests_.size() - running(); }
    [[nodiscard]] std::size_t running() const;
    /// The first request of which something is true; NULL when there is none.
    template <class F> [[nodiscard]] const Request* first(F is_true) const {
        for (const auto& request : requests_)
            if (is_true(*request)) return request.get();
        return nullptr;
    }

    /// The rows of the next step, in order of arrival. When memory is short, the sequences that
    /// came last give theirs back and wait. Empty only when no request is here. Throws rkv::Error
    /// when the library reports other than a shortage; then blamed() says whose call that was.
    [[nodiscard]] const std::vector<StepRow>& plan();
    /// Carries out the copies of tiers, and lets sequences go on whose pages have come. Whether
    /// anything was done.
    bool take_fetched();
    /// Whether a sequence waits for pages.
    [[nodiscard]] bool is_fetching() const;
    /// The request that take_fetched() or plan() was busy with when it threw. If that was about no
    /// request alone, the last one of the step that was planned, of those that run, or else of all:
    /// what fails each time must not be tried for ever. 0 when none is here.
    [[nodiscard]] std::uint64_t blamed() const;

    /// Tells the library what a step computed. Who comes next finds it, unless the requests don't
    /// publish; windows slide; states are saved where they should be.
    void note_computed(const std::vector<StepRow>& rows);
    /// Says which tokens of a row's draft hold, one after another: the library forgets the rest. K
    /// and V of what holds are where they belong by now.
    void settle_draft(const StepRow& row, const std::vector<std::size_t>& accepted);
    /// Tells the library what is computed of a branch.
    void publish(Branch& branch);
    /// Children of a branch that is computed to its end. As many as asked for, or as there is
    /// memory for: the others begin later, by a lookup.
    [[nodiscard]] std::vector<rkv::Sequence> fork(Branch& parent, std::size_t count);

private:
    SchedulerConfig config_;
    Kv& kv_;
    Retained& retained_;
    Metrics& metrics_;
    /// In order of arrival.
    std::vector<std::unique_ptr<Request>> requests_;
    std::vector<StepRow> rows_;
    /// 0 while it is about all of them.
    std::uint64_t blamed_ = 0;
    /// For calls over many sequences, kept from step to step.
    std::vector<rkv_sequence_append_item> added_;
    std::vector<Branch*> extended_;
    std::vector<Branch*> to_publish_;
    std::vector<rkv_sequence_publish_item> published_;
    std::vector<rkv_status> statuses_;

    [[nodiscard]] std::size_t holding() const;
    void extend_running();
    void publish_many(const std::vector<Branch*>& branches);
    bool plan_running(std::size_t& budget);
    void admit(std::size_t& budget);
    void prefetch_waiting();
    [[nodiscard]] bool admit_branch(Request& request, Branch& branch);
    void forget_drafts();
    [[nodiscard]] bool has_plenty() const;
    void add_drafts();
    void add_draft(StepRow& row, bool plenty);
    void take_row(Request& request, Branch& branch, std::size_t& budget);
    [[nodiscard]] bool allocate(Branch& branch, std::size_t budget);
    [[nodiscard]] bool allocate_all(Branch& branch);
    [[nodiscard]] bool make_room(const rkv_shortage& lack);
    [[nodiscard]] bool extend(Branch& branch);
    [[nodiscard]] bool begin(Request& request, Branch& branch);
    [[nodiscard]] rkv::Sequence open(const Request& request, const Branch& branch,
                                     rkv_sequence_info& state);
    void count_begin(Request& request, const rkv_sequence_info& state);
    [[nodiscard]] bool has_slot(const Request& request) const;
    [[nodiscard]] bool may_fit(const Request& request, const Branch& branch) const;
    [[nodiscard]] std::uint64_t growth(std::uint32_t group, const Request& request) const;
    [[nodiscard]] std::uint64_t pages_needed(std::uint32_t group, std::uint64_t positions) const;
    [[nodiscard]] bool saves_states(const Request& request, const Branch& branch) const;
    [[nodiscard]] std::array<std::size_t, 2> where_to_save(const Request& request,
                                                           const Branch& branch) const;
    void preempt(Request& request, Branch& branch);
    void preempt_last();
    [[nodiscard]] bool preempt_idle(const Request& claimant);
};

}  // namespace engine

#endif  // ENGINE_SERVE_SCHEDULER_HPP
