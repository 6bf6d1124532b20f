// The config.json of a checkpoint.
#ifndef ENGINE_CHECKPOINT_CONFIG_FILE_HPP
#define ENGINE_CHECKPOINT_CONFIG_FILE_HPP

#include "checkpoint/writer.hpp"

#include <string>

namespace engine {

[[nodiscard]] std::string config_text(const CheckpointSpec& spec);

}  // namespace engine

#endif  // ENGINE_CHECKPOINT_CONFIG_FILE_HPP
