/*
 * What the machine allows: comparing keys and following pointers, without any library. What a
 * workload takes at least of both is in floor.c.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { LINES = 1 << 21, LINE_WORDS = 16, CHASES = 1 << 18, SEED = 808 };
enum { FAR_BYTES = 512 << 20 };

struct machine {
    uint32_t *left, *right;
    size_t key_count;           /* keys that one call compares */
    size_t left_limit;          /* keys that successive calls walk over on the cached side */
    size_t left_offset;
    uint32_t *chain;            /* each line holds the number of the next */
    uint32_t position;
    volatile uint32_t sink;
};

static void compare(void *context, size_t i)
{
    struct machine *machine = context;
    (void)i;
    REQUIRE(memcmp(machine->left + machine->left_offset, machine->right,
                   machine->key_count * sizeof *machine->right) == 0);
    machine->left_offset += machine->key_count;
    if (machine->left_offset + machine->key_count > machine->left_limit) {
        machine->left_offset = 0;
    }
}

static void chase(void *context, size_t i)
{
    struct machine *machine = context;
    (void)i;
    machine->position = machine->chain[(size_t)machine->position * LINE_WORDS];
}

/* One cycle through the first `line_count` lines in random order. */
static void link_lines(struct machine *machine, uint32_t line_count)
{
    uint32_t *order = allocate(line_count, sizeof *order);
    for (uint32_t i = 0; i < line_count; i++) {
        order[i] = i;
    }
    struct rng rng = {SEED};
    rng_shuffle(&rng, order, line_count);
    for (uint32_t i = 0; i < line_count; i++) {
        machine->chain[(size_t)order[i] * LINE_WORDS] = order[(i + 1) % line_count];
    }
    machine->position = order[0];
    free(order);
}

static void measure(struct machine *machine, const char *operation, timed_call call, size_t count)
{
    struct meter meter;
    meter_init(&meter, operation);
    unsigned runs = run_count(6);
    for (unsigned run = 0; run < runs; run++) {
        meter_begin(&meter, TIMING_BATCH);
        meter_calls(&meter, call, machine, count);
        meter_end(&meter);
    }
    meter_emit(&meter, "machine", 0, -1, -1);
    meter_free(&meter);
}

static void measure_compare(struct machine *machine, const char *operation, size_t key_count,
                            size_t left_limit)
{
    machine->key_count = key_count;
    machine->left_limit = left_limit;
    machine->left_offset = 0;
    measure(machine, operation, compare, left_limit > key_count ? left_limit / key_count : 64);
}

void run_machine(uint32_t page_size)
{
    static struct machine machine;
    (void)page_size;
    size_t far_keys = FAR_BYTES / sizeof *machine.left;
    machine.left = malloc(FAR_BYTES);
    machine.right = malloc(131072 * sizeof *machine.right);
    REQUIRE(machine.left != NULL && machine.right != NULL);
    memset(machine.left, 1, FAR_BYTES);
    memset(machine.right, 1, 131072 * sizeof *machine.right);
    measure_compare(&machine, "compare 1100 keys, near", 1100, 1100);
    measure_compare(&machine, "compare 32k keys, one of 64 x 32k", 32768, 64 * 32768);
    measure_compare(&machine, "compare 32k keys, far", 32768, far_keys);
    measure_compare(&machine, "compare 131k keys, near", 131072, 131072);

    machine.chain = machine.left;
    link_lines(&machine, 256);
    measure(&machine, "dependent load within 16 KiB", chase, CHASES);
    link_lines(&machine, 16384);
    measure(&machine, "dependent load within 1 MiB", chase, CHASES);
    link_lines(&machine, 131072);
    measure(&machine, "dependent load within 8 MiB", chase, CHASES);
    link_lines(&machine, 524288);
    measure(&machine, "dependent load within 32 MiB", chase, CHASES);
    link_lines(&machine, LINES);
    measure(&machine, "dependent load within 128 MiB", chase, CHASES);
    machine.sink = machine.position;
    free(machine.left);
    free(machine.right);
}
