// The kernels that need no head dim when compiled.
#include "merge.cuh"
#include "pages.cuh"

using namespace rkv;

#define RKV_MERGE(name, Arguments, blocks, call) \
    RKV_KERNEL(name, Arguments, kMergeThreads, blocks) { call(arguments); } \
    RKV_LIST_KERNEL(name, Arguments, kMergeThreads, kMergeSharedBytes)
#define RKV_SIMPLE(name, Arguments, threads, call) \
    RKV_KERNEL(name, Arguments, threads, 1) { call(arguments); } \
    RKV_LIST_KERNEL(name, Arguments, threads, 0)

RKV_MERGE(rkv_merge_partials_bf16, MergeArguments, 6, merge_partials<Bf16>)
RKV_MERGE(rkv_merge_partials_f16, MergeArguments, 6, merge_partials<F16>)
RKV_MERGE(rkv_merge_states_bf16, MergeStatesArguments, 6, merge_states<Bf16>)
RKV_MERGE(rkv_merge_states_f16, MergeStatesArguments, 6, merge_states<F16>)
#define RKV_KV_WRITE(name, ...) \
    RKV_KERNEL(name, KvWriteArguments, kCopyThreads, 1) { kv_write<__VA_ARGS__>(arguments); } \
    RKV_LIST_KERNEL(name, KvWriteArguments, kCopyThreads, 0)
RKV_KV_WRITE(rkv_kv_write_bf16_16bit, Bf16, Bf16)
RKV_KV_WRITE(rkv_kv_write_f16_16bit, F16, F16)
RKV_KV_WRITE(rkv_kv_write_bf16_e4m3, Bf16, E4M3)
RKV_KV_WRITE(rkv_kv_write_f16_e4m3, F16, E4M3)
RKV_SIMPLE(rkv_page_copy, PageCopyArguments, kCopyThreads, move_pages<Move::kCopy>)
RKV_SIMPLE(rkv_page_gather, PageCopyArguments, kCopyThreads, move_pages<Move::kGather>)
RKV_SIMPLE(rkv_page_scatter, PageCopyArguments, kCopyThreads, move_pages<Move::kScatter>)
RKV_SIMPLE(rkv_move_positions, PositionMoveArguments, kCopyThreads, move_positions)
RKV_SIMPLE(rkv_update_mirror, MirrorArguments, kCopyThreads, update_mirror)
