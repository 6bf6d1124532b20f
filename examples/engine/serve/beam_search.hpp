// Beam search, as far as it is arithmetic: which beams go on, and when it is over.
#ifndef ENGINE_SERVE_BEAM_SEARCH_HPP
#define ENGINE_SERVE_BEAM_SEARCH_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace engine {

/// A token that may come next.
struct Candidate {
    std::uint32_t id;
    double logprob;
};

/// What may come next of a beam, the likeliest first: so many that `width` go on, whatever the
/// other beams do, and of those that end not more, since only the `width` best of all count. `ends`
/// says whether the beam is over with a token, and is asked once for each: a stop string may end it
/// with most of the vocabulary.
[[nodiscard]] std::vector<Candidate>
candidates_of(const float* logits, std::size_t vocab_size, std::size_t width,
              const std::function<bool(std::uint32_t id)>& ends);

/// A beam that is not finished.
struct Beam {
    /// Of all its generated tokens together.
    double logprob;
    /// The likeliest first.
    const std::vector<Candidate>& candidates;
};

/// A beam with one of its candidates: a beam of the next step.
struct Extension {
    /// Indices of the beam and of its candidate.
    std::size_t beam, candidate;
    /// Of all generated tokens together.
    double logprob;
};

struct BeamStep {
    /// The beams that go on, the best first.
    std::vector<Extension> live;
    /// Those that end here.
    std::vector<Extension> ended;
};

/// The best extensions of all beams. Whoever ends takes part only if it is among the `width` best;
/// beside those, `width` others go on, if there are so many. Of equal ones the better beam's goes
/// first, then the one whose candidate does. `ends` says whether a beam is over with a candidate.
[[nodiscard]] BeamStep
extend_beams(const std::vector<Beam>& beams, std::size_t width,
             const std::function<bool(std::size_t beam, std::size_t candidate)>& ends);

/// What beams of different lengths are compared by.
[[nodiscard]] double beam_score(double logprob, std::size_t token_count, double length_penalty);

/// No beam that has come to `logprob` can have a higher score when it ends, however long it gets.
/// length_penalty is not negative.
[[nodiscard]] double best_possible_score(double logprob, std::size_t max_tokens,
                                         double length_penalty);

}  // namespace engine

#endif  // ENGINE_SERVE_BEAM_SEARCH_HPP
