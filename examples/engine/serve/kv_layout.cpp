#include "serve/kv_layout.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace engine {

namespace {

constexpr std::uint64_t most_pages = std::uint64_t{1} << 30;

std::uint32_t narrow(std::uint64_t n) { return static_cast<std::uint32_t>(n); }

/// Pages that the settings leave open, of K and V and of states.
struct Pages {
    std::uint64_t of_kv, of_states;
};

/// A number of pages that was asked for says how large a machine this is to be: then there is a
/// state for each sequence that runs, and one for each eight pages. Otherwise states get a quarter
/// of the memory, and the other groups as many pages as each other.
Pages divide(const ModelConfig& model, const LayerGroups& groups, const KvConfig& config,
             ThreadPool& pool) {
    if (config.page_count > 0)
        return {config.page_count, std::uint64_t{config.slot_count} + config.page_count / 8};
    std::uint64_t page_bytes = 0, states = 0;
    for (std::size_t group = 0; group < groups.list().size(); ++group) {
        if (groups.list()[group].kind == LayerKind::delta_net)
            states = config.bytes / 4 / state_bytes(model, groups.list()[group]);
        else
            page_bytes += rkv::Runner::supports(
                runner_config(model, groups, group, config, pool), config.page_size);
    }
    const std::uint64_t left = config.bytes - (groups.find(LayerKind::delta_net)
                                                   ? config.bytes / 4
                                                   : 0);
    return {std::min(left / page_bytes, most_pages), std::min(states, most_pages)};
}

}  // namespace

std::uint64_t state_bytes(const ModelConfig& model, const LayerGroup& group) {
    return group.layer_count * model.delta_net.state_size() * sizeof(float);
}

rkv_runner_config runner_config(const ModelConfig& model, const LayerGroups& groups,
                                std::size_t group, const KvConfig& config, ThreadPool& pool) {
    rkv_runner_config runner = rkv::Runner::config();
    runner.group = narrow(group);
    runner.layer_count = narrow(groups.list().at(group).layer_count);
    runner.query_head_count = narrow(model.query_head_count);
    runner.kv_head_count = narrow(model.kv_head_count);
    runner.head_dim = narrow(model.head_dim);
    runner.flags = config.batch_invariant ? RKV_RUNNER_BATCH_INVARIANT : 0;
    if (model.is_latent()) {
        runner.v_head_dim = narrow(model.latent.rank);
        runner.flags |= RKV_RUNNER_LATENT;
    }
    if (config.device == Device::cuda) {
        runner.backend = RKV_BACKEND_CUDA;
        runner.dtype = runner.kv_dtype = RKV_DTYPE_BF16;
        return runner;
    }
    runner.dtype = runner.kv_dtype = RKV_DTYPE_F32;
    runner.thread_count = narrow(pool.thread_count());
    runner.parallel_for = ThreadPool::parallel_for;
    runner.parallel_user_data = &pool;
    return runner;
}

std::vector<rkv_pool_config> pool_configs(const ModelConfig& model, const LayerGroups& groups,
                                          const KvConfig& config, ThreadPool& pool) {
    const Pages open = divide(model, groups, config, pool);
    const auto or_else = [](std::uint64_t asked, std::uint64_t otherwise) {
        return asked > 0 ? asked : otherwise;
    };
    std::vector<rkv_pool_config> pools;
    for (const LayerGroup& group : groups.list()) {
        std::uint64_t pages = open.of_kv;
        if (group.kind == LayerKind::window) pages = or_else(config.window_page_count, pages);
        if (group.kind == LayerKind::delta_net)
            pages = or_else(config.state_page_count, open.of_states);
        // One more: page 0 is never handed out.
        pools.push_back(rkv::pool_of(narrow(pages + 1)));
    }
    return pools;
}

rkv::PageTable make_table(const LayerGroups& groups, const std::vector<rkv_pool_config>& pools,
                          const KvConfig& config) {
    rkv_page_table_config table = rkv::PageTable::config();
    table.page_size = config.page_size;
    table.slot_count = config.slot_count;
    if (!groups.is_single()) return rkv::PageTable(table, groups.table_groups(), pools);
    table.page_count = pools.front().page_count;
    return rkv::PageTable(table);
}

/// What is retained keeps its window and its state, too: of those pools it may have a half, as of
/// the others.
rkv_cache_config cache_config(const rkv::PageTable& table, const LayerGroups& groups,
                              const KvConfig& config) {
    rkv_cache_config cache = rkv::Cache::config();
    std::uint64_t sequences = config.retained_sequences;
    for (std::uint32_t group = 1; group < groups.list().size(); ++group) {
        const std::uint64_t pages = table.pool_stats(group).total_page_count;
        const std::uint64_t each = groups.pages_for(
            group, std::numeric_limits<std::uint32_t>::max(), 1, config.page_size);
        sequences = std::min(sequences, std::max<std::uint64_t>(pages / 2 / each, 1));
    }
    cache.retained_sequence_limit = narrow(sequences);
    cache.retained_page_limit = config.retained_pages;
    // The end of a prompt, and the last pages of its answer.
    if (groups.find(LayerKind::delta_net)) cache.checkpoint_limit = 4;
    // What the tiers follow: many thousand pages.
    const std::uint64_t followed = config.tiers.host_bytes > 0 ? std::uint64_t{8} << 20 : 0;
    cache.journal_bytes = std::max(config.journal_bytes, followed);
    return cache;
}

}  // namespace engine
