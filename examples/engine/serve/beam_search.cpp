#include "serve/beam_search.hpp"

#include "serve/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace engine {

std::vector<Candidate> candidates_of(const float* logits, std::size_t vocab_size,
                                     std::size_t width,
                                     const std::function<bool(std::uint32_t id)>& ends) {
    std::vector<Candidate> candidates;
    std::size_t live = 0, ended = 0;
    each_likely(logits, vocab_size, [&](std::uint32_t id, double logprob) {
        std::size_t& count = ends(id) ? ended : live;
        if (count < width) {
            candidates.push_back({id, logprob});
            ++count;
        }
        return live < width;
    });
    return candidates;
}

BeamStep extend_beams(const std::vector<Beam>& beams, std::size_t width,
                      const std::function<bool(std::size_t, std::size_t)>& ends) {
    std::vector<Extension> all;
    for (std::size_t b = 0; b < beams.size(); ++b)
        for (std::size_t c = 0; c < beams[b].candidates.size(); ++c)
            all.push_back({b, c, beams[b].logprob + beams[b].candidates[c].logprob});
    std::sort(all.begin(), all.end(), [](const Extension& x, const Extension& y) {
        return std::tuple(-x.logprob, x.beam, x.candidate) <
               std::tuple(-y.logprob, y.beam, y.candidate);
    });
    BeamStep step;
    for (std::size_t rank = 0; rank < all.size() && step.live.size() < width; ++rank) {
        if (!ends(all[rank].beam, all[rank].candidate))
            step.live.push_back(all[rank]);
        else if (rank < width)
            step.ended.push_back(all[rank]);
    }
    return step;
}

double beam_score(double logprob, std::size_t token_count, double length_penalty) {
    return logprob / std::pow(static_cast<double>(token_count), length_penalty);
}

double best_possible_score(double logprob, std::size_t max_tokens, double length_penalty) {
    // Each further token only takes away from `logprob`; the length may only help.
    return beam_score(logprob, max_tokens, length_penalty);
}

}  // namespace engine
