#include "serve/kv.hpp"

#include "serve/kv_layout.hpp"
#include "serve/without_memory.hpp"

#include <algorithm>

namespace engine {

Kv::Kv(const ModelConfig& model, const KvConfig& config, ThreadPool& pool)
    : groups_(model),
      table_(make_table(groups_, pool_configs(model, groups_, config, pool), config)),
      cache_(table_, cache_config(table_, groups_, config)),
      runners_(groups_.list().size()),
      plan_(table_) {
    for (std::uint32_t group = 0; group < runners_.size(); ++group) {
        const LayerGroup& layers = groups_.list()[group];
        if (layers.kind == LayerKind::delta_net)
            states_.emplace(table_.pool_stats(group).total_page_count + 1, layers.layer_count,
                            model.delta_net.state_size());
        else
            runners_[group].emplace(table_, runner_config(model, groups_, group, config, pool));
    }
    if (config.tiers.host_bytes > 0) {
        TierSettings settings = config.tiers;
        if (config.device == Device::cuda) {
            settings.format = "bf16";
            settings.take_host_memory = [this](std::size_t bytes) {
                return host_memory_.emplace_back(bytes).address();
            };
        }
        if (!settings.remote_url.empty()) {
            remote_ = std::make_unique<RemoteStore>("--remote-cache", settings.remote_url,
                                                    settings.remote_endpoint);
            settings.remote = &remote_->functions();
        }
        tiers_.emplace(cache_, tier_pages(model), settings, config.model);
    }
    if (config.device == Device::cuda && config.graphs)
        reserve_decode_plan(model, config.slot_count);
}

std::vector<TierPages> Kv::tier_pages(const ModelConfig& model) {
    std::vector<TierPages> pages;
    for (std::uint32_t group = 0; group < runners_.size(); ++group) {
        const std::uint64_t count = table_.pool_stats(group).total_page_count;
        if (runners_[group]) {
            rkv::Runner& runner = *runners_[group];
            pages.push_back({runner.stats().page_bytes, count, &runner, nullptr});
        } else {
            const std::uint64_t bytes = state_bytes(model, groups_.list()[group]);
            pages.push_back({bytes, count, nullptr, &*states_});
        }
    }
    return pages;
}

void Kv::reserve_decode_plan(const ModelConfig& model, std::uint64_t row_count) {
    decode_plan_ = rkv::Plan(table_);
    decode_row_count_ = row_count;
    auto most = rkv::sized<rkv_plan_capacity>();
    // One attention kernel for each layer: shared starts of rows would take two more.
    most.flags = RKV_PLAN_SEPARATE;
    most.row_count = most.position_count = row_count;
    most.row_position_count = 1;
    most.page_count = row_count * std::min<std::uint64_t>(pages_for(model.max_position_count),
                                                          table_.stats().total_page_count);
    decode_plan_.reserve(most);
    runners_.front()->reserve_plan(decode_plan_);
}

void Kv::require(const ModelConfig& model, const KvConfig& config, ThreadPool& pool) {
    (void)rkv::Runner::supports(runner_config(model, LayerGroups(model), 0, config, pool),
                                config.page_size);
}

/// A child's state is its parent's until it is copied, and the parent may be in the next step: so
/// these copies are made at once, one group after another.
void Kv::carry_out_copies(rkv::Sequence& sequence) {
    if (groups_.is_single()) return;
    const std::vector<rkv_page_copy> copies = sequence.copies();
    if (copies.empty()) return;
    for (const rkv_page_copy& copy : copies) {
        if (runners_[copy.group])
            runners_[copy.group]->copy_pages({&copy, 1});
        else
            states_->copy(copy.source_page, copy.target_page);
    }
    sequence.confirm_copies();
}

bool Kv::save_states(rkv::Sequence& sequence) {
    try {
        if (!unless_out_of_memory([&] { return sequence.checkpoint(); })) return false;
    } catch (const rkv::OutOfPages&) {
        return false;
    }
    carry_out_copies(sequence);
    return true;
}

void Kv::plan(const std::vector<rkv_plan_row>& rows) {
    const bool decodes = std::all_of(rows.begin(), rows.end(),
                                     [](const rkv_plan_row& row) { return row.count == 1; });
    current_ = decodes && decode_plan_ ? &decode_plan_ : &plan_;
    current_->set(rows);
    if (has_states()) find_states(rows);
}

void Kv::keep_branches(const std::vector<rkv_kept_branch>& branches) {
    if (branches.empty()) return;
    for (std::optional<rkv::Runner>& runner : runners_)
        if (runner) runner->keep_branches(*current_, branches, stream_);
}

/// Where the states of the step lie. The page of a sequence that begins has what somebody else left
/// there.
void Kv::find_states(const std::vector<rkv_plan_row>& rows) {
    const rkv::PlanGroupArrays arrays =
        current_->group_arrays(*groups_.find(LayerKind::delta_net));
    states_of_rows_.clear();
    std::size_t first = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto page = static_cast<std::uint32_t>(arrays.indices[i]);
        const auto count = static_cast<std::size_t>(rows[i].count);
        if (rows[i].start == 0) states_->clear(page);
        states_of_rows_.push_back({first, count, page});
        first += count;
    }
}

const std::vector<StateRow>& Kv::states(std::size_t layer) {
    const LayerGroups::Place place = groups_.place(layer);
    state_rows_.clear();
    for (const StateOfRow& row : states_of_rows_)
        state_rows_.push_back({row.first, row.count, states_->at(row.page, place.index)});
    return state_rows_;
}

std::size_t Kv::prepare_to_repeat(void* stream) {
    if (current_ != &decode_plan_) return 0;
    runners_.front()->prepare_plan(decode_plan_, 0, stream);
    return decode_row_count_;
}


void Kv::attend(const AttentionCall& call) {
    const LayerGroups::Place place = groups_.place(call.layer);
    auto args = rkv::sized<rkv_runner_append_prefill_args>();
    args.layer = place.index;
    args.q = call.q;
    args.k = call.k;
    args.v = call.v;
    args.out = call.out;
    args.q_position_stride = call.stride;
    args.k_position_stride = call.stride;
    args.v_position_stride = call.v == nullptr ? 0 : call.stride;
    args.scale = call.scale;
    args.stream = stream_ = call.stream;
    runners_[place.group]->append_prefill(*current_, args);
}

}  // namespace engine
