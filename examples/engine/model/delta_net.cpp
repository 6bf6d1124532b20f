#include "model/delta_net.hpp"

#include "compute/layers.hpp"

#include <algorithm>
#include <cmath>

namespace engine {

namespace {

/// ln(1 + e^x), which is x itself in f32 where x is large.
float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

/// Divides by the length; a length of zero is met as the models were trained.
void normalize(float* x, std::size_t count) {
    float sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += x[i] * x[i];
    const float scale = 1.0F / std::sqrt(sum + 1e-6F);
    for (std::size_t i = 0; i < count; ++i) x[i] *= scale;
}

/// One token of a head's memory, [keys][values]: all of it fades, then it learns to answer more
/// like v under the key k, then it is asked for q.
void update(float* memory, const float* q, const float* k, const float* v, float fading,
            float learning, std::size_t keys, std::size_t values, float* change, float* out) {
    std::fill_n(change, values, 0.0F);
    for (std::size_t i = 0; i < keys; ++i) {
        float* row = memory + i * values;
        for (std::size_t j = 0; j < values; ++j) {
            row[j] *= fading;
            change[j] += row[j] * k[i];
        }
    }
    for (std::size_t j = 0; j < values; ++j) change[j] = (v[j] - change[j]) * learning;
    std::fill_n(out, values, 0.0F);
    for (std::size_t i = 0; i < keys; ++i) {
        float* row = memory + i * values;
        for (std::size_t j = 0; j < values; ++j) {
            row[j] += k[i] * change[j];
            out[j] += row[j] * q[i];
        }
    }
}

}  // namespace

void DeltaNet::compute(const float* projected, const std::vector<StateRow>& sequences, float* out,
                       ThreadPool& pool) const {
    const std::size_t keys = config_.key_head_count;
    pool.ranges(sequences.size() * keys, 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t task = begin; task < end; ++task)
            compute_group(projected, sequences[task / keys], task % keys, out);
    });
}

/// A key head and its value heads: nobody else touches their part of the state.
void DeltaNet::compute_group(const float* projected, const StateRow& sequence,
                             std::size_t key_head, float* out) const {
    const std::size_t dim = config_.key_head_dim, value_dim = config_.value_head_dim;
    const std::size_t heads = config_.values_per_key(), first_head = key_head * heads;
    const std::size_t q_channel = key_head * dim, k_channel = config_.key_width() + q_channel;
    const std::size_t v_channel = 2 * config_.key_width() + first_head * value_dim;
    const std::size_t stride = config_.projected_width();
    float* window = sequence.state;
    float* memories = sequence.state + config_.window_size();
    std::vector<float> q(dim), k(dim), v(heads * value_dim);
    const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
    for (std::size_t i = sequence.first; i < sequence.first + sequence.count; ++i) {
        const float* row = projected + i * stride;
        convolve(row, window, q_channel, dim, q.data());
        convolve(row, window, k_channel, dim, k.data());
        convolve(row, window, v_channel, v.size(), v.data());
        normalize(q.data(), dim);
        normalize(k.data(), dim);
        for (float& number : q) number *= scale;
        for (std::size_t head = 0; head < heads; ++head) {
            const std::size_t which = first_head + head;
            attend(row, which, q.data(), k.data(), v.data() + head * value_dim,
                   memories + which * dim * value_dim,
                   out + i * config_.value_width() + which * value_dim);
        }
    }
}

/// Each channel by itself: the last inputs, the token's own among them. `window` keeps what the
/// next token needs of them, [kernel_size - 1][conv_width], the oldest first.
void DeltaNet::convolve(const float* in, float* window, std::size_t channel, std::size_t count,
                        float* out) const {
    const std::size_t width = config_.conv_width(), taps = config_.kernel_size;
    const float* weight = weights_.convolution.data() + channel;
    in += channel;
    window += channel;
    std::fill_n(out, count, 0.0F);
    for (std::size_t tap = 0; tap < taps; ++tap) {
        const float* from = tap + 1 < taps ? window + tap * width : in;
        for (std::size_t i = 0; i < count; ++i) out[i] += from[i] * weight[tap * width + i];
    }
    for (std::size_t tap = 0; tap + 1 < taps; ++tap)
        std::copy_n(tap + 2 < taps ? window + (tap + 1) * width : in, count, window + tap * width);
    silu(out, count, out);
}

/// One value head for one token, normed and weighted by its gate.
void DeltaNet::attend(const float* row, std::size_t head, const float* q, const float* k,
                      const float* v, float* memory, float* out) const {
    const std::size_t values = config_.value_head_dim;
    const float* gate = row + config_.conv_width() + head * values;
    const float* learns = row + config_.conv_width() + config_.value_width();
    const float* lasts = learns + config_.value_head_count;
    const float learning = 1.0F / (1.0F + std::exp(-learns[head]));
    const float time = softplus(lasts[head] + weights_.time_bias[head]);
    std::vector<float> change(values);
    update(memory, q, k, v, std::exp(-weights_.rate[head] * time), learning,
           config_.key_head_dim, values, change.data(), out);
    rms_norm_head(out, weights_.norm, epsilon_);
    silu(gate, values, change.data());
    for (std::size_t i = 0; i < values; ++i) out[i] *= change[i];
}

}  // namespace engine
