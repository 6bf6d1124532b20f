// rkv::Sequence: the way of a request, and who ends it.
#include "check.hpp"

#include <stdexcept>
#include <string>
#include <type_traits>

static_assert(!std::is_copy_constructible_v<rkv::Sequence>);
static_assert(std::is_nothrow_move_constructible_v<rkv::Sequence>);
static_assert(std::is_nothrow_move_assignable_v<rkv::Sequence>);

namespace {

using test::ids;

// K14, K16, K18, B08
void lives() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    auto begun = rkv::sized<rkv_sequence_info>();
    rkv::Sequence first = cache.begin(ids(1, 14), {}, 3, &begun);
    CHECK_EQ(begun.sequence, first.get());
    CHECK_EQ(begun.cached_position_count, 0u);
    CHECK_EQ(begun.page_count, 5u);
    CHECK_EQ(begun.shared_page_count, 0u);

    rkv_sequence_publish_result published = first.publish(14);
    CHECK_EQ(published.claimed_page_count, 3u);
    CHECK_EQ(published.remapped_page_count, 0u);
    CHECK_EQ(published.first_remapped_index, 5u);
    CHECK_EQ(first.info().shared_page_count, 3u);

    // Another one that shares ten positions: two pages, and two positions by copy.
    std::vector<std::uint32_t> prompt = ids(1, 10);
    prompt.push_back(999);
    rkv::Sequence second = cache.begin(prompt);
    rkv_sequence_info state = second.info();
    CHECK_EQ(state.cached_position_count, 10u);
    CHECK_EQ(state.cached_token_count, 10u);
    CHECK_EQ(state.shared_page_count, 2u);
    CHECK_EQ(state.copy_count, 1u);
    const rkv_page_copy copy = second.copies().at(0);
    CHECK_EQ(copy.position_count, 2u);
    CHECK(copy.source_page != copy.target_page);
    CHECK_EQ(table.row(state.slot)[2], copy.target_page);
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, second.publish(11));
    second.confirm_copies();
    CHECK_EQ(second.info().copy_count, 0u);
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, second.confirm_copies());

    // Decode: one token, then three at once, then two of them are taken back.
    second.append(1000);
    second.append({1001, 1002, 1003});
    CHECK_EQ(second.info().position_count, 15u);
    second.truncate(13);
    CHECK_EQ(second.info().position_count, 13u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, second.truncate(9));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, second.publish(14));
    CHECK_EQ(second.publish(13).claimed_page_count, 1u);
    test::audit(table, cache);

    CHECK_EQ(cache.stats().sequence_count, 2u);
    first.reset();
    CHECK(!first);
    first.reset();
    CHECK_EQ(cache.stats().sequence_count, 1u);
    second.reset();
    CHECK_EQ(table.stats().private_page_count, 0u);
    CHECK_EQ(cache.stats().reclaimable_page_count, cache.stats().cached_page_count);
    test::audit(table, cache);
}

// J08: pages come chunk by chunk; a shortage in the middle changes nothing.
void allocates_by_chunk() {
    rkv::PageTable table = test::table(13, 4);
    rkv::Cache cache(table);
    auto state = rkv::sized<rkv_sequence_info>();
    rkv::Sequence sequence = cache.begin(ids(1, 40), rkv::Namespace(), 0, &state, 8);
    CHECK_EQ(state.position_count, 40u);
    CHECK_EQ(state.page_count, 2u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, sequence.publish(9));
    sequence.allocate(16);
    CHECK_EQ(sequence.publish(16).claimed_page_count, 4u);
    const auto held = table.allocate_pages(3);
    CHECK_THROWS(RKV_STATUS_OUT_OF_PAGES, sequence.allocate(40));
    CHECK_EQ(sequence.info().page_count, 4u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, sequence.allocate(41));
    table.free_pages(held);
    sequence.allocate(40);
    CHECK_EQ(sequence.publish(40).shared_page_count, 10u);

    const rkv::Sequence child = cache.continue_from(sequence.get(), ids(100, 4), rkv::Namespace(),
                                                    RKV_CONTINUE_RUNNING, 0, &state, 41);
    CHECK_EQ(state.page_count, 11u);
    sequence.reset();
    sequence = cache.continue_or_begin(state.sequence + 100, ids(100, 4), ids(1, 20),
                                       rkv::Namespace(), 0, 0, &state, 1);
    CHECK_EQ(state.cached_position_count, 19u);
    CHECK_EQ(state.page_count, 5u);
    test::audit(table, cache);
}

// K16: two prefills of one prompt; the second finds its pages published and gives its own back.
void publishes_second() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    rkv::Sequence first = cache.begin(ids(1, 9));
    rkv::Sequence second = cache.begin(ids(1, 9));
    CHECK_EQ(first.publish(9).claimed_page_count, 2u);
    const rkv_sequence_publish_result result = second.publish(9);
    CHECK_EQ(result.claimed_page_count, 0u);
    CHECK_EQ(result.remapped_page_count, 2u);
    CHECK_EQ(result.first_remapped_index, 0u);
    CHECK_EQ(result.node, first.info().node);
    CHECK_EQ(result.node, second.info().node);
    const auto row_a = table.row(first.info().slot);
    const auto row_b = table.row(second.info().slot);
    CHECK_EQ(row_a[0], row_b[0]);
    CHECK_EQ(row_a[1], row_b[1]);
    CHECK(row_a[2] != row_b[2]);
    test::audit(table, cache);
}

// K11
void stays_in_its_namespace() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    rkv::Sequence lora = cache.begin(ids(1, 9), rkv::Namespace().lora(0));
    lora.publish(9);
    CHECK_EQ(cache.begin(ids(1, 9)).info().cached_position_count, 0u);
    CHECK_EQ(cache.begin(ids(1, 9), rkv::Namespace().lora(0)).info().cached_position_count, 8u);
    test::audit(table, cache);
}

// K15: at least one token is computed; an image is computed whole or not at all.
void backs_off_to_a_token() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const rkv::Digest digest = rkv::image_digest("cat", 3);
    rkv::Tokens prompt{1, 2, 3};
    prompt.image(digest, 9);
    {
        rkv::Sequence sequence = cache.begin(prompt);
        sequence.publish(12);
    }
    const rkv::Sequence again = cache.begin(prompt);
    CHECK_EQ(again.info().cached_token_count, 3u);
    CHECK_EQ(again.info().cached_position_count, 3u);
    test::audit(table, cache);
}

// K18, B06: an exception on the way ends the sequence, with all that it held.
void ends_when_something_throws() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    try {
        rkv::Sequence sequence = cache.begin(ids(1, 30));
        sequence.publish(17);
        throw std::runtime_error("the engine failed");
    } catch (const std::runtime_error&) {
    }
    CHECK_EQ(cache.stats().sequence_count, 0u);
    CHECK_EQ(cache.stats().reclaimable_page_count, 4u);
    CHECK_EQ(table.stats().free_page_count, 28u);
    CHECK_EQ(table.stats().free_slot_count, 4u);
    test::audit(table, cache);
}

void moves() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    rkv::Sequence first = cache.begin(ids(1, 5));
    const rkv_sequence_id id = first.get();
    rkv::Sequence second = std::move(first);
    CHECK_EQ(first.get(), 0u);  // NOLINT: what a moved-from one does is what is tested
    CHECK_EQ(second.get(), id);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)first.info());
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, first.append(1));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, first.publish(1));
    for (int call = 0; call < 2; call++) {
        std::string said;
        try {
            if (call == 0)
                (void)first.fork(2);
            else
                first.publish(1);
        } catch (const rkv::Error& error) {
            said = error.what();
        }
        CHECK(said.find("sequence is empty") != std::string::npos);
    }

    // Assigning over a live one ends that one.
    first = cache.begin(ids(50, 5));
    CHECK_EQ(cache.stats().sequence_count, 2u);
    first = std::move(second);
    CHECK_EQ(cache.stats().sequence_count, 1u);
    CHECK_EQ(first.get(), id);
    rkv::Sequence& itself = first;
    first = std::move(itself);
    CHECK_EQ(first.get(), id);

    // Out to C and back.
    CHECK_EQ(first.release(), id);
    CHECK_EQ(cache.stats().sequence_count, 1u);
    rkv::Sequence adopted = cache.adopt_sequence(id);
    CHECK_EQ(adopted.info().position_count, 5u);
    adopted.reset();
    CHECK_THROWS(RKV_STATUS_STALE_SEQUENCE, cache.adopt_sequence(id).reset());
    test::audit(table, cache);
}

// M03: the cache object and the table object may go first.
void destroys_in_any_order() {
    rkv::Sequence survivor;
    rkv::PageTable outer = test::table(33, 4);
    {
        rkv::PageTable table = test::table(33, 4);
        rkv::Cache cache(table);
        survivor = cache.begin(ids(1, 9));
    }
    survivor.append(7);
    CHECK_EQ(survivor.publish(10).claimed_page_count, 2u);
    CHECK_EQ(survivor.info().position_count, 10u);
    survivor.reset();

    {
        rkv::Cache cache(outer);
        survivor = cache.begin(ids(1, 9));
    }
    CHECK_EQ(outer.stats().private_page_count, 3u);
    survivor = rkv::Sequence();
    CHECK_EQ(outer.stats().free_page_count, 32u);
    CHECK_EQ(outer.stats().free_slot_count, 4u);
    outer.check_invariants();

    // One whose cache went to C code ends nothing.
    rkv::Cache cache(outer);
    rkv_cache* raw = nullptr;
    {
        const rkv::Sequence sequence = cache.begin(ids(1, 9));
        raw = cache.release();
    }
    const rkv::Cache adopted(raw, 4);
    CHECK_EQ(adopted.stats().sequence_count, 1u);
}

// J03
void many_at_once() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> prompts[2] = {ids(1, 6), ids(50, 9)};
    const rkv::TokenView views[2] = {prompts[0], prompts[1]};
    rkv_sequence_begin_args asked[3] = {};
    asked[0].tokens = views[0].get();
    asked[1].tokens = views[1].get();
    rkv::BegunMany begun = cache.begin_many(asked);
    CHECK_EQ(begun.statuses[0], RKV_STATUS_OK);
    CHECK_EQ(begun.statuses[2], RKV_STATUS_INVALID_ARGUMENT);
    CHECK(begun.sequences.size() == 3 && begun.sequences[1] && !begun.sequences[2]);
    CHECK_EQ(begun.infos[1].page_count, 3u);

    const std::uint32_t drawn[2] = {7, 8};
    rkv_sequence_append_item added[2] = {};
    rkv_sequence_publish_item computed[2] = {};
    for (std::size_t i = 0; i < 2; ++i) {
        added[i].sequence = computed[i].sequence = begun.sequences[i].get();
        added[i].ids = &drawn[i];
        added[i].id_count = 1;
        computed[i].computed_position_count = 8;
    }
    CHECK_EQ(cache.append_many(added)[1], RKV_STATUS_OK);
    CHECK_EQ(begun.sequences[0].info().position_count, 7u);
    rkv_status too_few = RKV_STATUS_OK;
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 cache.append_many(added, rkv::span<rkv_status>(&too_few, 1)));
    const rkv::PublishedMany published = cache.publish_many(computed);
    CHECK_EQ(published.statuses[0], RKV_STATUS_INVALID_ARGUMENT);
    CHECK_EQ(published.results[1].claimed_page_count, 2u);

    std::uint32_t pages[4] = {};
    rkv_cache_match_item wanted[1] = {};
    wanted[0].tokens = views[1].get();
    wanted[0].pages = pages;
    wanted[0].page_capacity = 4;
    wanted[0].flags = RKV_MATCH_LOCK;
    const rkv::MatchMany found = cache.match_many(wanted);
    CHECK_EQ(found.found[0].page_count, 2u);
    CHECK(pages[0] != 0);
    cache.adopt_lock(found.found[0].lock).reset();
    rkv_cache_probe_item probed[1] = {};
    probed[0].tokens = views[1].get();
    CHECK_EQ(cache.probe_many(probed).found[0].position_count, 8u);

    const std::vector<rkv_status> ended = cache.release_many(begun.sequences);
    CHECK_EQ(ended[1], RKV_STATUS_OK);
    CHECK_EQ(ended[2], RKV_STATUS_STALE_SEQUENCE);
    CHECK(!begun.sequences[0] && !begun.sequences[1]);
    CHECK_EQ(cache.stats().sequence_count, 0u);
}


// No tokens are none, and not the token 0.
void appends_nothing() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    rkv::Sequence sequence = cache.begin(ids(1, 5));
    try {
        sequence.append({});
    } catch (const rkv::Error&) {  // whether that is refused is the library's business
    }
    CHECK_EQ(sequence.info().position_count, 5u);
    rkv::Tokens tokens;
    tokens.text({});
    CHECK_EQ(tokens.count(), 0u);
    tokens.text({7, 8});
    CHECK_EQ(tokens.count(), 2u);
}

}  // namespace

int main() {
    lives();
    allocates_by_chunk();
    many_at_once();
    publishes_second();
    stays_in_its_namespace();
    backs_off_to_a_token();
    ends_when_something_throws();
    moves();
    destroys_in_any_order();
    appends_nothing();
}
