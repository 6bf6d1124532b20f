/* M06: prompts whose paths are passed in portions: longer than what is looked up at once, of more
 * nodes than that, with an image and without, into buffers that have not a byte too many. */
#include "fixture.h"

enum { COUNT = 1500, BRANCH_EVERY = 3, IMAGE = 40, PAGES = 8 * COUNT, CANARY = 0x5a5a5a5a };

/* A prompt that all others begin like; its first token may be an image. */
static rkv_tokens prompt(uint32_t *ids, rkv_token_item *item, bool has_image, size_t count) {
    count_up(ids, count, 1);
    *item = image(0, 7, IMAGE);
    return with_items(ids, count, item, has_image ? 1 : 0);
}

static size_t positions_of(rkv_tokens tokens) {
    size_t positions = 0;
    CHECK_OK(rkv_tokens_position_count(&tokens, &positions));
    return positions;
}

/* Publishes prompts that part every few tokens, so that the path has as many nodes. */
static void publish_path(const fixture *f, bool has_image) {
    uint32_t ids[COUNT];
    rkv_token_item item;
    for (size_t count = BRANCH_EVERY; count < COUNT; count += BRANCH_EVERY) {
        rkv_tokens tokens = prompt(ids, &item, has_image, count + 1);
        ids[count] = 100000 + (uint32_t)count;
        rkv_sequence_info state = begin(f, tokens);
        CHECK_OK(rkv_sequence_publish(f->cache, state.sequence, state.position_count, NULL));
        CHECK_OK(rkv_sequence_release(f->cache, state.sequence));
    }
}

/* What a prompt takes from the cache, in all ways; pages get those of the match. */
static size_t looked_up(const fixture *f, rkv_tokens tokens, uint32_t *pages) {
    rkv_cache_match_result match = new_match();
    CHECK_OK(rkv_cache_match(f->cache, NULL, &tokens, RKV_MATCH_LOCK, NULL, 0, &match));
    CHECK_OK(rkv_cache_unlock(f->cache, match.lock));
    size_t found = match.page_count;
    CHECK_EQ(probe(f, tokens), match.position_count);

    /* Exactly as many pages, and not one less. */
    uint32_t *exact = malloc(found * sizeof *exact);
    memset(exact, 0x5a, found * sizeof *exact);
    rkv_cache_match_result again = new_match();
    CHECK_STATUS(rkv_cache_match(f->cache, NULL, &tokens, 0, exact, found - 1, &again),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK_EQ(exact[0], CANARY);
    CHECK_OK(rkv_cache_match(f->cache, NULL, &tokens, 0, exact, found, &again));
    CHECK_EQ(again.page_count, found);

    /* Into room for all that the prompt has, where pages come on the way. */
    size_t room = positions_of(tokens);
    uint32_t *all = malloc((room + 1) * sizeof *all);
    all[room] = CANARY;
    CHECK_OK(rkv_cache_match(f->cache, NULL, &tokens, 0, all, room, &again));
    CHECK_EQ(again.page_count, found);
    CHECK(memcmp(all, exact, found * sizeof *all) == 0);
    CHECK_EQ(all[room], CANARY);
    free(all);

    rkv_sequence_info state = begin(f, tokens);
    CHECK_EQ(state.shared_page_count, found);
    size_t row_count = 0;
    CHECK_OK(rkv_page_table_read_row(f->table, state.slot, 0, NULL, 0, &row_count));
    uint32_t *row = malloc(row_count * sizeof *row);
    CHECK_OK(rkv_page_table_read_row(f->table, state.slot, 0, row, row_count, &row_count));
    CHECK(memcmp(row, exact, found * sizeof *row) == 0);
    CHECK_OK(rkv_sequence_release(f->cache, state.sequence));
    memcpy(pages, exact, found * sizeof *pages);
    free(row);
    free(exact);
    return found;
}

static void pass_and_insert(bool has_image) {
    fixture f = new_fixture(1, PAGES);
    publish_path(&f, has_image);
    uint32_t *ids = malloc(COUNT * sizeof *ids);
    rkv_token_item item;
    rkv_tokens tokens = prompt(ids, &item, has_image, COUNT);
    size_t positions = positions_of(tokens);
    uint32_t *pages = malloc(positions * sizeof *pages);
    size_t found = looked_up(&f, tokens, pages);
    CHECK_EQ(found, positions - BRANCH_EVERY);

    /* The rest is inserted: what is cached is told, what is new is claimed. */
    uint32_t *own = malloc(positions * sizeof *own);
    uint32_t *published = malloc(positions * sizeof *published);
    allocate(&f, positions, own);
    rkv_cache_insert_args args = insert_args(&tokens, own, positions);
    rkv_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    CHECK_OK(rkv_cache_insert(f.cache, &args, published, &result));
    CHECK_EQ(result.page_count, positions);
    CHECK_EQ(result.claimed_page_count, positions - found);
    CHECK(memcmp(published, pages, found * sizeof *pages) == 0);
    CHECK(memcmp(published + found, own + found, (positions - found) * sizeof *own) == 0);
    CHECK_OK(rkv_page_table_free_pages(f.table, own, found));
    CHECK_EQ(probe(&f, tokens), positions);

    /* A wrong id anywhere is named, and changes nothing. */
    uint64_t free_before = free_pages(&f);
    ids[COUNT - 1] = UINT32_MAX;
    rkv_sequence_info state = new_state();
    CHECK_STATUS(try_begin(&f, tokens, &state), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("tokens.ids[1499]"));
    CHECK_EQ(free_pages(&f), free_before);
    CHECK_EQ(probe(&f, tokens), positions - 1);
    free(published);
    free(own);
    free(pages);
    free(ids);
    end_fixture(&f);
}

static void m06_a_long_path_of_text(void) { pass_and_insert(false); }

static void m06_a_long_path_behind_an_image(void) { pass_and_insert(true); }

/* Somebody else publishes the same prompt in small pieces before it is computed. */
static void m06_a_publish_passes_what_others_published(void) {
    fixture f = new_fixture(1, PAGES);
    uint32_t ids[COUNT];
    rkv_token_item item;
    rkv_tokens tokens = prompt(ids, &item, false, COUNT);
    rkv_sequence_info state = begin(&f, tokens);
    publish_path(&f, false);
    rkv_sequence_publish_result done;
    memset(&done, 0, sizeof done);
    done.struct_size = sizeof done;
    CHECK_OK(rkv_sequence_publish(f.cache, state.sequence, COUNT, &done));
    CHECK_EQ(done.claimed_page_count, BRANCH_EVERY);
    CHECK_EQ(done.remapped_page_count, COUNT - BRANCH_EVERY);
    CHECK_OK(rkv_sequence_release(f.cache, state.sequence));
    CHECK_EQ(probe(&f, tokens), COUNT);
    end_fixture(&f);
}

/* Children of a parent with a long row have its pages. */
static void m06_children_of_a_long_row(void) {
    fixture f = new_fixture(1, 4 * 40000);
    enum { LONG = 40000 };
    uint32_t *ids = malloc(LONG * sizeof *ids);
    count_up(ids, LONG, 1);
    rkv_sequence_info parent = begin(&f, text(ids, LONG));
    CHECK_OK(rkv_sequence_publish(f.cache, parent.sequence, LONG, NULL));
    rkv_sequence_fork_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.parent = parent.sequence;
    args.child_count = 2;
    rkv_sequence_fork_child children[2];
    memset(children, 0, sizeof children);
    CHECK_OK(rkv_sequence_fork(f.cache, &args, children, sizeof *children));
    uint32_t *rows = malloc(2 * LONG * sizeof *rows);
    size_t count = 0;
    CHECK_OK(rkv_page_table_read_row(f.table, parent.slot, 0, rows, LONG, &count));
    CHECK_EQ(count, LONG);
    for (int child = 0; child < 2; child++) {
        CHECK_OK(rkv_page_table_read_row(f.table, children[child].slot, 0, rows + LONG, LONG,
                                         &count));
        CHECK_EQ(count, LONG);
        CHECK(memcmp(rows, rows + LONG, LONG * sizeof *rows) == 0);
        CHECK_OK(rkv_sequence_release(f.cache, children[child].sequence));
    }
    CHECK_OK(rkv_sequence_release(f.cache, parent.sequence));
    free(rows);
    free(ids);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(m06_a_long_path_of_text);
    RUN_BOTH(m06_a_long_path_behind_an_image);
    RUN_BOTH(m06_a_publish_passes_what_others_published);
    RUN_BOTH(m06_children_of_a_long_row);
    return check_result();
}
