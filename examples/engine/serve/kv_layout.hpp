// How the memory of a model's groups is laid out: configurations of radixkv's objects.
#ifndef ENGINE_SERVE_KV_LAYOUT_HPP
#define ENGINE_SERVE_KV_LAYOUT_HPP

#include "compute/thread_pool.hpp"
#include "model/config.hpp"
#include "serve/kv.hpp"

#include <radixkv.hpp>

#include <cstddef>
#include <vector>

namespace engine {

/// Bytes of a page of states.
std::uint64_t state_bytes(const ModelConfig& model, const LayerGroup& group);

/// Attention of the layers of a group.
[[nodiscard]] rkv_runner_config runner_config(const ModelConfig& model, const LayerGroups& groups,
                                              std::size_t group, const KvConfig& config,
                                              ThreadPool& pool);

/// Pages by group, page 0 among them, which is never handed out. Throws std::runtime_error when
/// `bytes` are too few.
[[nodiscard]] std::vector<rkv_pool_config> pool_configs(const ModelConfig& model,
                                                        const LayerGroups& groups,
                                                        const KvConfig& config, ThreadPool& pool);

[[nodiscard]] rkv::PageTable make_table(const LayerGroups& groups,
                                        const std::vector<rkv_pool_config>& pools,
                                        const KvConfig& config);

[[nodiscard]] rkv_cache_config cache_config(const rkv::PageTable& table,
                                            const LayerGroups& groups, const KvConfig& config);

}  // namespace engine

#endif  // ENGINE_SERVE_KV_LAYOUT_HPP
