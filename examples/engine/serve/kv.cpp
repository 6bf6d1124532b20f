#include "serve/kv.hpp"

#include <algorithm>

namespace engine {

namespace {

rkv_runner_config runner_config(const ModelConfig& model, const KvConfig& config,
                                ThreadPool& pool) {
    const auto narrow = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
    rkv_runner_config runner = rkv::Runner::config();
    runner.layer_count = narrow(model.layer_count);
    runner.query_head_count = narrow(model.query_head_count);
    runner.kv_head_count = narrow(model.kv_head_count);
    runner.head_dim = narrow(model.head_dim);
    runner.flags = config.batch_invariant ? RKV_RUNNER_BATCH_INVARIANT : 0;
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

rkv_page_table_config table_config(const rkv_runner_config& runner, const KvConfig& config) {
    rkv_page_table_config table = rkv::PageTable::config();
    const std::uint64_t page_bytes = rkv::Runner::supports(runner, config.page_size);
    table.page_size = config.page_size;
    table.slot_count = config.slot_count;
    // One more: page 0 is never handed out.
    const std::uint64_t fitting = std::min<std::uint64_t>(config.bytes / page_bytes, 1U << 30);
    table.page_count = 1 + (config.page_count > 0 ? config.page_count
                                                  : static_cast<std::uint32_t>(fitting));
    return table;
}

rkv_cache_config cache_config(const KvConfig& config) {
    rkv_cache_config cache = rkv::Cache::config();
    cache.retained_sequence_limit = config.retained_sequences;
    cache.retained_page_limit = config.retained_pages;
    cache.journal_bytes = config.journal_bytes;
    return cache;
}

}  // namespace

Kv::Kv(const ModelConfig& model, const KvConfig& config, ThreadPool& pool)
    : table_(table_config(runner_config(model, config, pool), config)),
      cache_(table_, cache_config(config)),
      runner_(table_, runner_config(model, config, pool)),
      plan_(table_) {
    if (config.device == Device::cuda && config.graphs)
        reserve_decode_plan(model, config.slot_count);
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
    runner_.reserve_plan(decode_plan_);
}

void Kv::require(const ModelConfig& model, const KvConfig& config, ThreadPool& pool) {
    (void)rkv::Runner::supports(runner_config(model, config, pool), config.page_size);
}

void Kv::plan(const std::vector<rkv_plan_row>& rows) {
    const bool decodes = std::all_of(rows.begin(), rows.end(),
                                     [](const rkv_plan_row& row) { return row.count == 1; });
    current_ = decodes && decode_plan_ ? &decode_plan_ : &plan_;
    current_->set(rows);
}

std::size_t Kv::prepare_to_repeat(void* stream) {
    if (current_ != &decode_plan_) return 0;
    runner_.prepare_plan(decode_plan_, 0, stream);
    return decode_row_count_;
}

void Kv::attend(const AttentionCall& call) {
    auto args = rkv::sized<rkv_runner_append_prefill_args>();
    args.layer = static_cast<std::uint32_t>(call.layer);
    args.q = call.q;
    args.k = call.k;
    args.v = call.v;
    args.out = call.out;
    args.q_position_stride = call.stride;
    args.k_position_stride = call.stride;
    args.v_position_stride = call.stride;
    args.stream = call.stream;
    runner_.append_prefill(*current_, args);
}

}  // namespace engine
