/* A runner on the processor carries out the copies of tiers. */
#include "runner_fixture.h"

/* Pages are loaded into private ones. */
static void take_all(rkv_page_table *table) {
    uint32_t pages[7];
    CHECK_OK(rkv_page_table_allocate_pages(table, 7, pages));
}

/* T02: a page of all layers goes to host memory as one piece, and comes back to any page. */
static void t02_pages_are_packed(void) {
    for (uint32_t layout = RKV_KV_LAYOUT_NHD; layout <= RKV_KV_LAYOUT_HND; layout++) {
        rkv_page_table *table = new_table(4, 8, 2);
        rkv_runner_config config = small_runner();
        config.kv_layout = layout;
        rkv_runner *runner = NULL;
        CHECK_OK(rkv_runner_create(table, &config, &runner));
        rkv_runner_stats stats = {.struct_size = sizeof stats};
        CHECK_OK(rkv_runner_read_stats(runner, &stats));
        uint8_t *piece = calloc(1, stats.page_bytes);
        rkv_runner_kv_memory memory;
        size_t count = 4 * KV_HEADS * HEAD_DIM;
        CHECK_EQ(stats.page_bytes, 2 * LAYERS * count * sizeof(float));
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            CHECK_OK(rkv_runner_read_kv_memory(runner, layer, &memory, sizeof memory));
            for (size_t i = 0; i < count; i++) {
                ((float *)memory.k + 3 * memory.page_stride)[i] = (float)(i + 7 * layer);
                ((float *)memory.v + 3 * memory.page_stride)[i] = -(float)(i + 9 * layer);
            }
        }
        rkv_copy_job store = {1, piece, stats.page_bytes, 0, 3, RKV_COPY_STORE, 0, 0};
        rkv_copy_job load = {2, piece, stats.page_bytes, 0, 5, RKV_COPY_LOAD, 0, 0};
        CHECK_OK(rkv_runner_copy_tier_pages(runner, &store, 1, sizeof store));
        take_all(table);
        CHECK_OK(rkv_runner_copy_tier_pages(runner, &load, 1, sizeof load));
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            CHECK_OK(rkv_runner_read_kv_memory(runner, layer, &memory, sizeof memory));
            for (size_t i = 0; i < count; i++) {
                CHECK(((float *)memory.k + 5 * memory.page_stride)[i] == (float)(i + 7 * layer));
                CHECK(((float *)memory.v + 5 * memory.page_stride)[i] == -(float)(i + 9 * layer));
            }
        }
        rkv_copy_job wrong[] = {store, store, store, store};
        wrong[0].page = 0;
        wrong[1].page = 8;
        wrong[2].byte_count--;
        wrong[3].direction = 2;
        const char *words[] = {"page", "page", "byte_count", "direction"};
        for (size_t i = 0; i < 4; i++) {
            CHECK_STATUS(rkv_runner_copy_tier_pages(runner, &wrong[i], 1, sizeof store),
                         RKV_STATUS_INVALID_ARGUMENT);
            CHECK(message_names(words[i]));
        }
        load.host = NULL;
        CHECK_STATUS(rkv_runner_copy_tier_pages(runner, &load, 1, sizeof load),
                     RKV_STATUS_INVALID_ARGUMENT);
        CHECK_STATUS(rkv_runner_copy_tier_pages(NULL, &store, 1, sizeof store),
                     RKV_STATUS_INVALID_ARGUMENT);
        CHECK_STATUS(rkv_runner_copy_tier_pages(runner, NULL, 1, sizeof store),
                     RKV_STATUS_INVALID_ARGUMENT);
        CHECK_OK(rkv_runner_copy_tier_pages(runner, NULL, 0, sizeof store));
        free(piece);
        rkv_runner_destroy(runner);
        rkv_page_table_destroy(table);
    }
}

/* Latent V is a part of K, and takes no memory of its own there either. */
static void t02_latent_pages_are_packed(void) {
    rkv_page_table *table = new_table(4, 8, 2);
    rkv_runner_config config = small_runner();
    config.kv_head_count = 1;
    config.head_dim = 576;
    config.v_head_dim = 512;
    config.flags = RKV_RUNNER_LATENT;
    rkv_runner *runner = NULL;
    CHECK_OK(rkv_runner_create(table, &config, &runner));
    rkv_runner_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(rkv_runner_read_stats(runner, &stats));
    const size_t count = 4 * 576;
    CHECK_EQ(stats.page_bytes, LAYERS * count * sizeof(float));
    uint8_t *piece = calloc(1, stats.page_bytes);
    rkv_runner_kv_memory memory;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK_OK(rkv_runner_read_kv_memory(runner, layer, &memory, sizeof memory));
        for (size_t i = 0; i < count; i++) {
            ((float *)memory.k + 3 * memory.page_stride)[i] = (float)(i + 7 * layer);
        }
    }
    const rkv_copy_job store = {1, piece, stats.page_bytes, 0, 3, RKV_COPY_STORE, 0, 0};
    const rkv_copy_job load = {2, piece, stats.page_bytes, 0, 5, RKV_COPY_LOAD, 0, 0};
    CHECK_OK(rkv_runner_copy_tier_pages(runner, &store, 1, sizeof store));
    take_all(table);
    CHECK_OK(rkv_runner_copy_tier_pages(runner, &load, 1, sizeof load));
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK_OK(rkv_runner_read_kv_memory(runner, layer, &memory, sizeof memory));
        for (size_t i = 0; i < count; i++) {
            CHECK(((float *)memory.k + 5 * memory.page_stride)[i] == (float)(i + 7 * layer));
        }
    }
    free(piece);
    rkv_runner_destroy(runner);
    rkv_page_table_destroy(table);
}

/* What the cache has, or nobody, is not loaded: nothing is written, not even a page before. */
static void t02_only_private_pages_are_loaded(void) {
    fixture f = new_fixture(4, 8);
    rkv_runner_config config = small_runner();
    rkv_runner *runner = NULL;
    CHECK_OK(rkv_runner_create(f.table, &config, &runner));
    rkv_runner_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(rkv_runner_read_stats(runner, &stats));
    uint8_t *piece = malloc(stats.page_bytes);
    memset(piece, 0x41, stats.page_bytes);
    rkv_runner_kv_memory memory;
    CHECK_OK(rkv_runner_read_kv_memory(runner, 0, &memory, sizeof memory));
    uint32_t ids[5], pages[2];
    count_up(ids, 5, 1);
    const rkv_sequence_info state = begin(&f, text(ids, 5));
    CHECK_EQ(publish(&f, state.sequence, 5).claimed_page_count, 1);
    size_t count;
    CHECK_OK(rkv_page_table_read_row(f.table, state.slot, 0, pages, 2, &count));
    CHECK_EQ(count, 2);
    const rkv_copy_job good = {1, piece, stats.page_bytes, 0, pages[1], RKV_COPY_LOAD, 0, 0};
    rkv_copy_job jobs[] = {good, good};
    for (uint32_t page = 1; page < 8; page++) {
        if (page != pages[1]) {
            jobs[1].page = page;
            CHECK_STATUS(rkv_runner_copy_tier_pages(runner, jobs, 2, sizeof good),
                         RKV_STATUS_INVALID_ARGUMENT);
            CHECK(message_names("jobs[1].page"));
        }
        CHECK(((const float *)memory.k)[page * memory.page_stride] == 0);
    }
    jobs[1].page = pages[0];
    jobs[1].direction = RKV_COPY_STORE;
    CHECK_OK(rkv_runner_copy_tier_pages(runner, &good, 1, sizeof good));
    CHECK_OK(rkv_runner_copy_tier_pages(runner, jobs + 1, 1, sizeof good));
    CHECK(((const float *)memory.k)[pages[1] * memory.page_stride] != 0);
    free(piece);
    rkv_runner_destroy(runner);
    end_fixture(&f);
}

int main(void) {
    RUN(t02_pages_are_packed);
    RUN(t02_latent_pages_are_packed);
    RUN(t02_only_private_pages_are_loaded);
    return check_result();
}
