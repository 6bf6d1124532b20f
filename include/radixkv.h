/**
 * @file radixkv.h
 * @brief Prefix cache and paged KV memory for LLM serving engines.
 *
 * Generated from src/capi by cbindgen: edit there, then run `make header`.
 *
 * Objects
 *   rkv_page_table       pools of physical pages and one row of pages per slot
 *   rkv_cache            the prefix index over one page table
 *   sequences            named by rkv_sequence_id; they live in a cache
 *   tiers                host memory, a directory and a remote store below the pages of a cache
 *   rkv_plan             what one step computes, as arrays over the rows of a page table
 *   rkv_runner           K and V of the model's layers, and attention over what a plan names
 *   rkv_event_encoder    what comes into a cache and leaves it, as events for routers
 *   rkv_snapshot_cache   opaque states by token list; stands alone
 * radixkv_spatial.h has what models need that speak of coordinates and sizes.
 *
 * Conventions
 *   Names      rkv_<object>_<verb>; what copies out to the caller is rkv_<object>_read_...; the
 *              structs of a call are named after it, _args and _result. A page holds page_size
 *              positions; a position is one KV entry; a token takes one position, an image
 *              several. Counts end in _count, sizes in bytes in _bytes. Counts are uint64_t in
 *              structs, size_t where they count what lies in the caller's memory, and uint32_t in
 *              array elements and where a configuration bounds them.
 *   Groups     Layers that need the same pages of a prefix are a group (docs/groups.md). A page
 *              table without a list of groups has one, group 0, in pool 0; what is said of several,
 *              of WINDOW, CHUNK and STATE groups does not concern it.
 *   Result     Functions that can fail return rkv_status; zero is success. Expected outcomes are
 *              not errors: a miss is RKV_STATUS_OK with nothing matched.
 *   Message    rkv_last_error_message() explains the last failure of the calling thread and names
 *              the argument. A success does not clear it.
 *   Failure    A call that fails changes nothing and writes no output, except the needed count
 *              together with RKV_STATUS_BUFFER_TOO_SMALL.
 *   Memory     When the host is out of memory, a call returns RKV_STATUS_OUT_OF_MEMORY. One that
 *              evicts in slices may have evicted by then: those pages are free. Calls that
 *              give something back need no memory: release, unlock, evict, truncate, confirm,
 *              drop, free, destroy. What a GPU driver does without memory is not in our hands.
 *   Structs    struct_size first: set it to sizeof of the struct. Fields that a caller does not
 *              know stay zero and mean the earlier behaviour. Unknown non-zero bytes and flags are
 *              refused. Array elements have no struct_size: the call takes their size, and they
 *              grow alike.
 *   Buffers    Owned by the caller, read or written only during the call. Readers of lists follow
 *              one rule: (NULL, 0) asks for the count; a buffer that is too small is refused with
 *              RKV_STATUS_BUFFER_TOO_SMALL and the needed count; nothing is cut off.
 *   External   With RKV_PAGE_TABLE_EXTERNAL_POOL there are no slots, sequences or tiers. Every call
 *              on a slot or a sequence returns RKV_STATUS_UNSUPPORTED, those on many as the status
 *              of each item; calls that need tiers return RKV_STATUS_INVALID_STATE. Not every
 *              function below repeats that.
 *   Handles    One owner each. A child keeps its parents alive: destroy in any order.
 *   Cost       Each function says what its time grows with, and what it waits for: no lock; the
 *              shared lock, beside other readers; or the lock, alone. "In slices" and "in portions"
 *              mean that it lets waiting threads in every 512 pages, or few microseconds; what they
 *              may find half done is said there. A function that does not name
 *              RKV_STATUS_OUT_OF_MEMORY needs no memory from the host: where it asks for some, it
 *              does without; a thread which has to sleep for a lock may need some. One that names
 *              RKV_STATUS_OUT_OF_PAGES may evict.
 *              What waits for a disk or a server says "blocks".
 *   Threads    Every call may be made from any thread; a page table and its cache share one lock.
 *              To destroy a handle, the caller must be its last user.
 *   Panics     None crosses this boundary: the call returns RKV_STATUS_INTERNAL, and the handle
 *              refuses further work with RKV_STATUS_POISONED. It may still be destroyed.
 *   Callbacks  They must not throw, longjmp or end their thread. If one throws or ends its thread,
 *              the process ends: a message names the callback, on standard error and in the log,
 *              then abort().
 *   fork()     A handle is valid in the process that made it. In a child process each call on a
 *              handle of the parent returns RKV_STATUS_INVALID_STATE at once, and destroying one
 *              does nothing: its memory and its snapshots stay as they are. Handles that the child
 *              makes, calls without a handle, and exit() work as usual.
 */

#ifndef RADIXKV_H
#define RADIXKV_H



#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** @cond INTERNAL */
#if defined(_WIN32) && !defined(RKV_STATIC)
#  define RKV_API __declspec(dllimport)
#elif defined(__GNUC__) || defined(__clang__)
#  define RKV_API __attribute__((visibility("default")))
#else
#  define RKV_API
#endif

#if defined(__GNUC__) || defined(__clang__)
#  define RKV_MUST_CHECK __attribute__((warn_unused_result))
#else
#  define RKV_MUST_CHECK
#endif
/** @endcond */




/**
 * Major version of the release that this header came with.
 */
#define RKV_VERSION_MAJOR 0

/**
 * Minor version of the release that this header came with.
 */
#define RKV_VERSION_MINOR 2

/**
 * Patch version of the release that this header came with.
 */
#define RKV_VERSION_PATCH 0

/**
 * Version of the ABI that this header describes; grows by one with every addition.
 */
#define RKV_ABI_VERSION 12

/**
 * Bit of rkv_features(): the radix tree index.
 */
#define RKV_FEATURE_RADIX_INDEX 1

/**
 * Bit of rkv_features(): the block-hash index.
 */
#define RKV_FEATURE_BLOCK_HASH_INDEX 2

/**
 * Bit of rkv_features(): CUDA kernels, the library's own or those of the folder that the
 * environment variable RADIXKV_KERNELS named at the first call. Whether this machine can run them
 * is another question, see rkv_runner_supports().
 */
#define RKV_FEATURE_CUDA 4

/**
 * For rkv_reserve_index_memory(): ordinary pages.
 */
#define RKV_HUGE_PAGES_OFF 0

/**
 * For rkv_reserve_index_memory(): huge pages, as far as the system has any.
 */
#define RKV_HUGE_PAGES_TRY 1

/**
 * For rkv_reserve_index_memory(): huge pages only.
 */
#define RKV_HUGE_PAGES_REQUIRE 2

/**
 * Level of rkv_set_log_callback(): nothing.
 */
#define RKV_LOG_OFF 0

/**
 * Level of a message: something is broken, e.g. a caught panic with its place in the source.
 */
#define RKV_LOG_ERROR 1

/**
 * Kind of an rkv_token_item: a coordinate, `bin` in [0, 1024).
 */
#define RKV_TOKEN_COORD 1

/**
 * Kind of an rkv_token_item: a size, `bin` (width) and `height_bin` in [0, 1024).
 */
#define RKV_TOKEN_SIZE 2

/**
 * Kind of an rkv_token_item: an image, `digest` and `position_count`.
 */
#define RKV_TOKEN_IMAGE 3

/**
 * Text token ids are smaller than this.
 */
#define RKV_TEXT_ID_LIMIT 2147483648

/**
 * Flag of rkv_namespace: lora_id is set. Without it the namespace is the base model's.
 */
#define RKV_NAMESPACE_LORA 1

/**
 * Flag of rkv_namespace: image_digest is set.
 */
#define RKV_NAMESPACE_IMAGE 2

/**
 * Largest page_size.
 */
#define RKV_PAGE_SIZE_MAX 65536

/**
 * Flag of rkv_page_table_config: the engine has an allocator of its own. All pages are outside,
 * the engine's, until rkv_cache_insert() claims them, and again when they are evicted or the cache
 * is destroyed. There are no slots and no sequences. The cache's match, probe, insert, lock,
 * unlock, evict and what reads it work as ever; what allocates pages or slots, asks whether that
 * could be done, or takes a slot or a sequence returns RKV_STATUS_UNSUPPORTED.
 */
#define RKV_PAGE_TABLE_EXTERNAL_POOL 1

/**
 * Most groups, and most pools.
 */
#define RKV_GROUP_LIMIT 8

/**
 * Kind of rkv_group_config: a prefix can be reused when all pages are there. Full attention.
 */
#define RKV_GROUP_FULL 0

/**
 * Kind of rkv_group_config: when those of the last window - 1 positions are there, and those of
 * the first `sinks`. Sliding windows.
 */
#define RKV_GROUP_WINDOW 1

/**
 * Kind of rkv_group_config: when those from the beginning of the next position's chunk are there.
 * Chunked attention.
 */
#define RKV_GROUP_CHUNK 2

/**
 * Kind of rkv_group_config: when there is a checkpoint at exactly its end, which lies between two
 * pages. A page holds one state, of any size. Recurrent layers.
 */
#define RKV_GROUP_STATE 3

/**
 * "No slot yet", for rkv_page_table_can_reserve().
 */
#define RKV_NO_SLOT 4294967295

/**
 * Flag of rkv_cache_config: share whole pages only, reuse no part of a page by copy.
 */
#define RKV_CACHE_WHOLE_PAGES 1

/**
 * Index of rkv_cache_config: the radix tree, exact token comparison.
 */
#define RKV_INDEX_RADIX 0

/**
 * Index of rkv_cache_config: pages by their digests, see rkv_tokens_page_digests(). One node for
 * each page. A page is found when its digest is, tokens are not compared; a match ends where the
 * known pages end, parts of other pages are not looked for.
 */
#define RKV_INDEX_BLOCK_HASH 1

/**
 * Flag of rkv_cache_match(): lock the match in the same step. Undo with rkv_cache_unlock() of
 * rkv_cache_match_result.lock.
 */
#define RKV_MATCH_LOCK 1

/**
 * Flag of rkv_cache_insert_args: lock what was inserted in the same step, so that no other thread
 * can evict it before. Undo with rkv_cache_unlock() of rkv_cache_insert_result.lock.
 */
#define RKV_INSERT_LOCK 1

/**
 * Flag of rkv_cache_clear_args: namespaces with the lora_id of `space`, or like it with none.
 */
#define RKV_CLEAR_LORA 1

/**
 * Flag of rkv_cache_clear_args: namespaces with the image_digest of `space`, or like it with none.
 */
#define RKV_CLEAR_IMAGE 2

/**
 * Flag of rkv_cache_clear_args: namespaces with the salt of `space`.
 */
#define RKV_CLEAR_SALT 4

/**
 * Flag of rkv_cache_clear_args: namespaces with the epoch of `space`.
 */
#define RKV_CLEAR_EPOCH 8

/**
 * Flags of rkv_cache_clear_args: `space` alone, which has all of it.
 */
#define RKV_CLEAR_NAMESPACE 15

/**
 * Flag of rkv_cache_clear_args, alone: all namespaces.
 */
#define RKV_CLEAR_EVERYTHING 16

/**
 * Format of rkv_cache_dump(): one JSON object.
 */
#define RKV_DUMP_JSON 0

/**
 * Format of rkv_cache_dump(): a Graphviz digraph.
 */
#define RKV_DUMP_DOT 1

/**
 * Flag of rkv_sequence_continue_args: take over what a parent that is still running has computed
 * so far. Without it such a parent is RKV_STATUS_PENDING.
 */
#define RKV_CONTINUE_RUNNING 1

/**
 * Flag of rkv_plan_capacity: rows may have regions.
 */
#define RKV_PLAN_REGIONS 1

/**
 * Flag of rkv_plan_capacity: rows that begin with the same pages do not attend to those together.
 * On CUDA a captured call launches fewer kernels then.
 */
#define RKV_PLAN_SEPARATE 2

/**
 * Flag of rkv_plan_capacity: rows may have tree masks.
 */
#define RKV_PLAN_TREES 4

/**
 * Flag of rkv_plan_view_group(): only pages that new positions are in or attend to.
 */
#define RKV_PLAN_COMPACT 1

/**
 * Mask of rkv_plan_row: a new position sees those before it and itself, and what regions and tree
 * masks say.
 */
#define RKV_MASK_CAUSAL 0

/**
 * Mask of rkv_plan_row: a new position sees all positions up to the last new one, those behind it
 * too, as an encoder's do. In a capacity that is RKV_PLAN_REGIONS.
 */
#define RKV_MASK_BIDIRECTIONAL 1

/**
 * Mask of rkv_plan_row: `count` queries that are no positions of the row see its first `start`,
 * whose K and V are in the pages: cross attention, or a part of a context whose result
 * rkv_runner_merge_states() merges with others. Nothing is written, whoever owns the pages.
 */
#define RKV_MASK_CONTEXT 2

/**
 * Backend of rkv_runner_config: the processor.
 */
#define RKV_BACKEND_CPU 0

/**
 * Backend of rkv_runner_config: an NVIDIA GPU.
 */
#define RKV_BACKEND_CUDA 1

/**
 * Flag of rkv_runner_config: a row's result has the same bits whatever else is in the batch, for
 * any number of threads and however its prompt is cut into chunks.
 */
#define RKV_RUNNER_BATCH_INVARIANT 1

/**
 * Flag of rkv_runner_config: V of a position is the first v_head_dim elements of its K, and memory
 * has K alone. It is for multi-head latent attention whose up-projections are absorbed into q and
 * into what follows: kv_head_count 1, head_dim 576, v_head_dim 512. `v` is NULL in kv_layers and
 * in every call, and v_scale is k_scale.
 */
#define RKV_RUNNER_LATENT 2

/**
 * 32-bit IEEE 754 floats.
 */
#define RKV_DTYPE_F32 0

/**
 * 16-bit IEEE 754 floats.
 */
#define RKV_DTYPE_F16 1

/**
 * The upper half of 32-bit floats.
 */
#define RKV_DTYPE_BF16 2

/**
 * 8-bit floats of 4 exponent bits and 3 of mantissa, without infinities: OCP E4M3. For K and V in
 * memory only; what is too large becomes the largest, 448.
 */
#define RKV_DTYPE_FP8_E4M3 3

/**
 * Layout of a layer's K or V: [page][position][head][head_dim].
 */
#define RKV_KV_LAYOUT_NHD 0

/**
 * Layout of a layer's K or V: [page][head][position][head_dim].
 */
#define RKV_KV_LAYOUT_HND 1

/**
 * Flag of rkv_runner_prepare_plan(): the copies of the step are not confirmed, for others have
 * them to carry out, too.
 */
#define RKV_PREPARE_KEEP_COPIES_OPEN 1

/**
 * Kind of an rkv_journal_record: pages came in, one after another in a prefix.
 */
#define RKV_JOURNAL_STORED 1

/**
 * Kind of an rkv_journal_record: pages left, the first of them first.
 */
#define RKV_JOURNAL_REMOVED 2

/**
 * Kind of an rkv_journal_record: pages went to another tier. No library writes it yet.
 */
#define RKV_JOURNAL_MOVED 3

/**
 * Kind of an rkv_journal_record: rkv_cache_clear() cleared a namespace. Nothing that was stored in
 * it before can be found any more. It names no pages: each is removed when it goes.
 */
#define RKV_JOURNAL_CLEARED 4

/**
 * Reason of an rkv_journal_record: evicted to make room, inside a call that allocates.
 */
#define RKV_REASON_CAPACITY 1

/**
 * Reason of an rkv_journal_record: evicted by rkv_cache_evict() or rkv_cache_evict_pool().
 */
#define RKV_REASON_CALLER 2

/**
 * Reason of an rkv_journal_record: cleared by rkv_cache_clear(). Of removed pages: they were
 * cleared before, and nobody holds them any more.
 */
#define RKV_REASON_INVALIDATED 3

/**
 * Reason of an rkv_journal_record: another page took its place. No library writes it yet.
 */
#define RKV_REASON_REPLACED 4

/**
 * Reason of an rkv_journal_record: the cache was destroyed.
 */
#define RKV_REASON_DESTROYED 5

/**
 * Reason of an rkv_journal_record: a path had more checkpoints than
 * rkv_cache_config.checkpoint_limit.
 */
#define RKV_REASON_LIMIT 6

/**
 * Flag of rkv_event_encoder_config: block hashes are whole digests, 32 bytes. Without it each is
 * the number that the last 8 bytes of the digest are, the first of them the highest.
 */
#define RKV_EVENTS_WIDE_HASHES 1

/**
 * Flag of rkv_event_encoder_config: data_parallel_rank is set.
 */
#define RKV_EVENTS_DATA_PARALLEL 2

/**
 * Flag of rkv_event_batch: there is more to tell right now.
 */
#define RKV_EVENTS_MORE 1

/**
 * Bytes of a name at most: of a LoRA adapter, a salt, a medium.
 */
#define RKV_EVENTS_NAME_LIMIT 1024

/**
 * Flag of rkv_tier_config: nothing that was fetched is used before rkv_sequence_agree(), for ranks
 * that compute one model together.
 */
#define RKV_TIERS_AGREE 1

/**
 * Flag of rkv_tier_config and of rkv_snapshot_tier_config: the directory is written by threads
 * that wait for it, worker_count of them, also where the system has io_uring.
 */
#define RKV_TIERS_THREADS 2

/**
 * Flag of rkv_fetch_end: the deadline, or remote_timeout_ms, came before all that was wanted.
 */
#define RKV_FETCH_END_LATE 1

/**
 * Direction of rkv_copy_job: from host memory to a page of the device.
 */
#define RKV_COPY_LOAD 0

/**
 * Direction of rkv_copy_job: from a page of the device to host memory.
 */
#define RKV_COPY_STORE 1

/**
 * Flag of rkv_sequence_fetch() and rkv_cache_prefetch(): say what could be fetched, and fetch
 * nothing. The remote store is not asked.
 */
#define RKV_FETCH_LOOK_ONLY 1

/**
 * Answer of rkv_remote_item: nothing is known about the value; what items are given as.
 */
#define RKV_REMOTE_FAILED 0

/**
 * Answer of rkv_remote_item: the store has the value; it was read, written or removed.
 */
#define RKV_REMOTE_DONE 1

/**
 * Answer of rkv_remote_item: the store does not have the value.
 */
#define RKV_REMOTE_MISSING 2

/**
 * In rkv_snapshot_cache_insert_args.flags: the snapshot may be written below memory, to what
 * rkv_snapshot_cache_attach() put there, and is found again after it had to leave, also by another
 * process later.
 */
#define RKV_SNAPSHOT_INSERT_STORABLE 1

/**
 * In rkv_snapshot_cache_insert_args.flags: the engine can take the end of this state away, and
 * then has the state after fewer of its tokens. rkv_snapshot_cache_match() with
 * RKV_SNAPSHOT_MATCH_TRIMMABLE finds it for lists that have only its first tokens.
 */
#define RKV_SNAPSHOT_INSERT_TRIMMABLE 2

/**
 * For rkv_snapshot_cache_match(): an entry that was inserted with RKV_SNAPSHOT_INSERT_TRIMMABLE
 * counts with the tokens that it has in common with the list, also when it goes on otherwise.
 */
#define RKV_SNAPSHOT_MATCH_TRIMMABLE 1

/**
 * Result of every fallible function. The numbers are part of the ABI and are never reused:
 * 1-99 the caller's mistakes, 100-199 resources, 900 and above the library's own.
 */
typedef enum rkv_status {
    /**
     * The call succeeded; every output was written.
     */
    RKV_STATUS_OK = 0,
    /**
     * An argument is NULL, out of range, inconsistent or unknown; the message names it.
     */
    RKV_STATUS_INVALID_ARGUMENT = 1,
    /**
     * The node id names no node of this cache: evicted, changed by a trim, foreign, or never
     * issued.
     */
    RKV_STATUS_STALE_NODE = 2,
    /**
     * The sequence id names no live sequence of this cache: ended, foreign, or never issued; nor,
     * where that would do, a retained one. The message says so of one that is retained, or live
     * where a retained one is wanted.
     */
    RKV_STATUS_STALE_SEQUENCE = 3,
    /**
     * The lock id names no lock of this cache: undone, foreign, or never issued.
     */
    RKV_STATUS_STALE_LOCK = 4,
    /**
     * The buffer is too small; the needed count was written, and nothing else happened.
     */
    RKV_STATUS_BUFFER_TOO_SMALL = 5,
    /**
     * The object is in a state that does not allow the call; the message says which.
     */
    RKV_STATUS_INVALID_STATE = 6,
    /**
     * This build, or an object of this kind, cannot do what was asked; the message says why.
     */
    RKV_STATUS_UNSUPPORTED = 7,
    /**
     * The pin id names no pin of this cache: released, foreign, or never issued.
     */
    RKV_STATUS_STALE_PIN = 8,
    /**
     * The ticket id names no ticket of this cache: taken, cancelled, foreign, or never issued.
     */
    RKV_STATUS_STALE_TICKET = 9,
    /**
     * Not enough pages, even if everything reclaimable were evicted. See rkv_last_shortage().
     */
    RKV_STATUS_OUT_OF_PAGES = 100,
    /**
     * Not enough slots of the page table are free.
     */
    RKV_STATUS_OUT_OF_SLOTS = 101,
    /**
     * The host is out of memory, or the GPU is; the message says which.
     */
    RKV_STATUS_OUT_OF_MEMORY = 102,
    /**
     * The page table already has a cache.
     */
    RKV_STATUS_BUSY = 103,
    /**
     * Something else has to end first: ask again. The sequence to go on from is still running, a
     * fetch of the sequence is open, or what is waited for did not end in time.
     */
    RKV_STATUS_PENDING = 104,
    /**
     * The GPU or its driver refused or failed; the message carries the driver's name and code of
     * it. Nothing changed on the host. Errors of what was launched earlier show up here too.
     */
    RKV_STATUS_DEVICE = 105,
    /**
     * The disk, or what is on it, does not allow the call; the message says what and where.
     */
    RKV_STATUS_STORAGE = 106,
    /**
     * A bug in the library: a panic was caught. The handle is poisoned.
     */
    RKV_STATUS_INTERNAL = 900,
    /**
     * An earlier call on this handle ended with RKV_STATUS_INTERNAL; only destroying it is
     * allowed.
     */
    RKV_STATUS_POISONED = 901,
    /**
     * A check of the invariants failed; the message names the one.
     */
    RKV_STATUS_CORRUPT = 902,
} rkv_status;

/**
 * The prefix index over one page table: which published pages hold which tokens. Created by
 * rkv_cache_create().
 */
typedef struct rkv_cache rkv_cache;

/**
 * Turns what comes into a cache and leaves it into batches of KV events, as vLLM publishes them:
 * bytes for routers and mirrors. It reads the journal of the cache, on the thread that asks it to.
 */
typedef struct rkv_event_encoder rkv_event_encoder;

/**
 * A pool of physical pages and one row of pages per slot. Created by rkv_page_table_create().
 *
 * Each page is in exactly one of three states: free, private (it belongs to a row, or to the
 * caller that allocated it), or cached (a cache owns it, any number of rows may map it). Page 0 is
 * reserved as the target of padding: it is never handed out. With an external pool there are two
 * states: cached, and outside (the engine has it).
 */
typedef struct rkv_page_table rkv_page_table;

/**
 * What one step computes: new positions of any mix of rows, prefill chunks and decodes alike. Made
 * once by rkv_plan_create() and set anew for each step; its memory is reused. An engine with
 * kernels of its own reads its arrays, any runner over the same page table computes it.
 */
typedef struct rkv_plan rkv_plan;

/**
 * Attention over the rows of one group of a page table, and the KV memory behind its pages. A
 * model with several groups, or with layers of several shapes, has a runner for each, over one
 * page table; all of them compute the same plans. Created by rkv_runner_create().
 */
typedef struct rkv_runner rkv_runner;

/**
 * A store of opaque states by token list, that finds the longest stored prefix. For engines whose
 * KV isn't paged, and for models without KV. It stands alone: it needs no page table. Created by
 * rkv_snapshot_cache_create().
 */
typedef struct rkv_snapshot_cache rkv_snapshot_cache;

/**
 * Why an allocation was refused, in pages: free + reclaimable < needed.
 */
typedef struct rkv_shortage {
    /**
     * sizeof(rkv_shortage).
     */
    uint32_t struct_size;
    /**
     * The pool that is short; 0 without a list of pools.
     */
    uint32_t pool;
    /**
     * Pages that the call needed beyond those it could share.
     */
    uint64_t needed_page_count;
    /**
     * Pages in the free pool.
     */
    uint64_t free_page_count;
    /**
     * Cached pages that eviction could free while the call uses its own.
     */
    uint64_t reclaimable_page_count;
    /**
     * Cached pages that locks protect, those that the call itself would lock included.
     */
    uint64_t locked_page_count;
    /**
     * Pages that belong to rows, to retained sequences or to the caller.
     */
    uint64_t private_page_count;
    /**
     * Of the locked and the private pages, those that retained sequences keep: what
     * rkv_cache_drop_retained_pool() can help with, unless they are still in use.
     */
    uint64_t retained_page_count;
} rkv_shortage;

/**
 * The memory that rkv_reserve_index_memory() got.
 */
typedef struct rkv_index_memory_stats {
    /**
     * sizeof(rkv_index_memory_stats).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Bytes that were reserved; 0 without a reserve.
     */
    uint64_t reserved_bytes;
    /**
     * Of those, the bytes that lay on huge pages when they were reserved.
     */
    uint64_t huge_page_bytes;
    /**
     * Bytes that indexes use of the reserve.
     */
    uint64_t used_bytes;
} rkv_index_memory_stats;

/**
 * Receives a log message. `message` is NUL-terminated and valid only during the call. Called from
 * any thread. It must not call back into the library, nor throw, longjmp or end its thread: the
 * process would end, see Callbacks at the top.
 */
typedef void (*rkv_log_callback)(uint32_t level, const char *message, void *user_data);

/**
 * One token that is not text.
 */
typedef struct rkv_token_item {
    /**
     * Index of the token in the list; in rkv_tokens_build() the prompt index that it stands
     * before.
     */
    uint64_t token_index;
    /**
     * RKV_TOKEN_COORD, RKV_TOKEN_SIZE or RKV_TOKEN_IMAGE.
     */
    uint32_t kind;
    /**
     * KV positions of an image, at least 1. Zero for the other kinds, which take one.
     */
    uint32_t position_count;
    /**
     * Bin of a coordinate or of a width; zero for an image.
     */
    uint32_t bin;
    /**
     * Bin of a height; zero for the other kinds.
     */
    uint32_t height_bin;
    /**
     * Content digest of an image, see rkv_image_digest(); zero for the other kinds.
     */
    uint8_t digest[16];
} rkv_token_item;

/**
 * A list of tokens: a text id per token, and the tokens that are not text.
 */
typedef struct rkv_tokens {
    /**
     * sizeof(rkv_tokens).
     */
    uint32_t struct_size;
    /**
     * sizeof(rkv_token_item); not read without items.
     */
    uint32_t item_size;
    /**
     * `count` text ids below RKV_TEXT_ID_LIMIT. The id at the index of an item is not read.
     */
    const uint32_t *ids;
    /**
     * Number of tokens, the items included.
     */
    size_t count;
    /**
     * `item_count` items with strictly ascending token_index; NULL when there are none.
     */
    const struct rkv_token_item *items;
    /**
     * Number of items.
     */
    size_t item_count;
} rkv_tokens;

/**
 * KV positions [start, end) that attend to each other in both directions: one image. An array
 * element: its layout never changes.
 */
typedef struct rkv_region {
    /**
     * First position.
     */
    uint64_t start;
    /**
     * One past the last position.
     */
    uint64_t end;
} rkv_region;

/**
 * A namespace. Prefixes of different namespaces never share a page; two are the same when all
 * fields are. NULL in a call means the namespace with no flag and all zero.
 */
typedef struct rkv_namespace {
    /**
     * sizeof(rkv_namespace).
     */
    uint32_t struct_size;
    /**
     * RKV_NAMESPACE_ flags: which of the fields are set.
     */
    uint32_t flags;
    /**
     * LoRA adapter, any number, 0 included. Zero without RKV_NAMESPACE_LORA.
     */
    uint64_t lora_id;
    /**
     * Version of the weights or of the adapter; raise it when they change.
     */
    uint64_t epoch;
    /**
     * Digest of an image on which all KV depends, see rkv_image_digest(). Zero without
     * RKV_NAMESPACE_IMAGE.
     */
    uint8_t image_digest[16];
    /**
     * What separates tenants, e.g. a digest of the tenant's name and a secret. Compared whole.
     */
    uint8_t salt[32];
} rkv_namespace;

/**
 * Names the content of a page together with everything before it. An array element: its layout
 * never changes.
 */
typedef struct rkv_page_digest {
    /**
     * SHA-256 over the digest of the page before and the tokens of the page.
     */
    uint8_t bytes[32];
} rkv_page_digest;

/**
 * What rkv_tokens_page_digests() makes digests of.
 */
typedef struct rkv_tokens_page_digests_args {
    /**
     * sizeof(rkv_tokens_page_digests_args).
     */
    uint32_t struct_size;
    /**
     * Positions per page, 1 to RKV_PAGE_SIZE_MAX.
     */
    uint32_t page_size;
    /**
     * The namespace; NULL for the default one. Not read when parent is set.
     */
    const struct rkv_namespace *space;
    /**
     * The tokens, pages of which are counted from their first position.
     */
    const struct rkv_tokens *tokens;
    /**
     * Digest of the page before first_page, to go on from; NULL to begin with the namespace.
     */
    const struct rkv_page_digest *parent;
    /**
     * First page of the tokens to make a digest of. 0 without parent. With parent, 0 means that
     * the tokens themselves go on where the parent's page ends.
     */
    uint64_t first_page;
} rkv_tokens_page_digests_args;

/**
 * A group: the layers that share one row of pages. Unused fields are zero.
 */
typedef struct rkv_group_config {
    /**
     * RKV_GROUP_FULL, RKV_GROUP_WINDOW, RKV_GROUP_CHUNK or RKV_GROUP_STATE.
     */
    uint32_t kind;
    /**
     * The pool that its pages come from: an index into rkv_page_table_config.pools. Groups whose
     * pages have equal bytes may share one.
     */
    uint32_t pool;
    /**
     * WINDOW: positions that a query attends to, its own included; at least 1.
     */
    uint32_t window;
    /**
     * WINDOW: positions at the beginning that are always attended to. Else 0.
     */
    uint32_t sinks;
    /**
     * CHUNK: positions of a chunk; at least 1.
     */
    uint32_t chunk;
    /**
     * STATE: pages of a row for states after draft tokens, beside its own page, up to 255. See
     * rkv_sequence_truncate(). 0: a sequence takes no token back. Else 0.
     */
    uint32_t draft_state_count;
} rkv_group_config;

/**
 * A pool of physical pages. Each pool numbers its own from 1 on; page 0 is reserved.
 */
typedef struct rkv_pool_config {
    /**
     * Physical pages, the reserved page 0 included: 2 to 2^31 - 1.
     */
    uint32_t page_count;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_pool_config;

/**
 * How to build a page table. Fill with rkv_page_table_config_init(), then change fields.
 */
typedef struct rkv_page_table_config {
    /**
     * sizeof(rkv_page_table_config).
     */
    uint32_t struct_size;
    /**
     * Positions per page, 1 to RKV_PAGE_SIZE_MAX. Default 16.
     */
    uint32_t page_size;
    /**
     * Physical pages, the reserved page 0 included: 2 to 2^31 - 1. Default 0, which is refused:
     * set it.
     */
    uint32_t page_count;
    /**
     * Slots, that is sequences alive at once: 1 to 2^20. Default 256. Not read with
     * RKV_PAGE_TABLE_EXTERNAL_POOL: there are none.
     */
    uint32_t slot_count;
    /**
     * Longest row in pages. Default 0: as many as there are pages. A prompt that needs a longer
     * row is refused as an invalid argument, not for want of pages. Not read with
     * RKV_PAGE_TABLE_EXTERNAL_POOL.
     */
    uint32_t row_page_limit;
    /**
     * 0 or RKV_PAGE_TABLE_EXTERNAL_POOL. Default 0.
     */
    uint32_t flags;
    /**
     * The groups of the model's layers, of which the first is FULL and draws from pool 0. Default
     * NULL: one FULL group.
     */
    const struct rkv_group_config *groups;
    /**
     * Number of groups, at most RKV_GROUP_LIMIT. Default 0.
     */
    size_t group_count;
    /**
     * sizeof(rkv_group_config); not read without groups. Set it with them: the default is that
     * of the loaded library, which may be later and know a longer one.
     */
    size_t group_size;
    /**
     * The pools of pages; all are external with RKV_PAGE_TABLE_EXTERNAL_POOL. page_count is 0
     * then. Default NULL: one pool, of page_count pages.
     */
    const struct rkv_pool_config *pools;
    /**
     * Number of pools, at most RKV_GROUP_LIMIT. Default 0.
     */
    size_t pool_count;
    /**
     * sizeof(rkv_pool_config); not read without pools. Set it with them: the default is that
     * of the loaded library, which may be later and know a longer one.
     */
    size_t pool_size;
} rkv_page_table_config;

/**
 * Pages of pool 0 by state, and slots; rkv_pool_stats has the pages of each pool. free + cached +
 * private + outside == total at all times: outside is 0 unless the pool is external, and then free
 * and private are.
 */
typedef struct rkv_page_table_stats {
    /**
     * sizeof(rkv_page_table_stats).
     */
    uint32_t struct_size;
    /**
     * Positions per page.
     */
    uint32_t page_size;
    /**
     * Pages that can be handed out, by whomever: all but page 0.
     */
    uint64_t total_page_count;
    /**
     * Pages in the free pool.
     */
    uint64_t free_page_count;
    /**
     * Pages that the cache owns.
     */
    uint64_t cached_page_count;
    /**
     * Pages that belong to rows, to retained sequences, to copies that are not confirmed, or to
     * callers of rkv_page_table_allocate_pages().
     */
    uint64_t private_page_count;
    /**
     * Cached pages that no lock protects: exactly what eviction can free.
     */
    uint64_t reclaimable_page_count;
    /**
     * Slots in all.
     */
    uint64_t slot_count;
    /**
     * Slots not in use.
     */
    uint64_t free_slot_count;
    /**
     * Bytes of host memory that rows and page states take.
     */
    uint64_t memory_bytes;
    /**
     * Pages of an external pool that the cache does not own. Which of them are free is the
     * engine's to know.
     */
    uint64_t outside_page_count;
} rkv_page_table_stats;

/**
 * One sequence of a batch.
 */
typedef struct rkv_page_table_batch_row {
    /**
     * A slot in use.
     */
    uint32_t slot;
    /**
     * Positions of the row that the batch attends to, the new ones included.
     */
    uint32_t position_count;
} rkv_page_table_batch_row;

/**
 * Where rkv_page_table_read_batch() writes the arrays that paged attention kernels take.
 */
typedef struct rkv_page_table_batch_arrays {
    /**
     * sizeof(rkv_page_table_batch_arrays).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Receives row_count + 1 offsets into `indices`, the first 0.
     */
    int32_t *indptr;
    /**
     * Receives the pages of all rows, one row after another.
     */
    int32_t *indices;
    /**
     * Room in `indices`.
     */
    size_t indices_capacity;
    /**
     * Receives, for each row, the positions in its last page: 1 to page_size; 0 for an empty row.
     */
    int32_t *last_page_len;
} rkv_page_table_batch_arrays;

/**
 * Pages of a pool by state. free + cached + private + outside == total at all times: outside is 0
 * unless the pools are external, and then free and private are.
 */
typedef struct rkv_pool_stats {
    /**
     * sizeof(rkv_pool_stats).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Pages that can be handed out, by whomever: all but page 0.
     */
    uint64_t total_page_count;
    /**
     * Pages in the free pool.
     */
    uint64_t free_page_count;
    /**
     * Pages that the cache owns, of all groups that draw from the pool.
     */
    uint64_t cached_page_count;
    /**
     * Pages that belong to rows or to callers.
     */
    uint64_t private_page_count;
    /**
     * Cached pages that nothing protects: exactly what eviction can free.
     */
    uint64_t reclaimable_page_count;
    /**
     * Pages of an external pool that the cache does not own.
     */
    uint64_t outside_page_count;
    /**
     * Pages that retained sequences keep, of all groups that draw from the pool, each counted
     * once; they are among the cached and the private ones.
     */
    uint64_t retained_page_count;
} rkv_pool_stats;

/**
 * How to build a cache. Fill with rkv_cache_config_init(), then change fields.
 */
typedef struct rkv_cache_config {
    /**
     * sizeof(rkv_cache_config).
     */
    uint32_t struct_size;
    /**
     * RKV_CACHE_ flags. Default 0.
     */
    uint32_t flags;
    /**
     * RKV_INDEX_RADIX or RKV_INDEX_BLOCK_HASH. Default RKV_INDEX_RADIX.
     */
    uint32_t index;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Finished sequences that rkv_sequence_retain() keeps at most. Default and 0: 1024.
     */
    uint32_t retained_sequence_limit;
    /**
     * Pages of group 0 that those keep together at most, each counted once. Default and 0: half of
     * those of pool 0.
     */
    uint32_t retained_page_limit;
    /**
     * Bytes of the ring that keeps the records of the journal, see rkv_cache_read_journal(). At
     * least 1024 + 256 * page_size, 2^34 at most. Besides it a journal takes 20 + 4 * page_size
     * bytes for each page of pool 0, and with several groups a byte for each page of all pools.
     * Default and 0: no journal.
     */
    uint64_t journal_bytes;
    /**
     * Checkpoints of a STATE group that a path keeps at most, the one that was saved last
     * included, up to 512. Beside these stay checkpoints where several prompts go on, and those in
     * use. Others that lie before them go when one is saved (of those that come with one insert,
     * none): with an external pool they are the next that an eviction takes, else they are free at
     * once. Takes 4 bytes for each page of pool 0 and STATE group. Default and 0: any number.
     */
    uint64_t checkpoint_limit;
} rkv_cache_config;

/**
 * Names a node of one cache, that is "the prefix that ends here". Zero names none.
 *
 * An id is good for as long as a lock that a caller took, by rkv_cache_lock(), RKV_MATCH_LOCK or
 * RKV_INSERT_LOCK, stays on the node or below it. (rkv_cache_insert_args.lock moves one away.)
 * Without one it may become stale, which is detected: a stale id gives RKV_STATUS_STALE_NODE and
 * never means another node. A node that only sequences keep locked is not evicted, but
 * rkv_sequence_publish() may make it longer, and then it has another id:
 * rkv_sequence_publish_result.node. A split leaves the id with the deeper half. Ids tell 255
 * caches of a process apart, and one place in the index can be reused 2^24 times before it is
 * retired.
 */
typedef uint64_t rkv_node_id;

/**
 * Names one lock that a caller took on a cache, by rkv_cache_lock(), RKV_MATCH_LOCK or
 * RKV_INSERT_LOCK, until rkv_cache_unlock(). Zero names none.
 *
 * The lock protects the prefix that it was taken on, whatever becomes of the nodes on the way. No
 * id is issued twice in a process: an old one gives RKV_STATUS_STALE_LOCK and never undoes another
 * lock. A cache can have 2^24 locks of callers at a time.
 */
typedef uint64_t rkv_lock_id;

/**
 * The longest cached prefix of a token list.
 */
typedef struct rkv_cache_match_result {
    /**
     * sizeof(rkv_cache_match_result).
     */
    uint32_t struct_size;
    /**
     * Page that holds the positions after the last whole page, for partial_position_count > 0;
     * copy them, never write to the page. Else 0.
     */
    uint32_t partial_page;
    /**
     * Node that ends where the whole pages end; 0 when no whole page matched.
     */
    rkv_node_id node;
    /**
     * Node that owns partial_page; 0 when there is none.
     */
    rkv_node_id partial_node;
    /**
     * With RKV_MATCH_LOCK: the lock, which protects all pages of the match, partial_page included;
     * 0 when nothing matched.
     */
    rkv_lock_id lock;
    /**
     * Tokens matched; the rest begins at this index. Never ends inside an image.
     */
    uint64_t token_count;
    /**
     * Positions of those tokens: page_count * page_size + partial_position_count.
     */
    uint64_t position_count;
    /**
     * Whole pages matched.
     */
    uint64_t page_count;
    /**
     * Positions at the start of partial_page that match as well; 0 with RKV_CACHE_WHOLE_PAGES, and
     * with a STATE group.
     */
    uint64_t partial_position_count;
    /**
     * Positions that are known, of which groups beside the first can reuse only position_count:
     * rkv_cache_probe_groups() says which costs how much. With one group the same number.
     */
    uint64_t known_position_count;
    /**
     * With a STATE group: where to end a chunk and save the states, so that the next request gets
     * that far: at the end of what is known, and at the last page boundary that leaves a token of
     * the prompt to compute. The smaller one first; 0 where there is none to be saved.
     */
    uint64_t checkpoint_at[2];
    /**
     * The group that cost the most of the known positions; 0 when none did.
     */
    uint32_t limiting_group;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_cache_match_result;

/**
 * One lookup of rkv_cache_match_many().
 */
typedef struct rkv_cache_match_item {
    /**
     * The namespace; NULL for the default one.
     */
    const struct rkv_namespace *space;
    /**
     * What to look for.
     */
    const struct rkv_tokens *tokens;
    /**
     * Receives the whole pages in order, as of rkv_cache_match(); not reported when page_capacity
     * is 0.
     */
    uint32_t *pages;
    /**
     * Room in pages.
     */
    size_t page_capacity;
    /**
     * 0 or RKV_MATCH_LOCK.
     */
    uint32_t flags;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_cache_match_item;

/**
 * One lookup of rkv_cache_probe_many().
 */
typedef struct rkv_cache_probe_item {
    /**
     * The namespace; NULL for the default one.
     */
    const struct rkv_namespace *space;
    /**
     * What to look for.
     */
    const struct rkv_tokens *tokens;
} rkv_cache_probe_item;

/**
 * What one lookup of rkv_cache_probe_many() found.
 */
typedef struct rkv_cache_probe_result {
    /**
     * Tokens that rkv_cache_match() would find.
     */
    uint64_t token_count;
    /**
     * Their positions, as of rkv_cache_probe().
     */
    uint64_t position_count;
} rkv_cache_probe_result;

/**
 * The pages of one group along the prefix of rkv_cache_insert_args.
 */
typedef struct rkv_group_row {
    /**
     * The group: 1 and up. The pages of group 0 are rkv_cache_insert_args.pages.
     */
    uint32_t group;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * A page for each whole page of the tokens, from the prefix' beginning; 0 where there is none.
     * Of a STATE group: the state after that page. Those before from_page_index are not read.
     */
    const uint32_t *pages;
    /**
     * Number of pages.
     */
    size_t page_count;
    /**
     * Receives page_count entries: the cache's page of the group at each whole page of the tokens,
     * 0 where it has none, and the caller's own after the last whole page. May be NULL, but not
     * with an external pool.
     */
    uint32_t *published_pages;
} rkv_group_row;

/**
 * What rkv_cache_insert() puts where.
 */
typedef struct rkv_cache_insert_args {
    /**
     * sizeof(rkv_cache_insert_args).
     */
    uint32_t struct_size;
    /**
     * 0 or RKV_INSERT_LOCK.
     */
    uint32_t flags;
    /**
     * The namespace; NULL for the default one. Not read when from_node is set.
     */
    const struct rkv_namespace *space;
    /**
     * All tokens of the prefix, from its beginning.
     */
    const struct rkv_tokens *tokens;
    /**
     * The pages of the prefix, from its beginning; at least one for each whole page of the
     * tokens. Those before from_page_index are not read.
     */
    const uint32_t *pages;
    /**
     * Number of pages.
     */
    size_t page_count;
    /**
     * Node of an earlier match to go on from; 0 begins at the root.
     */
    rkv_node_id from_node;
    /**
     * Tokens up to from_node's end, as rkv_cache_match_result.token_count says: those of a page
     * that matched in part may be counted too. 0 without from_node.
     */
    uint64_t from_token_index;
    /**
     * Pages up to from_node's end, as rkv_cache_match_result.page_count says; 0 without from_node.
     */
    uint64_t from_page_index;
    /**
     * The pages of other groups, one row for each that has any; NULL without.
     */
    const struct rkv_group_row *groups;
    /**
     * Number of rows.
     */
    size_t group_count;
    /**
     * sizeof(rkv_group_row); not read without rows.
     */
    size_t group_size;
    /**
     * With RKV_INSERT_LOCK: a lock on from_node, which moves to where the published pages end, in
     * the same step; 0 takes a new one. (That of a match which ended inside a page is on
     * partial_node, and stays there.) It keeps its id, and what it protected it protects still:
     * of other groups all pages from there on, until rkv_cache_slide_lock() lets go of those that
     * are passed. So a request that grows page by page has one lock, and a page more costs the
     * work on that page. When nobody else has locked from_node, or has pages behind it, its
     * segment becomes longer and from_node is stale; go on from rkv_cache_insert_result.node.
     * Let one call at a time move a lock. If another call moves it on between two portions of this
     * one, or undoes it, then that holds: it protects no more of what this call publishes.
     */
    rkv_lock_id lock;
} rkv_cache_insert_args;

/**
 * What rkv_cache_insert() did.
 */
typedef struct rkv_cache_insert_result {
    /**
     * sizeof(rkv_cache_insert_result).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Node that ends where the published pages end; 0 when there is no whole page.
     */
    rkv_node_id node;
    /**
     * Pages that the cache owns from now on.
     */
    uint64_t claimed_page_count;
    /**
     * Pages that were not claimed because another page is published for the same tokens. They
     * stay private to their holder, or outside.
     */
    uint64_t duplicate_page_count;
    /**
     * With RKV_INSERT_LOCK: the lock, which protects the prefix up to node, the one that moved if
     * one did; 0 when there is no whole page.
     */
    rkv_lock_id lock;
    /**
     * Pages of other groups that the cache owns from now on.
     */
    uint64_t claimed_group_page_count;
    /**
     * Pages of other groups that were not claimed because another page is published there.
     */
    uint64_t duplicate_group_page_count;
    /**
     * Whole pages of the tokens that are published: all, unless memory ran out before the end of
     * a long list. The pages behind them are the caller's as before.
     */
    uint64_t page_count;
} rkv_cache_insert_result;

/**
 * What can be seen of a node.
 */
typedef struct rkv_node_info {
    /**
     * sizeof(rkv_node_info).
     */
    uint32_t struct_size;
    /**
     * Locks on this node, and one for each child that is protected. 0: nothing protects the node.
     */
    uint32_t lock_count;
    /**
     * The parent, 0 for a root.
     */
    rkv_node_id parent;
    /**
     * Positions of the node's own segment; 0 for a root.
     */
    uint64_t position_count;
    /**
     * Pages of the node's own segment: position_count / page_size.
     */
    uint64_t page_count;
    /**
     * Positions from the beginning to the node's end.
     */
    uint64_t end_position;
    /**
     * Number of children.
     */
    uint64_t child_count;
    /**
     * Logical time of the last match that covered the node.
     */
    uint64_t last_access;
    /**
     * Matches that covered the node; stays at 2^32 - 1.
     */
    uint64_t hit_count;
} rkv_node_info;

/**
 * What rkv_cache_clear() is to clear.
 */
typedef struct rkv_cache_clear_args {
    /**
     * sizeof(rkv_cache_clear_args).
     */
    uint32_t struct_size;
    /**
     * RKV_CLEAR_ flags: which fields of a namespace are those of `space`. At least one.
     */
    uint32_t flags;
    /**
     * Has those fields; the others are not looked at. NULL is the default namespace. NULL with
     * RKV_CLEAR_EVERYTHING.
     */
    const struct rkv_namespace *space;
} rkv_cache_clear_args;

/**
 * What a clear did.
 */
typedef struct rkv_cache_clear_result {
    /**
     * sizeof(rkv_cache_clear_result).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Namespaces that it found.
     */
    uint64_t namespace_count;
    /**
     * Cached pages of group 0 that went back to the free pool during the call, as in all counts of
     * pages here; those of other groups go with them.
     */
    uint64_t freed_page_count;
    /**
     * Cleared pages that locks, sequences and open copies still hold, those of earlier clears
     * included. Each goes back when the last of them lets it go.
     */
    uint64_t held_page_count;
    /**
     * With an external pool: cleared pages that nobody holds. They are still the cache's;
     * evictions give them back, before all others. Else 0.
     */
    uint64_t waiting_page_count;
    /**
     * Retained sequences that it dropped.
     */
    uint64_t dropped_sequence_count;
} rkv_cache_clear_result;

/**
 * A group of a cache in numbers.
 */
typedef struct rkv_group_stats {
    /**
     * The group.
     */
    uint32_t group;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Pages of the group that the cache owns now.
     */
    uint64_t cached_page_count;
    /**
     * Pages of it that were evicted, those that went with a page of group 0 included.
     */
    uint64_t evicted_page_count;
    /**
     * Matches and rkv_sequence_begin() calls whose limiting_group it was.
     */
    uint64_t limited_lookup_count;
    /**
     * Positions that were known to those, and could not be reused.
     */
    uint64_t lost_position_count;
} rkv_group_stats;

/**
 * What one group costs of what is known.
 */
typedef struct rkv_group_cost {
    /**
     * The group.
     */
    uint32_t group;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Positions that can't be reused because of it. Groups are asked in order, each about what
     * those before it left: together this is known_position_count - position_count.
     */
    uint64_t lost_position_count;
} rkv_group_cost;

/**
 * How far a prompt is known, and how far it can be reused.
 */
typedef struct rkv_group_depths {
    /**
     * sizeof(rkv_group_depths).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Positions that rkv_cache_match() would find: every group can reuse them.
     */
    uint64_t position_count;
    /**
     * Positions that are known, whatever groups lack.
     */
    uint64_t known_position_count;
    /**
     * As rkv_cache_match_result.checkpoint_at.
     */
    uint64_t checkpoint_at[2];
} rkv_group_depths;

/**
 * A page of a group that a lock protects.
 */
typedef struct rkv_locked_page {
    /**
     * Its place in the prefix: it covers the positions from page_index * page_size on; of a STATE
     * group, it is the state after those of this place.
     */
    uint32_t page_index;
    /**
     * The page, in the group's pool.
     */
    uint32_t page;
} rkv_locked_page;

/**
 * A page that an eviction took.
 */
typedef struct rkv_evicted_page {
    /**
     * Its group.
     */
    uint32_t group;
    /**
     * The page, in the group's pool.
     */
    uint32_t page;
} rkv_evicted_page;

/**
 * Counters of a cache. Counts since creation unless they say "now". Pages are those of group 0:
 * rkv_cache_read_group_stats() has each group.
 */
typedef struct rkv_cache_stats {
    /**
     * sizeof(rkv_cache_stats).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Pages that the cache owns now.
     */
    uint64_t cached_page_count;
    /**
     * Pages now that no lock protects: exactly what eviction can free.
     */
    uint64_t reclaimable_page_count;
    /**
     * Nodes now, roots not counted.
     */
    uint64_t node_count;
    /**
     * Namespaces now.
     */
    uint64_t namespace_count;
    /**
     * Sequences alive now.
     */
    uint64_t sequence_count;
    /**
     * Different images known now, to the index or to a sequence.
     */
    uint64_t image_count;
    /**
     * Bytes of host memory that the index takes now.
     */
    uint64_t index_bytes;
    /**
     * Matches asked for, rkv_sequence_begin() included; probes are not counted.
     */
    uint64_t lookup_count;
    /**
     * Positions that lookups asked for.
     */
    uint64_t lookup_position_count;
    /**
     * Positions that lookups found.
     */
    uint64_t hit_position_count;
    /**
     * Of those, positions to be copied out of a page that is shared in part.
     */
    uint64_t partial_hit_position_count;
    /**
     * Pages claimed from callers and sequences.
     */
    uint64_t inserted_page_count;
    /**
     * Pages found published by somebody else at publishing.
     */
    uint64_t duplicate_page_count;
    /**
     * Pages evicted: with several groups those of others too, unless they went with a page of
     * group 0.
     */
    uint64_t evicted_page_count;
    /**
     * Cached prefixes now that no longer one goes on: nodes without children.
     */
    uint64_t prefix_count;
    /**
     * Retained sequences now.
     */
    uint64_t retained_sequence_count;
    /**
     * Pages of group 0 that those keep now, each counted once; they are among the cached and the
     * private ones. rkv_pool_stats has those of all groups.
     */
    uint64_t retained_page_count;
    /**
     * Retained sequences that gave way: to later ones, or by rkv_cache_drop_retained().
     */
    uint64_t displaced_sequence_count;
    /**
     * Sequences that went on from another one: continued and forked ones. No lookups.
     */
    uint64_t inherit_count;
    /**
     * Positions that they inherited; not among the hits of lookups.
     */
    uint64_t inherited_position_count;
    /**
     * Locks of callers now.
     */
    uint64_t lock_count;
    /**
     * Checkpoints that went because a path had more than rkv_cache_config.checkpoint_limit.
     */
    uint64_t dropped_checkpoint_count;
} rkv_cache_stats;

/**
 * How to begin a sequence.
 */
typedef struct rkv_sequence_begin_args {
    /**
     * sizeof(rkv_sequence_begin_args).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t flags;
    /**
     * The namespace; NULL for the default one.
     */
    const struct rkv_namespace *space;
    /**
     * The prompt, at least one token.
     */
    const struct rkv_tokens *tokens;
    /**
     * Positions beyond the prompt to allocate pages for at once, e.g. for the tokens to come. 0
     * is fine: rkv_sequence_append() allocates as it goes.
     */
    uint64_t reserve_position_count;
    /**
     * How many of the prompt's first positions get pages at once, e.g. the first chunk of the
     * prefill; what is reused always has its pages. rkv_sequence_allocate() adds the others, chunk
     * by chunk. 0, or the whole prompt or more: all of it, and what is reserved. Fewer: nothing is
     * reserved yet. The prompt and the reserve must fit in any case; but of WINDOW and CHUNK
     * groups, whose pages go back as chunks are computed, only what they attend to and one chunk:
     * where their pools have no room for whole prompts, allocate chunk by chunk, or the call is
     * RKV_STATUS_OUT_OF_PAGES however long you wait.
     */
    uint64_t allocate_position_count;
} rkv_sequence_begin_args;

/**
 * Names a live sequence of one cache. Zero names none. An id is never used again for another one.
 * With an external pool there are no sequences, and calls that take an id return
 * RKV_STATUS_UNSUPPORTED.
 */
typedef uint64_t rkv_sequence_id;

/**
 * A sequence as it stands.
 */
typedef struct rkv_sequence_info {
    /**
     * sizeof(rkv_sequence_info).
     */
    uint32_t struct_size;
    /**
     * Its row in the page table: for rkv_page_table_read_row(), _slot_mapping() and _batch().
     */
    uint32_t slot;
    /**
     * The sequence.
     */
    rkv_sequence_id sequence;
    /**
     * Positions of its tokens so far.
     */
    uint64_t position_count;
    /**
     * Positions whose KV was reused at begin; computing starts here. A token boundary, and less
     * than the prompt; only for the children of rkv_sequence_fork() it may be all of it.
     */
    uint64_t cached_position_count;
    /**
     * Tokens that those positions hold; the first token to compute has this index.
     */
    uint64_t cached_token_count;
    /**
     * Pages of its row. Fewer than its positions need while rkv_sequence_allocate() has not added
     * the others.
     */
    uint64_t page_count;
    /**
     * Leading pages of its row that the cache owns. The others are private. Never write to these.
     */
    uint64_t shared_page_count;
    /**
     * The node that the sequence keeps locked, 0 for none. rkv_sequence_publish() and
     * rkv_sequence_confirm_copies() may change it, of a child also the publishing of its parent.
     */
    rkv_node_id node;
    /**
     * Page copies to carry out before computing, see rkv_sequence_read_copies(); 0 when there are
     * none, or none left.
     */
    uint64_t copy_count;
    /**
     * Of the reused positions, those inherited from a parent; 0 unless
     * rkv_sequence_continue() or rkv_sequence_fork() made the sequence.
     */
    uint64_t inherited_position_count;
    /**
     * How far its tokens were known at begin, as rkv_cache_match_result.known_position_count. With
     * one group of layers, and of a child, the same as cached_position_count.
     */
    uint64_t known_position_count;
    /**
     * With a STATE group, where to end a chunk, publish it and save the states by
     * rkv_sequence_checkpoint(): as rkv_cache_match_result.checkpoint_at.
     */
    uint64_t checkpoint_at[2];
    /**
     * The group that cost the most of the known positions; 0 when none did.
     */
    uint32_t limiting_group;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_sequence_info;

/**
 * A copy of the first positions of a page to another page.
 */
typedef struct rkv_page_copy {
    /**
     * The page to copy from: cached or private.
     */
    uint32_t source_page;
    /**
     * The page to copy to: private.
     */
    uint32_t target_page;
    /**
     * How many positions, at most page_size.
     */
    uint32_t position_count;
    /**
     * The group of layers whose pages these are; 0 with one.
     */
    uint32_t group;
} rkv_page_copy;

/**
 * What rkv_sequence_publish() did in group 0; rkv_sequence_read_published() has the others.
 */
typedef struct rkv_sequence_publish_result {
    /**
     * sizeof(rkv_sequence_publish_result).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Pages that went from the sequence to the cache.
     */
    uint64_t claimed_page_count;
    /**
     * Pages that somebody else had published first: the row maps those now. The sequence's own are
     * free again; one from which a child is still to copy is free when the child has done so.
     */
    uint64_t remapped_page_count;
    /**
     * Index in the row of the first remapped page; the row's length when none was. Mirrors of the
     * row need an update from here to shared_page_count.
     */
    uint64_t first_remapped_index;
    /**
     * Leading pages of the row that the cache owns now.
     */
    uint64_t shared_page_count;
    /**
     * The node that the sequence keeps locked now, 0 for none. It takes the place of the one that
     * rkv_sequence_info or an earlier publishing named, whose id may be stale.
     */
    rkv_node_id node;
} rkv_sequence_publish_result;

/**
 * Tokens for one sequence of rkv_sequence_append_many().
 */
typedef struct rkv_sequence_append_item {
    /**
     * The sequence.
     */
    rkv_sequence_id sequence;
    /**
     * `id_count` text ids below RKV_TEXT_ID_LIMIT, e.g. the one just decoded.
     */
    const uint32_t *ids;
    /**
     * How many.
     */
    size_t id_count;
    /**
     * Instead of ids, which are NULL then: tokens that are not text alone. Else NULL.
     */
    const struct rkv_tokens *tokens;
} rkv_sequence_append_item;

/**
 * One sequence of rkv_sequence_publish_many().
 */
typedef struct rkv_sequence_publish_item {
    /**
     * The sequence.
     */
    rkv_sequence_id sequence;
    /**
     * Positions whose KV is written, from the beginning.
     */
    uint64_t computed_position_count;
} rkv_sequence_publish_item;

/**
 * How to go on from another sequence.
 */
typedef struct rkv_sequence_continue_args {
    /**
     * sizeof(rkv_sequence_continue_args).
     */
    uint32_t struct_size;
    /**
     * RKV_CONTINUE_ flags.
     */
    uint32_t flags;
    /**
     * The parent: a retained or a live sequence.
     */
    rkv_sequence_id parent;
    /**
     * The namespace, which must be the parent's; NULL for the default one.
     */
    const struct rkv_namespace *space;
    /**
     * What the child has after the tokens of its parent; NULL for nothing.
     */
    const struct rkv_tokens *tokens;
    /**
     * All tokens of the child, to begin with by a lookup when the parent is neither live nor
     * retained any more; NULL when that is to fail. Compared with nothing otherwise.
     */
    const struct rkv_tokens *all_tokens;
    /**
     * Positions beyond the child's tokens to allocate pages for at once.
     */
    uint64_t reserve_position_count;
    /**
     * How many of the child's first positions get pages at once, as in rkv_sequence_begin_args; 0
     * for all, and what is reserved.
     */
    uint64_t allocate_position_count;
} rkv_sequence_continue_args;

/**
 * How to fork a sequence.
 */
typedef struct rkv_sequence_fork_args {
    /**
     * sizeof(rkv_sequence_fork_args).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t flags;
    /**
     * The parent: a live or a retained sequence. It stays as it is.
     */
    rkv_sequence_id parent;
    /**
     * Children, at least one.
     */
    size_t child_count;
    /**
     * Positions beyond the parent's tokens to allocate pages for at once, for each child.
     */
    uint64_t reserve_position_count;
} rkv_sequence_fork_args;

/**
 * A child of a fork.
 */
typedef struct rkv_sequence_fork_child {
    /**
     * The child; rkv_sequence_read_info() tells the rest.
     */
    rkv_sequence_id sequence;
    /**
     * Its row in the page table.
     */
    uint32_t slot;
    /**
     * Page copies to carry out before the child computes: rkv_sequence_read_copies().
     */
    uint32_t copy_count;
} rkv_sequence_fork_child;

/**
 * What publishing did in a group.
 */
typedef struct rkv_published_group {
    /**
     * The group.
     */
    uint32_t group;
    /**
     * Pages that went from the sequence to the cache.
     */
    uint32_t claimed_page_count;
    /**
     * Pages that somebody else had published first: the row maps those now.
     */
    uint32_t remapped_page_count;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_published_group;

/**
 * New positions of one row. An array element.
 */
typedef struct rkv_plan_row {
    /**
     * The sequence; 0 for a row of the page table that is no sequence's: `slot`.
     */
    rkv_sequence_id sequence;
    /**
     * The row's slot; not read with a sequence.
     */
    uint32_t slot;
    /**
     * Number of regions.
     */
    uint32_t region_count;
    /**
     * Positions of the row that attend to each other in both directions, see
     * rkv_tokens_regions(): ascending, disjoint, none cut by the first or the last new position.
     * Regions behind the new positions are fine. NULL when there are none.
     */
    const struct rkv_region *regions;
    /**
     * The first new position: K and V of all positions before are in the row's pages.
     */
    uint64_t start;
    /**
     * New positions, at least 1. The row has pages for them, none of which the cache owns. The
     * sequence's row in every other group has them too, and the pages that new positions attend
     * to; a slot has pages of group 0 alone.
     */
    uint64_t count;
    /**
     * `count` masks of a draft's tree, one for each new position: bit j says that it sees the
     * row's new position j. It sees itself in any case, and no position behind it, whose bits are
     * zero; at most 64 new positions, no regions. Positions before `start` it sees as ever, and a
     * window or chunk is measured as if those that it sees came one behind another. NULL: each
     * sees all new ones before it.
     */
    const uint64_t *tree_masks;
    /**
     * RKV_MASK_CAUSAL, RKV_MASK_BIDIRECTIONAL or RKV_MASK_CONTEXT. The last two in a page table
     * without WINDOW and CHUNK groups, and without regions and tree masks.
     */
    uint32_t mask;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_plan_row;

/**
 * The largest step that a plan is to take.
 */
typedef struct rkv_plan_capacity {
    /**
     * sizeof(rkv_plan_capacity).
     */
    uint32_t struct_size;
    /**
     * RKV_PLAN_REGIONS, RKV_PLAN_SEPARATE, RKV_PLAN_TREES.
     */
    uint32_t flags;
    /**
     * Rows.
     */
    uint64_t row_count;
    /**
     * New positions of all rows.
     */
    uint64_t position_count;
    /**
     * New positions of one row. 0: position_count.
     */
    uint64_t row_position_count;
    /**
     * Pages of all rows up to their last new position; one that two rows share counts twice.
     */
    uint64_t page_count;
} rkv_plan_capacity;

/**
 * The arrays of a plan, as paged attention kernels take them, of group 0; rkv_plan_view_group()
 * has the pages of the others. They belong to the plan: good until it is set again, reserved or
 * destroyed.
 */
typedef struct rkv_plan_arrays {
    /**
     * sizeof(rkv_plan_arrays).
     */
    uint32_t struct_size;
    /**
     * Rows.
     */
    uint32_t row_count;
    /**
     * New positions of all rows.
     */
    uint64_t position_count;
    /**
     * row_count + 1 offsets: the new positions of row i are query_indptr[i] to
     * query_indptr[i + 1].
     */
    const int32_t *query_indptr;
    /**
     * row_count + 1 offsets into `indices`, the first 0.
     */
    const int32_t *indptr;
    /**
     * The pages of all rows up to their last new position, one row after another.
     */
    const int32_t *indices;
    /**
     * For each row, the positions in its last page: 1 to page_size.
     */
    const int32_t *last_page_len;
    /**
     * For each new position, where it lies: page * page_size + offset in the page; -1 for a query
     * of a row with RKV_MASK_CONTEXT.
     */
    const int64_t *slot_mapping;
    /**
     * Copies of all groups that were open when the plan was set: before the step is computed, the
     * first positions of one page are copied to another one in every layer of the group, and of a
     * STATE group the whole page. Then rkv_sequence_confirm_copies(), for each sequence. A runner
     * does both for its group, see rkv_runner_prepare_plan().
     */
    uint64_t copy_count;
    /**
     * For each copy, the sequence that waits for it; those of a sequence are neighbours.
     */
    const rkv_sequence_id *copy_sequence;
    /**
     * For each copy, the group of layers whose pages these are.
     */
    const int32_t *copy_group;
    /**
     * For each copy, the page to copy from.
     */
    const int32_t *copy_source_page;
    /**
     * For each copy, the page to copy to.
     */
    const int32_t *copy_target_page;
    /**
     * For each copy, how many positions.
     */
    const int32_t *copy_position_count;
} rkv_plan_arrays;

/**
 * The pages of a plan's rows in one group. They belong to the plan: good until it is set again,
 * reserved or destroyed.
 */
typedef struct rkv_plan_group_arrays {
    /**
     * sizeof(rkv_plan_group_arrays).
     */
    uint32_t struct_size;
    /**
     * Rows, those of the plan in its order.
     */
    uint32_t row_count;
    /**
     * row_count + 1 offsets into `indices`, the first 0.
     */
    const int32_t *indptr;
    /**
     * The pages of all rows up to their last new position, one row after another; 0 is a hole,
     * where the row has no page. With RKV_PLAN_COMPACT only the pages that new positions are in or
     * attend to: of sinks, then of the window or chunk. Of a STATE group the page of each row's
     * state, and its draft_state_count pages for states after draft tokens.
     */
    const int32_t *indices;
    /**
     * For each row, the positions in its last page: 1 to page_size; 1 in a STATE group.
     */
    const int32_t *last_page_len;
    /**
     * For each new position, where it lies: page * page_size + offset in the page; -1 for a query
     * of a row with RKV_MASK_CONTEXT. NULL in a STATE group.
     */
    const int64_t *slot_mapping;
    /**
     * For each row, the position at which the first page begins that is none of the sinks'. NULL:
     * 0 for all, as in a FULL or STATE group and without RKV_PLAN_COMPACT.
     */
    const int64_t *first_position;
    /**
     * For each row, how many pages of sinks are in front of that one. NULL: 0 for all, or they are
     * among the others.
     */
    const int32_t *sink_page_count;
} rkv_plan_group_arrays;

/**
 * Where K and V of one layer lie; element (page, position in the page, head, d) at
 * page * page_stride + position * position_stride + head * head_stride + d. An array element.
 */
typedef struct rkv_runner_kv_memory {
    /**
     * K of page 0. Layers may have one memory between them, with both k and v: one alone of
     * another layer's is refused.
     */
    void *k;
    /**
     * V of page 0. With RKV_RUNNER_LATENT NULL where it is given, and k where it is read; without
     * it never k.
     */
    void *v;
    /**
     * Elements of K from one page to the next, and of V unless it has strides of its own.
     */
    uint64_t page_stride;
    /**
     * Elements from one position of a page to the next.
     */
    uint64_t position_stride;
    /**
     * Elements from one head to the next.
     */
    uint64_t head_stride;
    /**
     * The same three of V. All 0: as those of K.
     */
    uint64_t v_page_stride;
    /**
     * Elements of V from one position of a page to the next.
     */
    uint64_t v_position_stride;
    /**
     * Elements of V from one head to the next.
     */
    uint64_t v_head_stride;
} rkv_runner_kv_memory;

/**
 * Runs one task of many. `index` is below the count.
 */
typedef void (*rkv_parallel_task)(void *task, size_t index);

/**
 * Calls run(task, i) once for each i below `task_count`, in any order, on any threads, and returns
 * when all calls have returned. A single thread may do it all; what it does not call, as a pool
 * does that is shutting down, the thread that computes does once it returned. It must not throw,
 * longjmp or end its thread: the process would end, see Callbacks at the top. Neither it, nor what
 * its threads do meanwhile, may call anything with the plan that is computed: that may wait for
 * rkv_plan_set(), which waits until the plan was computed.
 */
typedef void (*rkv_parallel_for)(void *user_data,
                                 size_t task_count,
                                 rkv_parallel_task run,
                                 void *task);

/**
 * How to build a runner. Fill with rkv_runner_config_init(), then change fields.
 */
typedef struct rkv_runner_config {
    /**
     * sizeof(rkv_runner_config).
     */
    uint32_t struct_size;
    /**
     * RKV_BACKEND_CPU, the default, or RKV_BACKEND_CUDA.
     */
    uint32_t backend;
    /**
     * Layers of the model that it computes, 1 to 65536. Default 0, which is refused: set it.
     */
    uint32_t layer_count;
    /**
     * Heads of a query, 1 to 65536. Default 0, which is refused.
     */
    uint32_t query_head_count;
    /**
     * Heads of K and V; divides query_head_count. Default 0, which is refused.
     */
    uint32_t kv_head_count;
    /**
     * Elements of a head of Q and K: 64, 80, 96, 112, 128, 192, 256, 512 or 576, on CUDA 576 with
     * RKV_RUNNER_LATENT alone. Default 128.
     */
    uint32_t head_dim;
    /**
     * Of q, k, v and out: RKV_DTYPE_F32, the default, _F16 or _BF16; on CUDA not F32.
     */
    uint32_t dtype;
    /**
     * Of K and V in memory: the same as dtype, or RKV_DTYPE_FP8_E4M3. Default RKV_DTYPE_F32: set
     * it together with dtype.
     */
    uint32_t kv_dtype;
    /**
     * Of memory of its own: RKV_KV_LAYOUT_NHD, the default, or _HND. Of no meaning with
     * kv_layers.
     */
    uint32_t kv_layout;
    /**
     * Threads that compute, at most 1024: of its own, the calling one included, or with
     * parallel_for the engine's. Default 0: as many as the process may use.
     */
    uint32_t thread_count;
    /**
     * RKV_RUNNER_ bits; on CUDA RKV_RUNNER_LATENT with head_dim 576 and v_head_dim 512 alone.
     */
    uint32_t flags;
    /**
     * Ordinal of the GPU; 0 for the CPU.
     */
    uint32_t device;
    /**
     * The engine's memory, layer_count of them, for every page of the group's pool, page 0
     * included; it must outlive the runner. On CUDA it is the device's, and begins at multiples of
     * 16 bytes, as does every head of it. NULL: the runner allocates memory of its own.
     */
    const struct rkv_runner_kv_memory *kv_layers;
    /**
     * sizeof(rkv_runner_kv_memory), to be set with kv_layers; not read without. Default 0.
     */
    size_t kv_layer_size;
    /**
     * The engine's threads. NULL: threads of its own; so on CUDA, where none compute.
     */
    rkv_parallel_for parallel_for;
    /**
     * Passed to parallel_for.
     */
    void *parallel_user_data;
    /**
     * The group of layers whose K and V it has, see docs/groups.md: no STATE group; on CUDA no
     * CHUNK group and no sinks. Default 0.
     */
    uint32_t group;
    /**
     * Elements of a head of V and of the result: one of the sizes listed at head_dim. Default 0:
     * the same as head_dim. On CUDA it must be the same, except head_dim 192 with 128, and 576
     * with 512.
     */
    uint32_t v_head_dim;
} rkv_runner_config;

/**
 * What a runner has.
 */
typedef struct rkv_runner_stats {
    /**
     * sizeof(rkv_runner_stats).
     */
    uint32_t struct_size;
    /**
     * Threads of the host that compute; 0 on CUDA.
     */
    uint32_t thread_count;
    /**
     * Bytes of KV memory of its own; 0 over the engine's.
     */
    uint64_t kv_bytes;
    /**
     * Bytes that one page takes, K and V of all layers, when they lie densely.
     */
    uint64_t page_bytes;
} rkv_runner_stats;

/**
 * The new positions of a row of a plan that hold. An array element.
 */
typedef struct rkv_kept_branch {
    /**
     * The row's number in the plan, from 0 on.
     */
    uint32_t row;
    /**
     * Number of positions.
     */
    uint32_t position_count;
    /**
     * Which of the row's new positions hold, the first one being 0: ascending.
     */
    const uint32_t *positions;
} rkv_kept_branch;

/**
 * What one layer of a step reads and writes. Tensors are of the runner's dtype; strides are in
 * elements, and 0 means dense. On CUDA all pointers lead to memory of the device, and q, k, v and
 * out begin at multiples of 16 bytes, as does every head of them.
 */
typedef struct rkv_runner_append_prefill_args {
    /**
     * sizeof(rkv_runner_append_prefill_args).
     */
    uint32_t struct_size;
    /**
     * The layer, below layer_count.
     */
    uint32_t layer;
    /**
     * Queries: [new positions of all rows, in the plan's order][query_head_count][head_dim].
     */
    const void *q;
    /**
     * Keys, rotated if the model does that: [new positions][kv_head_count][head_dim]. NULL
     * together with v: K and V of the new positions are in the pages already.
     */
    const void *k;
    /**
     * Values: [new positions][kv_head_count][v_head_dim]. NULL with RKV_RUNNER_LATENT.
     */
    const void *v;
    /**
     * Receives the result: [new positions][query_head_count][v_head_dim]. Its memory, from the
     * first element to the last, must not overlap that of q, k and v, also where no element of it
     * is one of theirs.
     */
    void *out;
    /**
     * Receives the natural logarithm of each softmax denominator, sink included:
     * [new positions][query_head_count]. Must not overlap q, k, v and out, as these. NULL when not
     * wanted.
     */
    float *lse;
    /**
     * Elements from one position of q to the next.
     */
    uint64_t q_position_stride;
    /**
     * Elements from one head of q to the next.
     */
    uint64_t q_head_stride;
    /**
     * The same of k.
     */
    uint64_t k_position_stride;
    /**
     * The same of k.
     */
    uint64_t k_head_stride;
    /**
     * The same of v.
     */
    uint64_t v_position_stride;
    /**
     * The same of v.
     */
    uint64_t v_head_stride;
    /**
     * The same of out.
     */
    uint64_t out_position_stride;
    /**
     * The same of out.
     */
    uint64_t out_head_stride;
    /**
     * A logit for each query head that takes part in the softmax's denominator only, an attention
     * sink; not scaled. NULL for none.
     */
    const float *sinks;
    /**
     * Factor of q * k. 0: 1 / sqrt(head_dim). At most 2^119, alone, times k_scale, and that
     * divided by soft_cap.
     */
    float scale;
    /**
     * A scaled logit x becomes soft_cap * tanh(x / soft_cap). 0: none.
     */
    float soft_cap;
    /**
     * Positions that a query sees, itself included; its own region and the sinks of a WINDOW
     * group it sees whole. At most the group's own window or chunk. 0 means the group's own; in a
     * FULL group, no limit. Must be 0 when a row is not causal, also of a step that a graph of
     * this call serves.
     */
    uint32_t window;
    /**
     * FP8 only: K is what is stored times this, and so is V with RKV_RUNNER_LATENT: then it is at
     * most 2^119. 0: 1. With other formats it changes nothing, though below 0 it is refused there
     * too.
     */
    float k_scale;
    /**
     * FP8 only, as k_scale: V is what is stored times this, at most 2^119. 0: 1.
     */
    float v_scale;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * CUDA only: the CUstream to work on. NULL on the CPU.
     */
    void *stream;
    /**
     * FP8 only: a scale for each KV head, in place of k_scale: [kv_head_count], on CUDA on the
     * device, where they may change from one launch of a graph to the next, with all that was
     * stored by them. NULL: k_scale for all. On CUDA nobody looks at how large they are. Not read
     * with other formats.
     */
    const float *k_scales;
    /**
     * The same of V: NULL if k_scales is, and with RKV_RUNNER_LATENT.
     */
    const float *v_scales;
} rkv_runner_append_prefill_args;

/**
 * Results of attention over disjoint sets of keys, to be merged.
 */
typedef struct rkv_runner_merge_states_args {
    /**
     * sizeof(rkv_runner_merge_states_args).
     */
    uint32_t struct_size;
    /**
     * How many, at least 1.
     */
    uint32_t state_count;
    /**
     * Positions of each.
     */
    uint64_t position_count;
    /**
     * state_count results: [position_count][query_head_count][v_head_dim] of the runner's dtype.
     * On CUDA each begins at a multiple of 4 bytes.
     */
    const void *const *outs;
    /**
     * state_count logarithms of denominators: [position_count][query_head_count]. Minus infinity:
     * the set was empty, its result is not read.
     */
    const float *const *lses;
    /**
     * Receives the merged result; may be one of outs, and is aligned as they are.
     */
    void *out;
    /**
     * Receives the merged logarithms; may be one of lses. NULL when not wanted.
     */
    float *lse;
    /**
     * CUDA only: the CUstream to work on. NULL on the CPU.
     */
    void *stream;
} rkv_runner_merge_states_args;

/**
 * A copy of one page that the engine carries out, in all layers of its group.
 */
typedef struct rkv_copy_job {
    /**
     * Names the copy for rkv_cache_complete().
     */
    uint64_t job;
    /**
     * Its place in host memory.
     */
    void *host;
    /**
     * Bytes of it: page_bytes of the config, or of the group's pool.
     */
    uint64_t byte_count;
    /**
     * Of a load, the sequence whose page it is; else 0.
     */
    rkv_sequence_id sequence;
    /**
     * The page of the device, in the group's pool.
     */
    uint32_t page;
    /**
     * RKV_COPY_LOAD or RKV_COPY_STORE.
     */
    uint32_t direction;
    /**
     * The group of layers whose page it is; 0 with one group.
     */
    uint32_t group;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_copy_job;

/**
 * What happened to some pages. An array element: it may grow, see record_size.
 */
typedef struct rkv_journal_record {
    /**
     * One higher than that of the record before.
     */
    uint64_t number;
    /**
     * RKV_JOURNAL_STORED, RKV_JOURNAL_REMOVED or RKV_JOURNAL_CLEARED. Expect others.
     */
    uint32_t kind;
    /**
     * Of removed pages and of a cleared namespace, why: an RKV_REASON_. Expect others. Else 0.
     */
    uint32_t reason;
    /**
     * Group of the pages. A page of a group beside the first hangs on the page of group 0 that has
     * the same positions, and is removed before that one is.
     */
    uint32_t group;
    /**
     * Of stored pages, the page of group 0 before the first one; 0 at the beginning of a prefix,
     * and for removed ones.
     */
    uint32_t parent_page;
    /**
     * Of stored pages, the position in the prefix at which the first one begins.
     */
    uint64_t first_position;
    /**
     * Where in the buffer of pages its pages begin.
     */
    uint64_t page_index;
    /**
     * Pages.
     */
    uint64_t page_count;
    /**
     * Where in the buffer of tokens its tokens begin.
     */
    uint64_t token_index;
    /**
     * Tokens: page_count * page_size of stored pages, else 0.
     */
    uint64_t token_count;
    /**
     * Where in the buffer of items its items begin.
     */
    uint64_t item_index;
    /**
     * Items.
     */
    uint64_t item_count;
    /**
     * Of stored pages, and of a cleared namespace: the flags of the rkv_namespace, and the fields
     * below likewise.
     */
    uint32_t namespace_flags;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * LoRA adapter.
     */
    uint64_t lora_id;
    /**
     * Version of the weights or of the adapter.
     */
    uint64_t epoch;
    /**
     * Digest of an image on which all KV depends.
     */
    uint8_t image_digest[16];
    /**
     * What separates tenants.
     */
    uint8_t salt[32];
    /**
     * Of stored pages of a group beside the first, where in the buffer of pages those of group 0
     * with the same positions begin, page_count of them. Else page_index.
     */
    uint64_t group_0_page_index;
} rkv_journal_record;

/**
 * Positions of a record that are not text: a coordinate, a size, or an image, of which pages may
 * hold a part. An array element: it may grow, see item_size.
 */
typedef struct rkv_journal_item {
    /**
     * RKV_TOKEN_COORD, RKV_TOKEN_SIZE or RKV_TOKEN_IMAGE.
     */
    uint32_t kind;
    /**
     * The first of the positions, counted from the beginning of the record's first page.
     */
    uint32_t position;
    /**
     * How many positions.
     */
    uint32_t position_count;
    /**
     * Of an image, how many positions of it stand before those.
     */
    uint32_t image_offset;
    /**
     * Positions of the whole image; 0 for the other kinds.
     */
    uint32_t image_position_count;
    /**
     * Bin of a coordinate or of a width; else 0.
     */
    uint32_t bin;
    /**
     * Bin of a height; else 0.
     */
    uint32_t height_bin;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Content digest of an image; else zero.
     */
    uint8_t digest[16];
} rkv_journal_item;

/**
 * Where records are read to: room of the caller's, for one call after another.
 */
typedef struct rkv_journal_buffers {
    /**
     * sizeof(rkv_journal_buffers).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t flags;
    /**
     * Receives records. With all four buffers NULL and without room, how much all need is asked.
     */
    struct rkv_journal_record *records;
    /**
     * sizeof(rkv_journal_record).
     */
    size_t record_size;
    /**
     * Room in records.
     */
    size_t record_capacity;
    /**
     * Receives the pages of the records.
     */
    uint32_t *pages;
    /**
     * Room in pages.
     */
    size_t page_capacity;
    /**
     * Receives an id for each position of stored pages; RKV_TEXT_ID_LIMIT where an item says what
     * is there.
     */
    uint32_t *tokens;
    /**
     * Room in tokens.
     */
    size_t token_capacity;
    /**
     * Receives the items of the records, in the order of their positions.
     */
    struct rkv_journal_item *items;
    /**
     * sizeof(rkv_journal_item).
     */
    size_t item_size;
    /**
     * Room in items.
     */
    size_t item_capacity;
} rkv_journal_buffers;

/**
 * What was read of a journal.
 */
typedef struct rkv_cache_read_journal_result {
    /**
     * sizeof(rkv_cache_read_journal_result).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Records read; with RKV_STATUS_BUFFER_TOO_SMALL, 1.
     */
    uint64_t record_count;
    /**
     * What they have in the buffer of pages: their pages, and of groups beside the first those of
     * group 0 too. With RKV_STATUS_BUFFER_TOO_SMALL, that of the first record that is there.
     */
    uint64_t page_count;
    /**
     * Their tokens; likewise.
     */
    uint64_t token_count;
    /**
     * Their items; likewise.
     */
    uint64_t item_count;
    /**
     * The after_number of the next call: all records up to it were read, or are lost.
     */
    uint64_t last_number;
    /**
     * The number of the newest record.
     */
    uint64_t newest_number;
    /**
     * The number of the oldest record that is still there; newest_number + 1 for none.
     */
    uint64_t oldest_number;
    /**
     * Records after after_number that were overwritten before they were read. More than 0: start
     * again with rkv_cache_read_contents().
     */
    uint64_t lost_count;
} rkv_cache_read_journal_result;

/**
 * What was told of a cache's contents.
 */
typedef struct rkv_cache_read_contents_result {
    /**
     * sizeof(rkv_cache_read_contents_result).
     */
    uint32_t struct_size;
    /**
     * The first_page of the next call; 0 when all pages were told. Page numbers of pool 0, and
     * behind them places for the pages of the other pools.
     */
    uint32_t next_page;
    /**
     * Records; with RKV_STATUS_BUFFER_TOO_SMALL, 1.
     */
    uint64_t record_count;
    /**
     * What they have in the buffer of pages: their pages, and of groups beside the first those of
     * group 0 too. With RKV_STATUS_BUFFER_TOO_SMALL, that of the first record.
     */
    uint64_t page_count;
    /**
     * Their tokens; likewise.
     */
    uint64_t token_count;
    /**
     * Their items; likewise.
     */
    uint64_t item_count;
    /**
     * The number of the newest record when the call began. Of the first call: the after_number of
     * the first rkv_cache_read_journal().
     */
    uint64_t number;
    /**
     * The number of the newest record when the call ended. Of the last call: with all records up
     * to it applied, what was told is right.
     */
    uint64_t newest_number;
} rkv_cache_read_contents_result;

/**
 * How events are written. All zero but for struct_size is what most routers expect.
 */
typedef struct rkv_event_encoder_config {
    /**
     * sizeof(rkv_event_encoder_config).
     */
    uint32_t struct_size;
    /**
     * RKV_EVENTS_WIDE_HASHES, RKV_EVENTS_DATA_PARALLEL.
     */
    uint32_t flags;
    /**
     * Stands in each batch. Zero without RKV_EVENTS_DATA_PARALLEL: then there is none.
     */
    uint32_t data_parallel_rank;
    /**
     * The id that stands among the tokens for positions that are not text, below
     * RKV_TEXT_ID_LIMIT; the placeholder that the model has for images.
     */
    uint32_t placeholder_token_id;
    /**
     * Where the pages are; NULL for "GPU". Routers know "CPU" and "STORAGE" too.
     */
    const char *medium;
} rkv_event_encoder_config;

/**
 * What a batch has.
 */
typedef struct rkv_event_batch {
    /**
     * sizeof(rkv_event_batch).
     */
    uint32_t struct_size;
    /**
     * RKV_EVENTS_MORE.
     */
    uint32_t flags;
    /**
     * Bytes of the payload; 0 when there is nothing to tell yet. With RKV_STATUS_BUFFER_TOO_SMALL,
     * those that one event needs.
     */
    uint64_t byte_count;
    /**
     * Events.
     */
    uint64_t event_count;
    /**
     * Blocks that came in.
     */
    uint64_t stored_block_count;
    /**
     * Blocks that left, those that an AllBlocksCleared ends included.
     */
    uint64_t removed_block_count;
    /**
     * The last record of the journal that was read.
     */
    uint64_t last_number;
    /**
     * Records of the journal that were overwritten before they were read, since the call before; a
     * call that had no room takes none of them, and the next one says them again. More than 0: an
     * AllBlocksCleared comes, or with a rank BlockRemoved of what was told, and then all that is
     * held.
     */
    uint64_t lost_record_count;
} rkv_event_batch;

/**
 * One value of a call to a remote store. An array element: it may grow at its end.
 */
typedef struct rkv_remote_item {
    /**
     * What the value is found by: a SHA-256 of the model's fingerprint, page size, bytes of a page
     * and all that identifies the page; below a snapshot cache, of all that leads to a snapshot.
     */
    uint8_t key[32];
    /**
     * The value to be written; to be read, where it goes. Otherwise NULL. Good during the call.
     */
    void *bytes;
    /**
     * Bytes there. When a value is read, set this to how long it is, and write no more of it than
     * there is room for.
     */
    uint64_t byte_count;
    /**
     * Set this: an RKV_REMOTE_ answer. Anything else counts as RKV_REMOTE_FAILED.
     */
    uint32_t answer;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_remote_item;

/**
 * A call to a remote store, about item_count values, item_size bytes apart. It may wait, but
 * should return within timeout_ms: what comes later is not waited for, and its thread does nothing
 * else meanwhile. It can't detach or flush what it belongs to, and must not destroy that cache,
 * since all of them wait for it. It must not throw, longjmp or end its thread: the process would
 * end, see Callbacks at the top.
 */
typedef void (*rkv_remote_call)(void *user_data,
                                struct rkv_remote_item *items,
                                size_t item_size,
                                size_t item_count,
                                uint64_t timeout_ms);

/**
 * What keeps values by key for many processes: a server, with the calls that reach it. They come
 * from threads of the library, worker_count that read and as many that write, several at once,
 * never from a thread that calls the cache, and while no lock is held. Nothing they return is
 * believed: a value has its key, its length and a checksum within. After three calls in a row that
 * failed nothing is asked for a while, 100 ms at first and 10 s at most.
 */
typedef struct rkv_remote_store {
    /**
     * sizeof(rkv_remote_store).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Passed to each call. What it leads to stays until the tiers are detached or the cache is
     * destroyed.
     */
    void *user_data;
    /**
     * Which values are there: RKV_REMOTE_DONE or RKV_REMOTE_MISSING.
     */
    rkv_remote_call has;
    /**
     * Reads values.
     */
    rkv_remote_call get;
    /**
     * Writes values, in the place of what is there. The store may drop a value at any time.
     */
    rkv_remote_call put;
    /**
     * Removes values: damaged ones, and snapshots that rkv_snapshot_cache_remove() took away. NULL
     * if that can't be done: then both stay in the store.
     */
    rkv_remote_call remove;
} rkv_remote_store;

/**
 * The pages of a pool, and the host memory that they have.
 */
typedef struct rkv_tier_pool_config {
    /**
     * Bytes of a page in all layers of a group together: what a copy moves.
     */
    uint64_t page_bytes;
    /**
     * Bytes of host memory, at most: as many slots of page_bytes as fit.
     */
    uint64_t host_bytes;
    /**
     * Where those are, as in rkv_tier_config; NULL for memory that the library takes.
     */
    void *host_memory;
} rkv_tier_pool_config;

/**
 * What lies below the pages of a cache: host memory, a directory, and a remote store. Fill with
 * rkv_tier_config_init(), then change fields.
 */
typedef struct rkv_tier_config {
    /**
     * sizeof(rkv_tier_config).
     */
    uint32_t struct_size;
    /**
     * RKV_TIERS_AGREE, RKV_TIERS_THREADS, both or 0. Default 0.
     */
    uint32_t flags;
    /**
     * Bytes of a page in all layers together, or with several groups in all layers of a group:
     * what a copy moves. A directory whose pages have other ones is refused. No default.
     */
    uint64_t page_bytes;
    /**
     * Bytes of host memory, at most: as many slots of page_bytes as fit, 1 to 2^32 - 1 of them. (A
     * slot here is a place for one page, and has nothing to do with those of the page table.) No
     * default.
     */
    uint64_t host_bytes;
    /**
     * Where those are: NULL for memory that the library takes, or memory of the engine's (pinned,
     * say), which stays as it is, and which nobody else touches, until the tiers are detached or
     * the cache is destroyed. Default NULL.
     */
    void *host_memory;
    /**
     * The directory below host memory, a path that ends with NUL; made if it isn't there, with its
     * parents. It is this cache's alone. NULL for none. Default NULL.
     */
    const char *directory;
    /**
     * Bytes of data in it, at most: a page takes whole blocks of 4096 bytes, and its note. Room
     * for a page of each pool at least, and for fewer than 2^29 pages. 0 without a directory.
     */
    uint64_t disk_bytes;
    /**
     * What the pages are good for: a digest of model, quantisation, layout, rank, and whatever
     * else changes what their bytes mean. A directory of another fingerprint is refused. Default
     * all zero, which is a fingerprint like any other: models that leave it so and have pages of
     * equal bytes find each other's, in a directory as in a remote store.
     */
    uint8_t fingerprint[32];
    /**
     * When a page is copied to host memory: 0 as soon as it is published, n when n fetches have
     * asked for what follows it, 255 at most, UINT32_MAX when it is about to be evicted. Default
     * 0.
     */
    uint32_t store_after_uses;
    /**
     * Requests that are under way to the disk at once, of 2 MiB, as many to read as to write,
     * 1 to 64: by so many threads, but writes by one where there is io_uring. The same of calls
     * to the remote store, by threads. Default 8.
     */
    uint32_t worker_count;
    /**
     * Milliseconds from a write to its commit, at most, while the disk keeps up. 1 to 60000.
     * Default 250.
     */
    uint32_t commit_interval_ms;
    /**
     * An eventfd that becomes readable when there is something to poll for, or -1. The engine
     * reads it before it calls rkv_cache_poll(), not after: what comes is announced once, and not
     * again until the next poll. It is used until the tiers are detached, and never closed. On
     * Linux files, pipes and sockets are refused. Default -1.
     */
    int32_t event_fd;
    /**
     * A store below all that, shared with other processes; NULL for none. It is copied. Default
     * NULL.
     */
    const struct rkv_remote_store *remote;
    /**
     * Milliseconds that a call to it may take; a fetch that gets nothing from it for as long goes
     * on without. 600000 at most; 0 for 2000. 0 without a store. Default 0.
     */
    uint32_t remote_timeout_ms;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Of a page table with several pools: the pages of each, in order. page_bytes, host_bytes and
     * host_memory are 0 and NULL then. It is copied. Default NULL: one pool, of which those tell.
     */
    const struct rkv_tier_pool_config *pools;
    /**
     * Number of pools. Default 0.
     */
    size_t pool_count;
    /**
     * sizeof(rkv_tier_pool_config); not read without pools. Set it with them: the default is that
     * of the loaded library, which may be later and know a longer one.
     */
    size_t pool_size;
} rkv_tier_config;

/**
 * A fetch that has ended. With RKV_TIERS_AGREE, one that waits for rkv_sequence_agree().
 */
typedef struct rkv_fetch_end {
    /**
     * The sequence.
     */
    rkv_sequence_id sequence;
    /**
     * Its cached_position_count now; with RKV_TIERS_AGREE, what that can be at most.
     */
    uint64_t position_count;
    /**
     * Pages that were to be fetched.
     */
    uint64_t wanted_page_count;
    /**
     * Pages that came.
     */
    uint64_t brought_page_count;
    /**
     * 0 or RKV_FETCH_END_LATE.
     */
    uint32_t flags;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_fetch_end;

/**
 * What a poll gave.
 */
typedef struct rkv_cache_poll_result {
    /**
     * sizeof(rkv_cache_poll_result).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Copies.
     */
    uint64_t job_count;
    /**
     * Fetches that have ended.
     */
    uint64_t end_count;
} rkv_cache_poll_result;

/**
 * What the tiers have of a sequence.
 */
typedef struct rkv_sequence_fetch_result {
    /**
     * sizeof(rkv_sequence_fetch_result).
     */
    uint32_t struct_size;
    /**
     * 1 when a fetch is open now: rkv_cache_poll() says when it has ended. Until then these return
     * RKV_STATUS_PENDING for the sequence: what sets or computes a plan, publish, retain,
     * checkpoint, fetch and rkv_sequence_agree(), and with several groups of layers read_copies,
     * confirm_copies, allocate, append, truncate, slide, continue and fork. Others work: it can be
     * released, and with one group grow.
     */
    uint32_t is_open;
    /**
     * Positions that can be fetched beyond those that the sequence reuses. A fetch that is begun
     * counts 64 pages at most, and may bring more. With one group of layers it brings no more than
     * the sequence's row has pages for: rkv_sequence_allocate() adds those of a prompt that began
     * with allocate_position_count. With several groups the fetch makes the rows longer itself. A
     * look counts all that is known, whatever the row has pages for.
     */
    uint64_t position_count;
    /**
     * Of those, from the first one on, how many are in host memory.
     */
    uint64_t host_position_count;
    /**
     * Positions beyond position_count for which the fetch asks the remote store; how many it
     * brings is in the rkv_fetch_end.
     */
    uint64_t asked_position_count;
} rkv_sequence_fetch_result;

/**
 * Names a prefetch of one cache, from rkv_cache_prefetch() until it has ended or is cancelled, and
 * never means another one. Zero names none.
 */
typedef uint64_t rkv_prefetch_id;

/**
 * A prefetch, and what there is of its prompt.
 */
typedef struct rkv_cache_prefetch_result {
    /**
     * sizeof(rkv_cache_prefetch_result).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * For rkv_cache_cancel_prefetch(); 0 when nothing is brought.
     */
    rkv_prefetch_id prefetch;
    /**
     * Positions that the device has, of whole pages.
     */
    uint64_t cached_position_count;
    /**
     * Positions beyond those that the tiers have.
     */
    uint64_t position_count;
    /**
     * Of those, from the first one on, how many are in host memory already.
     */
    uint64_t host_position_count;
    /**
     * Positions beyond position_count for which the remote store is asked.
     */
    uint64_t asked_position_count;
} rkv_cache_prefetch_result;

/**
 * One tier, now and since it was attached.
 */
typedef struct rkv_tier_totals {
    /**
     * Pages now.
     */
    uint64_t page_count;
    /**
     * Bytes in use now.
     */
    uint64_t used_bytes;
    /**
     * Bytes at most.
     */
    uint64_t byte_limit;
    /**
     * Pages that came into it from above: host memory from the device, the directory from host
     * memory. What fetches and prefetches bring up to host memory is not among them.
     */
    uint64_t stored_page_count;
    /**
     * Pages that were fetched from it.
     */
    uint64_t fetched_page_count;
    /**
     * Pages that went to make room; of the directory also those that disk_bytes had no room for
     * when it was attached.
     */
    uint64_t evicted_page_count;
    /**
     * Pages that were dropped because their bytes had changed.
     */
    uint64_t damaged_page_count;
    /**
     * Copies, reads and writes that failed.
     */
    uint64_t failed_count;
} rkv_tier_totals;

/**
 * The remote store, now and since it was attached. Below a snapshot cache what stands here as a
 * page is a value of it: a mark, a head or a piece of a snapshot.
 */
typedef struct rkv_remote_totals {
    /**
     * Pages that it was asked for.
     */
    uint64_t asked_page_count;
    /**
     * Of those, the ones that it had; with one group of layers, up to the first that it didn't
     * have.
     */
    uint64_t found_page_count;
    /**
     * Pages that it brought to host memory.
     */
    uint64_t read_page_count;
    /**
     * Their bytes.
     */
    uint64_t read_bytes;
    /**
     * Pages of those that fetches took.
     */
    uint64_t fetched_page_count;
    /**
     * Pages that were written to it.
     */
    uint64_t written_page_count;
    /**
     * Their bytes.
     */
    uint64_t written_bytes;
    /**
     * Pages that were to be written, and were there.
     */
    uint64_t known_page_count;
    /**
     * Pages that came and were not what was written: of another length, damaged, of another key.
     * They were removed.
     */
    uint64_t damaged_page_count;
    /**
     * Pages that were gone when they were to be read.
     */
    uint64_t gone_page_count;
    /**
     * Pages about which a call gave no answer.
     */
    uint64_t failed_page_count;
    /**
     * Questions and pages whose time was over before a thread came to them.
     */
    uint64_t late_page_count;
    /**
     * Questions and pages that were given up because nothing was asked at the time, or because
     * their namespace was cleared.
     */
    uint64_t skipped_page_count;
    /**
     * Pages that were not written because too many waited, or because they left host memory first.
     */
    uint64_t dropped_page_count;
    /**
     * Pages now that wait to be written.
     */
    uint64_t waiting_page_count;
    /**
     * Fetches that went on without it because it was too slow.
     */
    uint64_t late_fetch_count;
    /**
     * Calls.
     */
    uint64_t call_count;
    /**
     * Calls that took longer than remote_timeout_ms.
     */
    uint64_t slow_call_count;
    /**
     * Nanoseconds of all calls together.
     */
    uint64_t call_ns;
    /**
     * Nanoseconds of the longest.
     */
    uint64_t longest_call_ns;
    /**
     * How often it failed so often in a row that nothing was asked for a while.
     */
    uint64_t pause_count;
    /**
     * 1 when nothing is asked now.
     */
    uint64_t is_paused;
} rkv_remote_totals;

/**
 * What lies below the pages of a cache: counters since it was attached unless they say "now".
 */
typedef struct rkv_tier_stats {
    /**
     * sizeof(rkv_tier_stats).
     */
    uint32_t struct_size;
    /**
     * 1 when the disk refused so often that nothing is written any more; reads go on.
     */
    uint32_t is_read_only;
    /**
     * Host memory.
     */
    struct rkv_tier_totals host;
    /**
     * The disk; all zero without a directory.
     */
    struct rkv_tier_totals disk;
    /**
     * Fetches that are open now.
     */
    uint64_t open_fetch_count;
    /**
     * Copies now that the engine has not completed.
     */
    uint64_t open_job_count;
    /**
     * Pages of the device now that those copies keep from being used again: they are cached or
     * private still, or neither and counted as private.
     */
    uint64_t copied_page_count;
    /**
     * Bytes of host memory that the books take now, beside the slots.
     */
    uint64_t index_bytes;
    /**
     * The record of the journal up to which pages are known, now.
     */
    uint64_t followed_number;
    /**
     * Fetches that were begun.
     */
    uint64_t fetch_count;
    /**
     * Of those, the ones that waited for another fetch of the same pages.
     */
    uint64_t joined_count;
    /**
     * Fetches that brought all.
     */
    uint64_t complete_count;
    /**
     * Fetches that brought less.
     */
    uint64_t shortened_count;
    /**
     * Fetches whose deadline, or remote_timeout_ms, came first: none of them brought all.
     */
    uint64_t late_count;
    /**
     * Fetches whose sequences ended first.
     */
    uint64_t abandoned_count;
    /**
     * Nanoseconds of all fetches together, from their begin to their end.
     */
    uint64_t fetch_ns;
    /**
     * Nanoseconds of the longest.
     */
    uint64_t longest_fetch_ns;
    /**
     * Pages that were evicted from the device before they were stored. What was copied from
     * there, and was given up by host memory since, is in host.evicted_page_count alone; what a
     * fetch brought, and host memory gave up since, is in both.
     */
    uint64_t lost_page_count;
    /**
     * Pages that were not stored because there was no memory for the queue of stores.
     */
    uint64_t throttled_page_count;
    /**
     * Records of the journal that were overwritten before they were followed.
     */
    uint64_t lost_record_count;
    /**
     * Pages that went because their namespace was cleared.
     */
    uint64_t cleared_page_count;
    /**
     * Writes that waited for room under disk_bytes, or in the disk's queue.
     */
    uint64_t waiting_write_count;
    /**
     * Pages in the directory that could not be used when it was attached.
     */
    uint64_t unusable_page_count;
    /**
     * Nanoseconds of the longest commit of the disk.
     */
    uint64_t longest_commit_ns;
    /**
     * The remote store.
     */
    struct rkv_remote_totals remote;
    /**
     * Prefetches that are open now.
     */
    uint64_t open_prefetch_count;
    /**
     * Prefetches that were begun.
     */
    uint64_t prefetch_count;
    /**
     * Prefetches that were not begun because those that were open had all the room, or the tiers
     * were being detached.
     */
    uint64_t refused_prefetch_count;
    /**
     * Pages that prefetches brought to host memory from the disk. Fetches find them there, and
     * count them there.
     */
    uint64_t prefetched_disk_page_count;
    /**
     * Pages that prefetches brought to host memory from the remote store.
     */
    uint64_t prefetched_remote_page_count;
    /**
     * 1 when the directory is written by io_uring, 0 when threads wait for it.
     */
    uint64_t is_ring;
} rkv_tier_stats;

/**
 * How to build a snapshot cache. Fill with rkv_snapshot_cache_config_init(), then change fields.
 */
typedef struct rkv_snapshot_cache_config {
    /**
     * sizeof(rkv_snapshot_cache_config).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t flags;
    /**
     * Entries, at most; never more than 2^30, which larger numbers mean. 0 disables the cache.
     * Default 1024.
     */
    uint64_t entry_limit;
    /**
     * Bytes of all snapshots that the cache keeps, by the sizes that were stated; those that only
     * readers still use are counted in. 0 disables the cache. Default UINT64_MAX, no limit.
     */
    uint64_t byte_limit;
} rkv_snapshot_cache_config;

/**
 * Counters of a snapshot cache. Counts since creation unless they say "now"; one that comes to its
 * end stays there.
 */
typedef struct rkv_snapshot_cache_stats {
    /**
     * sizeof(rkv_snapshot_cache_stats).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Entries now.
     */
    uint64_t entry_count;
    /**
     * Bytes now of the snapshots of all entries.
     */
    uint64_t entry_bytes;
    /**
     * Entries now whose snapshot is pinned.
     */
    uint64_t pinned_entry_count;
    /**
     * Pins now.
     */
    uint64_t pin_count;
    /**
     * Snapshots now that have no entry any more and wait for their readers.
     */
    uint64_t detached_count;
    /**
     * Their bytes.
     */
    uint64_t detached_bytes;
    /**
     * Nodes of the tree now: fewer than two for each entry, and one for each 8192 tokens of what
     * is long; more where memory was too short to join some, which later calls do.
     */
    uint64_t node_count;
    /**
     * Namespaces now.
     */
    uint64_t namespace_count;
    /**
     * Bytes of host memory that the cache itself takes now, all that it allocated, without the
     * snapshots, and without what those that may be written have beside them: some 300 bytes, 4
     * for each of their tokens, 16 for each part.
     */
    uint64_t index_bytes;
    /**
     * Matches asked for; probes are not counted.
     */
    uint64_t lookup_count;
    /**
     * Of those, matches that found a snapshot. The others are misses.
     */
    uint64_t hit_count;
    /**
     * Of those, matches that found a snapshot of all tokens.
     */
    uint64_t full_hit_count;
    /**
     * Tokens that matches asked for.
     */
    uint64_t lookup_token_count;
    /**
     * Tokens that matches found.
     */
    uint64_t hit_token_count;
    /**
     * Snapshots stored, by inserts and by fetches.
     */
    uint64_t stored_count;
    /**
     * Of those, how many took the place of another.
     */
    uint64_t replaced_count;
    /**
     * Snapshots that an insert did not store.
     */
    uint64_t rejected_count;
    /**
     * Entries that went for the limits.
     */
    uint64_t evicted_count;
    /**
     * Entries that the caller removed.
     */
    uint64_t removed_count;
} rkv_snapshot_cache_stats;

/**
 * Destroys a snapshot. Called exactly once for each snapshot that a cache took over, with what
 * rkv_snapshot_cache_insert() was given, on the thread whose call let the snapshot go, after that
 * call did everything else and while no lock is held: it may call the library, this cache
 * included. One that may be written (RKV_SNAPSHOT_INSERT_STORABLE) may also be let go by a thread
 * of the library, which wrote it or was to, while no lock is held either: there the destructor
 * must not call this cache.
 * It must not throw, longjmp or end its thread: the process would end, see Callbacks at the top.
 * In a child process, after fork(), the parent's snapshots are not destroyed.
 */
typedef void (*rkv_snapshot_destructor)(void *data, uint64_t size_bytes, void *user_data);

/**
 * A piece of memory that a snapshot is made of. An array element: it may grow at its end.
 */
typedef struct rkv_snapshot_part {
    /**
     * Where it begins; NULL is allowed when it has no bytes.
     */
    const void *data;
    /**
     * Its bytes.
     */
    uint64_t size_bytes;
} rkv_snapshot_part;

/**
 * What rkv_snapshot_cache_insert() puts where.
 */
typedef struct rkv_snapshot_cache_insert_args {
    /**
     * sizeof(rkv_snapshot_cache_insert_args).
     */
    uint32_t struct_size;
    /**
     * RKV_SNAPSHOT_INSERT_STORABLE, RKV_SNAPSHOT_INSERT_TRIMMABLE, both or 0.
     */
    uint32_t flags;
    /**
     * The namespace; NULL for the default one.
     */
    const struct rkv_namespace *space;
    /**
     * The tokens that led to the state: text only. They are copied.
     */
    const struct rkv_tokens *tokens;
    /**
     * The snapshot, any pointer, NULL included. It is passed on, and followed only with
     * RKV_SNAPSHOT_INSERT_STORABLE and no parts.
     */
    void *data;
    /**
     * What the snapshot takes, for the byte limit; 0 is allowed.
     */
    uint64_t size_bytes;
    /**
     * Destroys the snapshot; NULL when there is nothing to do.
     */
    rkv_snapshot_destructor destructor;
    /**
     * Passed to the destructor.
     */
    void *user_data;
    /**
     * 1 when next_token is set, else 0.
     */
    uint32_t has_next_token;
    /**
     * The token that the model predicts after these, any number. Zero without has_next_token.
     */
    uint32_t next_token;
    /**
     * With RKV_SNAPSHOT_INSERT_STORABLE: what the snapshot is made of; NULL and 0 for one part,
     * size_bytes at data. Read until the destructor is called; the array itself is copied.
     */
    const struct rkv_snapshot_part *parts;
    /**
     * How many parts there are, at most 65536.
     */
    uint64_t part_count;
    /**
     * sizeof(rkv_snapshot_part); 0 without parts.
     */
    uint64_t part_size;
} rkv_snapshot_cache_insert_args;

/**
 * What rkv_snapshot_cache_insert() did.
 */
typedef struct rkv_snapshot_cache_insert_result {
    /**
     * sizeof(rkv_snapshot_cache_insert_result).
     */
    uint32_t struct_size;
    /**
     * 1 when the snapshot is in the cache; 0 when it was destroyed at once.
     */
    uint32_t stored;
    /**
     * 1 when it took the place of another, else 0.
     */
    uint32_t replaced;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Entries that went for the limits.
     */
    uint64_t evicted_count;
} rkv_snapshot_cache_insert_result;

/**
 * Names a pin on a snapshot of one cache. Zero names none.
 *
 * An id is good until it is released, and never means another pin afterwards: a stale id gives
 * RKV_STATUS_STALE_PIN. No two caches of a process have an id in common, also not one after the
 * other. 2^24 pins can be out at once.
 */
typedef uint64_t rkv_pin_id;

/**
 * The snapshot of the longest stored prefix of a token list; with RKV_SNAPSHOT_MATCH_TRIMMABLE
 * that with most tokens in common. All zero when there is none, but for what could be fetched.
 */
typedef struct rkv_snapshot_cache_match_result {
    /**
     * sizeof(rkv_snapshot_cache_match_result).
     */
    uint32_t struct_size;
    /**
     * 1 when the snapshot is that of all tokens: with next_token no forward pass is needed.
     */
    uint32_t full_hit;
    /**
     * Keeps the snapshot: rkv_snapshot_cache_release() when it is no longer read. 0 for a miss.
     */
    rkv_pin_id pin;
    /**
     * The snapshot.
     */
    void *data;
    /**
     * What it takes.
     */
    uint64_t size_bytes;
    /**
     * Tokens that it covers. Without RKV_SNAPSHOT_MATCH_TRIMMABLE the rest begins at this index.
     */
    uint64_t token_count;
    /**
     * 1 when next_token is set, else 0.
     */
    uint32_t has_next_token;
    /**
     * The token that the model predicts after the tokens that the snapshot covers.
     */
    uint32_t next_token;
    /**
     * Tokens of the snapshot that the list begins with; the rest begins at this index. When they
     * are fewer than token_count, the engine takes the state's end away.
     */
    uint64_t common_token_count;
    /**
     * Tokens in common with what rkv_snapshot_cache_fetch() would bring from below memory, when
     * they are more; else 0.
     */
    uint64_t fetchable_token_count;
    /**
     * 1 when data is a copy that the cache read from below memory and owns: then data leads to
     * its first part, and rkv_snapshot_cache_read_parts() has them all. 0 when data is what an
     * insert was given.
     */
    uint32_t is_copy;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_snapshot_cache_match_result;

/**
 * Names a fetch of one snapshot cache, from rkv_snapshot_cache_fetch() until it is taken or
 * cancelled. Zero names none. A stale id gives RKV_STATUS_STALE_TICKET, and never means another
 * fetch.
 */
typedef uint64_t rkv_ticket_id;

/**
 * A fetch that was started. All zero when nothing below memory is longer than what memory has.
 */
typedef struct rkv_snapshot_cache_fetch_result {
    /**
     * sizeof(rkv_snapshot_cache_fetch_result).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Names the fetch: rkv_snapshot_cache_take() or rkv_snapshot_cache_cancel() ends it. 0 when
     * none was started.
     */
    rkv_ticket_id ticket;
    /**
     * Tokens of the snapshot that it brings; this and the next two are 0 when the remote store is
     * asked: rkv_snapshot_cache_take() says then what came, if anything did.
     */
    uint64_t token_count;
    /**
     * Of those, how many the list begins with: all, but with RKV_SNAPSHOT_MATCH_TRIMMABLE.
     */
    uint64_t common_token_count;
    /**
     * What the snapshot takes.
     */
    uint64_t size_bytes;
} rkv_snapshot_cache_fetch_result;

/**
 * What lies below the memory of a snapshot cache. Fill with rkv_snapshot_tier_config_init(), then
 * change fields.
 */
typedef struct rkv_snapshot_tier_config {
    /**
     * sizeof(rkv_snapshot_tier_config).
     */
    uint32_t struct_size;
    /**
     * 0 or RKV_TIERS_THREADS.
     */
    uint32_t flags;
    /**
     * The directory, a path that ends with NUL; made if it isn't there, with its parents. It is
     * this cache's alone until it is detached. NULL for none, with a remote store.
     */
    const char *directory;
    /**
     * Bytes of data in it, at most; least recently used snapshots go. No default; 0 without a
     * directory.
     */
    uint64_t byte_limit;
    /**
     * What the snapshots are good for: a digest of model, quantisation, layout, and whatever else
     * changes what their bytes mean. A directory of another fingerprint is refused, in a remote
     * store nothing of another one is found. Default all zero, which is a fingerprint like any
     * other: models that leave it so find each other's snapshots.
     */
    uint8_t fingerprint[32];
    /**
     * When a snapshot is written: 0 as soon as it is inserted, n when n matches have found it,
     * UINT32_MAX when it leaves memory. Default 0.
     */
    uint32_t write_after_matches;
    /**
     * Requests that are under way to the disk at once, of 2 MiB, as many to read as to write,
     * 1 to 64: by so many threads, but writes by one where there is io_uring. Default 8.
     */
    uint32_t worker_count;
    /**
     * Bytes of snapshots that wait to be written, at most, but one alone may be longer; for the
     * directory and for the remote store each. A snapshot that would exceed it is tried again
     * later, if it is still in memory. Of those that wait for that 256 do; what is beyond is
     * written when it leaves memory, and counts as failed until then. Default 4 GiB.
     */
    uint64_t waiting_byte_limit;
    /**
     * Milliseconds from a write to its commit, at most, while the disk keeps up: after a crash
     * what was written earlier is there. 1 to 60000. Default 250.
     */
    uint32_t commit_interval_ms;
    /**
     * An eventfd that becomes readable when something was read or written, or -1. The engine reads
     * it before it asks for its tickets, not after. The cache uses it until it is detached, and
     * never closes it. On Linux files, pipes and sockets are refused. Default -1.
     */
    int32_t event_fd;
    /**
     * A store below the directory that other caches have too, or NULL. Read during the call;
     * what it leads to stays until it is detached. Default NULL.
     */
    const struct rkv_remote_store *remote;
    /**
     * Milliseconds that a call to it may take, 1 to 600000. 0 takes the default: 2000. 0 without a
     * store.
     */
    uint32_t remote_timeout_ms;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_snapshot_tier_config;

/**
 * Counters of what is below the memory of a snapshot cache, since it was attached unless they say
 * "now".
 */
typedef struct rkv_snapshot_tier_stats {
    /**
     * sizeof(rkv_snapshot_tier_stats).
     */
    uint32_t struct_size;
    /**
     * 1 when the disk refused so often that nothing is written any more; reads go on.
     */
    uint32_t is_read_only;
    /**
     * Snapshots now that can be fetched or are being written.
     */
    uint64_t entry_count;
    /**
     * Bytes of data now, of byte_limit.
     */
    uint64_t used_bytes;
    /**
     * The limit.
     */
    uint64_t byte_limit;
    /**
     * Snapshots now that are being written.
     */
    uint64_t writing_count;
    /**
     * Bytes now that wait to be written.
     */
    uint64_t waiting_bytes;
    /**
     * Bytes now that are being read.
     */
    uint64_t loading_bytes;
    /**
     * Tickets now.
     */
    uint64_t ticket_count;
    /**
     * Bytes of host memory that the index takes now.
     */
    uint64_t index_bytes;
    /**
     * Snapshots whose write was started.
     */
    uint64_t write_count;
    /**
     * Bytes written.
     */
    uint64_t written_bytes;
    /**
     * Writes that the disk refused.
     */
    uint64_t failed_write_count;
    /**
     * Of those, for want of room on the disk.
     */
    uint64_t no_space_count;
    /**
     * Writes that waited for room under byte_limit.
     */
    uint64_t full_count;
    /**
     * Writes that gave way because too much was waiting.
     */
    uint64_t throttled_count;
    /**
     * Snapshots that are larger than byte_limit, or without a byte.
     */
    uint64_t unfit_count;
    /**
     * Reads that were started.
     */
    uint64_t load_count;
    /**
     * Reads that brought a snapshot into memory.
     */
    uint64_t loaded_count;
    /**
     * Bytes read.
     */
    uint64_t read_bytes;
    /**
     * Fetches that joined a read that went on already.
     */
    uint64_t joined_count;
    /**
     * Reads that failed.
     */
    uint64_t failed_load_count;
    /**
     * Of those, because of a wrong checksum.
     */
    uint64_t damaged_count;
    /**
     * Reads that ended when nobody waited any more.
     */
    uint64_t late_count;
    /**
     * Fetches that were not started because memory's byte limit left no room.
     */
    uint64_t no_memory_count;
    /**
     * Snapshots in the directory that could not be used when it was attached.
     */
    uint64_t unusable_count;
    /**
     * Commits.
     */
    uint64_t commit_count;
    /**
     * Nanoseconds of the longest commit.
     */
    uint64_t longest_commit_ns;
    /**
     * Nanoseconds of all writes together.
     */
    uint64_t write_ns;
    /**
     * Nanoseconds of all reads together.
     */
    uint64_t read_ns;
    /**
     * The remote store.
     */
    struct rkv_remote_totals remote;
    /**
     * 1 when the directory is written by io_uring, 0 when threads wait for it.
     */
    uint64_t is_ring;
} rkv_snapshot_tier_stats;



#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * ABI version of the loaded library. Compare it with RKV_ABI_VERSION at start: a library with a
 * smaller number lacks functions that this header declares.
 *
 * @return the loaded library's RKV_ABI_VERSION
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API uint32_t rkv_abi_version(void);

/**
 * Release of the loaded library, e.g. "0.2.0".
 *
 * @return a static NUL-terminated string, never NULL
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API const char *rkv_version_string(void);

/**
 * What the loaded library has.
 *
 * @return a set of RKV_FEATURE_ bits
 * @par Cost
 * O(1), but the first call may look for a folder of kernels; no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API uint64_t rkv_features(void);

/**
 * Name of a status, e.g. "RKV_STATUS_OK".
 *
 * @param status any value, also one that this library does not know
 * @return a static NUL-terminated string, never NULL; "RKV_STATUS_UNKNOWN" for the unknown
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API const char *rkv_status_name(int32_t status);

/**
 * Copies the calling thread's last error message, NUL-terminated and cut to fit.
 *
 * Valid after a failing call until the next failing call of the same thread.
 *
 * @param buffer receives the text; may be NULL when capacity is 0
 * @param capacity size of buffer in bytes
 * @return bytes that the whole message takes, the NUL included; 1 when there is none. No message
 * has more than 1025: a longer one is cut off there
 * @par Cost
 * O(bytes of the message); no lock
 * @par Thread safety
 * any thread; reads only the calling thread's message
 */
RKV_API size_t rkv_last_error_message(char *buffer, size_t capacity);

/**
 * The numbers behind the calling thread's last RKV_STATUS_OUT_OF_PAGES.
 *
 * A call for more pages than there can be is refused before it has evicted anything. One that
 * lets waiting threads in may lose to them what it counted on: it gives back what it has then, and
 * what it evicted for that is free.
 *
 * @param out_shortage receives them; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when no call of
 * this thread was refused for pages yet
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread; reads only the calling thread's numbers
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_last_shortage(struct rkv_shortage *out_shortage);

/**
 * Gets memory from the system, for the indexes of all caches of this process: once, when the
 * engine starts, before its caches are created. All of it is touched now and kept to the end of
 * the process, so that no later call waits for it. What finds no room in it comes from malloc(),
 * as all does without a reserve. A child process of fork() has none of it, and can't get any.
 *
 * Lookups in large trees read memory here and there, so huge pages make them quicker. A node of
 * the radix tree takes some 200 bytes, and 4 for each token and page.
 *
 * @param byte_count bytes, rounded up to 2 MiB
 * @param huge_pages RKV_HUGE_PAGES_OFF, RKV_HUGE_PAGES_TRY or RKV_HUGE_PAGES_REQUIRE. Pages that
 * an administrator has set aside are taken first, then transparent ones
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when there is a
 * reserve already; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_UNSUPPORTED when huge pages are required
 * and the system has not so many, or doesn't say so in /proc/self/smaps: then nothing is reserved
 * @par Cost
 * O(bytes), some 0.1 to 1 ms for a MiB; no lock of any cache
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_reserve_index_memory(uint64_t byte_count,
                                         uint32_t huge_pages);

/**
 * What is reserved for indexes, and how much of it they use.
 *
 * @param out_stats receives it; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); a lock of its own, which indexes take to allocate
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_read_index_memory_stats(struct rkv_index_memory_stats *out_stats);

/**
 * Sets where the library logs to, for the whole process. When it returns, the earlier callback is
 * no longer running and will not be called again. Without a callback, and with RKV_LOG_OFF, only
 * panics, that is bugs, are written to standard error; what a callback threw is written there in
 * any case.
 *
 * @param max_level RKV_LOG_OFF or RKV_LOG_ERROR; a message of a higher level is not sent
 * @param callback receives the messages; NULL for none, which is the default
 * @param user_data passed to the callback
 * @par Cost
 * O(1); a lock of its own, which log messages share
 * @par Thread safety
 * any thread, but not from inside the callback
 */
RKV_API void rkv_set_log_callback(uint32_t max_level, rkv_log_callback callback, void *user_data);

/**
 * Content digest of an image: the first 16 bytes of SHA-256 over its raw bytes.
 *
 * @param bytes byte_count bytes; may be NULL when byte_count is 0
 * @param byte_count how many
 * @param out_digest receives 16 bytes
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(bytes); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_image_digest(const void *bytes,
                                 size_t byte_count,
                                 uint8_t *out_digest);

/**
 * Puts items between the ids of a prompt: the token list of a prompt with images.
 *
 * Each item of `tokens` stands before the prompt id at its token_index; the prompt's length puts
 * it at the end, and equal indices keep their order, so images may be adjacent. (Here alone the
 * indices need only ascend, not strictly, and every id of the prompt is kept.)
 *
 * @param tokens the ids of the prompt, and the items with their places
 * @param ids receives tokens->count + tokens->item_count ids; zero at the items
 * @param items receives tokens->item_count items of tokens->item_size bytes, token_index in the
 * new list
 * @param id_capacity room in ids: (NULL, 0) is RKV_STATUS_BUFFER_TOO_SMALL, if the items have
 * their place; they need no capacity, their number is known
 * @param out_token_count receives the number of ids, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_BUFFER_TOO_SMALL;
 * RKV_STATUS_OUT_OF_MEMORY
 * @par Cost
 * O(tokens); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_tokens_build(const struct rkv_tokens *tokens,
                                 uint32_t *ids,
                                 size_t id_capacity,
                                 struct rkv_token_item *items,
                                 size_t *out_token_count);

/**
 * The regions that attend in both directions: one for each image, in KV positions, ascending.
 *
 * @param tokens the token list
 * @param regions receives them; (NULL, 0) asks for the count
 * @param capacity room in regions
 * @param out_count receives the number of images, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_BUFFER_TOO_SMALL;
 * RKV_STATUS_OUT_OF_MEMORY
 * @par Cost
 * O(items); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_tokens_regions(const struct rkv_tokens *tokens,
                                   struct rkv_region *regions,
                                   size_t capacity,
                                   size_t *out_count);

/**
 * KV positions that a token list takes.
 *
 * @param tokens the token list
 * @param out_position_count receives the sum over the tokens
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY
 * @par Cost
 * O(items); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_tokens_position_count(const struct rkv_tokens *tokens,
                                          size_t *out_position_count);

/**
 * Digests of the whole pages of a token list, each over the page and everything before it.
 *
 * Two pages have the same digest when, and only when, their tokens, all tokens before, the page
 * size and the namespace are the same. Digests are the same in every process and on every machine,
 * and they are those of RKV_INDEX_BLOCK_HASH; docs/block_hash.md says how to compute them without
 * this library.
 *
 * @param args what to make digests of
 * @param digests receives them, that of first_page first; (NULL, 0) asks for the count
 * @param capacity room in digests
 * @param out_count receives the number of whole pages from first_page on, also on
 * RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for an id that is no text id;
 * RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_OUT_OF_MEMORY
 * @par Cost
 * O(positions), a SHA-256 of each page; no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_tokens_page_digests(const struct rkv_tokens_page_digests_args *args,
                                        struct rkv_page_digest *digests,
                                        size_t capacity,
                                        size_t *out_count);

/**
 * Writes the defaults into a config.
 *
 * @param config receives the defaults
 * @param struct_size pass sizeof(rkv_page_table_config)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_config_init(struct rkv_page_table_config *config,
                                           size_t struct_size);

/**
 * Creates a page table with all pages free, or outside.
 *
 * @param config how to build it; not NULL, since page_count has no default
 * @param out_table receives the page table, owned by the caller
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_OUT_OF_MEMORY
 * @par Cost
 * O(page_count + slot_count); no lock. The first call of a process also has the library's code
 * mapped, so that no later call waits for that with a lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_create(const struct rkv_page_table_config *config,
                                      struct rkv_page_table **out_table);

/**
 * Destroys a page table. NULL is allowed and does nothing.
 *
 * A cache on it keeps the pages alive until it is destroyed too.
 *
 * @param table the page table
 * @par Cost
 * O(page_count + slot_count) when nothing else stands on it; no lock
 * @par Thread safety
 * the caller must be the last user of this handle
 */
RKV_API void rkv_page_table_destroy(struct rkv_page_table *table);

/**
 * Pages by state and slots in use, at one moment.
 *
 * @param table the page table
 * @param out_stats receives the numbers; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread; waits for no eviction
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_read_stats(const struct rkv_page_table *table,
                                          struct rkv_page_table_stats *out_stats);

/**
 * Proves page by page that each is in exactly one state, that the counts agree, and that no row
 * maps a page that is free or somebody else's. With an external pool: that each cached page is in
 * the index once, and each other one outside. Cost: one pass over pages, rows and index.
 *
 * @param table the page table
 * @return RKV_STATUS_OK; RKV_STATUS_CORRUPT with the first page that is wrong;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(pages + rows + index); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_page_table_check(const struct rkv_page_table *table);

/**
 * Where positions of a row lie in KV memory: page * page_size + offset in the page, for each. When
 * the call fails because another thread made the row shorter meanwhile, a part may be written.
 *
 * @param table the page table
 * @param slot a slot in use
 * @param positions count positions of the row, in any order
 * @param count how many
 * @param out_mapping receives count entries
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the position that the row has no page
 * for; RKV_STATUS_POISONED
 * @par Cost
 * O(positions); shared lock, in portions
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_read_slot_mapping(const struct rkv_page_table *table,
                                                 uint32_t slot,
                                                 const uint64_t *positions,
                                                 size_t count,
                                                 int64_t *out_mapping);

/**
 * The arrays that paged attention kernels take, for a batch of rows.
 *
 * @param table the page table
 * @param rows row_count rows, in the order of the batch
 * @param row_count how many
 * @param element_size sizeof(rkv_page_table_batch_row)
 * @param arrays where to write; (NULL, 0) for indices asks for the count: then nothing else is
 * written, unless there are no indices
 * @param out_index_count receives the number of indices, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_BUFFER_TOO_SMALL;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(pages of the rows); shared lock, in portions of whole rows
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_read_batch(const struct rkv_page_table *table,
                                          const struct rkv_page_table_batch_row *rows,
                                          size_t row_count,
                                          size_t element_size,
                                          const struct rkv_page_table_batch_arrays *arrays,
                                          size_t *out_index_count);

/**
 * Pages of one pool by state, at one moment.
 *
 * @param table the page table
 * @param pool the pool's number; 0 without a list of pools
 * @param out_stats receives the numbers; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_read_pool_stats(const struct rkv_page_table *table,
                                               uint32_t pool,
                                               struct rkv_pool_stats *out_stats);

/**
 * rkv_page_table_allocate_pages() from a pool of one's choice.
 *
 * @param table the page table
 * @param pool the pool's number
 * @param page_count how many
 * @param pages receives page_count pages, private to the caller
 * @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(), which names the pool;
 * RKV_STATUS_UNSUPPORTED with an external pool; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(pages + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_allocate_pool_pages(struct rkv_page_table *table,
                                                   uint32_t pool,
                                                   size_t page_count,
                                                   uint32_t *pages);

/**
 * rkv_page_table_free_pages() into a pool of one's choice.
 *
 * @param table the page table
 * @param pool the pool's number
 * @param pages page_count different pages of the pool that are the caller's
 * @param page_count how many
 * @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool; RKV_STATUS_INVALID_ARGUMENT
 * naming the page that is free, cached, mapped, out of range or given twice: then none was freed;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(pages); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_free_pool_pages(struct rkv_page_table *table,
                                               uint32_t pool,
                                               const uint32_t *pages,
                                               size_t page_count);

/**
 * Takes a slot with an empty row.
 *
 * @param table the page table
 * @param out_slot receives the slot, below slot_count
 * @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_SLOTS; RKV_STATUS_UNSUPPORTED with an external pool;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_allocate_slot(struct rkv_page_table *table,
                                             uint32_t *out_slot);

/**
 * Empties a row and gives the slot back. Private pages of the row return to the pool; cached pages
 * stay with the cache, and their lock is undone after this: see rkv_cache_insert().
 *
 * @param table the page table
 * @param slot a slot from rkv_page_table_allocate_slot()
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT when the slot is not in use;
 * RKV_STATUS_INVALID_STATE when a sequence owns it; RKV_STATUS_POISONED
 * @par Cost
 * O(pages of the row); lock, in slices: meanwhile the row is shorter already
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_free_slot(struct rkv_page_table *table,
                                         uint32_t slot);

/**
 * Allocates pages that are in no row yet, evicting from the cache when the pool is short. All or
 * nothing; what cannot be satisfied is refused before anything is evicted, as
 * rkv_last_shortage() says.
 *
 * @param table the page table
 * @param page_count how many
 * @param pages receives page_count pages, private to the caller
 * @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(); RKV_STATUS_UNSUPPORTED
 * with an external pool; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(pages + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_allocate_pages(struct rkv_page_table *table,
                                              size_t page_count,
                                              uint32_t *pages);

/**
 * Returns pages that are private and in no row to the pool.
 *
 * @param table the page table
 * @param pages page_count different pages from rkv_page_table_allocate_pages()
 * @param page_count how many
 * @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool; RKV_STATUS_INVALID_ARGUMENT
 * naming the page that is free, cached, mapped, out of range or given twice: then none was freed;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(pages); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_free_pages(struct rkv_page_table *table,
                                          const uint32_t *pages,
                                          size_t page_count);

/**
 * Appends pages to a row. Rows are mapped strictly in order.
 *
 * A private page must be in no row yet; it becomes the row's. A cached page may be in any number
 * of rows; keep the node that owns it locked for as long as the row maps it.
 *
 * @param table the page table
 * @param slot a slot from rkv_page_table_allocate_slot()
 * @param first_index index in the row of the first page: the row's present length
 * @param pages page_count pages
 * @param page_count how many
 * @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a sequence owns the slot, or another
 * thread made the row longer during the call: the first of the pages may be mapped then, and the
 * row tells; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(pages); lock, in slices: meanwhile the row has the first of them already
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_map(struct rkv_page_table *table,
                                   uint32_t slot,
                                   size_t first_index,
                                   const uint32_t *pages,
                                   size_t page_count);

/**
 * Makes a row long enough for a number of positions: allocates and maps what is missing, evicting
 * when the pool is short. All or nothing. A row that is long enough stays as it is.
 *
 * @param table the page table
 * @param slot a slot from rkv_page_table_allocate_slot()
 * @param position_count positions that the row must hold
 * @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(); RKV_STATUS_UNSUPPORTED
 * with an external pool; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a sequence
 * owns the slot, or another thread freed the slot during the call; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(new pages + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_reserve(struct rkv_page_table *table,
                                       uint32_t slot,
                                       size_t position_count);

/**
 * Whether a row could be made long enough now, by eviction if need be. Nothing is evicted.
 *
 * @param table the page table
 * @param slot a slot in use, or RKV_NO_SLOT for a new one (a free slot is then needed as well)
 * @param position_count positions that the row must hold
 * @param out_can receives the answer
 * @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread; the answer holds until somebody else allocates
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_can_reserve(const struct rkv_page_table *table,
                                           uint32_t slot,
                                           size_t position_count,
                                           bool *out_can);

/**
 * Positions that a row has pages for.
 *
 * @param table the page table
 * @param slot a slot in use
 * @param out_position_count receives pages of the row * page_size
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_row_capacity(const struct rkv_page_table *table,
                                            uint32_t slot,
                                            size_t *out_position_count);

/**
 * Copies a row from a page on. When the call fails because another thread changed the row
 * meanwhile, a part may be written.
 *
 * @param table the page table
 * @param slot a slot in use, also one that a sequence owns
 * @param first_index the first page to copy, at most the row's length
 * @param pages receives the pages from first_index to the end of the row; (NULL, 0) asks for the
 * count
 * @param capacity room in pages
 * @param out_count receives the number of pages from first_index to the end of the row, also on
 * RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(pages copied); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_read_row(const struct rkv_page_table *table,
                                        uint32_t slot,
                                        size_t first_index,
                                        uint32_t *pages,
                                        size_t capacity,
                                        size_t *out_count);

/**
 * Writes the defaults into a config.
 *
 * @param config receives the defaults
 * @param struct_size pass sizeof(rkv_cache_config)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_config_init(struct rkv_cache_config *config,
                                      size_t struct_size);

/**
 * Creates an empty cache on a page table and keeps the page table alive.
 *
 * @param table the page table; it takes one cache at a time
 * @param config how to build it; NULL takes the defaults
 * @param out_cache receives the cache, owned by the caller
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_BUSY when the
 * page table has a cache; RKV_STATUS_UNSUPPORTED for the block-hash index on a page
 * table with several groups, and for a checkpoint_limit without a STATE group;
 * RKV_STATUS_INVALID_STATE when no ids are left: 255 caches exist in the process, or with snapshot
 * caches as many as rkv_snapshot_cache_create() says, or those that are gone have used them up;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(slot_count), with a journal O(page_count) too; lock, for a moment in the end
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_create(struct rkv_page_table *table,
                                 const struct rkv_cache_config *config,
                                 struct rkv_cache **out_cache);

/**
 * Destroys a cache. NULL is allowed and does nothing.
 *
 * Sequences that still live in it or are retained end; all their pages and all cached pages return
 * to the page table's pool. Rows that the caller mapped itself lose the cached pages at their
 * place: they are erased from that page on. With an external pool all pages are outside
 * afterwards; nothing but the journal lists them.
 *
 * Its tiers go with it: of the copies that rkv_cache_poll() gave, none goes on any more.
 *
 * @param cache the cache
 * @par Cost
 * O(page_count + slot_count + nodes); lock, in slices. With tiers it blocks for a second at most
 * until what was cleared is removed from the directory, until requests to the disk and calls to a
 * remote store that go on have ended, and for a last commit
 * @par Thread safety
 * the caller must be the last user of this handle
 */
RKV_API void rkv_cache_destroy(struct rkv_cache *cache);

/**
 * Evicts pages of pool 0, least recently used first, and returns them to the free pool, or with an
 * external pool (RKV_PAGE_TABLE_EXTERNAL_POOL) to the caller. rkv_cache_evict_pool() is for any
 * pool.
 *
 * The unlocked leaf that was used longest ago loses pages from its end, then the next; a parent
 * that became a leaf takes its turn by its own recency. Fewer than asked is no error: the rest is
 * locked.
 *
 * @param cache the cache
 * @param page_count pages wanted
 * @param pages receives the evicted pages in order; not reported when NULL, which is refused with
 * an external pool: no page leaves it unseen
 * @param capacity room in pages; 0 with NULL. With pages given, no more than this is evicted: with
 * several groups in pool 0 it ends early when there may be too little for what goes together
 * @param out_count receives how many pages were evicted
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_UNSUPPORTED with several groups
 * and external pools: use rkv_cache_evict_pool(); RKV_STATUS_POISONED
 * @par Cost
 * O(pages + log(leaves) for each node that goes); lock, in slices
 * @par Thread safety
 * any thread; lets waiting threads in between pages
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_evict(struct rkv_cache *cache,
                                size_t page_count,
                                uint32_t *pages,
                                size_t capacity,
                                size_t *out_count);

/**
 * Whether the cache owns a page of pool 0.
 *
 * @param cache the cache
 * @param page any page number
 * @param out_contains receives the answer; false for pages out of range
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_contains_page(const struct rkv_cache *cache,
                                        uint32_t page,
                                        bool *out_contains);

/**
 * Finds the longest cached prefix, at token granularity, and refreshes the recency of its path;
 * that of partial_page too with RKV_MATCH_LOCK.
 *
 * A match that ends inside a node splits the node at the page boundary there. It reports, and
 * never creates, namespaces and images. The pages stay good while the match is locked; without
 * RKV_MATCH_LOCK another thread may evict them at once.
 *
 * The match may be the whole prompt, and then there are no logits to go on from: look for all
 * tokens but the last to have one left to compute.
 *
 * @param cache the cache
 * @param space the namespace; NULL for the default one
 * @param tokens what to look for; ids of RKV_TEXT_ID_LIMIT and above match nothing
 * @param flags 0 or RKV_MATCH_LOCK
 * @param pages receives the whole pages in order; not reported when page_capacity is 0. Entries
 * after page_count, and all when the call fails, may be overwritten with undefined values
 * @param page_capacity room in pages; positions / page_size is always enough
 * @param out_match receives the match; set its struct_size first. On RKV_STATUS_BUFFER_TOO_SMALL
 * only its page_count is written, and the cache is unchanged
 * @return RKV_STATUS_OK, also when nothing matched; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_STATE when no more locks can be numbered;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens + nodes on the path); lock, in slices where the path is long. With the block-hash index
 * others have the lock while a long prompt is hashed
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_match(struct rkv_cache *cache,
                                const struct rkv_namespace *space,
                                const struct rkv_tokens *tokens,
                                uint32_t flags,
                                uint32_t *pages,
                                size_t page_capacity,
                                struct rkv_cache_match_result *out_match);

/**
 * Length of the longest cached prefix. Changes nothing: no split, no recency, no lock, no count.
 *
 * @param cache the cache
 * @param space the namespace; NULL for the default one
 * @param tokens what to look for
 * @param out_token_count receives the tokens that rkv_cache_match() would find; may be NULL
 * @param out_position_count receives their positions, which may be those of the whole prompt.
 * Whoever admits a sequence asks for all tokens but the last, as rkv_sequence_begin() does, which
 * leaves one to compute, and charges the pages of the prompt less the whole ones of these
 * positions: what is reused of one more is a copy, in a page of the sequence's own
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(tokens + nodes on the path); no lock, with the exceptions below; none while a long prompt is
 * hashed
 * @par Thread safety
 * any thread, any number at once. Takes no lock: it neither waits for a thread that changes the
 * cache nor holds one up. While another thread changes it, the answer is that of some moment
 * during the call. It falls back on the lock, shared with other readers, for tokens with an image,
 * with several groups, with the block-hash index, and when the prompt's own nodes change again and
 * again while it looks. Of a long prompt with an image (or, with the block-hash index, of one that
 * others publish more of at the time) it takes the lock for itself, in slices, and what it has
 * passed is protected from eviction until it returns
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_probe(const struct rkv_cache *cache,
                                const struct rkv_namespace *space,
                                const struct rkv_tokens *tokens,
                                size_t *out_token_count,
                                size_t *out_position_count);

/**
 * Finds many prefixes: as many calls of rkv_cache_match(), in order. One lock as long as nobody
 * waits for it; who waits gets in between two items, and where rkv_cache_match() lets others have
 * the lock. So without RKV_MATCH_LOCK the pages of one item may be evicted before the call
 * returns.
 *
 * Each item has a status of its own, and one that fails does not keep the others from being
 * carried out. rkv_last_error_message() is about the last that failed and names it, e.g.
 * `items[3]: ...`.
 *
 * @param cache the cache
 * @param items what to look for, and where the pages go
 * @param count items, also in the arrays below; with 0 those may be NULL
 * @param item_size sizeof(rkv_cache_match_item)
 * @param matches receives the matches, struct_size included. That of an item that failed is left
 * as it is, but for page_count with RKV_STATUS_BUFFER_TOO_SMALL
 * @param match_size sizeof(rkv_cache_match_result); not read with count 0
 * @param statuses receives what rkv_cache_match() would have returned for each item
 * @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
 * RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
 * RKV_STATUS_POISONED
 * @par Cost
 * the sum of the single calls; lock, between two items to who waits. In a large tree less: the
 * lookups of the next items go ahead and have fetched what they read. With the block-hash
 * index several prompts are hashed side by side, while others have the lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_match_many(struct rkv_cache *cache,
                                     const struct rkv_cache_match_item *items,
                                     size_t count,
                                     size_t item_size,
                                     struct rkv_cache_match_result *matches,
                                     size_t match_size,
                                     enum rkv_status *statuses);

/**
 * Lengths of many cached prefixes: as many calls of rkv_cache_probe(). Changes nothing.
 *
 * Each item has a status of its own. rkv_last_error_message() is about the last that failed and
 * names it, e.g. `items[3]: ...`.
 *
 * @param cache the cache
 * @param items what to look for
 * @param count items, also in the arrays below; with 0 those may be NULL
 * @param item_size sizeof(rkv_cache_probe_item)
 * @param results receives what was found; that of an item that failed is left as it is
 * @param result_size sizeof(rkv_cache_probe_result); not read with count 0
 * @param statuses receives what rkv_cache_probe() would have returned for each item
 * @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
 * RKV_STATUS_INVALID_ARGUMENT for the arrays themselves; RKV_STATUS_POISONED
 * @par Cost
 * the sum of the single calls; no lock, with the exceptions of rkv_cache_probe(). In a large tree
 * less: the lookups of the next items go ahead and have fetched what they read. With the
 * block-hash index several prompts are hashed side by side
 * @par Thread safety
 * any thread, any number at once, as rkv_cache_probe(). Each answer is that of a moment of its own
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_probe_many(const struct rkv_cache *cache,
                                     const struct rkv_cache_probe_item *items,
                                     size_t count,
                                     size_t item_size,
                                     struct rkv_cache_probe_result *results,
                                     size_t result_size,
                                     enum rkv_status *statuses);

/**
 * Publishes the whole pages of a prefix. Pages that were computed before rkv_cache_clear() cleared
 * the namespace are not to be inserted: the cache can't know.
 *
 * Pages for which the cache has none yet are claimed: they must be private, and are the cache's
 * from then on, also where they are mapped: then keep them locked (RKV_INSERT_LOCK) until
 * rkv_page_table_free_slot() has returned, or an eviction gives them to somebody else while the
 * row has them. Nothing refuses that: two rows have one page then, and freeing the row frees what
 * is the other's. Where the cache has another page for the same tokens, that one stays and the
 * caller's is a duplicate: `published_pages` tells what to map instead.
 *
 * With an external pool (RKV_PAGE_TABLE_EXTERNAL_POOL) the pages must be outside. Where the first
 * out_result->page_count of published_pages have the caller's own page, that is the cache's from
 * then on; where they have another one, the caller's is outside as before. When memory ran out in
 * a long insert, the pages after those are outside too: insert them again later. A page that the
 * cache has at another place, or that is given twice, is refused.
 *
 * @param cache the cache
 * @param args what to insert
 * @param published_pages receives page_count entries: the cache's page at each whole page of the
 * tokens that is published, and the caller's own from out_result->page_count on; may be NULL, but
 * not with an external pool
 * @param out_result receives what was done; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for a page to be claimed that is not
 * private or given twice (with an external pool, for any such page), or a lock to move that is not
 * on from_node; RKV_STATUS_STALE_NODE; RKV_STATUS_STALE_LOCK for a lock to move that was undone;
 * RKV_STATUS_INVALID_STATE when no more locks can be numbered, or from_node was cleared, which a
 * lock on it does not hinder; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. A failed insert
 * changes nothing. A long list is checked as a whole and published in portions; when memory runs
 * out after the first, or another thread gives a page of the list away, the call succeeds and
 * out_result->page_count says how far it came. Pages of other groups come in portions after all of
 * group 0, and none of them goes before the call ends; those that did not come are not in the
 * published_pages of their row.
 * @par Cost
 * O(tokens + nodes on the path); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_insert(struct rkv_cache *cache,
                                 const struct rkv_cache_insert_args *args,
                                 uint32_t *published_pages,
                                 struct rkv_cache_insert_result *out_result);

/**
 * What can be seen of a node.
 *
 * @param cache the cache
 * @param node a node id
 * @param out_info receives it; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_NODE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_node_read_info(const struct rkv_cache *cache,
                                   rkv_node_id node,
                                   struct rkv_node_info *out_info);

/**
 * Pages of a node's own segment, in order.
 *
 * @param cache the cache
 * @param node a node id
 * @param pages receives them; (NULL, 0) asks for the count
 * @param capacity room in pages
 * @param out_count receives the number of pages, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_NODE; RKV_STATUS_BUFFER_TOO_SMALL;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(pages copied); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_node_read_pages(const struct rkv_cache *cache,
                                    rkv_node_id node,
                                    uint32_t *pages,
                                    size_t capacity,
                                    size_t *out_count);

/**
 * Children of a node, in the order of their first pages' keys; with the block-hash index of their
 * digests.
 *
 * @param cache the cache
 * @param node a node id
 * @param children receives them; (NULL, 0) asks for the count
 * @param capacity room in ids
 * @param out_count receives the number of children, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_NODE; RKV_STATUS_BUFFER_TOO_SMALL;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(children), for the block-hash index times their logarithm; shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_node_read_children(const struct rkv_cache *cache,
                                       rkv_node_id node,
                                       rkv_node_id *children,
                                       size_t capacity,
                                       size_t *out_count);

/**
 * Protects a node and all its ancestors from eviction. A node can have any number of locks, each
 * with an id of its own.
 *
 * @param cache the cache
 * @param node a node id
 * @param out_lock receives the lock's id
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_NODE; RKV_STATUS_INVALID_STATE when no more locks can be
 * numbered; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(nodes on the path); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_lock(struct rkv_cache *cache,
                               rkv_node_id node,
                               rkv_lock_id *out_lock);

/**
 * Lets go of pages that a lock protects and no token from a position on attends to: of WINDOW and
 * CHUNK groups those that were passed, but sinks, and of STATE groups the checkpoints of fewer
 * positions. What FULL groups have stays protected, and so with one group nothing changes.
 *
 * For an engine that moves a lock along with a request, rkv_cache_insert_args.lock: all that the
 * request published stays protected until its steps are computed, and this says how far they are.
 * Before it allocates pages, so that it needs no more of them than its windows have.
 *
 * @param cache the cache
 * @param lock the lock
 * @param position the first position that steps to come, or under way, compute; more than what the
 * lock is on is fine, and a smaller one than before changes nothing
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_LOCK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(pages let go of), and a search among those that the lock protects of other groups than the
 * first, which move up; lock, in slices; needs no memory
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_slide_lock(struct rkv_cache *cache,
                                     rkv_lock_id lock,
                                     uint64_t position);

/**
 * Undoes one lock. Recency stays as it is.
 *
 * @param cache the cache
 * @param lock the lock
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_LOCK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(nodes on the path, and pages of those that merge); lock, in slices; needs no memory
 * @par Thread safety
 * any thread, not only the one that took the lock
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_cache_unlock(struct rkv_cache *cache, rkv_lock_id lock);

/**
 * Clears namespaces, while requests run: when weights or an adapter change, or a tenant leaves.
 *
 * Nothing that they hold is found any more, by match, probe, begin or continue. Pages that nobody
 * holds are freed. What a lock, a sequence or an open copy holds stays as it is for its holder,
 * and is freed when that lets go. Retained sequences are dropped.
 *
 * A sequence that began before goes on, and may publish. Nobody finds what it publishes, also not
 * under the name of the namespace, which is empty from now on and may be used again. That is so
 * for its children too. rkv_cache_insert() after a cleared node is refused. Without from_node it
 * begins anew: don't insert pages that were computed before.
 *
 * A namespace is cleared at one moment; of several one comes after the other, and all are cleared
 * when the call returns. A sequence that begins in one of them during the call may be taken for
 * one that began before. So may one that has found and published nothing yet after clears of more
 * than 1024 other scopes: of so many the latest is remembered.
 *
 * With an external pool (RKV_PAGE_TABLE_EXTERNAL_POOL) no page leaves by this call:
 * evictions report them.
 *
 * @param cache the cache
 * @param args what to clear
 * @param out_result receives what was done; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(nodes + pages that are freed + retained sequences), and with a scope of several namespaces
 * O(namespaces * log(namespaces)); lock, in slices; needs no memory
 * @par Thread safety
 * any thread; lets waiting threads in
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_clear(struct rkv_cache *cache,
                                const struct rkv_cache_clear_args *args,
                                struct rkv_cache_clear_result *out_result);

/**
 * Each group in numbers: what the cache has of it, and what it cost since the cache was created.
 * rkv_cache_read_stats() has the totals, rkv_page_table_read_pool_stats() the pages by state.
 *
 * @param cache the cache
 * @param groups receives the groups in their order; (NULL, 0) asks for the count
 * @param element_size sizeof(rkv_group_stats); not read with capacity 0
 * @param capacity room in groups; RKV_GROUP_LIMIT is always enough
 * @param out_count receives the number of groups, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(groups); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_read_group_stats(const struct rkv_cache *cache,
                                           struct rkv_group_stats *groups,
                                           size_t element_size,
                                           size_t capacity,
                                           size_t *out_count);

/**
 * How far a prompt is known, how far it can be reused, and which group costs how much of the
 * difference. Changes nothing, like rkv_cache_probe().
 *
 * @param cache the cache
 * @param space the namespace; NULL for the default one
 * @param tokens what to look for
 * @param costs receives one for each group; (NULL, 0) asks for the count
 * @param cost_size sizeof(rkv_group_cost); not read when costs is NULL
 * @param capacity room in costs; RKV_GROUP_LIMIT is always enough
 * @param out_count receives the number of groups, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @param out_depths receives the depths; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens + nodes on the path + pages behind the result); shared lock, of a long prompt the lock
 * in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_probe_groups(const struct rkv_cache *cache,
                                       const struct rkv_namespace *space,
                                       const struct rkv_tokens *tokens,
                                       struct rkv_group_cost *costs,
                                       size_t cost_size,
                                       size_t capacity,
                                       size_t *out_count,
                                       struct rkv_group_depths *out_depths);

/**
 * The pages of a group that a lock protects: those that the prefix needs on which the lock was
 * taken, as far as they were there; of a FULL group up to the first that was missing. Of a match
 * with RKV_MATCH_LOCK all are: the pages of the window and the sinks, that of a partial match
 * included, or the checkpoint.
 *
 * @param cache the cache
 * @param lock a lock
 * @param group the group, 1 and up: those of group 0 come with the match
 * @param pages receives the pages in the order of their places; (NULL, 0) asks for the count
 * @param element_size sizeof(rkv_locked_page); not read with capacity 0
 * @param capacity room in pages
 * @param out_count receives the number of pages, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_LOCK; RKV_STATUS_BUFFER_TOO_SMALL;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(pages that it protects); shared lock, in portions
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_read_locked_pages(const struct rkv_cache *cache,
                                            rkv_lock_id lock,
                                            uint32_t group,
                                            struct rkv_locked_page *pages,
                                            size_t element_size,
                                            size_t capacity,
                                            size_t *out_count);

/**
 * Evicts until a pool has got so many pages, or there are no more to be had. Pages of sliding
 * groups that no end of what is cached needs go first, then the least recently used of all groups
 * that draw from the pool. A page of group 0 takes those of other groups that hang on it, so that
 * a few more pages may go than were asked for, also of other pools.
 *
 * @param cache the cache
 * @param pool the pool's number; 0 without a list of pools
 * @param page_count how many pages the pool is to get
 * @param evicted receives every page that went, in order; may be NULL, but not with an external
 * pool
 * @param evicted_size sizeof(rkv_evicted_page); not read when evicted is NULL
 * @param capacity room in `evicted`, at least the number of groups: the call ends early when there
 * may be too little for the next page and all that goes with it
 * @param out_evicted_count receives the pages that went, of all pools; may be NULL
 * @param out_freed_count receives those that the pool got
 * @return RKV_STATUS_OK, also when fewer could be had; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(pages + log(nodes)); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_evict_pool(struct rkv_cache *cache,
                                     uint32_t pool,
                                     size_t page_count,
                                     struct rkv_evicted_page *evicted,
                                     size_t evicted_size,
                                     size_t capacity,
                                     size_t *out_evicted_count,
                                     size_t *out_freed_count);

/**
 * Counters of a cache, at one moment.
 *
 * @param cache the cache
 * @param out_stats receives the numbers; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread; waits for no eviction
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_read_stats(const struct rkv_cache *cache,
                                     struct rkv_cache_stats *out_stats);

/**
 * Checks every invariant of the index: structure, order, locks, counts. Cost: one pass over it.
 * For tests and debug builds of an engine.
 *
 * @param cache the cache
 * @return RKV_STATUS_OK; RKV_STATUS_CORRUPT with the first invariant that is broken, by name;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(index); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_cache_check(const struct rkv_cache *cache);

/**
 * The namespaces that the cache has pages of, or locks in, with their roots. Those that come or go
 * during the call may be among them or not.
 *
 * @param cache the cache
 * @param spaces receives them, each with struct_size set to element_size: good as arguments of
 * other calls; (NULL, 0) asks for the count
 * @param element_size sizeof(rkv_namespace); not read with capacity 0
 * @param roots receives the root of each, for rkv_node_read_children(); may be NULL
 * @param capacity room in namespaces, and in roots
 * @param out_count receives how many there are, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(namespaces * log(namespaces)); shared lock, in slices
 * @par Thread safety
 * any thread; lets waiting threads in
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_read_namespaces(const struct rkv_cache *cache,
                                          struct rkv_namespace *spaces,
                                          size_t element_size,
                                          rkv_node_id *roots,
                                          size_t capacity,
                                          size_t *out_count);

/**
 * Writes the tree as text for a person or a tool: namespaces, nodes, pages of each group, locks,
 * recency. The pages of a node are those of group 0; with several groups JSON has besides, as
 * `group_pages`, those of each other group by its number, at the places of the pages they hang on,
 * 0 for a hole.
 *
 * @param cache the cache
 * @param format RKV_DUMP_JSON or RKV_DUMP_DOT
 * @param buffer receives the text, NUL-terminated; (NULL, 0) asks for the size
 * @param capacity size of buffer in bytes
 * @param out_bytes receives the bytes of the text, the NUL included, also on
 * RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(index); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_dump(const struct rkv_cache *cache,
                               uint32_t format,
                               char *buffer,
                               size_t capacity,
                               size_t *out_bytes);

#if defined(RKV_FAULT_INJECTION)
/**
 * Panics inside the library while the handle is in use. Only in builds with the fault-injection
 * feature, for tests.
 *
 * @param cache the cache
 * @return RKV_STATUS_INTERNAL, and the cache and its page table are poisoned
 * @par Cost
 * O(1); lock
 * @par Thread safety
 * any thread
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_fault_panic(struct rkv_cache *cache);
#endif

/**
 * Begins a sequence: finds the longest cached prefix, locks it, takes a slot, maps the shared
 * pages and allocates the others, evicting when the pool is short. One transaction: it happens
 * whole or not at all.
 *
 * At least one token is left to compute, and the cut is never inside an image. Where the prefix
 * ends inside a page, there is a copy to carry out: rkv_sequence_read_copies().
 *
 * Whether it fits is checked for the whole prompt and the reserve. With allocate_position_count
 * only the first positions get their pages now: a long prompt that is computed in chunks does not
 * hold pages that it needs much later. Nothing keeps those free for it.
 *
 * @param cache the cache
 * @param args the prompt and its namespace
 * @param out_state receives the sequence; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(), before anything was
 * evicted; RKV_STATUS_OUT_OF_SLOTS; RKV_STATUS_UNSUPPORTED with an external pool;
 * RKV_STATUS_INVALID_ARGUMENT, also for a prompt longer than a row may be;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens + nodes on the path + pages of the row + evictions); lock, in slices. With the
 * block-hash index others have the lock while a long prompt is hashed
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_begin(struct rkv_cache *cache,
                                   const struct rkv_sequence_begin_args *args,
                                   struct rkv_sequence_info *out_state);

/**
 * A sequence as it stands.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param out_state receives it; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_read_info(const struct rkv_cache *cache,
                                       rkv_sequence_id sequence,
                                       struct rkv_sequence_info *out_state);

/**
 * The page copies that a sequence waits for: the first positions of pages of the cache or of a
 * parent, to private pages of the sequence. Carry them out in every layer before the sequence
 * computes, then call rkv_sequence_confirm_copies(); until then the sources stay protected.
 *
 * Each names its group. Of a STATE group it is a whole page, whatever position_count says: from a
 * checkpoint or a parent's state to the sequence's own, or after rkv_sequence_checkpoint() from
 * that to a new checkpoint.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param copies receives them, as rkv_runner_copy_pages() takes them; (NULL, 0) asks for the count
 * @param element_size sizeof(rkv_page_copy); not read with capacity 0
 * @param capacity room in copies; one for each group is enough
 * @param out_count receives the number of copies, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK, also when there are none; RKV_STATUS_PENDING with several groups while a
 * fetch or rkv_sequence_agree() of the sequence goes on; RKV_STATUS_STALE_SEQUENCE;
 * RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_read_copies(const struct rkv_cache *cache,
                                         rkv_sequence_id sequence,
                                         struct rkv_page_copy *copies,
                                         size_t element_size,
                                         size_t capacity,
                                         size_t *out_count);

/**
 * Says that the copies that rkv_sequence_read_copies() names are done, all of them: they protect
 * their source pages no longer. (After a full hit the source still is, as part of the prefix that
 * the sequence keeps locked.) A copy to a checkpoint makes that one that can be found.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_STATE when no copy is open; RKV_STATUS_PENDING with
 * several groups while a fetch or rkv_sequence_agree() of the sequence goes on;
 * RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(nodes on the path); lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_confirm_copies(struct rkv_cache *cache,
                                            rkv_sequence_id sequence);

/**
 * Allocates the pages that a sequence lacks for its first positions, evicting when the pool is
 * short: for the next chunk of a prompt that began with allocate_position_count. All or nothing,
 * so it can be tried again when pages came free. Where the row is as long already, nothing is
 * done.
 *
 * Until then nobody can compute or publish those positions: rkv_plan_set() and
 * rkv_sequence_publish() refuse them.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param position_count positions from the beginning that are to have pages, those that have some
 * included; no more than the sequence has
 * @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(), before anything was
 * evicted; RKV_STATUS_PENDING with several groups while a fetch or rkv_sequence_agree() of the
 * sequence goes on; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(new pages + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_allocate(struct rkv_cache *cache,
                                      rkv_sequence_id sequence,
                                      uint64_t position_count);

/**
 * Adds tokens to a sequence, e.g. the one just decoded, and the pages they need, evicting when the
 * pool is short. Positions before them that have no pages yet get theirs too. All or nothing.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param tokens what to add
 * @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(); RKV_STATUS_PENDING as
 * rkv_sequence_allocate(); RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_UNSUPPORTED with an external
 * pool; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_append(struct rkv_cache *cache,
                                    rkv_sequence_id sequence,
                                    const struct rkv_tokens *tokens);

/**
 * Takes the last positions off a sequence, e.g. draft tokens that were refused. Pages stay with
 * the row for what comes next.
 *
 * A state can't be taken back: with STATE groups the step that computes draft tokens leaves one
 * behind each. Of the tokens since the last publishing, the last rkv_sequence_slide(), or the last
 * truncation, it writes the state after the first into the first page of the sequence's row in the
 * group, in its place, and the one after each next token into the next page. Truncation then makes
 * the state after position_count the first page of the row, also when every token is kept.
 * position_count is between one and 1 + draft_state_count more than before. What is kept is to be
 * published before the state is saved, or handed on to children. Of tokens that are not computed
 * yet keep the first alone: no state is moved for that, and it is no truncation that states are
 * counted from. When that token was computed, publish it, or let the windows slide, before the
 * next drafts.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param position_count positions to keep: no fewer than the prompt's, no fewer than are
 * published, and not inside an image. The prompt of a child is all that it began with
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a child has
 * yet to copy positions that would go, with states while a copy is open, or where a window has
 * passed what the next positions would attend to or be written to, as rkv_sequence_publish() and
 * rkv_sequence_slide() let it; RKV_STATUS_PENDING with several groups while a fetch or
 * rkv_sequence_agree() of the sequence goes on; RKV_STATUS_UNSUPPORTED with a STATE group without
 * draft states; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_POISONED
 * @par Cost
 * O(dropped pages); lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_truncate(struct rkv_cache *cache,
                                      rkv_sequence_id sequence,
                                      uint64_t position_count);

/**
 * Publishes the whole pages among the first positions of a sequence, so that others find them. May
 * be called after every chunk of a prefill and during decode. The sequence keeps exactly one lock,
 * on what it published last; where others have published more of the same prompt, on the end of
 * that. That node may be a longer one in the place of the sequence's earlier node, whose id is
 * stale then: rkv_sequence_publish_result.node is the one to use from now on.
 *
 * More than 32 new pages, or 4000 new positions, may be published in portions, between which
 * waiting threads get in. When memory runs out after the first, or another thread truncates the
 * sequence meanwhile, what was published stays: the call succeeds, and shared_page_count says how
 * far it came. Whatever gets published, also where there is no memory for any of it, the states of
 * STATE groups are those after computed_position_count from now on.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param computed_position_count positions whose KV is written, from the beginning; leave out
 * draft tokens. Fewer than before does nothing.
 * @param out_result receives what was done; set its struct_size first; may be NULL
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_STATE when a copy is not confirmed yet;
 * RKV_STATUS_PENDING while a fetch of the sequence is open, and with several groups while
 * rkv_sequence_agree() goes on; RKV_STATUS_INVALID_ARGUMENT for more positions than the sequence
 * has, or than its row has pages for; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(new whole pages * page_size + nodes on the path); lock, in portions
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_publish(struct rkv_cache *cache,
                                     rkv_sequence_id sequence,
                                     uint64_t computed_position_count,
                                     struct rkv_sequence_publish_result *out_result);

/**
 * Ends a sequence: unlocks once, returns its private pages to the pool, gives the slot back. What
 * it published stays in the cache. A fetch of it ends too; a page that is being copied comes back
 * when rkv_cache_complete() says that the copy is done.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE, also when released twice, and for a retained
 * one, which rkv_sequence_drop() ends; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(pages of the row + nodes on the path); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_release(struct rkv_cache *cache,
                                     rkv_sequence_id sequence);

/**
 * Begins many sequences: as many calls of rkv_sequence_begin(), in order, so a later one finds
 * what an earlier one changed. One lock as long as nobody waits for it; who waits gets in between
 * two items, and where rkv_sequence_begin() lets others have the lock.
 *
 * Each item has a status of its own, and one that fails does not keep the others from being
 * carried out. rkv_last_error_message() is about the last that failed and names it, e.g.
 * `items[3]: ...`; rkv_last_shortage() about the last that lacked pages.
 *
 * @param cache the cache
 * @param items the prompts; their struct_size is not read, item_size stands for it
 * @param count items, also in the arrays below; with 0 those may be NULL
 * @param item_size sizeof(rkv_sequence_begin_args)
 * @param states receives the sequences, struct_size included; that of an item that failed is left
 * as it is
 * @param state_size sizeof(rkv_sequence_info); not read with count 0
 * @param statuses receives what rkv_sequence_begin() would have returned for each item
 * @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
 * RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
 * RKV_STATUS_POISONED
 * @par Cost
 * the sum of the single calls; lock, in slices, and between two items to who waits. In a large
 * tree less: the lookups of the next items go ahead and have fetched what they read. With the
 * block-hash index several prompts are hashed side by side, while others have the lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_begin_many(struct rkv_cache *cache,
                                        const struct rkv_sequence_begin_args *items,
                                        size_t count,
                                        size_t item_size,
                                        struct rkv_sequence_info *states,
                                        size_t state_size,
                                        enum rkv_status *statuses);

/**
 * Adds tokens to many sequences, e.g. to each the token just decoded: as many calls of
 * rkv_sequence_append(), in order. A step of decoding is this one call;
 * rkv_sequence_publish_many() is for those sequences of which a page became full. One lock as long
 * as nobody waits for it; who waits gets in between two items.
 *
 * Each item has a status of its own, and one that fails does not keep the others from being
 * carried out. rkv_last_error_message() is about the last that failed and names it, e.g.
 * `items[3]: ...`; rkv_last_shortage() about the last that lacked pages. One sequence may be in
 * several items.
 *
 * @param cache the cache
 * @param items sequences and what to add to them
 * @param count items, also in the array below; with 0 both may be NULL
 * @param item_size sizeof(rkv_sequence_append_item)
 * @param statuses receives what rkv_sequence_append() would have returned for each item
 * @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
 * RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
 * RKV_STATUS_POISONED
 * @par Cost
 * the sum of the single calls; lock, in slices, and between two items to who waits
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_append_many(struct rkv_cache *cache,
                                         const struct rkv_sequence_append_item *items,
                                         size_t count,
                                         size_t item_size,
                                         enum rkv_status *statuses);

/**
 * Publishes what many sequences have computed: as many calls of rkv_sequence_publish(), in order.
 * One lock as long as nobody waits for it; who waits gets in between two items, and where
 * rkv_sequence_publish() lets others in.
 *
 * Each item has a status of its own, and one that fails does not keep the others from being
 * carried out. rkv_last_error_message() is about the last that failed and names it, e.g.
 * `items[3]: ...`.
 *
 * @param cache the cache
 * @param items sequences and their computed positions
 * @param count items, also in the arrays below; with 0 those may be NULL
 * @param item_size sizeof(rkv_sequence_publish_item)
 * @param results receives what was done, struct_size included; that of an item that failed is left
 * as it is. NULL when it is not wanted
 * @param result_size sizeof(rkv_sequence_publish_result); not read without results
 * @param statuses receives what rkv_sequence_publish() would have returned for each item
 * @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
 * RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
 * RKV_STATUS_POISONED
 * @par Cost
 * the sum of the single calls; lock, in portions, and between two items to who waits. With the
 * block-hash index pages of several sequences are hashed side by side, while others have the lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_publish_many(struct rkv_cache *cache,
                                          const struct rkv_sequence_publish_item *items,
                                          size_t count,
                                          size_t item_size,
                                          struct rkv_sequence_publish_result *results,
                                          size_t result_size,
                                          enum rkv_status *statuses);

/**
 * Ends many sequences: as many calls of rkv_sequence_release(), in order. One lock as long as
 * nobody waits for it; who waits gets in between two items.
 *
 * Each has a status of its own, and one that fails does not keep the others from being ended.
 * rkv_last_error_message() is about the last that failed and names it, e.g. `sequences[3]: ...`.
 *
 * @param cache the cache
 * @param sequences the sequences
 * @param count how many, also in the array below; with 0 both may be NULL
 * @param statuses receives what rkv_sequence_release() would have returned for each; of a sequence
 * that is there twice, RKV_STATUS_STALE_SEQUENCE the second time
 * @return RKV_STATUS_OK when all were gone through, whatever their statuses;
 * RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
 * RKV_STATUS_POISONED
 * @par Cost
 * the sum of the single calls; lock, between two items to who waits
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_release_many(struct rkv_cache *cache,
                                          const rkv_sequence_id *sequences,
                                          size_t count,
                                          enum rkv_status *statuses);

/**
 * Begins a sequence that goes on from another one: its tokens are all that the parent has now, and
 * those that are given. What the parent has computed is taken over by reference: no lookup, no
 * comparison of its tokens, no copy of whole pages, and no eviction can come in between.
 *
 * Computed is what rkv_sequence_publish() was told last, or what the parent began with. Where that
 * ends inside a page, the child is told to copy as at rkv_sequence_begin(); the page to copy from
 * stays protected also when the parent ends. At least one token is left to compute, and the cut is
 * never inside an image.
 *
 * With several groups the child copies the states; until it has, a parent that runs must not
 * change them, and a plan with it is refused.
 *
 * @param cache the cache
 * @param args parent and tokens
 * @param out_state receives the sequence; set its struct_size first. inherited_position_count is 0
 * when it began with all_tokens instead
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE when the parent is neither live nor retained
 * and all_tokens is NULL; RKV_STATUS_PENDING when it is live and RKV_CONTINUE_RUNNING is not set,
 * or with several groups while a fetch or rkv_sequence_agree() of it goes on;
 * RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(), before anything was evicted;
 * RKV_STATUS_OUT_OF_SLOTS; RKV_STATUS_INVALID_STATE when the parent waits for copies of groups
 * itself, or has pages that a fetch brought and that were not published for want of memory:
 * rkv_sequence_publish() does that; RKV_STATUS_UNSUPPORTED with an external pool;
 * RKV_STATUS_INVALID_ARGUMENT, also for another namespace than the parent's, naming the field;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens + pages of the row + nodes on the path + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_continue(struct rkv_cache *cache,
                                      const struct rkv_sequence_continue_args *args,
                                      struct rkv_sequence_info *out_state);

/**
 * Forks a sequence: begins children with the same tokens, e.g. for beam search or for several
 * samples of one prompt. All of them or none.
 *
 * Each child takes over what the parent has computed, as at rkv_sequence_continue(), and may have
 * nothing left to compute: append its first own token. Whole pages are shared once
 * rkv_sequence_publish() was told that they are computed, since what several rows map is the
 * cache's; so publish before a fork. The page that is computed in part stays the parent's, and
 * each child copies it. Releasing a child frees exactly its private pages.
 *
 * With several groups a child has rows in all of them. It copies the states, which must be those
 * of the positions that rkv_sequence_publish() was told of last; until it has, the parent must not
 * change them, and a plan with the parent is refused.
 *
 * @param cache the cache
 * @param args parent and number of children
 * @param out_children receives child_count children
 * @param element_size sizeof(rkv_sequence_fork_child)
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_OUT_OF_PAGES, see
 * rkv_last_shortage(), before anything was evicted; RKV_STATUS_OUT_OF_SLOTS;
 * RKV_STATUS_INVALID_STATE when the parent waits for copies of groups itself, or has pages that a
 * fetch brought and that were not published for want of memory: rkv_sequence_publish() does that;
 * RKV_STATUS_PENDING with several groups while a fetch or rkv_sequence_agree() of it goes on;
 * RKV_STATUS_UNSUPPORTED with an external pool; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(children * (pages of the row + nodes on the path) + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_fork(struct rkv_cache *cache,
                                  const struct rkv_sequence_fork_args *args,
                                  struct rkv_sequence_fork_child *out_children,
                                  size_t element_size);

/**
 * Ends a sequence like rkv_sequence_release(), but keeps it for rkv_sequence_continue() and
 * rkv_sequence_fork() under its id: its tokens, the pages that it published, and the page that it
 * computed in part. The slot is free, the other private pages are, too. A copy that is not
 * confirmed is given up; one of a group beside the first has to be confirmed before.
 *
 * While a sequence is retained its pages are not evicted, whatever else is short. It stays until
 * rkv_sequence_drop(), rkv_cache_drop_retained(), an rkv_cache_clear() of its namespace, or until
 * the bounds of the cache's configuration are exceeded: then those that finished first give way,
 * whether or not somebody went on from them since. To publish what was computed last, call
 * rkv_sequence_publish() before.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param out_retained receives false when the sequence alone has more pages than all retained ones
 * may have, began before its namespace was cleared, or has pages that a fetch brought and that
 * were not published for want of memory; it was released then
 * @return RKV_STATUS_OK; RKV_STATUS_PENDING while a fetch of the sequence is open, and with
 * several groups while rkv_sequence_agree() goes on; RKV_STATUS_INVALID_STATE while a copy of a
 * group beside the first is open; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(private pages of the row + nodes on the path), for those that give way too, and the pages that
 * other FULL groups keep; lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_retain(struct rkv_cache *cache,
                                    rkv_sequence_id sequence,
                                    bool *out_retained);

/**
 * Drops a retained sequence. What it published stays in the cache and may be evicted, its
 * private page returns to the pool once no copy reads it.
 *
 * @param cache the cache
 * @param sequence a retained sequence
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE, also for a live one, which
 * rkv_sequence_release() ends; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(nodes on the path), and the pages that other FULL groups kept; lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_drop(struct rkv_cache *cache,
                                  rkv_sequence_id sequence);

/**
 * Drops retained sequences, the first to finish first, until page_count more pages of pool 0 are
 * available: free ones, or ones that eviction could free. No allocation does this by itself, since
 * a retained sequence is a promise; so call it with what rkv_last_shortage() says is lacking. With
 * several pools it names the one that is short: rkv_cache_drop_retained_pool().
 *
 * @param cache the cache
 * @param page_count pages wanted; SIZE_MAX drops all
 * @param out_page_count receives how many more are available: fewer when none is retained any
 * more
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * that of rkv_sequence_drop() for each; lock, given up between sequences
 * @par Thread safety
 * any thread; lets waiting threads in between sequences
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_drop_retained(struct rkv_cache *cache,
                                        size_t page_count,
                                        size_t *out_page_count);

/**
 * rkv_cache_drop_retained() for any pool: rkv_shortage says which one is short. Sequences that
 * keep nothing in that pool go too when they finished first.
 *
 * @param cache the cache
 * @param pool the pool's number; 0 without a list of pools
 * @param page_count pages wanted; SIZE_MAX drops all
 * @param out_page_count receives how many more of the pool are available: fewer when none is
 * retained any more
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * that of rkv_sequence_drop() for each; lock, given up between sequences
 * @par Thread safety
 * any thread; lets waiting threads in between sequences
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_drop_retained_pool(struct rkv_cache *cache,
                                             uint32_t pool,
                                             size_t page_count,
                                             size_t *out_page_count);

/**
 * The retained sequences, those that finished first at the front.
 *
 * @param cache the cache
 * @param sequences receives their ids; (NULL, 0) asks for the count
 * @param capacity room in ids
 * @param out_count receives how many there are, also on RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(retained sequences); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_read_retained(const struct rkv_cache *cache,
                                        rkv_sequence_id *sequences,
                                        size_t capacity,
                                        size_t *out_count);

/**
 * The row of a sequence in one group, from an index on: a page for each page_size positions, 0
 * where the window has passed. Of a STATE group: the page of the state that the next step changes,
 * whatever the position, and then its draft_state_count pages for states after draft tokens, see
 * rkv_sequence_truncate().
 *
 * Leading pages of the row may be the cache's, as far as rkv_sequence_info.shared_page_count says:
 * never write to these. The pages from there on, and the page of a STATE group, are private.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param group the group; the row of group 0 is that of rkv_page_table_read_row() too
 * @param first_index the first index to report
 * @param pages receives the pages; (NULL, 0) asks for the count
 * @param capacity room in pages
 * @param out_count receives the number of pages from first_index on, also on
 * RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_BUFFER_TOO_SMALL;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(pages copied); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_read_group_row(const struct rkv_cache *cache,
                                            rkv_sequence_id sequence,
                                            uint32_t group,
                                            size_t first_index,
                                            uint32_t *pages,
                                            size_t capacity,
                                            size_t *out_count);

/**
 * What the last rkv_sequence_publish() of a sequence that succeeded did in the groups beside the
 * first, whose pages rkv_sequence_publish_result counts. Of a STATE group nothing is published.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param groups receives the groups in their order, 1 and up; (NULL, 0) asks for the count
 * @param element_size sizeof(rkv_published_group); not read with capacity 0
 * @param capacity room in groups
 * @param out_count receives the number of groups beside the first, also on
 * RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_BUFFER_TOO_SMALL;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(groups); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_read_published(const struct rkv_cache *cache,
                                            rkv_sequence_id sequence,
                                            struct rkv_published_group *groups,
                                            size_t element_size,
                                            size_t capacity,
                                            size_t *out_count);

/**
 * Begins to save the states of a sequence where it is: a page for each STATE group that has no
 * checkpoint there, and the copies that fill it, from the sequence's own state. Carry them out, as
 * rkv_sequence_read_copies() names them, before the next step changes the states; then call
 * rkv_sequence_confirm_copies(), and the checkpoints can be found. Where to save:
 * rkv_sequence_info.checkpoint_at.
 *
 * All that is computed must be published, and end with a page.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param out_copy_count receives the number of copies to carry out; 0 when the cache has all the
 * checkpoints already, and nothing is to be confirmed then
 * @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(): nothing has changed;
 * RKV_STATUS_INVALID_STATE when a copy is open, or for positions that are not published or end
 * inside a page; RKV_STATUS_PENDING while a fetch or rkv_sequence_agree() of the sequence goes on;
 * RKV_STATUS_UNSUPPORTED without a STATE group; RKV_STATUS_STALE_SEQUENCE;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(groups + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_checkpoint(struct rkv_cache *cache,
                                        rkv_sequence_id sequence,
                                        size_t *out_copy_count);

/**
 * Ends a sequence like rkv_sequence_release(), and leaves its states to the cache as checkpoints,
 * without a copy: where all that was computed is published, ends with a page, and is what the
 * states are after. A checkpoint that is there already stays, and so nothing is left then.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param out_checkpoint_count receives the number of states that it left: 0 when a copy is open,
 * of the sequence or of its state by a child that began before what is computed now, or when what
 * was published last ends inside a page; may be NULL
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_UNSUPPORTED without a STATE group:
 * it is not ended then; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(pages of the row + nodes on the path); lock, in slices; needs no memory
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_donate(struct rkv_cache *cache,
                                    rkv_sequence_id sequence,
                                    size_t *out_checkpoint_count);

/**
 * Lets the windows of a sequence slide without publishing, for tokens that nobody wants to keep:
 * pages that the next position does not need go back to their pools, those of the cache become
 * reclaimable. rkv_sequence_publish() does it by itself.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param computed_position_count positions whose KV is enqueued, at most as many as the row has
 * pages for: who gets a page that leaves must come behind that on the same stream. Draft tokens
 * that may be taken back don't count
 * @return RKV_STATUS_OK, also with one group; RKV_STATUS_INVALID_STATE when a copy is open;
 * RKV_STATUS_PENDING with several groups while a fetch or rkv_sequence_agree() of the sequence
 * goes on; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(pages that leave); lock; allocates nothing
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_slide(struct rkv_cache *cache,
                                   rkv_sequence_id sequence,
                                   uint64_t computed_position_count);

/**
 * Creates a plan without rows. It needs no runner, and computes nothing by itself.
 *
 * @param table the page table whose rows it is over; lives until the plan is destroyed too
 * @param out_plan receives the plan, owned by the caller
 * @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(slot_count); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_plan_create(struct rkv_page_table *table,
                                struct rkv_plan **out_plan);

/**
 * Destroys a plan, and what runners keep with it, memory on a device included. NULL is allowed and
 * does nothing. Runners and plans can be destroyed in any order.
 *
 * @param plan the plan
 * @par Cost
 * O(1), and what runners keep with it; no lock
 * @par Thread safety
 * the caller must be the last user of this handle
 */
RKV_API void rkv_plan_destroy(struct rkv_plan *plan);

/**
 * Sets what the next step computes: checks the rows and fills the arrays. Nothing is copied or
 * computed yet.
 *
 * Several plans may be set before the first is computed. A plan is good until a row of it is
 * released, truncated, publishes what the plan computes, or gives up a page in any group: where a
 * window slides, by publishing or by rkv_sequence_slide(), the plan is set after that. Copies that
 * begun sequences wait for (see rkv_sequence_read_copies()) stay open until they are carried out:
 * by the first rkv_runner_append_prefill() of the step, by rkv_runner_prepare_plan(), or by the
 * engine, which finds them among the arrays.
 *
 * @param plan the plan
 * @param rows row_count rows, in the order in which q, k, v and out hold their new positions; no
 * row twice
 * @param row_count how many; 0 empties the plan
 * @param element_size sizeof(rkv_plan_row)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the row: no pages for its new
 * positions, in some group none any more for what they attend to, pages that the cache owns, a
 * region that is cut, a tree mask with a later position, ...; or what is more than was given to
 * rkv_plan_reserve(); RKV_STATUS_PENDING while a fetch of a row's sequence is open, and with
 * several groups while rkv_sequence_agree() of it goes on; RKV_STATUS_STALE_SEQUENCE;
 * RKV_STATUS_INVALID_STATE for the slot of a sequence, or while children are still to copy a row's
 * state; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. On failure the plan is as before.
 * @par Cost
 * O(positions + pages of the rows in all groups); shared lock, in portions of whole rows
 * @par Thread safety
 * any thread; waits for calls that compute the plan
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_plan_set(struct rkv_plan *plan,
                             const struct rkv_plan_row *rows,
                             size_t row_count,
                             size_t element_size);

/**
 * Makes room for every step up to a size, and refuses larger ones from then on. Setting such a
 * step takes no more memory, unless rows have regions or tree masks.
 *
 * For CUDA graphs, together with rkv_runner_reserve_plan(). Once a call was captured nothing can
 * be reserved any more.
 *
 * @param plan the plan; if it was set, that step fits
 * @param capacity the largest step
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a call was
 * captured; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. On failure the plan is as before, but
 * without memory for all of it what rkv_plan_view() named may lie elsewhere: it is to be asked
 * again.
 * @par Cost
 * O(capacity); no lock
 * @par Thread safety
 * any thread; waits for calls that compute the plan
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_plan_reserve(struct rkv_plan *plan,
                                 const struct rkv_plan_capacity *capacity);

/**
 * Whether a plan that was set may still be computed. Runners look by themselves; this is for an
 * engine with kernels of its own, right before it starts them. It does not ask whether copies of
 * the plan's rows were carried out: those are the engine's to know (rkv_plan_arrays.copy_count).
 *
 * @param plan the plan
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when the plan has
 * no rows, or naming the row that changed since: other pages, or the cache owns them by now;
 * RKV_STATUS_PENDING when a fetch of a row's sequence was begun since; RKV_STATUS_STALE_SEQUENCE;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(rows + pages of their new positions); shared lock, in portions of whole rows
 * @par Thread safety
 * any thread; the answer is good until a row is released, truncated, published or slid
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_plan_check(const struct rkv_plan *plan);

/**
 * The arrays of a plan, for an engine with kernels of its own.
 *
 * @param plan the plan
 * @param out_arrays receives pointers to them; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); waits for rkv_plan_set()
 * @par Thread safety
 * any thread; nobody may set or destroy the plan while the arrays are read
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_plan_view(const struct rkv_plan *plan,
                              struct rkv_plan_arrays *out_arrays);

/**
 * The pages of a plan's rows in one group, for an engine with kernels of its own. Which positions
 * are new is among the arrays of rkv_plan_view().
 *
 * Where a window has passed, pages are holes or still in the row; RKV_PLAN_COMPACT leaves out
 * both.
 *
 * @param plan the plan
 * @param group the group; 0 is allowed
 * @param flags RKV_PLAN_COMPACT or 0
 * @param out_arrays receives pointers to them; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a row is a
 * slot's and no sequence's, and the group not 0; RKV_STATUS_POISONED
 * @par Cost
 * O(1); waits for rkv_plan_set()
 * @par Thread safety
 * any thread; nobody may set or destroy the plan while the arrays are read
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_plan_view_group(const struct rkv_plan *plan,
                                    uint32_t group,
                                    uint32_t flags,
                                    struct rkv_plan_group_arrays *out_arrays);

/**
 * Writes the defaults into a config.
 *
 * @param config receives the defaults
 * @param struct_size pass sizeof(rkv_runner_config)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_config_init(struct rkv_runner_config *config,
                                       size_t struct_size);

/**
 * Whether this build, on this machine, can run such a runner, and how much memory a page takes:
 * to be asked before a page table is made.
 *
 * @param config how the runner would be built; memory and threads are not looked at
 * @param page_size positions of a page, 1 to RKV_PAGE_SIZE_MAX
 * @param out_page_bytes receives the bytes of one page, K and V of all layers together, when they
 * lie densely; NULL when not wanted
 * @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED saying what is not, e.g. pages of more than 256
 * positions; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_DEVICE when the driver or the device cannot
 * be had; RKV_STATUS_OUT_OF_MEMORY
 * @par Cost
 * O(1), but for CUDA it opens the driver and loads the kernels; no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_supports(const struct rkv_runner_config *config,
                                    uint32_t page_size,
                                    uint64_t *out_page_bytes);

/**
 * Creates a runner over a page table. The page table lives until the runner is destroyed too.
 *
 * On the CPU each call that ends with RKV_STATUS_OUT_OF_MEMORY changed nothing, and memory that a
 * thread of the runner's may need is there before it computes. With CUDA that is best effort: a
 * host without memory may end the process.
 *
 * @param table the page table, with or without a cache
 * @param config how to build it; not NULL
 * @param out_runner receives the runner, owned by the caller
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_UNSUPPORTED,
 * e.g. for pages of more than 256 positions, also for a page table with an external pool;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_DEVICE; RKV_STATUS_POISONED
 * @par Cost
 * O(bytes of KV memory of its own); shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_create(struct rkv_page_table *table,
                                  const struct rkv_runner_config *config,
                                  struct rkv_runner **out_runner);

/**
 * Destroys a runner, the memory of its own, and what it keeps with plans. NULL is allowed and does
 * nothing. Runners and plans can be destroyed in any order.
 *
 * @param runner the runner
 * @par Cost
 * O(1), and memory of its own; no lock
 * @par Thread safety
 * the caller must be the last user of this handle
 */
RKV_API void rkv_runner_destroy(struct rkv_runner *runner);

/**
 * What a runner has.
 *
 * @param runner the runner
 * @param out_stats receives the numbers; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_read_stats(const struct rkv_runner *runner,
                                      struct rkv_runner_stats *out_stats);

/**
 * Where K and V of a layer lie, for an engine that looks at them or has kernels of its own.
 *
 * @param runner the runner
 * @param layer below layer_count
 * @param out_memory receives pointers, good until the runner is destroyed, and strides
 * @param memory_size sizeof(rkv_runner_kv_memory)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread; what is behind the pointers changes with rkv_runner_append_prefill()
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_read_kv_memory(const struct rkv_runner *runner,
                                          uint32_t layer,
                                          struct rkv_runner_kv_memory *out_memory,
                                          size_t memory_size);

/**
 * Copies the first positions of pages of the runner's group to other pages, K and V of every
 * layer.
 *
 * The copies that sequences wait for are carried out with a step, see rkv_runner_prepare_plan();
 * this is for an engine that moves pages for reasons of its own. On CUDA they are put on the
 * legacy default stream, and the call does not wait for them.
 *
 * @param runner the runner
 * @param copies copy_count copies; no target is another's source or target
 * @param copy_count how many
 * @param element_size sizeof(rkv_page_copy)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the copy; on CUDA
 * RKV_STATUS_INVALID_STATE while somebody captures a blocking stream, for nobody can use the
 * default stream then; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_DEVICE; RKV_STATUS_POISONED
 * @par Cost
 * O(copies) for the checks, under the shared lock; O(bytes) for the copies, without
 * @par Thread safety
 * any thread, while nobody writes the sources or uses the targets
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_copy_pages(struct rkv_runner *runner,
                                      const struct rkv_page_copy *copies,
                                      size_t copy_count,
                                      size_t element_size);

/**
 * Moves K and V of those new positions that hold to the first new positions of their rows, in
 * every layer of the runner: positions[i] to `start + i`. For drafts with tree masks, once it is
 * known which branch holds: what it computed is where a row without branches would have it, and
 * need not be computed again. Each runner that computed the plan does it for its own layers.
 *
 * Nobody looks whether the positions are one branch from its beginning on, each of which sees
 * those before it: whatever is named is moved, and what others hold is not what their tokens come
 * to. Nor whether the plan's branches were kept before: a second call moves what the first left.
 *
 * Then the sequence forgets the draft and goes on with what holds: rkv_sequence_truncate() to the
 * last position before its branches, and rkv_sequence_append() of the tokens of the branch. Their
 * pages stay the row's, and all of them count as computed.
 *
 * @param runner the runner
 * @param plan the plan, computed in every layer, and its rows as they were then
 * @param branches branch_count branches, in the order of the plan's rows, of a row at most one
 * @param branch_count how many
 * @param element_size sizeof(rkv_kept_branch)
 * @param stream CUDA: the CUstream to work on, which is not being captured. NULL on the CPU
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the branch; RKV_STATUS_INVALID_STATE
 * when the rows changed since the plan was set, or CUDA lets nothing be put on the stream;
 * RKV_STATUS_PENDING and RKV_STATUS_STALE_SEQUENCE as rkv_plan_check(); RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_DEVICE; RKV_STATUS_POISONED. On failure, unless it is the device's, nothing was
 * moved.
 * @par Cost
 * O(rows + pages of their new positions), shared lock, in portions of whole rows; O(bytes moved),
 * without
 * @par Thread safety
 * any thread; nobody computes the same rows, or releases them, meanwhile
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_keep_branches(struct rkv_runner *runner,
                                         const struct rkv_plan *plan,
                                         const struct rkv_kept_branch *branches,
                                         size_t branch_count,
                                         size_t element_size,
                                         void *stream);

/**
 * Makes room on the device for every step that was given to rkv_plan_reserve(), so that calls may
 * be captured into a graph, which then serves every step of such a size; see
 * rkv_runner_prepare_plan(). The CPU needs none.
 *
 * CUDA: all memory that the runner keeps with the plan is allocated here, and none of it moves
 * afterwards. What is reserved for the plan anew is to be reserved here anew.
 *
 * @param runner the runner
 * @param plan a plan over the same page table, after rkv_plan_reserve()
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE without
 * rkv_plan_reserve(), or when a call was captured; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_UNSUPPORTED; RKV_STATUS_DEVICE; RKV_STATUS_POISONED. On failure nothing was reserved.
 * @par Cost
 * O(capacity); no lock
 * @par Thread safety
 * any thread, while nobody computes the plan with this runner
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_reserve_plan(struct rkv_runner *runner,
                                        struct rkv_plan *plan);

/**
 * Does now what the first rkv_runner_append_prefill() of a step does otherwise, once: carries out
 * the copies that its sequences wait for in the runner's group, in every layer of the runner, on
 * CUDA sends the step's arrays, and confirms the copies.
 *
 * Where several runners compute one plan, for layers of different shapes or groups, each has
 * copies to carry out in its own, and they may be confirmed only after that. So all runners but
 * one are prepared with RKV_PREPARE_KEEP_COPIES_OPEN, and then that one, by this or by its first
 * call. With kernels of the engine's own beside a runner, that is prepared with the flag, too, and
 * the engine confirms by rkv_sequence_confirm_copies(): so with a STATE group, whose copies no
 * runner carries out. To confirm is refused while copies of some group are open that no runner
 * carried out; of two runners of one group the library cannot tell.
 *
 * CUDA: a captured call sends nothing, so a step is prepared before its calls are captured, and
 * before a graph is launched that computes it: rkv_plan_set(), rkv_runner_prepare_plan(),
 * cuGraphLaunch(), on one stream.
 *
 * @param runner the runner
 * @param plan a plan over the same page table that was set
 * @param flags RKV_PREPARE_ bits
 * @param stream CUDA: the CUstream to work on, which is not being captured. NULL on the CPU
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when the plan has
 * no rows, they changed since, a row is a slot's and the runner's group not 0, another runner
 * confirmed the copies before this one carried them out, without the flag copies of another
 * group are open that no runner carried out, a captured call of the plan has a window and some
 * row is of RKV_MASK_CONTEXT, or CUDA lets nothing be put on the stream, e.g. on the default
 * stream while somebody captures a blocking one; RKV_STATUS_PENDING and
 * RKV_STATUS_STALE_SEQUENCE as rkv_plan_check(), and without a reservation RKV_STATUS_UNSUPPORTED
 * on CUDA for a row of 2^31 positions, as many heads of queries in a step, or rows that take more
 * entries for their pages, with a quarter of them to grow by; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_DEVICE; RKV_STATUS_POISONED. On failure copies are open as before, and the step is to
 * be prepared again.
 * @par Cost
 * O(rows + pages of their new positions), shared lock, in portions of whole rows; on CUDA without
 * it O(pages of all rows), compared many at a time with those that the device has, and in a FULL
 * group, but for RKV_RUNNER_BATCH_INVARIANT and plans with RKV_PLAN_SEPARATE, about once with
 * those of other rows; copies O(bytes), without a lock; one to confirm them
 * @par Thread safety
 * any thread, as rkv_runner_append_prefill()
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_prepare_plan(struct rkv_runner *runner,
                                        struct rkv_plan *plan,
                                        uint32_t flags,
                                        void *stream);

/**
 * Writes K and V of a plan's new positions into their pages, and attends from each new position to
 * the cached and the new ones, in one pass. Decoding is the same call with one new position a row.
 *
 * The first call of a step also does what rkv_runner_prepare_plan() does, unless that was called:
 * it carries out the copies that the step's sequences wait for in its group, in every layer, and
 * confirms all, or is refused where others are open.
 *
 * The query at position p of a row sees the positions 0 to p, or the last `window` of them, those
 * of the group's sinks, in a CHUNK group none before the chunk that p is in; and all of the region
 * that p is in; of the new positions of a row with tree masks those that its mask names. Rows that
 * are not causal see what their mask says, see rkv_plan_row; of one with RKV_MASK_CONTEXT nothing
 * is written, and its part of k and v is not read. What lies
 * in unused positions of a page, or where a row has no page, is never read into a result, NaN
 * included.
 *
 * CUDA: on a stream that is being captured the call goes into a graph that serves every step that
 * was reserved. q, k, v, out and lse have room for the reserved position_count then; a step with
 * fewer new positions uses the first ones. The plan outlives the graph.
 *
 * @param runner the runner
 * @param plan a plan over the same page table that was set; for a graph also reserved and
 * prepared, see rkv_runner_reserve_plan() and rkv_runner_prepare_plan()
 * @param args layer, tensors and parameters
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when the plan has
 * no rows, they changed since, it is not ready for a graph, or as rkv_runner_prepare_plan()
 * without the flag; RKV_STATUS_PENDING and RKV_STATUS_STALE_SEQUENCE as rkv_plan_check();
 * RKV_STATUS_UNSUPPORTED on CUDA for a row of 2^31 positions, as many heads of queries in a step,
 * or pages as rkv_runner_prepare_plan(); RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_DEVICE;
 * RKV_STATUS_POISONED. On failure, unless it is the device's, nothing was computed or written: no
 * result, no K and no V.
 * @par Cost
 * O(rows + pages of their new positions) for the checks, under the shared lock, in portions of
 * whole rows; the first call of a step also what rkv_runner_prepare_plan() takes; attention
 * without a lock, over the positions that queries see: of a WINDOW group its window, however long
 * the row is
 * @par Thread safety
 * any thread, several at once for different plans; nobody else computes the same rows in the same
 * layer, or releases them, meanwhile
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_append_prefill(struct rkv_runner *runner,
                                          const struct rkv_plan *plan,
                                          const struct rkv_runner_append_prefill_args *args);

/**
 * Attention over the union of disjoint sets of keys, from the attention over each of them: the
 * weights are exp(lse), as in the cascade of FlashInfer and the split KV of FlashDecoding.
 *
 * @param runner the runner, for its shapes, dtype and threads
 * @param args the states and where to write
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_UNSUPPORTED for more than 128
 * states on CUDA; RKV_STATUS_INVALID_STATE on a stream that CUDA lets nobody use while something
 * is captured; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_DEVICE; RKV_STATUS_POISONED
 * @par Cost
 * O(states * elements of one); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_merge_states(struct rkv_runner *runner,
                                        const struct rkv_runner_merge_states_args *args);

/**
 * Carries out copies that rkv_cache_poll() gave, between the runner's KV memory and host memory,
 * now: it returns when they have arrived, and rkv_cache_complete() is for the caller to call.
 *
 * In host memory a page is K and V of each layer in turn, rkv_runner_stats.page_bytes in all.
 * Dense memory is copied as it lies, so the fingerprint of the tiers has to say the layout, and
 * the number formats. On the processor and on a GPU the bytes are the same.
 *
 * On a GPU they go on a stream of the runner's own, through 16 MiB of the device, or a page where
 * that is more, which the first copies take. They come after everything that calls of this runner
 * put on streams before, so a store has what the step before computed, and a load overwrites
 * nothing that a step reads. Graphs that were launched and kernels of the engine's the runner does
 * not see: where they use the pages, wait for them before the call. What is put on a stream after
 * it returned has the pages that were loaded. Pinned host memory (rkv_tier_config.host_memory) is
 * copied as fast as the bus goes, other memory by way of the driver's own, which is slower. Calls
 * of one runner take turns. Other streams may be captured meanwhile, by any thread.
 *
 * A page that is loaded has to be private, or to have been when the copy was given out: what the
 * cache has is never written. That a copy goes on, and is this cache's, is not looked at.
 *
 * @param runner the runner of all layers, or of those of a group
 * @param jobs copies of the cache over the runner's page table, of its group
 * @param count how many
 * @param element_size sizeof(rkv_copy_job)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the copy, and nothing was copied;
 * on a GPU RKV_STATUS_OUT_OF_MEMORY, RKV_STATUS_DEVICE: some were copied, and what the others
 * write to is undefined, so complete all as failed, but nothing uses host memory any more;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(bytes); shared lock while the copies are looked at, and on a GPU one of the runner's copies
 * @par Thread safety
 * any thread, while no step that begins meanwhile uses pages of loads or writes those of stores
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_runner_copy_tier_pages(struct rkv_runner *runner,
                                           const struct rkv_copy_job *jobs,
                                           size_t count,
                                           size_t element_size);

/**
 * Reads records of the journal: which pages came into the cache and left it, in order, whichever
 * call caused it. Needs rkv_cache_config.journal_bytes.
 *
 * A record is complete in itself: its pages may be gone. As many whole records are read as fit,
 * up to the newest one that there was when the call began. The ring has room for so many; a
 * reader that is too slow sees lost_count.
 *
 * @param cache the cache
 * @param after_number the number of the last record that is known; 0 to begin with the first
 * @param buffers where to
 * @param out_result receives how much was read; set its struct_size first. With
 * RKV_STATUS_BUFFER_TOO_SMALL it says what the first record needs
 * @return RKV_STATUS_OK, also when there is nothing new; RKV_STATUS_BUFFER_TOO_SMALL when not even
 * one record fits; RKV_STATUS_INVALID_STATE when the cache has no journal;
 * RKV_STATUS_INVALID_ARGUMENT, also for an after_number that is beyond the newest record;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(words of the records); shared lock, in slices
 * @par Thread safety
 * any thread, any number at once, beside calls that change the cache: lets waiting threads in
 * after every few microseconds
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_read_journal(const struct rkv_cache *cache,
                                       uint64_t after_number,
                                       const struct rkv_journal_buffers *buffers,
                                       struct rkv_cache_read_journal_result *out_result);

/**
 * The same for the cache that a page table has, or for the last one that it had: the removal of
 * all pages by rkv_cache_destroy() can be read here alone. Records of a cache that is gone stay
 * until the page table has another cache; the numbers of that one go on from them.
 *
 * @param table the page table
 * @param after_number the number of the last record that is known; 0 to begin with the first
 * @param buffers where to
 * @param out_result as in rkv_cache_read_journal()
 * @return as rkv_cache_read_journal()
 * @par Cost
 * O(words of the records); shared lock, in slices
 * @par Thread safety
 * any thread, as rkv_cache_read_journal()
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_page_table_read_journal(const struct rkv_page_table *table,
                                            uint64_t after_number,
                                            const struct rkv_journal_buffers *buffers,
                                            struct rkv_cache_read_journal_result *out_result);

/**
 * Tells what the cache holds, by page number and pool by pool, as records of stored pages: what a
 * reader of the journal begins with, and begins again with when records were lost.
 *
 * Call it until next_page is 0, then go on with rkv_cache_read_journal() after the number of the
 * first call. The cache may change all the while, and pages are told as they are when their turn
 * comes. A stored page replaces whatever was known of that page number of its group, and a removed
 * page that is not known is passed over: with all records up to the newest_number of the last call
 * applied, the result is exactly what the cache held at that record, and so after each record that
 * follows.
 *
 * @param cache the cache
 * @param first_page the page to begin with: 0, then rkv_cache_read_contents_result.next_page
 * @param buffers where to
 * @param out_result receives how much was told; set its struct_size first. With
 * RKV_STATUS_BUFFER_TOO_SMALL it says what the first record needs
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL when not even one record fits;
 * RKV_STATUS_INVALID_STATE when the cache has no journal; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY for the room of one record; RKV_STATUS_POISONED
 * @par Cost
 * O(words of the records + pages looked at); shared lock, in slices
 * @par Thread safety
 * any thread, as rkv_cache_read_journal()
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_read_contents(const struct rkv_cache *cache,
                                        uint32_t first_page,
                                        const struct rkv_journal_buffers *buffers,
                                        struct rkv_cache_read_contents_result *out_result);

/**
 * Creates an encoder. Its first batches say that nothing is held, and then all that the cache
 * holds, each page after the one before it: a router that listens from the beginning is exact.
 *
 * It has a copy of what the cache says of each page: 48 + 4 * page_size bytes for each page of
 * pool 0, 48 for each page of other pools. A cache may have several encoders.
 *
 * @param cache the cache, with a journal: rkv_cache_config.journal_bytes. The encoder goes on with
 * the page table's next cache when this one is destroyed
 * @param config how events are written; NULL for what most routers expect
 * @param out_encoder receives the encoder, owned by the caller
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_STATE when the cache has no journal;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(pages); shared lock, for a moment
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_event_encoder_create(const struct rkv_cache *cache,
                                         const struct rkv_event_encoder_config *config,
                                         struct rkv_event_encoder **out_encoder);

/**
 * Destroys an encoder. NULL is allowed and does nothing. Encoder, cache and page table can be
 * destroyed in any order.
 *
 * @param encoder the encoder
 * @par Cost
 * O(namespaces + pages that are not all text); no lock
 * @par Thread safety
 * the caller must be the last user of this handle
 */
RKV_API void rkv_event_encoder_destroy(struct rkv_event_encoder *encoder);

/**
 * What a namespace is called in events, from the next one on that is made. Name a namespace before
 * the first request in it: what was told is not told again.
 *
 * @param encoder the encoder
 * @param space the namespace; NULL for the default one
 * @param lora_name name of its LoRA adapter, UTF-8; NULL for the adapter's id in decimal
 * @param cache_salt what keeps it apart from other namespaces of that adapter, among the keys of
 * the first block of a prefix, UTF-8; "" for nothing; NULL for nothing where the namespace has
 * neither image, salt nor epoch, else for its digest in hexadecimal. Dynamo looks for salts that
 * begin with "dynamo-cache-salt:"
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for a lora_name without an adapter, or
 * a text that has more than RKV_EVENTS_NAME_LIMIT bytes; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(log(namespaces)); no lock
 * @par Thread safety
 * any thread; waits for other calls on this encoder
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_event_encoder_name_namespace(struct rkv_event_encoder *encoder,
                                                 const struct rkv_namespace *space,
                                                 const char *lora_name,
                                                 const char *cache_salt);

/**
 * Writes one batch: as many events as there are and as fit. Nothing is written, and byte_count is
 * 0, when there is nothing to tell. What does not fit comes with the next call.
 *
 * When records of the journal were lost, an AllBlocksCleared comes, or with a rank BlockRemoved of
 * what was told, and then all that is held: the ring is too small for how seldom this is called.
 * Calls go on until RKV_EVENTS_MORE is not set, and begin again when something may have changed.
 * A call ends when records were lost again before all that is held was read: then byte_count may
 * be 0 with RKV_EVENTS_MORE, and the next call begins once more.
 *
 * An event has at most 64 blocks, and 2048 tokens unless one block has more: 64 KiB are enough for
 * pages of up to 4096 positions of text.
 *
 * @param encoder the encoder
 * @param timestamp seconds, of any clock that the subscribers have; finite
 * @param buffer receives the payload: MessagePack, docs/events.md says what of. (NULL, 0) asks how
 * much the next event needs, and takes nothing
 * @param capacity room in bytes
 * @param out_batch receives what the batch has; set its struct_size first. Also with
 * RKV_STATUS_BUFFER_TOO_SMALL
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL when there is no room for one event: nothing
 * is lost; RKV_STATUS_INVALID_STATE when the cache of the page table has no journal, behind an
 * event that what was told is gone; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY: nothing
 * is lost; RKV_STATUS_POISONED
 * @par Cost
 * O(bytes written), a SHA-256 of each page that is told; in the beginning and after a loss
 * O(pages held), for each namespace that was cleared O(pages of the page table); shared lock, in
 * slices, for what is copied of the journal
 * @par Thread safety
 * any thread, beside calls that change the cache; waits for other calls on this encoder
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_event_encoder_encode(struct rkv_event_encoder *encoder,
                                         double timestamp,
                                         uint8_t *buffer,
                                         size_t capacity,
                                         struct rkv_event_batch *out_batch);

/**
 * Has all that is held told once more, in the batches that follow: for a subscriber who comes
 * late. Before that an AllBlocksCleared comes, or with a rank BlockRemoved of what was told, for
 * routers count how often a block was stored: the others know less until it is told again.
 *
 * @param encoder the encoder
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1), and a batch that follows O(pages); no lock
 * @par Thread safety
 * any thread; waits for other calls on this encoder
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_event_encoder_repeat(struct rkv_event_encoder *encoder);

/**
 * Writes the defaults into a config.
 *
 * @param config receives the defaults
 * @param struct_size pass sizeof(rkv_tier_config)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_tier_config_init(struct rkv_tier_config *config,
                                     size_t struct_size);

/**
 * Puts host memory, and perhaps a directory and a remote store, below the pages of a cache. Pages
 * that are published are copied there, as store_after_uses says, and found again when they were
 * evicted; what the directory or the remote store has already is found at once. Nothing that
 * happens to any of them later fails a call: a page that can't be had is computed.
 *
 * The engine carries the copies out: see rkv_cache_poll(). A thread of the library follows the
 * journal, checks bytes and talks with the disk; others call the remote store.
 *
 * A directory with pages of another page_bytes, or of a group that the page table does not have,
 * is refused as one of another fingerprint is, and nothing in it changes.
 *
 * To open the directory takes out of it what disk_bytes has no room for. That stays so when the
 * attachment is refused after it: without memory or threads, and where another thread has attached
 * tiers meanwhile.
 *
 * @param cache a cache with a journal
 * @param config what to attach
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_INVALID_STATE
 * when the cache has tiers, or no journal; RKV_STATUS_UNSUPPORTED with an external pool;
 * RKV_STATUS_STORAGE when the directory cannot be used: another process or cache has it, it was
 * made by another version, or for another fingerprint or other page_bytes, or the system refuses;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(pages in the directory + page_count); reads from the disk. Blocks; other calls go on meanwhile
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_attach_tiers(struct rkv_cache *cache,
                                       const struct rkv_tier_config *config);

/**
 * Takes the tiers away from a cache, after waiting for what is being written. What was committed
 * is found when the directory is attached again, and nothing of what rkv_cache_clear() cleared,
 * whatever directories the cache had in between; host memory is given up.
 *
 * @param cache the cache
 * @param timeout_ms milliseconds to wait at most for what is being written
 * @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, or the directory cannot
 * be written and has something that was cleared: the tiers are detached, and what was not
 * committed is lost; RKV_STATUS_INVALID_STATE when there are none, or copies or fetches go on, or
 * another thread detaches them, or in a function of the remote store; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_POISONED. Unless it is refused, no copy is given out and no fetch begins from the
 * start of the call on
 * @par Cost
 * blocks for the time given, for a second at most until what was cleared is removed from the
 * directory, until requests to the disk and calls to a remote store that go on have ended, and for
 * a last commit
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_detach_tiers(struct rkv_cache *cache,
                                       uint64_t timeout_ms);

/**
 * Waits until what was copied to host memory before the call is committed in the directory, and
 * with the remote store, and what was cleared before it is gone from the directory: a crash later
 * takes nothing of it, and brings nothing back. What comes meanwhile is not waited for. Nor are
 * pages that are still to be copied: that is the engine's part, rkv_cache_poll() and
 * rkv_cache_complete().
 *
 * @param cache the cache
 * @param timeout_ms milliseconds to wait at most
 * @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, or the directory has no
 * room for something, failed since the flush before, or cannot be written any more: the cache goes
 * on, and the statistics count what is not there; RKV_STATUS_INVALID_STATE when the cache has no
 * tiers, or in a function of the remote store; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1), and what the disk takes; blocks for the time given at most; other calls go on meanwhile.
 * A remote store that three calls in a row have failed to reach is not waited for; one whose first
 * calls go on is
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_flush_tiers(struct rkv_cache *cache,
                                      uint64_t timeout_ms);

/**
 * Gives up pages of host memory and of the directory until no more bytes than these are in use;
 * ends of prefixes go before beginnings, what was used longest ago first. They may grow again, up
 * to what the config said. Slots that copies, reads and writes have are given back when those have
 * ended. The host's memory for slots stays the cache's; the directory's data file becomes shorter
 * when the removals are committed and its end is free.
 *
 * @param cache the cache
 * @param host_bytes of host memory, at most; UINT64_MAX leaves it as it is
 * @param disk_bytes of the directory, at most; UINT64_MAX leaves it as it is
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_STATE when the cache has no tiers;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(pages that go), others are let in after each; does without memory; never waits for the disk
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_shrink_tiers(struct rkv_cache *cache,
                                       uint64_t host_bytes,
                                       uint64_t disk_bytes);

/**
 * Gives copies to carry out, loads first, and the fetches that have ended: for once in each step
 * of an engine, or when its eventfd is readable. It never waits, and may be called when there is
 * nothing to do.
 *
 * The page of a copy stays what it is until rkv_cache_complete(): an eviction or a release may
 * give it up meanwhile, but nobody gets it before. Loads write to pages that only their sequence
 * has. Stores read pages that are published: begin one after what computes its page.
 *
 * @param cache the cache
 * @param jobs receives copies, and the engine has to complete each of them; may be NULL with
 * capacity 0
 * @param job_size sizeof(rkv_copy_job); not read with capacity 0
 * @param job_capacity room in copies; no more than 64 are given at once
 * @param ends receives fetches that have ended, each once; may be NULL with capacity 0: then those
 * that are there wait, without making the eventfd readable again, until they are taken or their
 * sequences have ended. The sequence of one may have been released since
 * @param end_size sizeof(rkv_fetch_end); not read with capacity 0
 * @param end_capacity room in fetches
 * @param out_result receives how many of both; set its struct_size first
 * @return RKV_STATUS_OK, also when there is nothing; RKV_STATUS_INVALID_STATE when the cache has
 * no tiers; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(copies + open fetches * their pages), and what publishing costs for fetches that end; lock for
 * moments; never waits for the disk
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_poll(struct rkv_cache *cache,
                               struct rkv_copy_job *jobs,
                               size_t job_size,
                               size_t job_capacity,
                               struct rkv_fetch_end *ends,
                               size_t end_size,
                               size_t end_capacity,
                               struct rkv_cache_poll_result *out_result);

/**
 * Says that copies are done, all bytes of them, or that they failed: what a store would have kept
 * is not found then, and what a load would have brought is computed. All or none are taken.
 *
 * @param cache the cache
 * @param jobs what rkv_copy_job names; each once
 * @param count how many
 * @param is_good false when they failed
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, also for what is no copy that goes on;
 * RKV_STATUS_INVALID_STATE when the cache has no tiers; RKV_STATUS_POISONED
 * @par Cost
 * O(count^2 + open fetches * their pages), and what publishing costs for fetches that end: so a
 * few hundred jobs a call at most; lock for a moment; never waits for the disk
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_complete(struct rkv_cache *cache,
                                   const uint64_t *jobs,
                                   size_t count,
                                   bool is_good);

/**
 * Starts to bring what the tiers have of a sequence beyond what it reuses, into its own pages. It
 * is for a sequence that has computed nothing beyond what it has published, and that has carried
 * out no copy that begin named: that copy is given up, its page is fetched whole.
 *
 * With several groups of layers it brings what the farthest end needs that every group can go on
 * from: of a window its last pages, of states one. All of that or, when something can't be had,
 * what the next end before needs. Copies that begin named stay as they are until it has come, and
 * can neither be read nor confirmed meanwhile; if none comes, they are to be carried out. A state
 * that came is a checkpoint of the cache then, which the sequence is to copy:
 * rkv_sequence_read_copies(). Where its pool has no page for that, the sequence has it alone. Rows
 * that are too short get pages for what is needed, and holes where a window has passed.
 *
 * What came is published when every byte has arrived and its checksum holds: the sequence's
 * cached_position_count grows, and others find it. Where somebody published the same meanwhile,
 * the row maps that. A second sequence with the same prefix waits for the first one's copies
 * instead of having its own. What can't be had, or doesn't come in time, is left to compute.
 *
 * @param cache the cache
 * @param sequence the sequence
 * @param deadline_ms milliseconds after which no more is brought; 0 takes only what host memory
 * has, UINT64_MAX is no deadline but remote_timeout_ms. Copies that the engine was given are still
 * waited for
 * @param flags 0 or RKV_FETCH_LOOK_ONLY
 * @param out_fetch receives what there is; set its struct_size first
 * @return RKV_STATUS_OK, also when there is nothing; RKV_STATUS_PENDING when a fetch of the
 * sequence is open; RKV_STATUS_INVALID_STATE when the cache has no tiers, or another thread
 * changed the sequence during the call; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(pages that the tiers have + 1), of a fetch 64 at most: a SHA-256 of each, 64 at a time with
 * the shared lock; what is behind those the tiers' thread looks for. With several groups
 * O(pages that the device or the tiers have + 1) * groups, with the same bound; with a remote
 * store O(pages that the device doesn't have). Lock for a moment; never waits for the disk or
 * the store. Nothing when the device has the whole pages of the prompt
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_fetch(struct rkv_cache *cache,
                                   rkv_sequence_id sequence,
                                   uint64_t deadline_ms,
                                   uint32_t flags,
                                   struct rkv_sequence_fetch_result *out_fetch);

/**
 * Makes a sequence reuse no more than all ranks can: the least of what rkv_fetch_end or, where
 * nothing was fetched, rkv_sequence_info says on each. With RKV_TIERS_AGREE a fetch ends by this,
 * and nothing of it is used or found before. What the device has beyond is computed again.
 *
 * A rank may end up with less, where its pages or an image don't end there: then all ranks agree
 * once more, on the least of what came out. With several groups of layers a rank that fetched more
 * has to bring what that end needs first: RKV_STATUS_PENDING, and another rkv_fetch_end says how
 * far it got. What the device has of a window or of states may end before, too.
 *
 * With several groups it lets waiting threads in while pages take each other's places. To them the
 * sequence is as while a fetch of it is open: calls return RKV_STATUS_PENDING, see
 * rkv_sequence_fetch_result.is_open, or end it, and then this returns RKV_STATUS_STALE_SEQUENCE.
 *
 * @param cache the cache
 * @param sequence a sequence that has computed nothing
 * @param position_count positions that it may reuse at most
 * @param out_position_count receives those that it reuses now
 * @return RKV_STATUS_OK; RKV_STATUS_PENDING while its fetch goes on, or goes on again: agree when
 * that has ended; RKV_STATUS_OUT_OF_PAGES when there are none for what is to be computed again,
 * and nothing changed, but that with several groups of layers a fetch that waited for this has
 * ended: agree again when there are some; RKV_STATUS_INVALID_STATE when the cache has no tiers,
 * the sequence has computed, or copies are not confirmed: a checkpoint of it, or of its state to a
 * child; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_POISONED
 * @par Cost
 * what publishing costs, and O(pages to be computed again + evictions); lock, in slices
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_sequence_agree(struct rkv_cache *cache,
                                   rkv_sequence_id sequence,
                                   uint64_t position_count,
                                   uint64_t *out_position_count);

/**
 * Starts to bring what the tiers have of a prompt to host memory, before a sequence begins with
 * it: of a request that waits for its turn, or of a session that is expected. Whoever begins with
 * the prompt later fetches it from there, with deadline 0 if it likes; one that begins earlier
 * waits for the same reads.
 *
 * It is a hint. It takes no page of the device, evicts nothing there, and does nothing for what
 * the device has. Fetches go first: while one waits for the disk or the remote store, nothing is
 * begun for a prefetch. Prefetches that are open have a half of the slots of each pool at most;
 * for them go pages that stores would take the place of too, never one that is being copied, read
 * or written. What came stays there as what was used last, and nobody has to give it back. No
 * event says that it has ended; asking again with RKV_FETCH_LOOK_ONLY says what is there.
 *
 * @param cache the cache
 * @param space the namespace; NULL for the default one
 * @param tokens the prompt, or as much of it as is known. Not used after the call
 * @param deadline_ms milliseconds after which no more is brought; UINT64_MAX is no deadline but
 * remote_timeout_ms, 0 brings nothing
 * @param flags 0, or RKV_FETCH_LOOK_ONLY to say what there is and bring nothing
 * @param out_prefetch receives what there is; set its struct_size first
 * @return RKV_STATUS_OK, also when there is nothing, or no room beside other prefetches:
 * refused_prefetch_count of rkv_tier_stats; RKV_STATUS_INVALID_STATE when the cache has no tiers;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * what rkv_cache_match() costs, with the shared lock, and O(pages that the tiers have + 1), a
 * SHA-256 of each, without it; with a remote store O(pages that the device doesn't have). Never
 * waits for the disk or the store
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_prefetch(struct rkv_cache *cache,
                                   const struct rkv_namespace *space,
                                   const struct rkv_tokens *tokens,
                                   uint64_t deadline_ms,
                                   uint32_t flags,
                                   struct rkv_cache_prefetch_result *out_prefetch);

/**
 * Gives a prefetch up. What it brought stays in host memory until that needs the room, and what
 * the disk or the remote store is reading still comes.
 *
 * @param cache the cache
 * @param prefetch from rkv_cache_prefetch(); one that has ended is not missed
 * @return RKV_STATUS_OK, also for the number of a fetch, which goes on;
 * RKV_STATUS_INVALID_ARGUMENT, also for a number that was never given to either;
 * RKV_STATUS_INVALID_STATE when the cache has no tiers; RKV_STATUS_POISONED
 * @par Cost
 * O(its pages); no lock of the cache; never waits for the disk or the store
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_cancel_prefetch(struct rkv_cache *cache,
                                          rkv_prefetch_id prefetch);

/**
 * Counters of what lies below the pages of a cache. All zero when nothing does.
 *
 * @param cache the cache
 * @param out_stats receives the numbers; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); shared lock for a moment; never waits for the disk
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_cache_read_tier_stats(const struct rkv_cache *cache,
                                          struct rkv_tier_stats *out_stats);

/**
 * Writes the defaults into a config.
 *
 * @param config receives the defaults
 * @param struct_size pass sizeof(rkv_snapshot_cache_config)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_config_init(struct rkv_snapshot_cache_config *config,
                                               size_t struct_size);

/**
 * Creates an empty snapshot cache.
 *
 * @param config how to build it; NULL takes the defaults
 * @param out_cache receives the cache, owned by the caller
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_OUT_OF_MEMORY;
 * RKV_STATUS_INVALID_STATE when no ids are left: 65535 caches exist in the process, each rkv_cache
 * counted as one, each snapshot cache with something attached as two, or those that are gone have
 * used them up
 * @par Cost
 * O(1); no lock; the first call of a process as rkv_page_table_create()
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_create(const struct rkv_snapshot_cache_config *config,
                                          struct rkv_snapshot_cache **out_cache);

/**
 * Destroys a snapshot cache and every snapshot that nobody reads. NULL is allowed and does
 * nothing.
 *
 * A directory below memory is detached as by rkv_snapshot_cache_detach() with a time of 0: what
 * its last commit has is found when it is attached again.
 * Snapshots that are pinned stay as they are until their pins are released, and so does the cache
 * behind the handle: releasing those pins is the only call that is still allowed on it, and the
 * last release ends both.
 *
 * @param cache the cache
 * @par Cost
 * O(entries); its own lock. With something attached it blocks until requests to the disk and calls
 * to a remote store that go on have ended, and for a last commit
 * @par Thread safety
 * the caller must be the last user of this handle, but for threads that release pins
 */
RKV_API void rkv_snapshot_cache_destroy(struct rkv_snapshot_cache *cache);

/**
 * Removes every entry, in memory and below. Snapshots that are pinned stay until their pins are
 * released, the others are destroyed before the call returns. In a directory they are gone, so
 * that no crash brings them back, when rkv_snapshot_cache_flush() has returned RKV_STATUS_OK after
 * that. A directory that is not attached keeps what it has, for when it is attached again: where
 * weights change with the same fingerprint and epoch, clear before rkv_snapshot_cache_detach().
 *
 * @param cache the cache
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(entries); its own lock
 * @par Thread safety
 * any thread
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_snapshot_cache_clear(struct rkv_snapshot_cache *cache);

/**
 * Counters of a snapshot cache, at one moment.
 *
 * @param cache the cache
 * @param out_stats receives the numbers; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1); its own shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_read_stats(const struct rkv_snapshot_cache *cache,
                                              struct rkv_snapshot_cache_stats *out_stats);

/**
 * Checks every invariant of a snapshot cache: structure, order, pins, counts, limits. Cost: one
 * pass over it. For tests and debug builds of an engine.
 *
 * @param cache the cache
 * @return RKV_STATUS_OK; RKV_STATUS_CORRUPT with the first invariant that is broken, by name;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(everything in it); its own lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_check(const struct rkv_snapshot_cache *cache);

#if defined(RKV_FAULT_INJECTION)
/**
 * Panics inside the library while the handle is in use. Only in builds with the fault-injection
 * feature, for tests.
 *
 * @param cache the cache
 * @return RKV_STATUS_INTERNAL, and the cache is poisoned
 * @par Cost
 * O(1); its own lock
 * @par Thread safety
 * any thread
 */
RKV_API RKV_MUST_CHECK enum rkv_status rkv_fault_panic_snapshot(struct rkv_snapshot_cache *cache);
#endif

/**
 * Stores a snapshot for a token list, in the place of an earlier one if there is one.
 *
 * The cache takes the snapshot over and destroys it when it goes: for the limits, least recently
 * used first, when it is replaced or removed, with the cache. Who has it pinned keeps it until the
 * release. With a directory below memory the same holds there, and what has
 * RKV_SNAPSHOT_INSERT_STORABLE is written to it. A snapshot that is larger than the byte limit,
 * one for no tokens, and any in a disabled cache is not stored: it is destroyed before the call
 * returns, nothing else changes, and that is no error. The new entry itself never goes for the
 * limits in this call: when all others are pinned, the cache is over them until a release.
 *
 * @param cache the cache
 * @param args what to insert
 * @param out_result receives what was done; set its struct_size first; may be NULL
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for an id that is not below
 * RKV_TEXT_ID_LIMIT, or for items; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. With anything
 * but RKV_STATUS_OK the snapshot stays the caller's, its destructor is not called, and nothing
 * changed.
 * @par Cost
 * O(tokens), and for each snapshot that goes its destructor, without a lock; its own lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_insert(struct rkv_snapshot_cache *cache,
                                          const struct rkv_snapshot_cache_insert_args *args,
                                          struct rkv_snapshot_cache_insert_result *out_result);

/**
 * Finds the snapshot of the longest stored prefix and pins it: it stays as it is, and is not
 * destroyed, until the pin is released. The entry is in use from now until then.
 *
 * With RKV_SNAPSHOT_MATCH_TRIMMABLE it finds the snapshot with most tokens in common, in which
 * trimmable entries count with any number of their first tokens, and others only as a whole. Of
 * several it is one that ends with these tokens, if there is one, else one of which no other is a
 * prefix.
 *
 * @param cache the cache
 * @param space the namespace; NULL for the default one
 * @param tokens what to look for: text only; ids of RKV_TEXT_ID_LIMIT and above match nothing
 * @param flags 0 or RKV_SNAPSHOT_MATCH_TRIMMABLE
 * @param out_match receives the match; set its struct_size first
 * @return RKV_STATUS_OK, also when nothing matched; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_INVALID_STATE when 2^24 pins are out; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens); its own shared lock, to pin a few steps under its own lock. Trimmable: and one step
 * for each node from where the tokens part to the entry
 * @par Thread safety
 * any thread; any number compare tokens at once
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_match(struct rkv_snapshot_cache *cache,
                                         const struct rkv_namespace *space,
                                         const struct rkv_tokens *tokens,
                                         uint32_t flags,
                                         struct rkv_snapshot_cache_match_result *out_match);

/**
 * Length of the longest stored prefix, as rkv_snapshot_cache_match() without flags finds it.
 * Changes nothing: no pin, no recency, no count.
 *
 * @param cache the cache
 * @param space the namespace; NULL for the default one
 * @param tokens what to look for: text only
 * @param out_token_count receives the number of its tokens
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens); its own shared lock
 * @par Thread safety
 * any thread, any number at once
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_probe(const struct rkv_snapshot_cache *cache,
                                         const struct rkv_namespace *space,
                                         const struct rkv_tokens *tokens,
                                         size_t *out_token_count);

/**
 * Ends a pin. With the last pin on a snapshot the entry was used until now; a snapshot that has
 * no entry any more is destroyed before the call returns, and so are entries that must go for the
 * limits.
 *
 * @param cache the cache, which may be destroyed already
 * @param pin a pin from rkv_snapshot_cache_match()
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_PIN when it was released already, or is of another
 * cache; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(1), and for each snapshot that goes its destructor, without a lock; its own lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_release(struct rkv_snapshot_cache *cache,
                                           rkv_pin_id pin);

/**
 * Removes the entry of exactly these tokens, in memory and below. Its snapshot is destroyed before
 * the call returns, or with its last pin.
 *
 * @param cache the cache
 * @param space the namespace; NULL for the default one
 * @param tokens the tokens of the entry: text only
 * @param out_removed receives whether there was one; may be NULL
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens); its own lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_remove(struct rkv_snapshot_cache *cache,
                                          const struct rkv_namespace *space,
                                          const struct rkv_tokens *tokens,
                                          bool *out_removed);

/**
 * Starts to bring the longest prefix below memory into it, if it is longer than what memory has,
 * or to ask the remote store whether it has one; with RKV_SNAPSHOT_MATCH_TRIMMABLE what has most
 * tokens in common, if they are more. Who asks for what is on its way already joins that fetch,
 * with a ticket of its own.
 *
 * What was read becomes an entry of the cache when every byte has arrived and its checksum holds,
 * and counts in the byte limit from then on; before, fetches together take no more than the byte
 * limit. Nothing is fetched twice that failed.
 *
 * @param cache the cache
 * @param space the namespace; NULL for the default one
 * @param tokens what to look for: text only
 * @param flags 0 or RKV_SNAPSHOT_MATCH_TRIMMABLE, as for rkv_snapshot_cache_match()
 * @param out_fetch receives the fetch; set its struct_size first
 * @return RKV_STATUS_OK, also when there is nothing to fetch; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_INVALID_STATE when 2^24 tickets are out;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(tokens), and memory for the snapshot; with a remote store a SHA-256 of each 64 tokens. Its own
 * lock; never waits for the disk or the store
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_fetch(struct rkv_snapshot_cache *cache,
                                         const struct rkv_namespace *space,
                                         const struct rkv_tokens *tokens,
                                         uint32_t flags,
                                         struct rkv_snapshot_cache_fetch_result *out_fetch);

/**
 * Takes what a fetch has brought: the snapshot is pinned, as rkv_snapshot_cache_match() would. It
 * never waits; ask again, or sleep on the eventfd of the config.
 *
 * @param cache the cache
 * @param ticket from rkv_snapshot_cache_fetch()
 * @param out_match receives the match, whose full_hit says nothing and is 0; all zero when the
 * fetch failed, or the entry was removed meanwhile. Set its struct_size first
 * @return RKV_STATUS_OK, and the ticket has ended; RKV_STATUS_PENDING when it goes on;
 * RKV_STATUS_STALE_TICKET; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY and
 * RKV_STATUS_INVALID_STATE (2^24 pins are out): the ticket is still good; RKV_STATUS_POISONED
 * @par Cost
 * O(tokens); its own lock; never waits for the disk or the store
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_take(struct rkv_snapshot_cache *cache,
                                        rkv_ticket_id ticket,
                                        struct rkv_snapshot_cache_match_result *out_match);

/**
 * Gives a fetch up. What is still read is thrown away when it arrives, unless others wait for it.
 *
 * @param cache the cache
 * @param ticket from rkv_snapshot_cache_fetch()
 * @return RKV_STATUS_OK; RKV_STATUS_STALE_TICKET; RKV_STATUS_INVALID_ARGUMENT;
 * RKV_STATUS_POISONED
 * @par Cost
 * O(1); its own lock; never waits for the disk or the store
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_cancel(struct rkv_snapshot_cache *cache,
                                          rkv_ticket_id ticket);

/**
 * Lists the parts of a pinned snapshot, as its insert was given them: those of a copy lie in
 * memory of the cache, each at a multiple of 16, and are good until the pin is released.
 *
 * @param cache the cache
 * @param pin a pin of this cache
 * @param parts receives the parts; (NULL, 0) asks for their number
 * @param part_size sizeof(rkv_snapshot_part)
 * @param capacity room in parts
 * @param out_count receives the number of parts; 0 for a snapshot that may not be written
 * @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_STALE_PIN;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(parts); its own shared lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_read_parts(const struct rkv_snapshot_cache *cache,
                                              rkv_pin_id pin,
                                              struct rkv_snapshot_part *parts,
                                              size_t part_size,
                                              size_t capacity,
                                              size_t *out_count);

/**
 * Writes the defaults into a config.
 *
 * @param config receives the defaults
 * @param struct_size pass sizeof(rkv_snapshot_tier_config)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_tier_config_init(struct rkv_snapshot_tier_config *config,
                                              size_t struct_size);

/**
 * Puts a directory, a store that caches share, or both below the memory of a cache. Snapshots with
 * RKV_SNAPSHOT_INSERT_STORABLE are written to them from now on; those that are in the directory
 * already are found at once.
 *
 * Of a remote store nobody knows what it has: rkv_snapshot_cache_match() says nothing of it, and
 * rkv_snapshot_cache_fetch() asks it for more tokens than memory and the directory have, so call
 * that wherever a match is less than the prompt. What it brings is in memory then, and in the
 * directory when write_after_matches says so. Found are prefixes alone, also with
 * RKV_SNAPSHOT_MATCH_TRIMMABLE. A server that is slow or dead, or has other bytes than were
 * written, costs a hit: rkv_remote_totals says what happened. rkv_snapshot_cache_remove() takes a
 * snapshot away there too, when a thread comes to it; after rkv_snapshot_cache_clear() the store
 * is left alone, since others fill it: attach anew, with another fingerprint, or use another
 * epoch.
 *
 * Attach before the first insert: what memory has already is not compared with what the directory
 * has for the same tokens. Nothing that happens to the disk later fails a call on the cache: a
 * snapshot that cannot be written or read is not found, and counted.
 *
 * @param cache the cache
 * @param config what to attach
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_INVALID_STATE
 * when something is attached already, or no ids are left for tickets, see
 * rkv_snapshot_cache_create(); RKV_STATUS_STORAGE when the directory can't be used: another
 * process or cache has it, it was made by another version or for another fingerprint, or the
 * system refuses; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
 * @par Cost
 * O(snapshots in the directory); reads from the disk. Blocks; other calls go on meanwhile
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_attach(struct rkv_snapshot_cache *cache,
                                          const struct rkv_snapshot_tier_config *config);

/**
 * Takes directory and remote store away from a cache, after waiting for what is being written.
 * A last commit has what is written by then: that is found when they are attached again. Snapshots
 * in memory stay, copies too.
 * Tickets that are out are stale from now on. What another thread attaches meanwhile, after it
 * detached this, stays.
 *
 * @param cache the cache
 * @param timeout_ms milliseconds to wait at most for what is being written
 * @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, or for one of the other
 * reasons of rkv_snapshot_cache_flush(): they are detached; what the last commit lacks is lost;
 * RKV_STATUS_INVALID_STATE when nothing is attached, or in a function of the remote store;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(snapshots in the directory); blocks for the time given, until requests to the disk and calls
 * to a remote store that go on have ended, and for a last commit
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_detach(struct rkv_snapshot_cache *cache,
                                          uint64_t timeout_ms);

/**
 * Waits until everything that is being written is committed: after a crash it is there. And until
 * what was removed, replaced or cleared is gone: after a crash it is not there.
 *
 * @param cache the cache
 * @param timeout_ms milliseconds to wait at most
 * @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, the directory has no
 * room for something that is still in memory, a write failed since the flush before, the directory
 * cannot be written and has something that was removed or cleared, the remote store does not
 * answer, or refuses, and has something that was removed, or another thread detached it meanwhile;
 * RKV_STATUS_INVALID_STATE when nothing is attached, or in a function of the remote store;
 * RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * blocks for the time given at most; other calls go on meanwhile
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_flush(struct rkv_snapshot_cache *cache,
                                         uint64_t timeout_ms);

/**
 * Counters of what is below memory. All zero when nothing is. Of the remote store,
 * fetched_page_count counts the snapshots that it brought, and dropped_page_count how often one
 * was not given to it because too much waited, or it has more than 124 parts.
 *
 * @param cache the cache
 * @param out_stats receives the numbers; set its struct_size first
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
 * @par Cost
 * O(writes that go on); its own lock; never waits for the disk
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
enum rkv_status rkv_snapshot_cache_read_tier_stats(struct rkv_snapshot_cache *cache,
                                                   struct rkv_snapshot_tier_stats *out_stats);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RADIXKV_H */
