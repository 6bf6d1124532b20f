/* M03: after fork() a child uses nothing of its parent, destroys what it likes, and ends. Threads
 * of the parent are inside the library at the time of the fork. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "misuse.h"
#include "runner_fixture.h"
#include "snapshots.h"

enum { FORKS = 20, PATIENCE_SECONDS = 60 };

/* The parent's; destroyed at the end of every process. */
static runner_fixture parent;
static shelf snapshots;
static rkv_snapshot_cache_match_result pinned;
static rkv_sequence_id sequence;
static rkv_node_id node;
static bool stop;
static bool is_child;

#if defined(__SANITIZE_ADDRESS__)
/* What threads of the parent kept for themselves is lost in a child, which has no such threads. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }
#endif
static uint32_t ids[16];

/* Lets others run: where one thread runs at a time, threads that never stop keep the rest out. */
static bool stopped(void) {
    sched_yield();
    return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

/* Holds the lock nearly all the time, and computes with threads of the library. */
static void *change(void *nothing) {
    uint32_t mine[16];
    count_up(mine, 16, 500);
    tensors t;
    memset(&t, 0, sizeof t);
    while (!stopped()) {
        serve(&parent.f, text(mine, 16));
        evict(&parent.f, 8);
        rkv_sequence_info state = begin(&parent.f, text(mine, 16));
        chunk whole = chunk_of(state.sequence, mine, 0, 16);
        if (t.q == NULL) {
            t = new_tensors(&whole, 1, 0);
        }
        set_plan(&parent, &whole, 1);
        rkv_runner_append_prefill_args args = layer_args(&t, 0);
        CHECK_OK(rkv_runner_append_prefill(parent.runner, parent.plan, &args));
        release(&parent.f, state.sequence);
    }
    free_tensors(&t);
    return nothing;
}

/* Reads without the lock: the places of such readers stay taken in a child. */
static void *read_only(void *nothing) {
    rkv_tokens tokens = text(ids, 16);
    size_t positions;
    while (!stopped()) {
        CHECK_OK(rkv_cache_probe(parent.f.cache, NULL, &tokens, NULL, &positions));
    }
    return nothing;
}

static void *match_snapshots(void *nothing) {
    rkv_tokens tokens = text(ids, 3);
    rkv_snapshot_cache_match_result match = new_found();
    while (!stopped()) {
        CHECK_OK(rkv_snapshot_cache_match(snapshots.cache, NULL, &tokens, 0, &match));
        CHECK_OK(rkv_snapshot_cache_release(snapshots.cache, match.pin));
    }
    return nothing;
}

/* Has the lock of the reserve nearly all the time. */
static void *ask_for_reserve(void *nothing) {
    rkv_index_memory_stats stats = {.struct_size = sizeof stats};
    while (!stopped()) {
        for (int i = 0; i < 1000; i++) {
            CHECK_OK(rkv_read_index_memory_stats(&stats));
        }
    }
    CHECK(stats.reserved_bytes > 0);
    return nothing;
}

/* Takes ids of a process for caches, and gives them back. */
static void *make_caches(void *nothing) {
    while (!stopped()) {
        fixture passing = new_fixture(1, 2);
        end_fixture(&passing);
    }
    return nothing;
}

static void ignore_message(uint32_t level, const char *message, void *user_data) {
    (void)level;
    (void)message;
    (void)user_data;
}

static void *log_elsewhere(void *nothing) {
    while (!stopped()) {
        rkv_set_log_callback(RKV_LOG_ERROR, ignore_message, NULL);
        rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);
    }
    return nothing;
}

/* Of a child, too: there it does nothing. */
static void destroy_everything(void) {
    rkv_plan_destroy(parent.plan);
    rkv_runner_destroy(parent.runner);
    rkv_cache_destroy(parent.f.cache);
    rkv_page_table_destroy(parent.f.table);
    rkv_snapshot_cache_destroy(snapshots.cache);
}

#define INHERITED(call)                                                                           \
    do {                                                                                          \
        forget_message();                                                                         \
        CHECK_STATUS(call, RKV_STATUS_INVALID_STATE);                                             \
        check_report(message_names("fork()"), __FILE__, __LINE__, #call " says why");             \
    } while (0)

static void m03_handles_of_the_parent(void) {
    rkv_page_table *table = parent.f.table;
    rkv_cache *cache = parent.f.cache;
    rkv_tokens tokens = text(ids, 16);
    uint32_t pages[16], slot = 77;
    uint64_t position = 0;
    size_t count = 77;
    bool answer = false;
    char buffer[16];
    int64_t place = 0;
    rkv_page_table_stats table_now = {.struct_size = sizeof table_now};
    INHERITED(rkv_page_table_read_stats(table, &table_now));
    INHERITED(rkv_page_table_allocate_slot(table, &slot));
    INHERITED(rkv_page_table_free_slot(table, 0));
    INHERITED(rkv_page_table_allocate_pages(table, 1, pages));
    INHERITED(rkv_page_table_free_pages(table, pages, 1));
    INHERITED(rkv_page_table_map(table, 0, 0, pages, 1));
    INHERITED(rkv_page_table_reserve(table, 0, 8));
    INHERITED(rkv_page_table_can_reserve(table, RKV_NO_SLOT, 8, &answer));
    INHERITED(rkv_page_table_row_capacity(table, 0, &count));
    INHERITED(rkv_page_table_read_row(table, 0, 0, pages, 16, &count));
    INHERITED(rkv_page_table_check(table));
    INHERITED(rkv_page_table_read_slot_mapping(table, 0, &position, 1, &place));
    rkv_page_table_batch_row batch_row = {0, 1};
    rkv_page_table_batch_arrays arrays = {.struct_size = sizeof arrays};
    INHERITED(rkv_page_table_read_batch(table, &batch_row, 1, sizeof batch_row, &arrays, &count));
    rkv_cache *second = NULL;
    INHERITED(rkv_cache_create(table, NULL, &second));
    INHERITED(rkv_cache_evict(cache, 1, NULL, 0, &count));
    rkv_cache_clear_args everything = {sizeof everything, RKV_CLEAR_EVERYTHING, NULL};
    rkv_cache_clear_result cleared = {.struct_size = sizeof cleared};
    INHERITED(rkv_cache_clear(cache, &everything, &cleared));
    INHERITED(rkv_cache_contains_page(cache, 1, &answer));
    rkv_cache_match_result match = new_match();
    INHERITED(rkv_cache_match(cache, NULL, &tokens, 0, NULL, 0, &match));
    INHERITED(rkv_cache_probe(cache, NULL, &tokens, NULL, &count));
    rkv_cache_insert_args insert_with = insert_args(&tokens, pages, 4);
    rkv_cache_insert_result inserted = {.struct_size = sizeof inserted};
    INHERITED(rkv_cache_insert(cache, &insert_with, NULL, &inserted));
    rkv_lock_id lock = 0;
    INHERITED(rkv_cache_lock(cache, node, &lock));
    INHERITED(rkv_cache_unlock(cache, lock));
    rkv_node_info info = {.struct_size = sizeof info};
    INHERITED(rkv_node_read_info(cache, node, &info));
    INHERITED(rkv_node_read_pages(cache, node, NULL, 0, &count));
    INHERITED(rkv_node_read_children(cache, node, NULL, 0, &count));
    rkv_cache_stats cache_now = {.struct_size = sizeof cache_now};
    INHERITED(rkv_cache_read_stats(cache, &cache_now));
    INHERITED(rkv_cache_check(cache));
    INHERITED(rkv_cache_dump(cache, RKV_DUMP_JSON, buffer, sizeof buffer, &count));
    rkv_sequence_begin_args begin_with = sequence_args(&tokens);
    rkv_sequence_info state = new_state();
    INHERITED(rkv_sequence_begin(cache, &begin_with, &state));
    INHERITED(rkv_sequence_read_info(cache, sequence, &state));
    INHERITED(rkv_sequence_read_copies(cache, sequence, NULL, 0, 0, &count));
    INHERITED(rkv_sequence_confirm_copies(cache, sequence));
    INHERITED(rkv_sequence_allocate(cache, sequence, 8));
    INHERITED(rkv_sequence_append(cache, sequence, &tokens));
    INHERITED(rkv_sequence_truncate(cache, sequence, 8));
    rkv_sequence_publish_result published = {.struct_size = sizeof published};
    INHERITED(rkv_sequence_publish(cache, sequence, 8, &published));
    rkv_sequence_continue_args go_on = continue_args(sequence, &tokens);
    INHERITED(rkv_sequence_continue(cache, &go_on, &state));
    rkv_sequence_fork_child child;
    INHERITED(try_fork(&parent.f, sequence, 1, &child));
    INHERITED(rkv_sequence_retain(cache, sequence, &answer));
    INHERITED(rkv_sequence_drop(cache, sequence));
    INHERITED(rkv_cache_drop_retained(cache, 1, &count));
    INHERITED(rkv_cache_drop_retained_pool(cache, 0, 1, &count));
    INHERITED(rkv_cache_read_retained(cache, NULL, 0, &count));
    INHERITED(rkv_sequence_release(cache, sequence));
    CHECK(count == 77 && slot == 77 && second == NULL && state.sequence == 0);
}

static void m03_runners_of_the_parent(void) {
    rkv_runner *runner = parent.runner, *second = NULL;
    rkv_plan *plan = parent.plan, *another = NULL;
    rkv_runner_config config = small_runner();
    rkv_runner_stats now = {.struct_size = sizeof now};
    rkv_runner_kv_memory memory;
    rkv_page_copy copy = {1, 2, 1, 0};
    rkv_plan_arrays arrays = {.struct_size = sizeof arrays};
    rkv_plan_capacity capacity = {sizeof capacity, 0, 1, 1, 1, 1};
    rkv_runner_append_prefill_args args = {.struct_size = sizeof args};
    rkv_runner_merge_states_args merge = {.struct_size = sizeof merge};
    INHERITED(rkv_runner_create(parent.f.table, &config, &second));
    INHERITED(rkv_runner_read_stats(runner, &now));
    INHERITED(rkv_runner_read_kv_memory(runner, 0, &memory, sizeof memory));
    INHERITED(rkv_runner_copy_pages(runner, &copy, 1, sizeof copy));
    INHERITED(rkv_runner_copy_tier_pages(runner, NULL, 0, 0));
    rkv_tier_config tiers;
    CHECK_OK(rkv_tier_config_init(&tiers, sizeof tiers));
    tiers.page_bytes = tiers.host_bytes = 64;
    rkv_tier_stats tier_now = {.struct_size = sizeof tier_now};
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    rkv_cache_poll_result polled = {.struct_size = sizeof polled};
    uint64_t positions = 0;
    INHERITED(rkv_cache_attach_tiers(parent.f.cache, &tiers));
    INHERITED(rkv_cache_detach_tiers(parent.f.cache, 0));
    INHERITED(rkv_cache_flush_tiers(parent.f.cache, 0));
    INHERITED(rkv_cache_shrink_tiers(parent.f.cache, 0, 0));
    INHERITED(rkv_cache_read_tier_stats(parent.f.cache, &tier_now));
    INHERITED(rkv_cache_poll(parent.f.cache, NULL, 0, 0, NULL, 0, 0, &polled));
    INHERITED(rkv_cache_complete(parent.f.cache, NULL, 0, true));
    INHERITED(rkv_sequence_fetch(parent.f.cache, sequence, 0, 0, &fetch));
    rkv_cache_prefetch_result begun = {.struct_size = sizeof begun};
    rkv_tokens expected = text(ids, 3);
    INHERITED(rkv_cache_prefetch(parent.f.cache, NULL, &expected, 1, 0, &begun));
    INHERITED(rkv_cache_cancel_prefetch(parent.f.cache, 1));
    INHERITED(rkv_sequence_agree(parent.f.cache, sequence, 0, &positions));
    INHERITED(rkv_plan_create(parent.f.table, &another));
    INHERITED(rkv_plan_set(plan, NULL, 0, sizeof(rkv_plan_row)));
    INHERITED(rkv_plan_reserve(plan, &capacity));
    INHERITED(rkv_runner_reserve_plan(runner, plan));
    INHERITED(rkv_runner_prepare_plan(runner, plan, 0, NULL));
    INHERITED(rkv_plan_view(plan, &arrays));
    INHERITED(rkv_runner_append_prefill(runner, plan, &args));
    INHERITED(rkv_runner_merge_states(runner, &merge));
    CHECK(second == NULL && another == NULL);
}

static void m03_snapshots_of_the_parent(void) {
    rkv_snapshot_cache *cache = snapshots.cache;
    rkv_tokens tokens = text(ids, 3);
    rkv_snapshot_cache_stats now = {.struct_size = sizeof now};
    rkv_snapshot_cache_insert_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_snapshot_cache_match_result match = new_found();
    size_t count;
    INHERITED(rkv_snapshot_cache_read_stats(cache, &now));
    INHERITED(rkv_snapshot_cache_check(cache));
    INHERITED(rkv_snapshot_cache_insert(cache, &args, NULL));
    INHERITED(rkv_snapshot_cache_match(cache, NULL, &tokens, 0, &match));
    INHERITED(rkv_snapshot_cache_probe(cache, NULL, &tokens, &count));
    INHERITED(rkv_snapshot_cache_remove(cache, NULL, &tokens, NULL));
    rkv_snapshot_tier_config config;
    rkv_snapshot_tier_stats tier_now = {.struct_size = sizeof tier_now};
    rkv_snapshot_cache_fetch_result started = {.struct_size = sizeof started};
    CHECK_OK(rkv_snapshot_tier_config_init(&config, sizeof config));
    config.directory = "/nowhere";
    config.byte_limit = 1;
    INHERITED(rkv_snapshot_cache_attach(cache, &config));
    INHERITED(rkv_snapshot_cache_detach(cache, 0));
    INHERITED(rkv_snapshot_cache_flush(cache, 0));
    INHERITED(rkv_snapshot_cache_fetch(cache, NULL, &tokens, 0, &started));
    INHERITED(rkv_snapshot_cache_take(cache, 1, &match));
    INHERITED(rkv_snapshot_cache_cancel(cache, 1));
    INHERITED(rkv_snapshot_cache_read_parts(cache, pinned.pin, NULL, 0, 0, &count));
    INHERITED(rkv_snapshot_cache_read_tier_stats(cache, &tier_now));
    INHERITED(rkv_snapshot_cache_clear(cache));
    INHERITED(rkv_snapshot_cache_release(cache, pinned.pin));
    rkv_snapshot_cache_destroy(cache);
    INHERITED(rkv_snapshot_cache_release(cache, pinned.pin));
    CHECK_EQ(snapshots.order_count, 0); /* none was destroyed */
}

/* What a child makes itself is as good as its parent's. */
static void m03_handles_of_the_child(void) {
    runner_fixture own = new_runner(4, 32, 0);
    uint32_t mine[16];
    count_up(mine, 16, 900);
    rkv_sequence_info state = begin(&own.f, text(mine, 16));
    chunk whole = chunk_of(state.sequence, mine, 0, 16);
    step(&own, &whole, 1);
    publish(&own.f, state.sequence, 16);
    release(&own.f, state.sequence);
    CHECK_EQ(probe(&own.f, text(mine, 16)), 16);
    /* what readers of the parent may have looked at is no hindrance to freeing memory here */
    uint64_t bytes = 0;
    for (uint32_t round = 0; round < 400; round++) {
        count_up(mine, 16, 1000 + 16 * round);
        serve(&own.f, text(mine, 16));
        evict(&own.f, 16);
        bytes = round == 100 ? cache_stats(&own.f).index_bytes : bytes;
    }
    CHECK(cache_stats(&own.f).index_bytes <= 2 * bytes);
    end_runner(&own);
    shelf other = new_shelf(4, 1000);
    put(&other, text(mine, 3));
    CHECK_EQ(use(&other, text(mine, 3)), 0);
    end_shelf(&other);
}

/* Calls without a handle. */
static void m03_other_calls_of_the_child(void) {
    uint32_t bin = 0;
    char message[64];
    rkv_shortage shortage = {.struct_size = sizeof shortage};
    rkv_index_memory_stats reserve = {.struct_size = sizeof reserve};
    CHECK(rkv_features() != 0);
    /* a reserve is its process' alone */
    CHECK_OK(rkv_read_index_memory_stats(&reserve));
    CHECK(reserve.reserved_bytes == 0 && reserve.used_bytes == 0);
    CHECK_STATUS(rkv_reserve_index_memory(1, RKV_HUGE_PAGES_OFF), RKV_STATUS_INVALID_STATE);
    CHECK(rkv_abi_version() == RKV_ABI_VERSION && rkv_version_string()[0] != 0);
    rkv_set_log_callback(RKV_LOG_ERROR, ignore_message, NULL);
    rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);
    CHECK_OK(rkv_coord_bin(1.0, &bin));
    CHECK(bin == RKV_BIN_COUNT - 1);
    CHECK_STATUS(rkv_last_shortage(&shortage), RKV_STATUS_INVALID_STATE);
    CHECK(rkv_last_error_message(message, sizeof message) > 1);
    CHECK(strcmp(rkv_status_name(RKV_STATUS_INVALID_STATE), "RKV_STATUS_INVALID_STATE") == 0);
}

/* Waits for a child, which must have ended well. */
static void expect_success(pid_t child) {
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(!WIFSIGNALED(status)); /* by alarm() if it hung */
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A handle of a child is no good in its own child. */
static void m03_grandchildren(void) {
    fixture own = new_fixture(2, 8);
    fflush(NULL);
    pid_t grandchild = fork();
    if (grandchild == 0) {
        is_child = true;
        alarm(PATIENCE_SECONDS);
        INHERITED(rkv_cache_check(own.cache));
        INHERITED(rkv_cache_check(parent.f.cache));
        rkv_cache_destroy(own.cache);
        rkv_page_table_destroy(own.table);
        m03_handles_of_the_child();
        exit(check_result());
    }
    expect_success(grandchild);
    end_fixture(&own);
}

static void run_child(bool first) {
    is_child = true;
    alarm(PATIENCE_SECONDS);
    check_failures = 0;
    RUN(m03_other_calls_of_the_child);
    RUN(m03_handles_of_the_parent);
    RUN(m03_runners_of_the_parent);
    RUN(m03_snapshots_of_the_parent);
    RUN(m03_handles_of_the_child);
    if (first) {
        RUN(m03_grandchildren);
    }
    exit(check_result()); /* and destroy_everything() */
}

int main(void) {
    count_up(ids, 16, 1);
    CHECK_OK(rkv_reserve_index_memory(4 << 20, RKV_HUGE_PAGES_OFF));
    parent = new_runner(4, 64, 0);
    snapshots = new_shelf(4, 1000);
    put(&snapshots, text(ids, 2));
    put(&snapshots, text(ids, 3));
    pinned = get(&snapshots, text(ids, 2));
    node = insert(&parent.f, text(ids, 8)).node;
    sequence = begin(&parent.f, text(ids, 14)).sequence;
    if (atexit(destroy_everything) != 0) {
        return 1;
    }
    void *(*const work[])(void *) = {change,        read_only,       match_snapshots,
                                     log_elsewhere, ask_for_reserve, make_caches};
    pthread_t threads[6];
    for (size_t i = 0; i < 6; i++) {
        CHECK(pthread_create(&threads[i], NULL, work[i], NULL) == 0);
    }
    for (int i = 0; i < FORKS && check_failures == 0; i++) {
        pid_t child = fork();
        if (child == 0) {
            run_child(i == 0);
        }
        expect_success(child);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (size_t i = 0; i < 6; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    release(&parent.f, sequence);
    let_go(&snapshots, pinned);
    check_sane(&parent.f);
    free(parent.memory);
    return check_result();
}
