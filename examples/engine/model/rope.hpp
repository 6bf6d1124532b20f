// Rotary position embedding, in the convention of Hugging Face's checkpoints: the two halves of a
// head are the two coordinates ("rotate half"), not its neighbours.
#ifndef ENGINE_MODEL_ROPE_HPP
#define ENGINE_MODEL_ROPE_HPP

#include "model/config.hpp"

#include <cstddef>
#include <vector>

namespace engine {

class Rope {
public:
    /// Tables for positions below position_count.
    Rope(const ModelConfig& config, std::size_t position_count, LayerKind kind = LayerKind::full);

    /// [position][cosines, then sines][half of what is turned].
    [[nodiscard]] const std::vector<float>& table() const noexcept { return table_; }

    /// Turns a head in place.
    void rotate(float* head, std::size_t position) const;

private:
    std::size_t half_;
    std::vector<float> table_;
};

/// Angle per position for each pair of a head that is turned, in layers of a kind.
[[nodiscard]] std::vector<double> rope_frequencies(const ModelConfig& config, LayerKind kind);

}  // namespace engine

#endif  // ENGINE_MODEL_ROPE_HPP
