#include "model/rope.hpp"

#include <cmath>

namespace engine {

namespace {

/// Waves longer than the original context are stretched by `factor`, short ones are left alone, and
/// between the two limits the change is gradual.
double llama3_frequency(double frequency, const Llama3Rope& rope) {
    constexpr double full_turn = 2 * 3.14159265358979323846;
    const double wavelength = full_turn / frequency;
    const double longest = rope.original_max_position_embeddings / rope.low_freq_factor;
    const double shortest = rope.original_max_position_embeddings / rope.high_freq_factor;
    if (wavelength < shortest) return frequency;
    if (wavelength > longest) return frequency / rope.factor;
    const double share = (rope.original_max_position_embeddings / wavelength -
                          rope.low_freq_factor) /
                         (rope.high_freq_factor - rope.low_freq_factor);
    return (1 - share) * frequency / rope.factor + share * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const ModelConfig& config, LayerKind kind) {
    const std::size_t turned = config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
    const bool is_window = kind == LayerKind::window;
    const double theta = is_window ? config.window_rope_theta : config.rope_theta;
    std::vector<double> frequencies(turned / 2);
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double share = 2.0 * static_cast<double>(i) / static_cast<double>(turned);
        frequencies[i] = std::pow(theta, -share);
        if (is_window) continue;
        frequencies[i] = config.rope_scaling
                             ? llama3_frequency(frequencies[i], *config.rope_scaling)
                             : frequencies[i] / config.rope_divisor;
    }
    return frequencies;
}

Rope::Rope(const ModelConfig& config, std::size_t position_count, LayerKind kind) {
    const std::vector<double> frequencies = rope_frequencies(config, kind);
    half_ = frequencies.size();
    table_.resize(position_count * 2 * half_);
    for (std::size_t position = 0; position < position_count; ++position) {
        float* cosines = table_.data() + position * 2 * half_;
        for (std::size_t i = 0; i < half_; ++i) {
            const double angle = static_cast<double>(position) * frequencies[i];
            cosines[i] = static_cast<float>(std::cos(angle));
            cosines[half_ + i] = static_cast<float>(std::sin(angle));
        }
    }
}

void Rope::rotate(float* head, std::size_t position) const {
    const float* cosines = table_.data() + position * 2 * half_;
    const float* sines = cosines + half_;
    float* first = head;
    float* second = head + half_;
    for (std::size_t i = 0; i < half_; ++i) {
        const float a = first[i];
        const float b = second[i];
        first[i] = a * cosines[i] - b * sines[i];
        second[i] = b * cosines[i] + a * sines[i];
    }
}

}  // namespace engine
