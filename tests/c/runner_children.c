/* Children with a runner: what they inherit and copy is the KV of their tokens, so attention over
 * it gives what a prefill of their own would. */
#include "runner_fixture.h"

static uint32_t prompt[64];

/* Begins, computes and publishes a prompt. */
static rkv_sequence_info prefill(const runner_fixture *r, uint32_t count) {
    rkv_sequence_info state = begin(&r->f, text(prompt, count));
    chunk all = chunk_of(state.sequence, prompt, (size_t)state.cached_position_count,
                         (size_t)(count - state.cached_position_count));
    step(r, &all, 1);
    publish(&r->f, state.sequence, count);
    return state;
}

/* C02, C04: with the parent retained, dropped before the child's first step, or live and gone. */
static void c04_children_attend_to_what_they_inherit(void) {
    const uint32_t sizes[] = {1, 4, 16};
    for (size_t s = 0; s < 3; s++) {
        for (int how = 0; how < 3; how++) {
            runner_fixture r = new_runner(sizes[s], 256 / sizes[s], 0);
            count_up(prompt, 64, 1);
            uint32_t ids[40];
            memcpy(ids, prompt, sizeof ids);
            count_up(ids + 21, 19, 500);
            rkv_sequence_info parent = prefill(&r, 21);
            if (how < 2) {
                CHECK(retain(&r.f, parent.sequence));
            }
            rkv_tokens suffix = text(ids + 21, 19);
            rkv_sequence_continue_args args = continue_args(parent.sequence, &suffix);
            args.flags = RKV_CONTINUE_RUNNING;
            rkv_sequence_info child = continue_as(&r.f, &args);
            CHECK_EQ(child.cached_position_count, 21);
            if (how == 1) {
                CHECK_OK(rkv_sequence_drop(r.f.cache, parent.sequence));
            } else if (how == 2) {
                release(&r.f, parent.sequence);
            }
            chunk rest = chunk_of(child.sequence, ids, 21, 19);
            step(&r, &rest, 1);
            CHECK_EQ(query(&r.f, child.sequence).copy_count, 0);
            publish(&r.f, child.sequence, 40);
            release(&r.f, child.sequence);
            end_runner(&r);
        }
    }
}

/* C08: beams in one batch, each with tokens of its own; the parent goes on in its own page. */
static void c08_beams_attend_to_their_own_tokens(void) {
    enum { BEAMS = 5, START = 22, STEPS = 14 };
    const uint32_t sizes[] = {1, 4, 16};
    for (size_t s = 0; s < 3; s++) {
        runner_fixture r = new_runner(sizes[s], 512 / sizes[s], 0);
        uint32_t ids[BEAMS + 1][64];
        rkv_sequence_fork_child children[BEAMS];
        rkv_sequence_id beams[BEAMS + 1];
        count_up(prompt, 64, 1);
        rkv_sequence_info parent = prefill(&r, START);
        fork_into(&r.f, parent.sequence, BEAMS, children);
        beams[BEAMS] = parent.sequence;
        for (uint32_t i = 0; i < BEAMS; i++) {
            beams[i] = children[i].sequence;
        }
        for (uint32_t i = 0; i <= BEAMS; i++) {
            memcpy(ids[i], prompt, sizeof ids[i]);
            count_up(ids[i] + START, STEPS, 1000 * (i + 1));
        }
        for (size_t at = START; at < START + STEPS; at++) {
            chunk batch[BEAMS + 1];
            for (size_t i = 0; i <= BEAMS; i++) {
                append(&r.f, beams[i], ids[i][at]);
                batch[i] = chunk_of(beams[i], ids[i], at, 1);
            }
            step(&r, batch, BEAMS + 1);
            for (size_t i = 0; i <= BEAMS; i++) {
                publish(&r.f, beams[i], at + 1);
            }
            /* in the middle, one beam loses and another takes its place */
            if (at == START + STEPS / 2) {
                release(&r.f, beams[1]);
                fork_into(&r.f, beams[3], 1, children);
                beams[1] = children[0].sequence;
                memcpy(ids[1], ids[3], (at + 1) * sizeof ids[1][0]);
            }
        }
        for (size_t i = 0; i <= BEAMS; i++) {
            release(&r.f, beams[i]);
        }
        end_runner(&r);
    }
}

/* An engine that copies by itself can do so after the parent is gone, too; never into what is kept
 * for others. */
static void c04_copies_from_a_parent_that_is_gone(void) {
    runner_fixture r = new_runner(4, 32, 0);
    count_up(prompt, 64, 1);
    rkv_sequence_info parent = prefill(&r, 6);
    CHECK(retain(&r.f, parent.sequence));
    rkv_sequence_info child = continue_from(&r.f, parent.sequence, text(prompt + 6, 3));
    const rkv_page_copy copy = copy_of(&r.f, child.sequence);
    const rkv_page_copy back = {copy.target_page, copy.source_page, 2, 0};
    CHECK_EQ(copy.position_count, 2);
    CHECK_STATUS(rkv_runner_copy_pages(r.runner, &back, 1, sizeof back),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("target_page"));
    CHECK_OK(rkv_sequence_drop(r.f.cache, parent.sequence));
    CHECK_STATUS(rkv_runner_copy_pages(r.runner, &back, 1, sizeof back),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK_OK(rkv_runner_copy_pages(r.runner, &copy, 1, sizeof copy));
    confirm_copies(&r.f, child.sequence);
    CHECK_STATUS(rkv_runner_copy_pages(r.runner, &copy, 1, sizeof copy),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("source_page"));
    chunk rest = chunk_of(child.sequence, prompt, 6, 3);
    step(&r, &rest, 1);
    release(&r.f, child.sequence);
    end_runner(&r);
}

/* A step that was planned for a sequence is refused once that is retained, also when another one
 * has its slot. */
static void c01_a_plan_ends_with_its_sequence(void) {
    runner_fixture r = new_runner(4, 32, 0);
    count_up(prompt, 64, 1);
    rkv_sequence_info parent = prefill(&r, 6);
    append(&r.f, parent.sequence, 7);
    chunk next = chunk_of(parent.sequence, prompt, 6, 1);
    set_plan(&r, &next, 1);
    CHECK(retain(&r.f, parent.sequence));
    rkv_sequence_info other = begin(&r.f, text(prompt + 20, 7));
    CHECK_EQ(other.slot, parent.slot);
    tensors t = new_tensors(&next, 1, 0);
    rkv_runner_append_prefill_args args = layer_args(&t, 0);
    CHECK_STATUS(rkv_runner_append_prefill(r.runner, r.plan, &args), RKV_STATUS_STALE_SEQUENCE);
    free_tensors(&t);
    release(&r.f, other.sequence);
    end_runner(&r);
}

int main(void) {
    RUN(c04_children_attend_to_what_they_inherit);
    RUN(c08_beams_attend_to_their_own_tokens);
    RUN(c04_copies_from_a_parent_that_is_gone);
    RUN(c01_a_plan_ends_with_its_sequence);
    return check_result();
}
