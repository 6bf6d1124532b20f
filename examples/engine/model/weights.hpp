// The layers of a Llama-like model, filled from a checkpoint with the names of Hugging Face.
#ifndef ENGINE_MODEL_WEIGHTS_HPP
#define ENGINE_MODEL_WEIGHTS_HPP

#include "compute/linear.hpp"
#include "model/config.hpp"
#include "model/safetensors.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace engine {

/// What a gated delta net has beside its products.
struct DeltaNetWeights {
    /// [kernel_size][conv_width]: for each position before the token's, and last its own.
    std::vector<float> convolution;
    /// By value head: how fast it forgets, in e-foldings for each unit of time, and what is added
    /// to the time that a token takes.
    std::vector<float> rate, time_bias;
    /// Of each head that comes out.
    std::vector<float> norm;
};

/// The tensors of a layer, in whatever form a device has matrices and norms. Norms are empty where
/// the model has none.
template <class Matrix, class Norm> struct Layer {
    Norm attention_norm;
    /// Outputs are [q heads | k heads | v heads]: one product instead of three. Behind them the
    /// gates of the heads of q, where attention has some. Of a gated delta net [q heads | k heads |
    /// v heads | gates of the v heads | how much each v head learns | how long it forgets]. With
    /// latent K and V [q heads, times what makes a head of k of a latent vector | the latent one].
    Matrix qkv;
    /// Norms of each head of q and k, as Qwen3 has them; of latent K and V.
    Norm q_norm, k_norm;
    /// With latent K and V times what makes heads of v.
    Matrix attention_out;
    /// Of what attention puts out, as Gemma has it.
    Norm attention_out_norm;
    Norm mlp_norm;
    /// Outputs are [gate | up].
    Matrix gate_up;
    Matrix down;
    /// Of what the feed-forward part puts out, as Gemma has it.
    Norm mlp_out_norm;
    DeltaNetWeights delta_net;
};

/// A matrix as checkpoints store it: [outputs][inputs], and `outputs` biases or none.
struct HostMatrix {
    std::vector<float> weight;
    std::size_t outputs = 0;
    std::size_t inputs = 0;
    std::vector<float> bias;
};

using HostLayer = Layer<HostMatrix, std::vector<float>>;

/// Brings a layer into another form.
template <class Matrix, class Norm, class MatrixOf, class NormOf>
[[nodiscard]] Layer<Matrix, Norm> layer_as(HostLayer layer, MatrixOf matrix, NormOf norm) {
    return {norm(std::move(layer.attention_norm)),
            matrix(std::move(layer.qkv)),
            norm(std::move(layer.q_norm)),
            norm(std::move(layer.k_norm)),
            matrix(std::move(layer.attention_out)),
            norm(std::move(layer.attention_out_norm)),
            norm(std::move(layer.mlp_norm)),
            matrix(std::move(layer.gate_up)),
            matrix(std::move(layer.down)),
            norm(std::move(layer.mlp_out_norm)),
            std::move(layer.delta_net)};
}

/// Reads a checkpoint piece by piece, so that only one of them is in memory twice. Throws
/// std::runtime_error that names the tensor which is missing or has another shape.
class WeightReader {
public:
    /// Both must outlive it.
    WeightReader(const ModelConfig& config, const Safetensors& file)
        : config_(config), file_(file) {}

    /// [vocab_size][hidden_size].
    [[nodiscard]] const TensorView& embedding() const;
    [[nodiscard]] HostLayer layer(std::size_t index) const;
    /// What is in front of the head.
    [[nodiscard]] std::vector<float> norm() const;
    [[nodiscard]] HostMatrix head() const;

private:
    const ModelConfig& config_;
    const Safetensors& file_;

    [[nodiscard]] std::vector<float> vector(const std::string& name, std::size_t size) const;
    [[nodiscard]] std::vector<float> norm(const std::string& name, std::size_t size) const;
    [[nodiscard]] std::vector<float> norm_if_present(const std::string& name,
                                                     std::size_t size) const;
    [[nodiscard]] HostMatrix stacked(
        const std::vector<std::pair<std::string, std::size_t>>& parts, std::size_t inputs) const;
    void read_attention(const std::string& prefix, HostLayer& layer) const;
    void read_latent_attention(const std::string& prefix, HostLayer& layer) const;
    void read_delta_net(const std::string& prefix, HostLayer& layer) const;
};

using LayerWeights = Layer<Linear, std::vector<float>>;

/// As the processor computes with them.
struct Weights {
    /// [vocab_size][hidden_size], read row by row where the file lies in memory.
    TensorView embedding;
    std::vector<LayerWeights> layers;
    std::vector<float> norm;
    Linear head;
};

/// Throws std::runtime_error that names the tensor which is missing or has another shape.
[[nodiscard]] Weights load_weights(const ModelConfig& config, const Safetensors& file, Gemm gemm);

}  // namespace engine

#endif  // ENGINE_MODEL_WEIGHTS_HPP
