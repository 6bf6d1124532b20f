/* A draft that branches is verified in one step, and the branch that holds goes on as if it had
 * been computed by itself. */
#include "runner_fixture.h"
#include "misuse.h"

enum { PROMPT = 21, DRAFT = 7, KEPT = 5, AFTER = PROMPT + KEPT + 1 };

/* a ─┬─ b             tokens of the draft, how deep they lie and what they see;
 *    └─ c ─┬─ d       what holds: a, c, e, f, g
 *          └─ e ── f ── g */
static const uint32_t depth[DRAFT] = {0, 1, 1, 2, 2, 3, 4};
static const uint64_t tree[DRAFT] = {0, 1, 1, 5, 5, 21, 53};
static const uint32_t holds[KEPT] = {0, 2, 4, 5, 6};

static uint32_t prompt[ROW_LIMIT];

static uint32_t token(size_t at) { return 700 + 3 * (uint32_t)at; }

/* Numbers of the draft, each as at its depth. */
static void project_draft(float *to, uint32_t kind, uint32_t layer, size_t heads) {
    for (size_t i = 0; i < DRAFT; i++) {
        for (size_t head = 0; head < heads; head++) {
            for (size_t d = 0; d < HEAD_DIM; d++) {
                to[(i * heads + head) * HEAD_DIM + d] =
                    element(kind, layer, token(i), PROMPT + depth[i], head, d);
            }
        }
    }
}

static rkv_kept_branch branch_of(uint32_t row, uint32_t count, const uint32_t *positions) {
    const rkv_kept_branch made = {row, count, positions};
    return made;
}

#define KEEP(r, branch) \
    rkv_runner_keep_branches((r)->runner, (r)->plan, &(branch), 1, sizeof(branch), NULL)

static void k21_a_branch_is_kept(void) {
    for (uint32_t page_size = 1; page_size <= 16; page_size *= 2) {
        runner_fixture r = new_runner(page_size, 80 / page_size + 20, 0);
        count_up(prompt, ROW_LIMIT, 1);
        rkv_sequence_info state = compute_prompt(&r, prompt, PROMPT, PROMPT);
        for (size_t i = 0; i < DRAFT; i++) {
            append(&r.f, state.sequence, token(i));
        }
        chunk draft = chunk_of(state.sequence, prompt, PROMPT, DRAFT);
        draft.row.tree_masks = tree;
        set_plan(&r, &draft, 1);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            tensors t = new_tensors(&draft, 1, layer);
            project_draft(t.q, KIND_Q, layer, QUERY_HEADS);
            project_draft(t.k, KIND_K, layer, KV_HEADS);
            project_draft(t.v, KIND_V, layer, KV_HEADS);
            rkv_runner_append_prefill_args args = layer_args(&t, layer);
            CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
            free_tensors(&t);
        }
        const rkv_kept_branch kept = branch_of(0, KEPT, holds);
        CHECK_OK(KEEP(&r, kept));
        CHECK_OK(rkv_sequence_truncate(r.f.cache, state.sequence, PROMPT));
        for (size_t i = 0; i < KEPT; i++) {
            prompt[PROMPT + i] = token(holds[i]);
            append(&r.f, state.sequence, token(holds[i]));
        }
        /* what comes next sees the branch, in every layer, as the definition says */
        append(&r.f, state.sequence, prompt[AFTER - 1]);
        const chunk next = chunk_of(state.sequence, prompt, AFTER - 1, 1);
        step(&r, &next, 1);
        publish(&r.f, state.sequence, AFTER);
        release(&r.f, state.sequence);
        state = begin(&r.f, text(prompt, AFTER + 3));
        CHECK_EQ(state.cached_position_count, AFTER / page_size * page_size);
        release(&r.f, state.sequence);
        end_runner(&r);
    }
}

static void k21_branches_that_are_none(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, ROW_LIMIT, 1);
    rkv_sequence_info state = compute_prompt(&r, prompt, PROMPT, PROMPT);
    for (size_t i = 0; i < DRAFT; i++) {
        append(&r.f, state.sequence, token(i));
    }
    const rkv_kept_branch good = branch_of(0, KEPT, holds);
    rkv_kept_branch two[2] = {good, good};
    CHECK_STATUS(KEEP(&r, good), RKV_STATUS_INVALID_STATE); /* of the prompt, which is published */
    const chunk draft = chunk_of(state.sequence, prompt, PROMPT, DRAFT);
    step(&r, &draft, 1);
    const uint32_t down[] = {0, 2, 1}, twice[] = {1, 1}, beyond[] = {0, DRAFT};
    const rkv_kept_branch bad[] = {branch_of(1, KEPT, holds), branch_of(0, 3, down),
                                   branch_of(0, 2, twice), branch_of(0, 2, beyond),
                                   branch_of(0, 2, NULL)};
    const char *words[] = {"branches[0].row", "positions", "positions", "positions",
                           "branches[0].positions is NULL"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        BAD(&r.f, KEEP(&r, bad[i]), words[i]);
    }
    const size_t size = sizeof good;
    BAD(&r.f, rkv_runner_keep_branches(NULL, r.plan, &good, 1, size, NULL), "runner");
    BAD(&r.f, rkv_runner_keep_branches(r.runner, NULL, &good, 1, size, NULL), "plan");
    BAD(&r.f, rkv_runner_keep_branches(r.runner, r.plan, NULL, 1, size, NULL), "branches");
    BAD(&r.f, rkv_runner_keep_branches(r.runner, r.plan, &good, 1, size - 8, NULL),
        "element_size");
    BAD(&r.f, rkv_runner_keep_branches(r.runner, r.plan, &good, 1, size, &r), "stream");
    BAD(&r.f, rkv_runner_keep_branches(r.runner, r.plan, two, 2, size, NULL), "branches[1].row");
    two[1].positions = NULL;
    BAD(&r.f, rkv_runner_keep_branches(r.runner, r.plan, two, 2, size, NULL),
        "branches[1].positions is NULL");
    /* nothing was moved: the draft, a chain, is as it was computed */
    append(&r.f, state.sequence, prompt[PROMPT + DRAFT]);
    const chunk next = chunk_of(state.sequence, prompt, PROMPT + DRAFT, 1);
    step(&r, &next, 1);
    CHECK_OK(rkv_runner_keep_branches(r.runner, r.plan, NULL, 0, size, NULL));
    release(&r.f, state.sequence);
    CHECK_STATUS(KEEP(&r, good), RKV_STATUS_STALE_SEQUENCE);
    end_runner(&r);
}

/* Layer 1 attends to what layer 0 wrote. */
static void shared_step(const runner_fixture *r, const chunk *whole) {
    const bool is_draft = whole->row.tree_masks != NULL;
    set_plan(r, whole, 1);
    tensors t = new_tensors(whole, 1, 0);
    if (is_draft) {
        project_draft(t.q, KIND_Q, 0, QUERY_HEADS);
        project_draft(t.k, KIND_K, 0, KV_HEADS);
        project_draft(t.v, KIND_V, 0, KV_HEADS);
    }
    rkv_runner_append_prefill_args args = layer_args(&t, 0);
    CHECK_OK(rkv_runner_append_prefill(r->runner, r->plan, &args));
    args.layer = 1;
    args.k = args.v = NULL;
    CHECK_OK(rkv_runner_append_prefill(r->runner, r->plan, &args));
    if (!is_draft) {
        check_tensors(&t, whole, 1, 0, 0);
    }
    free_tensors(&t);
}

/* Layers may have one memory between them: what is moved there is moved once. */
static void k21_a_branch_is_kept_in_memory_of_two_layers(void) {
    runner_fixture r;
    memset(&r, 0, sizeof r);
    r.f = new_fixture_with(4, 40, 8, 0);
    rkv_runner_kv_memory layers[LAYERS];
    lend_memory(&r, layers);
    layers[1] = layers[0];
    rkv_runner_config config = small_runner();
    config.kv_layers = layers;
    config.kv_layer_size = sizeof *layers;
    CHECK_OK(rkv_runner_create(r.f.table, &config, &r.runner));
    CHECK_OK(rkv_plan_create(r.f.table, &r.plan));
    count_up(prompt, ROW_LIMIT, 1);
    rkv_sequence_info state = begin(&r.f, text(prompt, PROMPT));
    const chunk whole = chunk_of(state.sequence, prompt, 0, PROMPT);
    shared_step(&r, &whole);
    publish(&r.f, state.sequence, PROMPT);
    for (size_t i = 0; i < DRAFT; i++) {
        append(&r.f, state.sequence, token(i));
    }
    chunk draft = chunk_of(state.sequence, prompt, PROMPT, DRAFT);
    draft.row.tree_masks = tree;
    shared_step(&r, &draft);
    const rkv_kept_branch kept = branch_of(0, KEPT, holds);
    CHECK_OK(KEEP(&r, kept));
    CHECK_OK(rkv_sequence_truncate(r.f.cache, state.sequence, PROMPT));
    for (size_t i = 0; i < KEPT; i++) {
        prompt[PROMPT + i] = token(holds[i]);
        append(&r.f, state.sequence, token(holds[i]));
    }
    append(&r.f, state.sequence, prompt[AFTER - 1]);
    const chunk next = chunk_of(state.sequence, prompt, AFTER - 1, 1);
    shared_step(&r, &next); /* it sees the keys of the branch, which were moved once */
    release(&r.f, state.sequence);
    end_runner(&r);
}

int main(void) {
    RUN(k21_a_branch_is_kept);
    RUN(k21_a_branch_is_kept_in_memory_of_two_layers);
    RUN(k21_branches_that_are_none);
    return check_result();
}
