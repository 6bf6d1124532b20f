// The model on a GPU: weights, activations and KV in bf16, sums in f32, products by cuBLAS.
#ifndef ENGINE_CUDA_MODEL_HPP
#define ENGINE_CUDA_MODEL_HPP

#include "cuda/gpu.hpp"
#include "cuda/graph.hpp"
#include "model/model.hpp"
#include "model/weights.hpp"

#include <cstddef>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace engine::cuda {

class CudaModel final : public Model {
public:
    /// Loads config.json and the weights of a folder. Throws std::runtime_error that says what is
    /// wrong.
    CudaModel(const std::filesystem::path& folder, std::size_t position_limit,
              std::unique_ptr<Gpu> gpu);

    const float* forward(const StepTokens& tokens, Attention& attention) override;

private:
    struct Matrix {
        Buffer weight, bias;
        std::size_t outputs = 0;
        std::size_t inputs = 0;
    };
    using LayerOnGpu = Layer<Matrix, Buffer>;

    /// Everything that lies on the device or is seen by it.
    struct Memory {
        explicit Memory(const Driver& driver);
        Buffer embedding, norm, rope;
        std::vector<LayerOnGpu> layers;
        /// Of tied embeddings nothing: the embedding is the head.
        Matrix head;
        /// Of a step, kept from one to the next: ids, positions and rows as they are sent and as
        /// they arrive; activations; logits there and here.
        Buffer sent, arrived;
        Buffer hidden, normed, qkv, attended, gate_up, inner, projected;
        Buffer logits, logits_here;
        /// By the numbers of tokens and of logits: recorded at the second time.
        std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<Graph>> graphs;
        /// Where a step's memory lay when they were recorded: that is part of them.
        std::array<const void*, 11> recorded_at{};

        [[nodiscard]] std::array<const void*, 11> places() const;
    };
    /// The step's numbers on the device.
    struct Inputs {
        const std::uint32_t* ids;
        const std::uint32_t* positions;
        const std::uint32_t* logit_rows;
        /// Tokens, and how many what attention reads and writes has room for.
        std::size_t rows, room;
    };

    /// Memory is given back while the context is current.
    struct Release {
        const Context* context;
        void operator()(Memory* memory) const noexcept;
    };

    std::unique_ptr<Gpu> gpu_;
    std::unique_ptr<Memory, Release> memory_;

    void load(const std::filesystem::path& folder);
    [[nodiscard]] Buffer on_gpu(const std::vector<float>& numbers) const;
    [[nodiscard]] Matrix on_gpu(const HostMatrix& matrix) const;

    bool can_record_ = true;

    void compute(const StepTokens& tokens, Attention& attention);
    bool repeat(const StepTokens& tokens, const Inputs& inputs, Attention& attention);
    void put(const StepTokens& tokens, const Inputs& inputs, Attention& attention);
    [[nodiscard]] Inputs send(const StepTokens& tokens);
    void norm(const Buffer& weight, const Bf16* delta, std::size_t rows,
              const std::uint32_t* picked = nullptr);
    void attention_block(std::size_t layer, const Inputs& inputs, Attention& attention);
    void mlp_block(const LayerOnGpu& layer, std::size_t rows);
    void compute_logits(const Inputs& inputs, std::size_t rows);
    void apply(const Matrix& matrix, const Buffer& x, std::size_t rows, Bf16* y);
};

}  // namespace engine::cuda

#endif  // ENGINE_CUDA_MODEL_HPP
