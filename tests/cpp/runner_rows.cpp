// Rows that are not causal, scales of heads, and branches that are kept.
#include "check.hpp"

namespace {

using Halves = std::vector<std::uint16_t>;

constexpr std::size_t query_heads = 4, kv_heads = 2, dim = 64;
constexpr std::uint16_t half = 0x3F00;  // in bf16

// K22, K21: every K and V is a half, so every result is.
void rows_of_every_kind() {
    rkv_runner_config config = rkv::Runner::config();
    config.layer_count = 1;
    config.query_head_count = query_heads;
    config.kv_head_count = kv_heads;
    config.head_dim = dim;
    config.dtype = RKV_DTYPE_BF16;
    config.kv_dtype = RKV_DTYPE_FP8_E4M3;
    rkv::PageTable table = test::table(9, 4);
    rkv::Cache cache(table);
    rkv::Runner runner(table, config);
    rkv::Plan plan(table);
    const rkv::Sequence sequence = cache.begin(test::ids(1, 5));
    const std::vector<float> k_scales(kv_heads, 0.5F), v_scales(kv_heads, 0.25F), more(3, 1.0F);
    rkv::AttentionParams params;
    params.k_scale = params.v_scale = 9;  // not read
    params.k_scales = k_scales;
    params.v_scales = v_scales;
    const auto computes = [&](std::size_t count, bool writes) {
        const Halves q(count * query_heads * dim, half), kv(count * kv_heads * dim, half);
        const Halves none, &given = writes ? kv : none;
        Halves out(q.size());
        runner.append_prefill(plan, 0, q, given, given, out, {}, params);
        for (const std::uint16_t value : out) CHECK_EQ(value, half);
    };
    plan.set({rkv::plan_row(sequence, 0, 5, {}, {}, RKV_MASK_BIDIRECTIONAL)});
    computes(5, true);
    const std::uint32_t holds[] = {0, 2, 4};
    runner.keep_branches(plan, {rkv_kept_branch{0, 3, holds}});
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 runner.keep_branches(plan, {rkv_kept_branch{1, 3, holds}}));
    params.k_scales = more;
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, computes(5, true));
    params.k_scales = k_scales;
    plan.set({rkv::plan_row(sequence, 5, 3, {}, {}, RKV_MASK_CONTEXT)});
    computes(3, false);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 plan.set({rkv::plan_row(sequence, 5, 3, {}, {}, 7)}));
}

}  // namespace

int main() {
    rows_of_every_kind();
}
