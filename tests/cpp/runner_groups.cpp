// Runners of two groups over one page table, in one plan; the state is the engine's own.
#include "check.hpp"

#include <algorithm>
#include <cmath>

namespace {

using Floats = std::vector<float>;

enum : std::uint32_t { SPINE, WINDOW, STATE };

constexpr std::size_t k_dim = 64, v_dim = 96, page_size = 4, window = 9;

rkv_runner_config config_of(std::uint32_t group) {
    rkv_runner_config config = rkv::Runner::config();
    config.layer_count = config.query_head_count = config.kv_head_count = 1;
    config.head_dim = k_dim;
    config.v_head_dim = v_dim;
    config.group = group;
    config.thread_count = 1;
    return config;
}

float number(std::size_t kind, std::size_t position, std::size_t at) {
    return std::sin(static_cast<float>((kind * 31 + position) * 97 + at * at));
}

Floats numbers(std::size_t kind, std::size_t start, std::size_t count, std::size_t dim) {
    Floats made;
    for (std::size_t position = start; position < start + count; ++position)
        for (std::size_t at = 0; at < dim; ++at) made.push_back(number(kind, position, at));
    return made;
}

// One element of the result of the query at a position that sees those from `first` on.
double naive(std::size_t first, std::size_t query, std::size_t d) {
    double total = 0, sum = 0;
    for (std::size_t key = first; key <= query; ++key) {
        double dot = 0;
        for (std::size_t at = 0; at < k_dim; ++at)
            dot += static_cast<double>(number(0, query, at)) *
                   static_cast<double>(number(1, key, at));
        const double weight = std::exp(dot / 8);
        total += weight;
        sum += weight * static_cast<double>(number(2, key, d));
    }
    return sum / total;
}

void attend(rkv::Runner& runner, const rkv::Plan& plan, std::size_t start, std::size_t count,
            std::size_t sees) {
    const Floats q = numbers(0, start, count, k_dim), k = numbers(1, start, count, k_dim);
    const Floats v = numbers(2, start, count, v_dim);
    Floats out(count * v_dim);
    runner.append_prefill(plan, 0, q, k, v, out);
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t d = 0; d < v_dim; d += 19) {
            const std::size_t query = start + i, first = query + 1 > sees ? query + 1 - sees : 0;
            const double exact = naive(first, query, d);
            CHECK(std::abs(static_cast<double>(out[i * v_dim + d]) - exact) < 1e-5);
        }
    // v and out have sizes of their own.
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, runner.append_prefill(plan, 0, q, k, k, out));
    Floats shorter(count * k_dim);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, runner.append_prefill(plan, 0, q, k, v, shorter));
}

// G14: one plan for both runners; a request that goes on from a checkpoint.
void serves_each_group_its_rows() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = page_size;
    rkv::PageTable table(
        config, {rkv::full_group(), rkv::window_group(WINDOW, window), rkv::state_group(STATE)},
        {rkv::pool_of(31), rkv::pool_of(21), rkv::pool_of(6)});
    rkv::Cache cache(table);
    rkv::Runner full(table, config_of(SPINE)), sliding(table, config_of(WINDOW));
    rkv::Plan plan(table);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, rkv::Runner(table, config_of(STATE)));
    CHECK_EQ(sliding.kv_memory(0).v_head_stride, v_dim);

    rkv::Sequence first = cache.begin(test::ids(1, 22));
    plan.set({rkv::plan_row(first, 0, 20)});
    attend(full, plan, 0, 20, 100);
    attend(sliding, plan, 0, 20, window);
    first.publish(20);
    CHECK_EQ(first.checkpoint(), 1u);
    first.confirm_copies();
    plan.set({rkv::plan_row(first, 20, 2)});
    attend(full, plan, 20, 2, 100);
    attend(sliding, plan, 20, 2, window);

    rkv::Sequence second = cache.begin(test::ids(1, 22));
    CHECK_EQ(second.info().cached_position_count, 20u);
    plan.set({rkv::plan_row(second, 20, 2)});
    CHECK_EQ(plan.arrays().copy_group.size(), 1u);
    CHECK_EQ(plan.arrays().copy_group[0], static_cast<std::int32_t>(STATE));
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, full.prepare_plan(plan));
    full.prepare_plan(plan, RKV_PREPARE_KEEP_COPIES_OPEN);
    sliding.prepare_plan(plan, RKV_PREPARE_KEEP_COPIES_OPEN);
    second.confirm_copies();
    attend(full, plan, 20, 2, 100);
    attend(sliding, plan, 20, 2, window);

    const rkv::PlanGroupArrays holes = plan.group_arrays(WINDOW);
    const rkv::PlanGroupArrays compact = plan.group_arrays(WINDOW, RKV_PLAN_COMPACT);
    CHECK_EQ(holes.indices.size(), 6u);
    CHECK_EQ(holes.indices[2], 0);
    CHECK_EQ(holes.first_position.size(), 0u);
    CHECK_EQ(compact.indices.size(), 3u);
    CHECK_EQ(compact.first_position[0], 12);
    CHECK_EQ(compact.sink_page_count[0], 0);
    CHECK(std::equal(compact.indices.begin(), compact.indices.end(), holes.indices.begin() + 3));
    CHECK_EQ(compact.slot_mapping.size(), 2u);
    CHECK_EQ(compact.slot_mapping[1], std::int64_t{holes.indices[5]} * 4 + 1);
    const rkv::PlanGroupArrays states = plan.group_arrays(STATE);
    CHECK_EQ(states.indices.size(), 1u);
    CHECK_EQ(states.slot_mapping.size(), 0u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)plan.group_arrays(3));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)plan.group_arrays(WINDOW, 2));
}

}  // namespace

int main() {
    serves_each_group_its_rows();
}
