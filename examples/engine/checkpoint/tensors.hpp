// The tensors of a checkpoint with random weights, with the names of Hugging Face.
#ifndef ENGINE_CHECKPOINT_TENSORS_HPP
#define ENGINE_CHECKPOINT_TENSORS_HPP

#include "checkpoint/writer.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace engine {

/// Mean and spread of a row's numbers.
struct Spread {
    float mean, deviation;
};

struct Tensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::function<Spread(std::size_t row)> spread;
};

[[nodiscard]] std::vector<Tensor> tensors_of(const CheckpointSpec& spec);

}  // namespace engine

#endif  // ENGINE_CHECKPOINT_TENSORS_HPP
