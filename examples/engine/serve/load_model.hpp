// The model of a configuration, on its device.
#ifndef ENGINE_SERVE_LOAD_MODEL_HPP
#define ENGINE_SERVE_LOAD_MODEL_HPP

#include "compute/thread_pool.hpp"
#include "model/model.hpp"
#include "serve/core.hpp"

#include <memory>

namespace engine {

/// Throws std::runtime_error saying what is wrong. What this machine cannot do is said before the
/// weights are read.
[[nodiscard]] std::unique_ptr<Model> load_model(const EngineConfig& config, ThreadPool& pool);

}  // namespace engine

#endif  // ENGINE_SERVE_LOAD_MODEL_HPP
