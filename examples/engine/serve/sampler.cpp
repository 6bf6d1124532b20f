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

/// Hands out ids, the likeliest first. A heap: most callers want a few of very many.
class ByLikelihood {
public:
    ByLikelihood(const float* logits, std::size_t count) : logits_(logits), ids_(count) {
        std::iota(ids_.begin(), ids_.end(), 0U);
        std::make_heap(ids_.begin(), ids_.end(), Less{logits_});
    }
    [[nodiscard]] bool empty() const { return ids_.empty(); }
    std::uint32_t next() {
        std::pop_heap(ids_.begin(), ids_.end(), Less{logits_});
        const std::uint32_t id = ids_.back();
        ids_.pop_back();
        return id;
    }

private:
    struct Less {
        const float* logits;
        bool operator()(std::uint32_t a, std::uint32_t b) const {
            return logits[a] < logits[b] || (logits[a] == logits[b] && a > b);
        }
    };
    const float* logits_;
    std::vector<std::uint32_t> ids_;
};

}  // namespace

std::uint32_t sample(const float* logits, std::size_t count, const Sampling& sampling,
                     std::uint64_t index) {
    const auto likeliest =
        static_cast<std::uint32_t>(std::max_element(logits, logits + count) - logits);
    if (sampling.temperature <= 0) return likeliest;
    std::vector<double> weights(count);
    for (std::size_t i = 0; i < count; ++i)
        weights[i] = std::exp((double{logits[i]} - logits[likeliest]) / sampling.temperature);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    // The nucleus: up to and with the token that reaches top_p. With all tokens in it, their order
    // is of no concern.
    std::vector<std::uint32_t> ids;
    double mass = sampling.top_p < 1 ? 0 : all;
    if (sampling.top_p < 1) {
        ByLikelihood order(logits, count);
        do {
            ids.push_back(order.next());
            mass += weights[ids.back()];
        } while (mass < sampling.top_p * all && !order.empty());
    } else {
        ids.resize(count);
        std::iota(ids.begin(), ids.end(), 0U);
    }
    double left = draw(sampling.seed, index) * mass;
    for (const std::uint32_t id : ids) {
        left -= weights[id];
        if (left < 0) return id;
    }
    return ids.back();  // rounding used up what was drawn
}

std::uint64_t sample_seed(std::uint64_t seed, std::size_t number) {
    // Twice mixed: the second sample of one seed has nothing to do with the first of another.
    return number == 0 ? seed : mix(mix(seed) ^ mix(~std::uint64_t{number}));
}

void each_likely(const float* logits, std::size_t count,
                 const std::function<bool(std::uint32_t id, double logprob)>& take) {
    const double all = log_sum_exp(logits, count);
    ByLikelihood order(logits, count);
    while (!order.empty()) {
        const std::uint32_t id = order.next();
        if (!take(id, logits[id] - all)) return;
    }
}

std::vector<std::pair<std::uint32_t, double>> top_logprobs(const float* logits, std::size_t count,
                                                           std::size_t top) {
    std::vector<std::pair<std::uint32_t, double>> out;
    if (top == 0) return out;
    each_likely(logits, count, [&](std::uint32_t id, double logprob) {
        out.emplace_back(id, logprob);
        return out.size() < top;
    });
    return out;
}

double logprob(const float* logits, std::size_t count, std::uint32_t id) {
    return logits[id] - log_sum_exp(logits, count);
}

}  // namespace engine
