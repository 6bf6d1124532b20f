// A decoder-only transformer as the serving core sees it: tokens in, logits out. It computes
// RMSNorm, rotary embedding, SwiGLU and the products on one device; attention over the cached
// positions is whatever the caller hands in.
#ifndef ENGINE_MODEL_MODEL_HPP
#define ENGINE_MODEL_MODEL_HPP

#include "model/config.hpp"
#include "model/step_times.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace engine {

/// What computes.
enum class Device { cpu, cuda };

/// q, k and v of one layer for all tokens of a step, and where the result goes: f32 of the
/// processor's memory, or bf16 of the GPU's. The rows of q, k and v are `stride` elements apart;
/// those of out are dense. Latent values are the beginnings of keys: v is NULL.
struct AttentionCall {
    std::size_t layer;
    const void* q;
    const void* k;
    const void* v;
    std::size_t stride;
    void* out;
    /// What scores are multiplied by; 0: 1 / sqrt(head_dim).
    float scale;
    /// The CUstream to work on; of the processor, none.
    void* stream;
};

/// The tokens of one sequence in a step, and its state in one recurrent layer, which is updated in
/// place.
struct StateRow {
    std::size_t first, count;
    float* state;
};

/// Attends each token to the tokens before it in its sequence, and keeps k and v for those to come.
/// Of recurrent layers it keeps the states.
class Attention {
public:
    virtual ~Attention() = default;
    virtual void attend(const AttentionCall& call) = 0;
    /// The states of a recurrent layer, for each sequence of the step in the order of its tokens;
    /// zeros for one that begins. Good until the next call.
    virtual const std::vector<StateRow>& states(std::size_t layer) {
        throw std::logic_error("layer " + std::to_string(layer) + ": nobody keeps states");
    }
    /// Before the first attend() of a step on a GPU. Other than 0 where the calls may be recorded,
    /// and launched again for each later step of as many tokens for which this is not 0: they must
    /// have room for so many tokens then.
    virtual std::size_t prepare_to_repeat(void* stream) {
        (void)stream;
        return 0;
    }
};

/// The tokens of a step, of all its sequences one after another.
struct StepTokens {
    std::vector<std::uint32_t> ids;
    /// Where each stands in its sequence.
    std::vector<std::size_t> positions;
    /// Indices of the tokens whose logits are wanted.
    std::vector<std::size_t> logit_rows;

    void clear() {
        ids.clear();
        positions.clear();
        logit_rows.clear();
    }
};

/// The device will compute nothing any more.
class DeviceLost : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class Model {
public:
    virtual ~Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
    /// Positions from here on are not computed.
    [[nodiscard]] std::size_t position_limit() const noexcept { return position_limit_; }
    /// What steps took, of which forward() charges its part.
    [[nodiscard]] StepTimes& times() noexcept { return times_; }
    [[nodiscard]] const StepTimes& times() const noexcept { return times_; }

    /// Computes a step. Returns [logit_rows][vocab_size] in the processor's memory, good until the
    /// next call. Ids and positions must be in range. Throws what `attention` throws, and
    /// DeviceLost.
    virtual const float* forward(const StepTokens& tokens, Attention& attention) = 0;

protected:
    /// A limit of 0 takes the model's own.
    Model(ModelConfig config, std::size_t limit)
        : config_(std::move(config)),
          position_limit_(limit == 0 ? config_.max_position_count
                                     : std::min(limit, config_.max_position_count)) {}

private:
    ModelConfig config_;
    std::size_t position_limit_;
    StepTimes times_{};
};

}  // namespace engine

#endif  // ENGINE_MODEL_MODEL_HPP
