// From logits to a token.
#ifndef ENGINE_SERVE_SAMPLER_HPP
#define ENGINE_SERVE_SAMPLER_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace engine {

struct Sampling {
    /// 0 takes the most likely token.
    double temperature = 0;
    /// Only the most likely tokens that together reach this probability are drawn from.
    double top_p = 1;
    std::uint64_t seed = 0;
};

/// The token after `logits`. The draw depends on the seed and on `index`, the number of tokens
/// drawn before, and on nothing else: a request that is interrupted and goes on draws the same.
/// Equal logits: the lower id goes first.
[[nodiscard]] std::uint32_t sample(const float* logits, std::size_t count,
                                   const Sampling& sampling, std::uint64_t index);

/// The seed of one of several samples of a request. The first draws as if it were the only one.
[[nodiscard]] std::uint64_t sample_seed(std::uint64_t seed, std::size_t number);

/// Says tokens with their log probabilities at temperature 1, the likeliest first, for as long as
/// `take` wants another one.
void each_likely(const float* logits, std::size_t count,
                 const std::function<bool(std::uint32_t id, double logprob)>& take);

/// Log probabilities of the `top` most likely tokens, the likeliest first, at temperature 1.
[[nodiscard]] std::vector<std::pair<std::uint32_t, double>> top_logprobs(const float* logits,
                                                                         std::size_t count,
                                                                         std::size_t top);

/// Log probability of one token, at temperature 1.
[[nodiscard]] double logprob(const float* logits, std::size_t count, std::uint32_t id);

}  // namespace engine

#endif  // ENGINE_SERVE_SAMPLER_HPP
