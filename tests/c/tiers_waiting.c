/* What waits for a fetch, and for how long. */
#define _XOPEN_SOURCE 700
#include "tiers.h"

/* T03, J04: while a fetch is open, nobody plans with the pages that it fills, and nobody goes on
 * from them; what was planned before is no good any more. */
static void t03_what_waits_for_a_fetch(void) {
    engine e = {.f = journal_fixture()};
    rkv_tier_config config = tier_config();
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    uint32_t ids[33];
    count_up(ids, 33, 1);
    CHECK_EQ(request(&e, ids, 33), 0);
    until_stored(&e, 8, 0);
    CHECK_EQ(evict(&e.f, 8), 8);
    rkv_sequence_info state = begin(&e.f, text(ids, 33));
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_plan_create(e.f.table, &plan));
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = state.sequence;
    row.count = 33;
    CHECK_OK(rkv_plan_set(plan, &row, 1, sizeof row));
    CHECK_OK(rkv_plan_check(plan));
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    CHECK_OK(rkv_sequence_fetch(e.f.cache, state.sequence, UINT64_MAX, 0, &fetch));
    CHECK_EQ(fetch.is_open, 1);
    bool retained = true;
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_PENDING);
    CHECK_STATUS(rkv_plan_set(plan, &row, 1, sizeof row), RKV_STATUS_PENDING);
    CHECK_STATUS(rkv_sequence_retain(e.f.cache, state.sequence, &retained), RKV_STATUS_PENDING);
    CHECK(retained);
    CHECK_EQ(until_fetched(&e).position_count, 32);
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_STATE); /* the cache owns them now */
    row.start = 32;
    row.count = 1;
    CHECK_OK(rkv_plan_set(plan, &row, 1, sizeof row));
    rkv_plan_destroy(plan);
    state = info(&e, state.sequence);
    compute(&e, &state, ids);
    release(&e.f, state.sequence);
    end_engine(&e);
}

/* T11: of a fetch that is late it is said, and what did not come is computed. */
static void t11_a_late_fetch_says_so(void) {
    engine e = {.f = journal_fixture()};
    rkv_tier_config config = tier_config();
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    uint32_t ids[33];
    count_up(ids, 33, 1);
    CHECK_EQ(request(&e, ids, 33), 0);
    until_stored(&e, 8, 0);
    CHECK_EQ(evict(&e.f, 8), 8);
    rkv_sequence_info state = begin(&e.f, text(ids, 33));
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    CHECK_OK(rkv_sequence_fetch(e.f.cache, state.sequence, 20, 0, &fetch));
    CHECK(fetch.is_open == 1 && fetch.position_count == 32);
    for (int i = 0; i < 40; i++) {
        pause_a_little(); /* and nobody polls */
    }
    const rkv_fetch_end end = until_fetched(&e);
    CHECK_EQ(end.sequence, state.sequence);
    CHECK_EQ(end.flags, RKV_FETCH_END_LATE);
    CHECK(end.wanted_page_count == 8 && end.brought_page_count == 0);
    CHECK_EQ(e.loads, 0);
    state = info(&e, state.sequence);
    CHECK(state.cached_position_count == 0 && end.position_count == 0);
    CHECK_EQ(tier_stats(&e.f).open_fetch_count, 0);
    compute(&e, &state, ids);
    release(&e.f, state.sequence);
    end_engine(&e);
}

int main(void) {
    RUN_BOTH(t03_what_waits_for_a_fetch);
    RUN_BOTH(t11_a_late_fetch_says_so);
    return check_result();
}
