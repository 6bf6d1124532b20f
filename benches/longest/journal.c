/* A world in which somebody follows the journal, and calls that write into it. */
#include "longest.h"

#include <stdlib.h>

enum { SEED = 1501, TOKENS = 64, RECORDS = 256, PAGES = 1024, ITEMS = 16 };

static rkv_journal_record records[RECORDS];
static uint32_t pages[PAGES], tokens_read[PAGES * 16];
static rkv_journal_item items[ITEMS];

static rkv_journal_buffers room(void)
{
    return (rkv_journal_buffers){
        .struct_size = sizeof(rkv_journal_buffers),
        .records = records, .record_size = sizeof *records, .record_capacity = RECORDS,
        .pages = pages, .page_capacity = PAGES,
        .tokens = tokens_read, .token_capacity = PAGES * 16,
        .items = items, .item_size = sizeof *items, .item_capacity = ITEMS,
    };
}

static uint64_t follow(const struct house *house, uint64_t number)
{
    rkv_journal_buffers into = room();
    rkv_cache_read_journal_result result = {.struct_size = sizeof result};
    do {
        TIME(rkv_cache_read_journal, house->cache, number, &into, &result);
        number = result.last_number;
    } while (number < result.newest_number);
    TIME(rkv_page_table_read_journal, house->table, number, &into, &result);
    return number;
}

static void contents(const struct house *house)
{
    rkv_cache_read_contents_result result = {.struct_size = sizeof result};
    rkv_journal_buffers into = room();
    do {
        TIME(rkv_cache_read_contents, house->cache, result.next_page, &into, &result);
    } while (result.next_page != 0);
}

/* Writes all that there is to tell, in batches as an engine sends them. */
static void tell(rkv_event_encoder *encoder)
{
    enum { ROOM = 1 << 18 };
    uint8_t *buffer = allocate(ROOM, 1);
    rkv_event_batch batch = {.struct_size = sizeof batch};
    do {
        TIME(rkv_event_encoder_encode, encoder, 1.5, buffer, ROOM, &batch);
    } while ((batch.flags & RKV_EVENTS_MORE) != 0);
    free(buffer);
}

static void events(const struct house *house)
{
    rkv_event_encoder *encoder;
    const rkv_namespace space = {
        .struct_size = sizeof space, .flags = RKV_NAMESPACE_LORA, .lora_id = 3};
    TIME(rkv_event_encoder_create, house->cache, NULL, &encoder);
    TIME(rkv_event_encoder_name_namespace, encoder, &space, "adapter", "");
    tell(encoder);
    evict(house, 64);
    tell(encoder);
    TIME(rkv_event_encoder_repeat, encoder);
    tell(encoder);
    TIME_VOID(rkv_event_encoder_destroy, encoder);
}

void world_journal(uint32_t page_size, uint32_t index)
{
    uint32_t prompt_count = sizes.nodes / 10, ids[TOKENS];
    situation("10^5 prompts with a journal");
    house_journal_bytes = 16 << 20;
    struct house house = house_open(page_size, prompt_count * (TOKENS / page_size), 64, index, 0);
    house_journal_bytes = 0;
    struct rng rng = {SEED};
    uint64_t number = 0;
    for (uint32_t i = 0; i < prompt_count + 20000; i++) {
        tokens_fill(SEED, i, ids, TOKENS);
        rkv_tokens tokens = text(ids, TOKENS);
        request(&house, NULL, &tokens);
        if (rng_below(&rng, 64) == 0) {
            evict(&house, 1 + rng_below(&rng, 32));
            number = follow(&house, number);
        }
    }
    contents(&house);
    events(&house);
    house_close(&house);
}
