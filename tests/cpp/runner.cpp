// rkv::Runner and rkv::Plan: a request's way through attention, and who keeps what alive.
#include "check.hpp"

#include <atomic>
#include <cmath>
#include <thread>
#include <type_traits>

static_assert(!std::is_copy_constructible_v<rkv::Runner>);
static_assert(std::is_nothrow_move_constructible_v<rkv::Runner>);
static_assert(std::is_nothrow_move_assignable_v<rkv::Runner>);
static_assert(!std::is_copy_constructible_v<rkv::Plan>);
static_assert(std::is_nothrow_move_constructible_v<rkv::Plan>);
static_assert(std::is_nothrow_move_assignable_v<rkv::Plan>);

namespace {

using test::ids;
using Floats = std::vector<float>;
using Ids = std::vector<std::uint32_t>;

constexpr std::size_t query_heads = 4, kv_heads = 2, dim = 64, layers = 2;

rkv_runner_config small() {
    rkv_runner_config config = rkv::Runner::config();
    config.layer_count = layers;
    config.query_head_count = query_heads;
    config.kv_head_count = kv_heads;
    config.head_dim = dim;
    config.thread_count = 2;
    return config;
}

// A model whose projections are a function of token and position.
float element(std::size_t kind, std::uint32_t token, std::size_t position, std::size_t at) {
    std::uint64_t x = ((kind * 31 + token) * 1000003 + position) * 1000003 + at + 1;
    x *= 0x9E3779B97F4A7C15;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9;
    return static_cast<float>(x >> 40) / static_cast<float>(1 << 23) - 1.0F;
}

Floats project(std::size_t kind, const Ids& tokens, std::size_t start, std::size_t count) {
    const std::size_t heads = kind % 3 == 0 ? query_heads : kv_heads;
    Floats out;
    for (std::size_t position = start; position < start + count; ++position)
        for (std::size_t at = 0; at < heads * dim; ++at)
            out.push_back(element(kind, tokens[position], position, at));
    return out;
}

// Attention of one query over the positions from `first` on, in doubles; returns its lse.
double naive(std::size_t layer, const Ids& tokens, std::size_t query, std::size_t head,
             std::size_t first, std::vector<double>& out) {
    const std::size_t kv = head / (query_heads / kv_heads);
    double total = 0;
    out.assign(dim, 0);
    for (std::size_t key = first; key <= query; ++key) {
        double dot = 0;
        for (std::size_t d = 0; d < dim; ++d)
            dot += static_cast<double>(element(layer * 3, tokens[query], query, head * dim + d)) *
                   static_cast<double>(element(layer * 3 + 1, tokens[key], key, kv * dim + d));
        const double weight = std::exp(dot / std::sqrt(dim));
        total += weight;
        for (std::size_t d = 0; d < dim; ++d)
            out[d] += weight * static_cast<double>(
                                   element(layer * 3 + 2, tokens[key], key, kv * dim + d));
    }
    for (double& value : out) value /= total;
    return std::log(total);
}

struct Chunk {
    const rkv::Sequence* sequence;
    const Ids* tokens;
    std::size_t start, count;
};

void append(Floats& to, const Floats& from) { to.insert(to.end(), from.begin(), from.end()); }

// Computes a step in every layer, and checks all that comes out of it.
void step(rkv::Runner& runner, rkv::Plan& plan, const std::vector<Chunk>& chunks) {
    std::vector<rkv_plan_row> rows;
    for (const Chunk& c : chunks) rows.push_back(rkv::plan_row(*c.sequence, c.start, c.count));
    plan.set(rows);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
        Floats q, k, v;
        for (const Chunk& c : chunks) {
            append(q, project(layer * 3, *c.tokens, c.start, c.count));
            append(k, project(layer * 3 + 1, *c.tokens, c.start, c.count));
            append(v, project(layer * 3 + 2, *c.tokens, c.start, c.count));
        }
        Floats out(q.size()), lse(q.size() / dim);
        runner.append_prefill(plan, layer, q, k, v, out, lse);
        std::size_t at = 0;
        std::vector<double> expected;
        for (const Chunk& c : chunks)
            for (std::size_t i = 0; i < c.count; ++i)
                for (std::size_t head = 0; head < query_heads; ++head, ++at) {
                    const double want = naive(layer, *c.tokens, c.start + i, head, 0, expected);
                    CHECK(std::abs(static_cast<double>(lse[at]) - want) < 2e-5);
                    for (std::size_t d = 0; d < dim; ++d)
                        CHECK(std::abs(static_cast<double>(out[at * dim + d]) - expected[d]) <
                              2e-5);
                }
    }
}

// K20, B07, B08: chunks, a second request over the first one's pages, decoding beside a prefill;
// on the engine's threads.
void computes() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    std::atomic<int> calls = 0;
    auto threads = [&calls](std::size_t task_count, rkv::Tasks tasks) {
        ++calls;
        std::atomic<std::size_t> next = 0;
        auto work = [&] {
            for (std::size_t i = next++; i < task_count; i = next++) tasks(i);
        };
        std::thread helper(work);
        work();
        helper.join();
    };
    rkv::Runner runner(table, small(), threads);
    rkv::Plan plan(table);
    CHECK_EQ(runner.stats().thread_count, 2u);
    CHECK_EQ(runner.stats().page_bytes, rkv::Runner::supports(small(), 4));

    Ids prompt = ids(1, 20), other = ids(1, 14);
    for (const std::uint32_t id : ids(500, 8)) other.push_back(id);
    rkv::Sequence first = cache.begin(prompt);
    step(runner, plan, {{&first, &prompt, 0, 13}});
    first.publish(13);
    step(runner, plan, {{&first, &prompt, 13, 7}});
    first.publish(20);

    rkv::Sequence second = cache.begin(other);
    const rkv_sequence_info found = second.info();
    CHECK_EQ(found.cached_position_count, 14u);
    CHECK_EQ(found.copy_count, 1u);
    first.append(77);
    prompt.push_back(77);
    step(runner, plan, {{&second, &other, 14, 8}, {&first, &prompt, 20, 1}});
    CHECK_EQ(second.info().copy_count, 0u);
    second.publish(22);
    CHECK(calls > 0);

    // K and V that are in the pages already, and attention over a part, merged with the rest.
    plan.set({rkv::plan_row(first, 20, 1)});
    const Floats q = project(0, prompt, 20, 1);
    Floats whole(q.size()), near(q.size()), far, lse(query_heads), near_lse(query_heads), far_lse;
    runner.append_prefill(plan, 0, q, {}, {}, whole, lse);
    rkv::AttentionParams params;
    params.window = 6;
    runner.append_prefill(plan, 0, q, {}, {}, near, near_lse, params);
    std::vector<double> part;
    for (std::size_t head = 0; head < query_heads; ++head) {
        const double near_want = naive(0, prompt, 20, head, 15, part);
        CHECK(std::abs(static_cast<double>(near_lse[head]) - near_want) < 2e-5);
        const double total = std::exp(static_cast<double>(lse[head]));
        far_lse.push_back(static_cast<float>(std::log(total - std::exp(near_want))));
        for (std::size_t d = 0; d < dim; ++d)
            far.push_back(static_cast<float>(
                (static_cast<double>(whole[head * dim + d]) * total - part[d] *
                 std::exp(near_want)) / (total - std::exp(near_want))));
    }
    runner.merge_states({near.data(), far.data()}, {near_lse.data(), far_lse.data()}, 1,
                        near.data(), near_lse.data());
    for (std::size_t at = 0; at < near.size(); ++at) CHECK(std::abs(near[at] - whole[at]) < 1e-4F);
    for (std::size_t at = 0; at < lse.size(); ++at)
        CHECK(std::abs(near_lse[at] - lse[at]) < 1e-4F);
    test::audit(table, cache);
}

// K12: what an engine with kernels of its own reads.
void shows_arrays() {
    rkv::PageTable table = test::table(17, 4);
    rkv::Cache cache(table);
    rkv::Runner runner(table, small());
    rkv::Plan plan(table);
    CHECK_EQ(plan.arrays().position_count, 0u);
    CHECK_EQ(plan.arrays().indptr.size(), 1u);
    CHECK_EQ(plan.arrays().indices.size(), 0u);
    const rkv::Sequence a = cache.begin(ids(1, 6));
    const std::uint32_t slot = table.allocate_slot();
    table.reserve(slot, 9);
    plan.set({rkv::plan_row(a, 0, 6), rkv::plan_row_of_slot(slot, 7, 2)});
    const rkv::PlanArrays arrays = plan.arrays();
    const auto row_a = table.row(a.info().slot), row_b = table.row(slot);
    CHECK_EQ(arrays.position_count, 8u);
    CHECK_EQ(plan.position_count(), 8u);
    CHECK_EQ(arrays.query_indptr.size(), 3u);
    CHECK_EQ(arrays.query_indptr[1], 6);
    CHECK_EQ(arrays.query_indptr[2], 8);
    CHECK_EQ(arrays.indptr[2], 5);
    CHECK_EQ(arrays.indices.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i)
        CHECK_EQ(arrays.indices[i], static_cast<std::int32_t>(i < 2 ? row_a[i] : row_b[i - 2]));
    CHECK_EQ(arrays.last_page_len[0], 2);
    CHECK_EQ(arrays.last_page_len[1], 1);
    CHECK_EQ(arrays.slot_mapping.size(), 8u);
    CHECK_EQ(arrays.slot_mapping[5], std::int64_t{row_a[1]} * 4 + 1);
    CHECK_EQ(arrays.slot_mapping[7], std::int64_t{row_b[2]} * 4);
    // A plan that was refused is as before; one that is emptied has no rows.
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, plan.set({rkv::plan_row(a, 0, 9)}));
    CHECK_EQ(plan.position_count(), 8u);
    plan.set({});
    CHECK_EQ(plan.position_count(), 0u);
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, plan.require_current());
    // What is reserved is a limit from then on.
    auto capacity = rkv::sized<rkv_plan_capacity>();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, plan.reserve(capacity));
    capacity.row_count = 1;
    capacity.position_count = 5;
    capacity.page_count = 2;
    plan.reserve(capacity);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, plan.set({rkv::plan_row(a, 0, 6)}));
    plan.set({rkv::plan_row(a, 0, 5)});
    plan.require_current();
}

// J04: two runners of different shapes compute one plan, and the copies of a step are among its
// arrays until both have carried them out.
void serves_two_runners() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    rkv::Plan plan(table);
    rkv_runner_config other = small();
    other.layer_count = 1;
    other.query_head_count = other.kv_head_count = 1;
    rkv::Runner first(table, small()), second(table, other);
    auto compute = [&](const rkv::Sequence& sequence, const Ids& tokens, std::size_t start) {
        const std::size_t count = tokens.size() - start;
        plan.set({rkv::plan_row(sequence, start, count)});
        CHECK_THROWS(RKV_STATUS_INVALID_STATE, first.reserve_plan(plan));
        first.prepare_plan(plan, RKV_PREPARE_KEEP_COPIES_OPEN);
        const Floats q(count * query_heads * dim), kv(count * kv_heads * dim), one(count * dim);
        Floats out(q.size()), out_of_one(one.size());
        first.append_prefill(plan, 0, q, kv, kv, out);
        second.append_prefill(plan, 0, one, one, one, out_of_one);
        first.append_prefill(plan, 1, q, kv, kv, out);
    };
    rkv::Sequence a = cache.begin(ids(1, 10));
    compute(a, ids(1, 10), 0);
    CHECK_EQ(plan.arrays().copy_sequence.size(), 0u);
    a.publish(10);
    Ids tokens = ids(1, 6);
    tokens.push_back(99);
    const rkv::Sequence b = cache.begin(tokens);
    const rkv_page_copy waits = b.copies().at(0);
    compute(b, tokens, 6);
    const rkv::PlanArrays arrays = plan.arrays();
    CHECK_EQ(arrays.copy_sequence.size(), 1u);
    CHECK_EQ(arrays.copy_sequence[0], b.get());
    CHECK_EQ(arrays.copy_group[0], 0);
    CHECK_EQ(arrays.copy_source_page[0], static_cast<std::int32_t>(waits.source_page));
    CHECK_EQ(arrays.copy_target_page[0], static_cast<std::int32_t>(waits.target_page));
    CHECK_EQ(arrays.copy_position_count[0], 2);
    CHECK_EQ(b.info().copy_count, 0u);
}

// K21: an image attends to itself in both directions, and is computed whole or not at all.
void takes_regions() {
    rkv::PageTable table = test::table(9, 4);
    rkv::Cache cache(table);
    rkv::Runner runner(table, small());
    rkv::Plan plan(table);
    const Ids prompt = ids(1, 8);
    const rkv::Sequence sequence = cache.begin(prompt);
    const std::vector<rkv_region> regions{{2, 6}};
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, plan.set({rkv::plan_row(sequence, 0, 4, regions)}));
    const std::vector<std::uint64_t> tree{0, 1, 1, 0, 8, 8, 0, 0};
    plan.set({rkv::plan_row(sequence, 0, 8, {}, tree)});
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 plan.set({rkv::plan_row(sequence, 0, 8, regions, tree)}));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 plan.set({rkv::plan_row(sequence, 0, 7, {}, tree)}));
    plan.set({rkv::plan_row(sequence, 0, 8, regions)});
    const Floats q = project(0, prompt, 0, 8);
    Floats k = project(1, prompt, 0, 8), v = project(2, prompt, 0, 8), out(q.size());
    runner.append_prefill(plan, 0, q, k, v, out);
    // Position 2 sees what 5 sees: their results change with position 5, that of 1 does not.
    Floats again(q.size());
    for (std::size_t at = 5 * kv_heads * dim; at < 6 * kv_heads * dim; ++at) v[at] += 1;
    runner.append_prefill(plan, 0, q, k, v, again);
    const std::size_t row = query_heads * dim;
    CHECK_EQ(again[1 * row], out[1 * row]);
    CHECK(again[2 * row] > out[2 * row]);
    CHECK(again[5 * row] > out[5 * row]);
}

// K22: half-precision tensors by their bits, and FP8 memory with its scales.
void takes_halves() {
    constexpr std::uint16_t one = 0x3F80, half = 0x3F00;  // in bf16
    rkv_runner_config config = small();
    config.dtype = RKV_DTYPE_BF16;
    config.kv_dtype = RKV_DTYPE_FP8_E4M3;
    CHECK_EQ(rkv::Runner::supports(config, 4), 2 * layers * 4 * kv_heads * dim);
    rkv::PageTable table = test::table(9, 4);
    rkv::Cache cache(table);
    rkv::Runner runner(table, config);
    rkv::Plan plan(table);
    const rkv::Sequence sequence = cache.begin(ids(1, 5));
    plan.set({rkv::plan_row(sequence, 0, 5)});
    const std::vector<std::uint16_t> q(5 * query_heads * dim, half), kv(5 * kv_heads * dim, half);
    std::vector<std::uint16_t> out(q.size());
    rkv::AttentionParams params;
    params.k_scale = 0.5F;
    params.v_scale = 0.25F;
    runner.append_prefill(plan, 1, q, kv, kv, out, {}, params);
    for (const std::uint16_t value : out) CHECK_EQ(value, half);
    // A sink with as much weight as the single key takes half of the result.
    const Floats logits(query_heads, 0.25F * dim / 8);
    params.sinks = logits;
    const std::vector<std::uint16_t> ones(5 * kv_heads * dim, one);
    runner.append_prefill(plan, 1, q, kv, ones, out, {}, params);
    CHECK_EQ(out[0], half);

    const Floats wrong(q.size());
    Floats result(q.size());
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 runner.append_prefill(plan, 1, wrong, {}, {}, result));
}

// B08: where K and V lie, and pages that the engine copies itself; also memory of the engine's.
void shows_memory() {
    rkv::PageTable table = test::table(9, 4);
    rkv::Runner own(table, small());
    CHECK_EQ(own.stats().kv_bytes, 9 * own.stats().page_bytes);
    const auto pages = table.allocate_pages(2);
    const rkv_runner_kv_memory memory = own.kv_memory(1);
    CHECK_EQ(memory.page_stride, 4 * kv_heads * dim);
    auto* k = static_cast<float*>(memory.k);
    for (std::size_t i = 0; i < memory.page_stride; ++i)
        k[pages[0] * memory.page_stride + i] = static_cast<float>(i + 1);
    own.copy_pages({{pages[0], pages[1], 3, 0}});
    const float* to = k + pages[1] * memory.page_stride;
    CHECK_EQ(to[3 * memory.position_stride - 1], static_cast<float>(3 * memory.position_stride));
    CHECK_EQ(to[3 * memory.position_stride], 0.0F);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, own.copy_pages({{pages[0], pages[1], 5, 0}}));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)own.kv_memory(layers));

    Floats mine(2 * layers * 9 * memory.page_stride);
    std::vector<rkv_runner_kv_memory> lent(layers, memory);
    for (std::size_t layer = 0; layer < layers; ++layer) {
        lent[layer].k = mine.data() + 2 * layer * 9 * memory.page_stride;
        lent[layer].v = mine.data() + (2 * layer + 1) * 9 * memory.page_stride;
    }
    rkv_runner_config config = small();
    config.kv_layers = lent.data();
    config.kv_layer_size = sizeof(rkv_runner_kv_memory);
    rkv::Runner over(table, config);
    CHECK_EQ(over.stats().kv_bytes, 0u);
    CHECK(over.kv_memory(1).v == lent[1].v);
    rkv::Plan plan(table);
    const std::uint32_t slot = table.allocate_slot();
    table.reserve(slot, 1);
    plan.set({rkv::plan_row_of_slot(slot, 0, 1)});
    const Floats q(query_heads * dim, 1), v(kv_heads * dim, 3);
    Floats out(q.size());
    over.append_prefill(plan, 1, q, v, v, out);
    CHECK_EQ(out[7], 3.0F);
    CHECK_EQ(static_cast<float*>(lent[1].v)[table.row(slot)[0] * memory.page_stride], 3.0F);
}

// M01: refused with the argument's name; tensors of another size never reach the library.
void refuses_bad_arguments() {
    rkv::PageTable table = test::table(9, 4);
    rkv::Cache cache(table);
    rkv_runner_config config = small();
    config.head_dim = 72;
    CHECK_THROWS(RKV_STATUS_UNSUPPORTED, (void)rkv::Runner::supports(config, 4));
    CHECK_THROWS(RKV_STATUS_UNSUPPORTED, (void)rkv::Runner(table, config));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::Runner(table, rkv::Runner::config()));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)rkv::Runner::supports(small(), RKV_PAGE_SIZE_MAX + 1));

    rkv::Runner runner(table, small());
    rkv::Plan plan(table);
    rkv::Sequence sequence = cache.begin(ids(1, 3));
    const Floats q(3 * query_heads * dim), kv(3 * kv_heads * dim), few(7);
    Floats out(q.size()), lse(3 * query_heads), short_out(7);
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, runner.append_prefill(plan, 0, Floats(), {}, {}, {}));
    plan.set({rkv::plan_row(sequence, 0, 3)});
    auto refused = [&](rkv::span<const float> q_, rkv::span<const float> k_,
                       rkv::span<const float> v_, rkv::span<float> out_, rkv::span<float> lse_) {
        return CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                            runner.append_prefill(plan, 0, q_, k_, v_, out_, lse_))[0];
    };
    CHECK_EQ(refused(few, kv, kv, out, lse), 'q');
    CHECK_EQ(refused(q, few, kv, out, lse), 'k');
    CHECK_EQ(refused(q, {}, kv, out, lse), 'k');
    CHECK_EQ(refused(q, kv, {}, out, lse), 'v');
    CHECK_EQ(refused(q, kv, kv, short_out, lse), 'o');
    CHECK_EQ(refused(q, kv, kv, out, short_out), 'l');
    rkv::AttentionParams params;
    params.sinks = few;
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 runner.append_prefill(plan, 0, q, kv, kv, out, {}, params));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, runner.append_prefill(plan, layers, q, kv, kv, out));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 runner.merge_states({out.data()}, {}, 1, out.data()));
    int stream = 0;  // there are none on the CPU, which says so
    rkv::AttentionParams on_stream;
    on_stream.stream = &stream;
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 runner.append_prefill(plan, 0, q, kv, kv, out, {}, on_stream));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 runner.merge_states({out.data()}, {lse.data()}, 3, out.data(), nullptr, &stream));
    rkv::PageTable elsewhere = test::table(9, 4);
    rkv::Runner stranger(elsewhere, small());
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, stranger.append_prefill(plan, 0, q, kv, kv, out));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, stranger.prepare_plan(plan));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, runner.prepare_plan(plan, 6));
    sequence.reset();
    CHECK_THROWS(RKV_STATUS_STALE_SEQUENCE, runner.append_prefill(plan, 0, q, kv, kv, out));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::plan_row(sequence, 0, 3));
}

// M01, M03: moved-from objects refuse, C handles pass in and out.
void moves() {
    rkv::PageTable table = test::table(9, 4);
    rkv::Runner first(table, small());
    rkv_runner* raw = first.get();
    rkv::Runner second = std::move(first);
    CHECK(second.get() == raw);
    CHECK(first.get() == nullptr);  // NOLINT: what a moved-from one does is what is tested
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)first.stats());
    first = std::move(second);
    rkv::Plan plan(table);
    rkv_plan* raw_plan = plan.get();
    rkv::Plan moved = std::move(plan);
    CHECK(moved.get() == raw_plan);
    CHECK(!plan);  // NOLINT
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, plan.set({}));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)plan.arrays());
    plan = rkv::Plan(moved.release());
    CHECK(plan.get() == raw_plan);
    rkv::Runner adopted(first.release(), small());
    CHECK_EQ(adopted.stats().thread_count, 2u);
    adopted.reset();
    CHECK(adopted.get() == nullptr);
    plan.set({});
    plan.reset();
    plan.reset();
}

// M03: the table, the runner and its threads may go before the plan.
void destroys_in_any_order() {
    const auto alive = std::make_shared<int>(0);
    const std::weak_ptr<const int> watched = alive;
    rkv::Plan plan;
    const std::uint32_t slot = [&plan, alive_ = alive]() mutable {
        rkv::PageTable table = test::table(9, 4);
        rkv::Runner runner(table, small(), [held = std::move(alive_)](std::size_t, rkv::Tasks) {});
        plan = rkv::Plan(table);
        plan.set({});
        const std::uint32_t taken = table.allocate_slot();
        table.reserve(taken, 4);
        return taken;
    }();
    CHECK_EQ(alive.use_count(), 1);
    plan.set({rkv::plan_row_of_slot(slot, 0, 4)});
    CHECK_EQ(plan.position_count(), 4u);
    plan.reset();
    plan = rkv::Plan();

    // What C code takes over goes on needing the threads.
    rkv::PageTable table = test::table(9, 4);
    rkv_runner* raw = nullptr;
    std::shared_ptr<const void> threads;
    {
        rkv::Runner runner(table, small(), [alive](std::size_t n, rkv::Tasks tasks) {
            for (std::size_t i = 0; i < n; ++i) tasks(i);
        });
        raw = runner.release();
        threads = runner.threads();
    }
    CHECK_EQ(alive.use_count(), 2);
    rkv_runner_destroy(raw);
    threads.reset();
    CHECK_EQ(alive.use_count(), 1);
}

}  // namespace

int main() {
    computes();
    shows_arrays();
    serves_two_runners();
    takes_regions();
    takes_halves();
    shows_memory();
    refuses_bad_arguments();
    moves();
    destroys_in_any_order();
}
