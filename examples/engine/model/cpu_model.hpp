// The model on the processor, in f32. Attention is whatever the caller hands in.
#ifndef ENGINE_MODEL_CPU_MODEL_HPP
#define ENGINE_MODEL_CPU_MODEL_HPP

#include "compute/thread_pool.hpp"
#include "model/model.hpp"
#include "model/rope.hpp"
#include "model/safetensors.hpp"
#include "model/weights.hpp"

#include <cstddef>
#include <filesystem>
#include <vector>

namespace engine {

class CpuModel final : public Model {
public:
    /// Loads config.json and the weights of a folder. Throws std::runtime_error that says what is
    /// wrong.
    CpuModel(const std::filesystem::path& folder, std::size_t position_limit, Gemm gemm,
             ThreadPool& pool);

    const float* forward(const StepTokens& tokens, Attention& attention) override;

private:
    /// Memory of a step, kept from one to the next.
    struct Scratch {
        std::vector<float> hidden, normed, qkv, attended, gate_up, inner, projected, picked,
            logits;
    };

    Safetensors file_;
    Weights weights_;
    Rope rope_;
    /// Of layers that attend to a window; without any, empty.
    Rope window_rope_;
    ThreadPool& pool_;
    Scratch scratch_;

    void embed(const StepTokens& tokens);
    void attention_block(std::size_t layer, const StepTokens& tokens, Attention& attention,
                         StepClock& clock);
    void turn_heads(std::size_t layer, const StepTokens& tokens);
    void delta_net_block(std::size_t layer, const StepTokens& tokens, Attention& attention,
                         StepClock& clock);
    void project_out(const LayerWeights& layer, std::size_t rows, StepClock& clock);
    void mlp_block(const LayerWeights& layer, std::size_t rows, StepClock& clock);
    void add_projected(const std::vector<float>& norm, std::size_t rows);
    void compute_logits(const StepTokens& tokens, StepClock& clock);
};

}  // namespace engine

#endif  // ENGINE_MODEL_CPU_MODEL_HPP
