// Beam search as books have it: each beam computed from its first token on.
#ifndef RADIXKV_TESTS_ENGINE_PLAIN_SEARCH_HPP
#define RADIXKV_TESTS_ENGINE_PLAIN_SEARCH_HPP

#include "fixture.hpp"

#include "serve/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace test {

using Tokens = std::vector<std::uint32_t>;

/// What one position says about the next, by a request of one token in an engine without a cache.
class Oracle {
public:
    explicit Oracle(const Checkpoint& model) : core_(config(model)) {}

    const std::vector<double>& logprobs(const Tokens& tokens) {
        std::vector<double>& known = known_[tokens];
        if (!known.empty()) return known;
        const std::vector<float> logits = core_.complete(greedy(tokens, 1))->first_logits;
        for (std::uint32_t id = 0; id < logits.size(); ++id)
            known.push_back(engine::logprob(logits.data(), logits.size(), id));
        return known;
    }

private:
    TestCore core_;
    std::map<Tokens, std::vector<double>> known_;

    static engine::EngineConfig config(const Checkpoint& model) {
        engine::EngineConfig config = tiny_config(model);
        config.prefix_caching = false;
        return config;
    }
};

struct Found {
    Tokens tokens;
    double logprob = 0;
};

/// The search as it is written in books: all candidates of all beams, sorted. A beam is over with
/// any of `ends`.
inline std::vector<Found> plain_search(Oracle& oracle, const engine::RequestSpec& spec,
                                       const Tokens& ends) {
    std::vector<Found> beams(1), over;
    for (std::size_t step = 0; step < spec.max_tokens; ++step) {
        std::vector<std::tuple<double, std::size_t, std::uint32_t>> all;
        for (std::size_t b = 0; b < beams.size(); ++b) {
            const auto& next = oracle.logprobs(joined(spec.prompt, beams[b].tokens));
            for (std::uint32_t id = 0; id < next.size(); ++id)
                all.emplace_back(-(beams[b].logprob + next[id]), b, id);
        }
        std::sort(all.begin(), all.end());
        std::vector<Found> live;
        for (std::size_t rank = 0; rank < all.size() && live.size() < spec.beam_width; ++rank) {
            const auto& [cost, b, id] = all[rank];
            const Found found{joined(beams[b].tokens, {id}), -cost};
            const bool ended = std::find(ends.begin(), ends.end(), id) != ends.end();
            if (!ended)
                live.push_back(found);
            else if (rank < spec.beam_width)
                over.push_back(found);
        }
        beams = live;
    }
    beams.insert(beams.end(), over.begin(), over.end());
    std::stable_sort(beams.begin(), beams.end(), [&](const Found& a, const Found& b) {
        return a.logprob / std::pow(a.tokens.size(), spec.length_penalty) >
               b.logprob / std::pow(b.tokens.size(), spec.length_penalty);
    });
    beams.resize(std::min(beams.size(), spec.choice_count));
    return beams;
}

inline void check_found(const Heard& heard, const std::vector<Found>& expected) {
    CHECK_EQ(heard.result->choices.size(), expected.size());
    const auto choices = heard.choices();
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(choices[i] == expected[i].tokens);
        CHECK_EQ(*heard.result->choices[i].logprob, expected[i].logprob);
    }
}

}  // namespace test

#endif  // RADIXKV_TESTS_ENGINE_PLAIN_SEARCH_HPP
