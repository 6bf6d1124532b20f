// KV memory, prefix cache and attention: all of it is radixkv. This file only holds the handles
// together, hands a layer's tensors over, and keeps the states of recurrent layers, whose pages are
// radixkv's too.
#ifndef ENGINE_SERVE_KV_HPP
#define ENGINE_SERVE_KV_HPP

#include "compute/thread_pool.hpp"
#include "cuda/driver.hpp"
#include "model/config.hpp"
#include "model/model.hpp"
#include "serve/layer_groups.hpp"
#include "serve/remote_store.hpp"
#include "serve/state_memory.hpp"
#include "serve/tiers.hpp"

#include <radixkv.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

namespace engine {

struct KvConfig {
    std::uint32_t page_size = 16;
    /// Pages for KV; 0: as many as fit in `bytes`.
    std::uint32_t page_count = 0;
    /// The same of layers that attend to a window. 0: as many as of the others.
    std::uint32_t window_page_count = 0;
    /// States of recurrent layers; 0: what fits in a quarter of `bytes`, or follows from
    /// page_count.
    std::uint32_t state_page_count = 0;
    std::uint64_t bytes = std::uint64_t{512} << 20;
    /// Sequences alive at once.
    std::uint32_t slot_count = 64;
    /// Finished sequences kept for continuations at most, and their pages; 0 for half of all pages.
    std::uint32_t retained_sequences = 1024;
    std::uint32_t retained_pages = 0;
    /// Of the cache's journal; 0: none.
    std::uint64_t journal_bytes = 0;
    /// RKV_RUNNER_BATCH_INVARIANT.
    bool batch_invariant = true;
    /// Where KV lies and attention is computed: in f32 on the processor, in bf16 on a GPU.
    Device device = Device::cpu;
    /// On a GPU: steps of one token for each sequence have a plan of their own, whose calls may be
    /// recorded into graphs.
    bool graphs = false;
    /// Below KV memory, and whose KV it is.
    TierSettings tiers;
    std::filesystem::path model;
};

class Kv final : public Attention {
public:
    /// Throws rkv::Error, e.g. when the library has no attention for the model's heads, and
    /// std::runtime_error for settings that contradict the model.
    Kv(const ModelConfig& model, const KvConfig& config, ThreadPool& pool);

    /// Throws rkv::Error when the library cannot compute this here.
    static void require(const ModelConfig& model, const KvConfig& config, ThreadPool& pool);

    [[nodiscard]] rkv::PageTable& table() noexcept { return table_; }
    [[nodiscard]] const rkv::PageTable& table() const noexcept { return table_; }
    [[nodiscard]] rkv::Cache& cache() noexcept { return cache_; }
    [[nodiscard]] const rkv::Cache& cache() const noexcept { return cache_; }
    [[nodiscard]] const LayerGroups& groups() const noexcept { return groups_; }
    /// Pages that hold a number of positions.
    [[nodiscard]] std::uint64_t pages_for(std::uint64_t position_count) const noexcept {
        return (position_count + cache_.page_size() - 1) / cache_.page_size();
    }
    [[nodiscard]] bool has_windows() const { return groups_.find(LayerKind::window).has_value(); }
    [[nodiscard]] bool has_states() const { return states_.has_value(); }
    /// NULL without tiers.
    [[nodiscard]] Tiers* tiers() { return tiers_ ? &*tiers_ : nullptr; }

    /// Carries out the page copies that a sequence waits for. With one group nothing is done: the
    /// first attend() of a step does it then.
    void carry_out_copies(rkv::Sequence& sequence);
    /// Saves the states of a sequence where it is: at the end of a page, all of it published.
    /// False when no page or no memory could be had for that.
    bool save_states(rkv::Sequence& sequence);

    /// What the next calls of attend() and states() are about: the new positions of each row, in
    /// this order.
    void plan(const std::vector<rkv_plan_row>& rows);
    /// Of rows of the plan, which was computed: new positions that hold, see
    /// rkv_runner_keep_branches().
    void keep_branches(const std::vector<rkv_kept_branch>& branches);
    void attend(const AttentionCall& call) override;
    const std::vector<StateRow>& states(std::size_t layer) override;
    std::size_t prepare_to_repeat(void* stream) override;

private:
    /// A sequence of the step and the page of its state.
    struct StateOfRow {
        std::size_t first, count;
        std::uint32_t page;
    };

    LayerGroups groups_;
    /// Outlives the cache, which calls it.
    std::unique_ptr<RemoteStore> remote_;
    /// Of the tiers of a GPU; outlives the cache, which writes it to the disk.
    std::list<cuda::PinnedMemory> host_memory_;
    rkv::PageTable table_;
    rkv::Cache cache_;
    /// By group; none for states.
    std::vector<std::optional<rkv::Runner>> runners_;
    std::optional<StateMemory> states_;
    std::optional<Tiers> tiers_;
    rkv::Plan plan_;
    /// Of steps that may be repeated; reserved for as many sequences as there can be.
    rkv::Plan decode_plan_;
    std::uint64_t decode_row_count_ = 0;
    rkv::Plan* current_ = &plan_;
    /// Of the step's calls. What comes behind them goes there too: the next step may have the other
    /// plan, which waits for nothing of this one.
    void* stream_ = nullptr;
    /// Of the step, and what states() returned last.
    std::vector<StateOfRow> states_of_rows_;
    std::vector<StateRow> state_rows_;

    [[nodiscard]] std::vector<TierPages> tier_pages(const ModelConfig& model);
    void reserve_decode_plan(const ModelConfig& model, std::uint64_t row_count);
    void find_states(const std::vector<rkv_plan_row>& rows);
};

}  // namespace engine

#endif  // ENGINE_SERVE_KV_HPP
