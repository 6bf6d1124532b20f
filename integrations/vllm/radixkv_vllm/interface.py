"""Whether the installed vLLM is one that this was written for.

vLLM's scheduler is no public interface: it may change with each release. What is replaced is
compared with what it was, and what the scheduler calls with what there is, before anything runs.
"""

import inspect
import re
from collections.abc import Iterator

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core import kv_cache_manager
from vllm.v1.core.sched import async_scheduler, scheduler
from vllm.v1.request import Request

#: Parameters of vLLM's manager that the scheduler passes, by the method.
METHODS = {
    "allocate_slots": "request num_new_tokens num_new_computed_tokens new_computed_blocks "
    "num_lookahead_tokens num_external_computed_tokens delay_cache_blocks num_encoder_tokens "
    "full_sequence_must_fit reserved_blocks has_scheduled_reqs skip_zeroing_group_ids",
    "cache_blocks": "request num_computed_tokens",
    "estimate_cached_tokens": "request",
    "free": "request",
    "get_blocks": "request_id",
    "get_computed_blocks": "request",
    "make_prefix_cache_stats": "",
    "new_step_starts": "",
    "record_prefix_cache_stats": "request num_hits",
    "reset_prefix_cache": "",
    "take_boundary_state_offloads": "",
    "take_events": "",
    "take_kv_cache_block_copies": "",
    "take_new_block_ids": "",
}

#: Attributes that it reads.
ATTRIBUTES = {"coordinator", "empty_kv_cache_blocks", "usage"}

#: What it uses for connectors, hybrid models and the like alone, which `limits` refuses.
UNUSED = {
    "block_pool",
    "evict_blocks",
    "finalize_partial_tail_offloads",
    "get_block_ids",
    "get_block_ids_for_computed_tokens",
    "get_computed_blocks_for_connector",
    "mamba_shared_prefix_checkpoint",
    "pop_blocks_for_free",
    "record_blocks_for_zeroing",
    "remove_skipped_blocks",
    "truncate_computed_blocks",
}

#: What a request is asked for.
REQUEST = {
    "all_token_ids",
    "block_hashes",
    "cache_salt",
    "lora_request",
    "max_tokens",
    "mm_features",
    "num_computed_tokens",
    "num_in_flight_tokens",
    "num_output_placeholders",
    "num_preemptions",
    "num_tokens",
    "prompt_embeds",
    "prompt_token_ids",
    "request_id",
    "session_id",
    "skip_reading_prefix_cache",
    "status",
}

#: Fields of the events that are made.
EVENTS = {
    BlockStored: "block_hashes parent_block_hash token_ids block_size lora_id medium lora_name "
    "extra_keys group_idx kv_cache_spec_kind kv_cache_spec_sliding_window session_id",
    BlockRemoved: "block_hashes medium group_idx",
    AllBlocksCleared: "",
}


class InterfaceChanged(RuntimeError):
    """The installed vLLM is not one that this was written for."""


def check() -> None:
    """Raises InterfaceChanged with all differences."""
    if differences := list(_differences()):
        raise InterfaceChanged(
            "radixkv_vllm was written for vLLM 0.32, and the installed one differs: "
            + "; ".join(differences)
        )


def _differences() -> Iterator[str]:
    theirs = kv_cache_manager.KVCacheManager
    for name, expected in METHODS.items():
        method = getattr(theirs, name, None)
        if method is None:
            yield f"KVCacheManager.{name}() is gone"
            continue
        found = " ".join(list(inspect.signature(method).parameters)[1:])
        if found != expected:
            yield f"KVCacheManager.{name}() takes ({found}), not ({expected})"
    used: set[str] = set()
    for module in (scheduler, async_scheduler):
        used.update(re.findall(r"\bkv_cache_manager\.(\w+)", inspect.getsource(module)))
    used -= {"KVCacheManager", "KVCacheBlocks"}  # imported from the module of that name
    for name in sorted(used - METHODS.keys() - ATTRIBUTES - UNUSED):
        yield f"the scheduler uses kv_cache_manager.{name}, which is new"
    source = inspect.getsource(Request)
    for name in sorted(REQUEST):
        if not re.search(rf"self\.{name}\b|def {name}\b", source):
            yield f"Request.{name} is gone"
    for event, expected in EVENTS.items():
        if missing := set(expected.split()) - set(event.__struct_fields__):
            yield f"{event.__name__} has no {', '.join(sorted(missing))}"
