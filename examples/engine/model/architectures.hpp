// What the config.json of each architecture says beyond the sizes that all of them have.
#ifndef ENGINE_MODEL_ARCHITECTURES_HPP
#define ENGINE_MODEL_ARCHITECTURES_HPP

#include "model/config.hpp"
#include "model/fields.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace engine {

/// Each reads the fields of its own, with the sizes of `config` filled already. They throw
/// std::runtime_error that names a field whose value this engine does not compute.
void read_llama(const Fields& fields, ModelConfig& config);
void read_gemma3(const Fields& fields, ModelConfig& config);
void read_qwen3_next(const Fields& fields, ModelConfig& config);
void read_deepseek_v2(const Fields& fields, ModelConfig& config);

/// "layer_types", where "full_attention" and `other_name` are known. Without that list each
/// `interval`-th layer attends to everything and the others are of the other kind.
[[nodiscard]] std::vector<LayerKind> read_layer_kinds(const Fields& fields,
                                                      std::size_t layer_count,
                                                      const std::string& other_name,
                                                      LayerKind other, std::size_t interval);

/// How heads are turned: the base and the scaling in one object of the file.
void read_rope_object(const Fields& rope, ModelConfig& config);

/// Bases of rotary embeddings go up to this, far above any model's.
constexpr double most_rope_theta = 1e15;

}  // namespace engine

#endif  // ENGINE_MODEL_ARCHITECTURES_HPP
