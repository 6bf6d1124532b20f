// rkv::Sequence and rkv::Cache: retain, continue, fork, and what is retained.
#include "check.hpp"

namespace {

using test::ids;

rkv_sequence_id serve_and_retain(rkv::Cache& cache, rkv::TokenView tokens,
                                 const rkv::Namespace& ns = {}) {
    rkv::Sequence sequence = cache.begin(tokens, ns);
    const rkv_sequence_id id = sequence.get();
    if (sequence.info().copy_count > 0) sequence.confirm_copies();
    sequence.publish(sequence.info().position_count);
    CHECK(sequence.retain());
    CHECK(!sequence);
    return id;
}

// C01, C02, C04
void continues() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const rkv_sequence_id parent = serve_and_retain(cache, ids(1, 10));
    CHECK_EQ(cache.stats().sequence_count, 0u);
    CHECK_EQ(cache.stats().retained_sequence_count, 1u);
    CHECK_EQ(cache.retained().size(), 1u);
    CHECK_EQ(cache.retained()[0], parent);
    rkv_sequence_id one[1] = {0};
    CHECK_EQ(cache.retained(one), 1u);
    CHECK_EQ(one[0], parent);

    auto state = rkv::sized<rkv_sequence_info>();
    rkv::Sequence child = cache.continue_from(parent, {70, 71}, {}, 0, 5, &state);
    CHECK_EQ(state.sequence, child.get());
    CHECK_EQ(state.position_count, 12u);
    CHECK_EQ(state.inherited_position_count, 10u);
    CHECK_EQ(state.copy_count, 1u);
    CHECK_EQ(state.page_count, 5u);
    child.confirm_copies();
    CHECK_EQ(child.publish(12).claimed_page_count, 1u);
    // Again, with nothing to add: the last position is computed once more.
    CHECK_EQ(cache.continue_from(parent, {}).info().cached_position_count, 9u);

    cache.drop(parent);
    CHECK_THROWS(RKV_STATUS_STALE_SEQUENCE, cache.drop(parent));
    CHECK_THROWS(RKV_STATUS_STALE_SEQUENCE, (void)cache.continue_from(parent, {70}));
    CHECK_EQ(cache.stats().inherit_count, 2u);
    CHECK_EQ(cache.stats().inherited_position_count, 19u);
    test::audit(table, cache);
}

// C05, C06, C07
void chooses_its_parent() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const rkv::Namespace lora = rkv::Namespace().lora(3);
    rkv::Sequence running = cache.begin(ids(1, 9), lora);
    running.publish(9);
    CHECK_THROWS(RKV_STATUS_PENDING, (void)cache.continue_from(running.get(), {7}, lora));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)cache.continue_from(running.get(), {7}, {}, RKV_CONTINUE_RUNNING));
    const rkv_sequence_id parent = running.get();
    CHECK_EQ(cache.continue_from(parent, {7}, lora, RKV_CONTINUE_RUNNING)
                 .info()
                 .inherited_position_count,
             9u);
    running.reset();
    const rkv::Sequence found = cache.continue_or_begin(parent, {7}, ids(1, 10), lora);
    CHECK_EQ(found.info().inherited_position_count, 0u);
    CHECK_EQ(found.info().cached_position_count, 8u);
    CHECK_EQ(found.info().position_count, 10u);
    test::audit(table, cache);
}

// C03
void keeps_its_promise() {
    rkv::PageTable table = test::table(9, 4);
    rkv::Cache cache(table);
    serve_and_retain(cache, ids(1, 12));
    CHECK_EQ(cache.evict(100), 0u);
    try {
        (void)cache.begin(ids(100, 32));
        CHECK(false);
    } catch (const rkv::OutOfPages& refused) {
        const rkv_shortage& shortage = refused.shortage();
        CHECK_EQ(shortage.retained_page_count, 3u);
        const auto lacking = shortage.needed_page_count - shortage.free_page_count -
                             shortage.reclaimable_page_count;
        CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.drop_retained_pool(1, 1));
        CHECK_EQ(cache.drop_retained(0), 0u);
        CHECK_EQ(cache.drop_retained_pool(shortage.pool, lacking), 3u);
    }
    CHECK_EQ(cache.stats().displaced_sequence_count, 1u);
    CHECK_EQ(cache.begin(ids(100, 32)).info().page_count, 8u);
    // More than may be retained: released, and empty all the same.
    rkv::Sequence large = cache.begin(ids(200, 20));
    large.publish(20);
    CHECK(!large.retain());
    CHECK(!large);
    CHECK_EQ(cache.stats().sequence_count, 0u);
    test::audit(table, cache);
}

// C08
void forks() {
    rkv::PageTable table = test::table(33, 4, 8);
    rkv::Cache cache(table);
    rkv::Sequence parent = cache.begin(ids(1, 10));
    parent.publish(10);
    const std::uint32_t source = table.row(parent.info().slot)[2];
    std::vector<rkv::Sequence> beams = parent.fork(3);
    CHECK_EQ(beams.size(), 3u);
    for (const rkv::Sequence& beam : beams) {
        CHECK_EQ(beam.info().copy_count, 1u);
        const rkv_page_copy copy = beam.copies().at(0);
        CHECK_EQ(copy.source_page, source);
        CHECK_EQ(copy.target_page, table.row(beam.info().slot)[2]);
        CHECK_EQ(copy.position_count, 2u);
    }
    CHECK(parent.copies().empty());
    parent.reset();
    CHECK_EQ(table.stats().private_page_count, 4u);
    beams[1].confirm_copies();
    beams[1].append(50);
    beams.erase(beams.begin() + 2);
    beams.erase(beams.begin());
    CHECK_EQ(table.stats().private_page_count, 1u);
    CHECK_EQ(beams[0].info().position_count, 11u);
    CHECK_EQ(beams[0].fork(2, 8).size(), 2u);
    CHECK_EQ(cache.stats().sequence_count, 1u);

    const rkv_sequence_id kept = beams[0].get();
    beams[0].publish(11);
    CHECK(beams[0].retain());
    const std::vector<rkv::Sequence> more = cache.fork_retained(kept, 4);
    CHECK_EQ(more.size(), 4u);
    CHECK_EQ(more[3].info().cached_position_count, 11u);
    test::audit(table, cache);
    // All or none.
    CHECK_THROWS(RKV_STATUS_OUT_OF_SLOTS, (void)cache.fork_retained(kept, 5));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.fork_retained(kept, 0));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::Sequence().fork(1));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, rkv::Sequence().retain());
}

// M03: children keep the C cache alive, as other sequences do.
void outlives_the_cache() {
    std::vector<rkv::Sequence> children;
    rkv::PageTable table = test::table(33, 4);
    {
        rkv::Cache cache(table);
        const rkv_sequence_id parent = serve_and_retain(cache, ids(1, 10));
        children = cache.fork_retained(parent, 2);
    }
    children[0].confirm_copies();
    children[0].append(5);
    children.clear();
    CHECK_EQ(table.stats().free_page_count, 32u);
    CHECK_EQ(table.stats().free_slot_count, 4u);
    table.check_invariants();
}

}  // namespace

int main() {
    continues();
    chooses_its_parent();
    keeps_its_promise();
    forks();
    outlives_the_cache();
}
