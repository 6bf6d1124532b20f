"""Whether the installed SGLang is one that this was written for.

The interface of its caches changes with its releases. What the cache replaces, and what it uses, is
compared with what it was, before anything runs.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from .errors import InterfaceChanged

#: The release that this was written for and tried with.
SGLANG = "0.5.23"

#: What is imported, by module. Nothing of it is before it was looked for.
IMPORTED = {
    "srt.disaggregation.kv_events": """BlockRemoved BlockStored KVCacheEvent StorageMedium
        kv_event_namespace_seed namespaced_block_hash""",
    "srt.environ": "envs",
    "srt.managers.schedule_batch": "Req ReqKvInfo",
    "srt.mem_cache.allocator": "BaseTokenToKVPoolAllocator",
    "srt.mem_cache.allocator.mamba": "MambaSlotAllocator",
    "srt.mem_cache.allocator.paged": "PagedTokenToKVPoolAllocator",
    "srt.mem_cache.allocator.swa": "SWATokenToKVPoolAllocator",
    "srt.mem_cache.allocator.token": "TokenToKVPoolAllocator",
    "srt.mem_cache.base_prefix_cache": """BasePrefixCache DecLockRefParams DecLockRefResult
        EvictParams EvictResult IncLockRefResult InsertParams InsertResult MatchPrefixParams
        MatchResult TreeLock""",
    "srt.mem_cache.cache_init_params": "CacheInitParams",
    "srt.mem_cache.common": "coalesce_ranges",
    "srt.mem_cache.events": "KVCacheEventRecorder",
    "srt.mem_cache.memory_pool": "HybridReqToTokenPool MambaPool ReqToTokenPool",
    "srt.mem_cache.radix_cache": "RadixKey",
    "srt.mem_cache.utils": "get_hash_str hash_str_to_int64",
    "srt.runtime_context": """get_disagg get_exec get_memory get_observability get_serving
        get_spec mamba_checkpoint_grid""",
    "version": "__version__",
}

#: Methods of BasePrefixCache which the cache has a version of its own of, with their parameters.
REPLACED = {
    "available_and_evictable_str": "",
    "checkpoint": "req up_to kwargs",
    "dec_lock_ref": "node params",
    "dfs_weight_order": "node_handles",
    "evict": "params",
    "evict_for_alloc": "params allocation_reclaim_satisfied",
    "evictable_size": "",
    "free_kv_row": "kv ranges",
    "full_evictable_size": "",
    "full_protected_size": "",
    "inc_lock_ref": "node",
    "lock": "node",
    "match_prefix": "params",
    "on_release": "req checkpointed",
    "path_device_indices": "node",
    "prefix_device_indices": "req",
    "pretty_print": "",
    "protected_size": "",
    "reset": "",
    "root_node_handle": "extra_key",
    "supports_mamba": "",
    "supports_prefix_sharing": "",
    "supports_swa": "",
    "swa_evictable_size": "",
    "swa_protected_size": "",
    "take_events": "",
    "total_size": "",
    "touch_prefix": "key",
    "unlock": "lock",
}

#: Those that are right as they are: most say that there is no host tier and no session.
INHERITED = set(
    """check_hicache_events claim_kv_row
    discard_storage_prefetch_accounting evict_sliding_windows finish
    finish_storage_prefetch_admission flush_pending_backups init_load_back
    init_metrics_collector load_back_is_cache_owned maybe_hand_to_session
    pop_prefetch_loaded_span ready_to_load_host_cache release_aborted_request
    release_host_resources release_radix_session release_session resolve_node_handle
    rotation_base_of session_records supports_auxiliary_swa supports_fast_match_prefix
    swa_reprefill_tail_tokens swa_retain_floor swa_transient_size
    update_eviction_metrics waiting_storage_span""".split()
)

#: Fields of the structs that pass, all of them: a new one may ask for something.
FIELDS = {
    "MatchPrefixParams": "key cow_mamba req",
    "MatchResult": """device_prefix_len last_device_node last_host_node best_match_node
        host_hit_length swa_host_hit_length swa_branching_seqlen mamba_host_hit_length
        mamba_branching_seqlen cache_protected_len full_kv_hit_length cache_actions
        last_visited_node_id full_device_match_len""",
    "EvictParams": "num_tokens swa_num_tokens mamba_num",
    "EvictResult": "num_tokens_evicted swa_num_tokens_evicted mamba_num_evicted",
    "TreeLock": "node receipt swa_released",
    "RadixKey": "token_ids extra_key cache_salt is_bigram limit",
    "CacheInitParams": """disable req_to_token_pool token_to_kv_pool_allocator page_size is_eagle
        tp_cache_group attn_cp_cache_group attn_tp_cache_group pp_cache_group eviction_policy
        eviction_policy_config enable_metrics enable_kv_cache_events dynamo_kv_event_format
        kv_event_lora_names enable_session_radix_cache enable_mamba_extra_buffer
        enable_mamba_extra_buffer_lazy pp_rank pp_size attn_cp_rank attn_cp_size
        chunked_prefill_size sliding_window_size swa_gates_prefix_match decoder_swa_bounded_replay
        draft_swa_window tree_components component_registry_override tree_core_backend
        mtp_draft_device_pools sidecar_draft_device_pools mtp_draft_mamba_pools""",
    "BlockStored": """block_hashes parent_block_hash token_ids block_size lora_id medium
        cache_salt session_id lora_name""",
    "BlockRemoved": "block_hashes medium",
}

#: What is asked of a request, of its KV record, of the row pool and of the allocator.
USED = {
    "Req": """finished full_untruncated_fill_ids extra_key cache_salt session_id kv lock last_node
        prefix_len""",
    "ReqKvInfo": """req_pool_idx cache_protected_len cache_inserted_len kv_allocated_len
        holds_mamba mamba_pool_idx
        mamba_cow_src_index mamba_needs_clear mamba_last_track_seqlen mamba_prev_track_seqlen
        mamba_ping_pong_track_buffer""",
    "ReqToTokenPool": "req_to_token write",
    "HybridReqToTokenPool": """mamba_allocator mamba_pool mamba_ckpt_pool free_mamba_cache
        donate_mamba_ping_pong_slot get_mamba_ping_pong_keep_idx get_mamba_ping_pong_other_idx
        mamba_ping_pong_track_buffer_size""",
    "MambaSlotAllocator": "size alloc free available_size",
    "MambaPool": "copy_from replayssm_write_pos",
    "BaseTokenToKVPoolAllocator": "size page_size device available_size",
    "PagedTokenToKVPoolAllocator": "free_page_ids",
    "TokenToKVPoolAllocator": "free_page_ids",
    "SWATokenToKVPoolAllocator": """clear_full_to_swa_mapping free_group full_attn_allocator
        full_to_swa_index_mapping set_full_to_swa_mapping size_full size_swa swa_attn_allocator
        swa_page_ids_group full_available_size swa_available_size""",
}


def check() -> None:
    """Raises InterfaceChanged with every difference."""
    found: dict[str, Any] = {}
    if changes := [*_lacking(found), *_changes(found)]:
        version = found.get("__version__", "another one")
        raise InterfaceChanged(
            f"radixkv_sglang was written for SGLang {SGLANG}, and {version} differs: "
            + "; ".join(changes)
        )


def _lacking(found: dict[str, Any]) -> Iterator[str]:
    """What can't be imported; the rest goes into `found` by its name."""
    for module, names in IMPORTED.items():
        try:
            imported = importlib.import_module(f"sglang.{module}")
        except ImportError as error:
            yield f"there is no sglang.{module} to import ({error})"
            continue
        for name in names.split():
            if hasattr(imported, name):
                found[name] = getattr(imported, name)
            else:
                yield f"sglang.{module} has no {name}"


def _changes(found: dict[str, Any]) -> Iterator[str]:
    if base := found.get("BasePrefixCache"):
        yield from _methods(base)
    for name, expected in FIELDS.items():
        if name in found and (fields := _fields(found[name])) != (wanted := set(expected.split())):
            differing = ", ".join(sorted(fields ^ wanted))
            yield f"{name} differs in {differing}"
    for name, attributes in USED.items():
        if kind := found.get(name):
            known = _fields(kind) | set(dir(kind)) | _assigned(kind)
            for attribute in attributes.split():
                if attribute not in known:
                    yield f"{name} has no {attribute}"


def _methods(base: type) -> Iterator[str]:
    methods = {
        name: value
        for name, value in vars(base).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    for name in sorted(methods.keys() - REPLACED.keys() - INHERITED):
        yield f"BasePrefixCache has a new method {name}()"
    for name in sorted((REPLACED.keys() | INHERITED) - methods.keys()):
        yield f"BasePrefixCache has no method {name}() any more"
    for name in sorted(REPLACED.keys() & methods.keys()):
        parameters = " ".join(list(inspect.signature(methods[name]).parameters)[1:])
        if parameters != REPLACED[name]:
            yield f"{name}() takes ({parameters}), not ({REPLACED[name]})"


def _fields(kind: type) -> set[str]:
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    names: Any = getattr(kind, "_fields", None) or getattr(kind, "__struct_fields__", None)
    return set(names or getattr(kind, "__slots__", ()))


def _assigned(kind: type) -> set[str]:
    """Attributes that the constructor sets, or what it calls for the states."""
    made_by = (vars(kind).get(name) for name in ("__init__", "_init_mamba_pool"))
    codes = (getattr(method, "__code__", None) for method in made_by)
    return {name for code in codes if code for name in code.co_names}
