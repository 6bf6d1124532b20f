// The layers of a model by what is kept for them: layers of one kind are a group, which has a row
// of pages for each sequence. A model that attends to everything in every layer has one group.
#ifndef ENGINE_SERVE_LAYER_GROUPS_HPP
#define ENGINE_SERVE_LAYER_GROUPS_HPP

#include "model/config.hpp"

#include <radixkv.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace engine {

struct LayerGroup {
    LayerKind kind;
    std::size_t layer_count;
};

class LayerGroups {
public:
    explicit LayerGroups(const ModelConfig& model);

    /// The first is of layers that attend to everything, as the library wants it.
    [[nodiscard]] const std::vector<LayerGroup>& list() const noexcept { return list_; }
    [[nodiscard]] bool is_single() const noexcept { return list_.size() == 1; }
    /// The group of a kind, if the model has such layers.
    [[nodiscard]] std::optional<std::uint32_t> find(LayerKind kind) const;

    /// The group of a layer, and which of its layers it is.
    struct Place {
        std::uint32_t group, index;
    };
    [[nodiscard]] Place place(std::size_t layer) const { return places_.at(layer); }

    /// As a page table wants them: each draws from the pool of its own number. Empty for one group.
    [[nodiscard]] std::vector<rkv_group_config> table_groups() const;

    /// Pages of a group that a sequence of so many positions holds at most, when it is computed in
    /// chunks of that size; 0: as a whole.
    [[nodiscard]] std::uint64_t pages_for(std::size_t group, std::uint64_t position_count,
                                          std::uint64_t chunk_size,
                                          std::uint64_t page_size) const;

private:
    std::vector<LayerGroup> list_;
    std::vector<Place> places_;
    std::size_t window_;
};

}  // namespace engine

#endif  // ENGINE_SERVE_LAYER_GROUPS_HPP
