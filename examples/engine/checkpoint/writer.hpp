// Checkpoints with random weights, in the format of Hugging Face: config.json and
// model.safetensors. A model that nobody trained says nothing sensible, but it computes what a
// trained one of its size does.
#ifndef ENGINE_CHECKPOINT_WRITER_HPP
#define ENGINE_CHECKPOINT_WRITER_HPP

#include "model/config.hpp"
#include "model/safetensors.hpp"

#include <cstdint>
#include <filesystem>

namespace engine {

struct CheckpointSpec {
    /// What goes into config.json.
    ModelConfig model;
    /// Norms of each head of q and k, as Qwen3 has them.
    bool qk_norm = false;
    /// Biases of q, k and v, as Qwen2 has them.
    bool attention_bias = false;
    /// How the weights are stored.
    Dtype dtype = Dtype::bf16;
    std::uint64_t seed = 1;
};

/// Tokens are bytes; these two are added.
constexpr std::uint32_t bos_id = 256;
constexpr std::uint32_t eos_id = 257;
constexpr std::size_t byte_vocab_size = 258;

/// A Llama-like model of this shape, with the vocabulary above.
[[nodiscard]] CheckpointSpec llama_checkpoint(std::size_t layers, std::size_t hidden,
                                              std::size_t inner, std::size_t query_heads,
                                              std::size_t kv_heads, std::size_t head_dim);

/// The same shape with layers like those of Gemma 3: five that attend to a window, then one that
/// attends to everything. The last one does in any case.
[[nodiscard]] CheckpointSpec gemma3_checkpoint(const CheckpointSpec& shape, std::size_t window);

/// The same shape with layers like those of Qwen3-Next: three gated delta nets, with as many heads
/// of 32 numbers as attention has, then one that attends to everything. The last one does in any
/// case.
[[nodiscard]] CheckpointSpec qwen3_next_checkpoint(const CheckpointSpec& shape);

/// The same shape with latent K and V, like those of DeepSeek-V2. Its numbers are those of the
/// model divided by four, but for the latent vector: 64, so that a key has 96.
[[nodiscard]] CheckpointSpec deepseek_v2_checkpoint(const CheckpointSpec& shape,
                                                    const LatentConfig& latent = {64, 32, 32, 32});

/// Writes both files; the folder is made. The same spec always gives the same bytes.
/// Throws std::runtime_error when a file cannot be written.
void write_checkpoint(const CheckpointSpec& spec, const std::filesystem::path& folder);

}  // namespace engine

#endif  // ENGINE_CHECKPOINT_WRITER_HPP
