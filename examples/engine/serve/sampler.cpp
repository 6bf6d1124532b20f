#include "serve/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace engine {

namespace {

/// SplitMix64: a good 64-bit number for each number.
std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/// Uniform in [0, 1).
double draw(std::uint64_t seed, std::uint64_t index) {
    return static_cast<double>(mix(mix(seed) + index) >> 11) * 0x1p-53;
}

double log_sum_exp(const float* logits, std::size_t count) {
    const double most = *std::max_element(logits, logits + count);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - most);
    return most + std::log(sum);
}

/// The ids, the likeliest first.
std::vector<std::uint32_t> by_likelihood(const float* logits, std::size_t count,
                                         std::size_t wanted) {
    std::vector<std::uint32_t> ids(count);
    std::iota(ids.begin(), ids.end(), 0U);
    const auto end = ids.begin() + static_cast<std::ptrdiff_t>(wanted);
    std::partial_sort(ids.begin(), end, ids.end(), [&](std::uint32_t a, std::uint32_t b) {
        return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    });
    ids.resize(wanted);
    return ids;
}

}  // namespace

std::uint32_t sample(const float* logits, std::size_t count, const Sampling& sampling,
                     std::uint64_t index) {
    if (sampling.temperature <= 0)
        return static_cast<std::uint32_t>(std::max_element(logits, logits + count) - logits);
    const std::vector<std::uint32_t> ids = by_likelihood(logits, count, count);
    const double most = logits[ids[0]];
    std::vector<double> weights(count);
    for (std::size_t i = 0; i < count; ++i)
        weights[i] = std::exp((logits[ids[i]] - most) / sampling.temperature);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    // The nucleus: up to and with the token that reaches top_p.
    std::size_t nucleus = 0;
    double mass = 0;
    do mass += weights[nucleus++];
    while (nucleus < count && mass < sampling.top_p * all);
    double left = draw(sampling.seed, index) * mass;
    for (std::size_t i = 0; i < nucleus; ++i) {
        left -= weights[i];
        if (left < 0) return ids[i];
    }
    return ids[nucleus - 1];  // rounding used up what was drawn
}

std::vector<std::pair<std::uint32_t, double>> top_logprobs(const float* logits, std::size_t count,
                                                           std::size_t top) {
    const double all = log_sum_exp(logits, count);
    std::vector<std::pair<std::uint32_t, double>> out;
    for (const std::uint32_t id : by_likelihood(logits, count, std::min(top, count)))
        out.emplace_back(id, logits[id] - all);
    return out;
}

double logprob(const float* logits, std::size_t count, std::uint32_t id) {
    return logits[id] - log_sum_exp(logits, count);
}

}  // namespace engine
