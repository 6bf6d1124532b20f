// A request inside the engine: one sequence at first, then as many as it has samples or beams.
#ifndef ENGINE_SERVE_REQUEST_STATE_HPP
#define ENGINE_SERVE_REQUEST_STATE_HPP

#include "serve/beam_search.hpp"
#include "serve/request.hpp"
#include "serve/text.hpp"

#include <radixkv.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace engine {

using Clock = std::chrono::steady_clock;

/// A token of a beam, told when the search is over.
struct BeamToken {
    std::uint32_t id;
    std::string text;
    TokenLogprobs logprobs;
};

/// One sequence of a request: a sample, or a beam. It holds pages, or waits for some; what it has
/// generated stays with it either way.
struct Branch {
    Branch(const RequestSpec& spec, std::size_t which)
        : number(which), tokens(spec.prompt), text(spec.stop) {}

    /// Which sample it is. Beams are not numbered.
    std::size_t number;
    /// The prompt and what was generated.
    std::vector<std::uint32_t> tokens;
    /// Owns the pages; empty while the branch waits.
    rkv::Sequence sequence;
    /// Tokens that the sequence knows of: all but at most the one just generated.
    std::size_t sequence_tokens = 0;
    /// Tokens of a draft that the sequence was told behind those: of a step that is not over.
    std::size_t drafted = 0;
    /// Tokens that have pages: those of a prompt come with its chunks.
    std::size_t allocated = 0;
    /// Where the longest draft ended: so far there are pages, also where it did not hold.
    std::size_t longest_draft = 0;
    /// Tokens whose KV is in the pages. What is left of `tokens` is to be computed.
    std::size_t computed = 0;
    /// Pages are on their way from a tier: until they are there nothing is computed.
    bool fetches = false;
    /// Whole pages of the beginning that are in the cache.
    std::size_t published_pages = 0;
    /// After how many tokens to save the states of recurrent layers, for others to begin there; 0:
    /// nowhere. No chunk goes across.
    std::array<std::size_t, 2> save_at{};
    OutputText text;
    /// Of all generated tokens together, where choices are ranked by it.
    double logprob = 0;
    /// When the latest token was drawn.
    Clock::time_point latest;
    std::optional<Finish> finished;

    /// For beams: what may come next, from when it is computed until it is for all beams.
    std::vector<Candidate> candidates;
    /// The likeliest tokens at that place, if they were asked for.
    std::vector<std::pair<std::uint32_t, double>> top;
    std::vector<BeamToken> beam_tokens;

    [[nodiscard]] bool holds_pages() const noexcept { return static_cast<bool>(sequence); }
    [[nodiscard]] std::size_t to_compute() const noexcept {
        return finished || fetches || !candidates.empty() ? 0 : tokens.size() - computed;
    }
    /// Holds pages and has nothing to do with them for now.
    [[nodiscard]] bool idle() const noexcept {
        return holds_pages() && !fetches && to_compute() == 0;
    }
    /// Positions that have pages.
    [[nodiscard]] std::size_t paged() const noexcept {
        return allocated > longest_draft ? allocated : longest_draft;
    }
    /// The sequence was told all tokens, and has pages for them.
    void knows_all() noexcept { sequence_tokens = allocated = tokens.size(); }
    /// Gives its pages back. They are computed again when there is need.
    void release_pages();
    /// Takes over what another branch has, all but its pages.
    [[nodiscard]] std::unique_ptr<Branch> copy() const;
    /// Takes over a sequence with as many computed tokens as the branch `from`.
    void adopt(rkv::Sequence sequence_of_child, const Branch& from);
};

struct Request {
    Request(std::uint64_t number, RequestSpec what, std::shared_ptr<Listener> who);

    /// Order of arrival: who came first is served first and gives way last.
    std::uint64_t number;
    RequestSpec spec;
    std::shared_ptr<Listener> listener;
    rkv::Namespace name_space;
    /// Whether its pages are put into the cache.
    bool publishes = true;
    /// Never empty. One until its prompt is computed. Of a search, the best beam first.
    std::vector<std::unique_ptr<Branch>> branches;
    bool branched = false;
    /// When it came, and when its first token was known.
    Clock::time_point submitted = Clock::now();
    std::optional<Clock::time_point> first_token;
    std::size_t cached_tokens = 0, inherited_tokens = 0, preemptions = 0;
    bool began = false;
    /// While it waits, what tiers have of its prompt comes nearer; by this that is cancelled.
    /// None as long as there was no room for that.
    std::optional<rkv_prefetch_id> prefetch;

    [[nodiscard]] std::size_t generated(const Branch& branch) const {
        return branch.tokens.size() - spec.prompt.size();
    }
    [[nodiscard]] bool holds_pages() const;
    /// Sequences that it has or will have at once.
    [[nodiscard]] std::size_t width() const;
    /// Whether a branch is at work on the prompt, which the others will find in the cache.
    [[nodiscard]] bool computes_prompt() const;
    /// Whether log probabilities of whole outputs are wanted.
    [[nodiscard]] bool ranks() const {
        return spec.searches() || spec.sample_count > spec.choice_count;
    }
    /// The beams' measure: by token if samples of different lengths are compared.
    [[nodiscard]] double score(const Branch& branch) const;
    /// The branches to return, in this order; when all have finished.
    [[nodiscard]] std::vector<Branch*> answer() const;
};

}  // namespace engine

#endif  // ENGINE_SERVE_REQUEST_STATE_HPP
