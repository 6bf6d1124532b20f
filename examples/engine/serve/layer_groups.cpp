#include "serve/layer_groups.hpp"

#include <algorithm>

namespace engine {

LayerGroups::LayerGroups(const ModelConfig& model)
    : list_{{LayerKind::full, 0}}, window_(model.window) {
    for (const LayerKind kind : model.layers) {
        if (!find(kind)) list_.push_back({kind, 0});
        const std::uint32_t group = *find(kind);
        places_.push_back({group, static_cast<std::uint32_t>(list_[group].layer_count++)});
    }
}

std::optional<std::uint32_t> LayerGroups::find(LayerKind kind) const {
    const auto found = std::find_if(list_.begin(), list_.end(), [&](const LayerGroup& group) {
        return group.kind == kind;
    });
    if (found == list_.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - list_.begin());
}

std::vector<rkv_group_config> LayerGroups::table_groups() const {
    std::vector<rkv_group_config> groups;
    if (is_single()) return groups;
    for (const LayerGroup& group : list_) {
        const auto pool = static_cast<std::uint32_t>(groups.size());
        switch (group.kind) {
            case LayerKind::full: groups.push_back(rkv::full_group(pool)); break;
            case LayerKind::window:
                groups.push_back(rkv::window_group(pool, static_cast<std::uint32_t>(window_)));
                break;
            case LayerKind::delta_net: groups.push_back(rkv::state_group(pool)); break;
        }
    }
    return groups;
}

std::uint64_t LayerGroups::pages_for(std::size_t group, std::uint64_t position_count,
                                     std::uint64_t chunk_size, std::uint64_t page_size) const {
    const auto pages = [&](std::uint64_t positions) {
        return (positions + page_size - 1) / page_size;
    };
    const LayerKind kind = list_.at(group).kind;
    if (kind == LayerKind::delta_net) return 1;
    const std::uint64_t all = pages(position_count);
    if (kind == LayerKind::full || chunk_size == 0) return all;
    // A window and a chunk that begin inside a page, and the page that leaves with the next one.
    return std::min(all, pages(window_ - 1 + chunk_size) + 2);
}

}  // namespace engine
