"""What is not covered is refused when the engine starts, in a sentence."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sglang.srt.mem_cache.allocator.mamba import MambaSlotAllocator
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool
from sglang.srt.runtime_context import (
    get_disagg,
    get_exec,
    get_memory,
    get_observability,
    get_serving,
    get_spec,
)

from .errors import NotCovered

if TYPE_CHECKING:
    from sglang.srt.mem_cache.registry import TreeCacheBuildContext


#: What a cache counts at most, see rkv_cache_config.checkpoint_limit; without a limit, any number.
STATES_OF_A_PATH = 512


def check(context: "TreeCacheBuildContext") -> None:
    """Raises NotCovered with everything that stands against the engine's configuration."""
    if reasons := list(_reasons(context)):
        raise NotCovered("radixkv_sglang does not cover this engine: " + "; ".join(reasons))


def _reasons(context: "TreeCacheBuildContext") -> Iterator[str]:
    params, memory = context.params, get_memory()
    if context.is_hybrid_swa:
        yield from _of_windows(context)
    if context.is_hybrid_ssm:
        yield from _of_states(context)
    if context.model_config.is_multimodal:
        yield "its prompts may have images, whose places have ids of 62 bits (--enable-multimodal)"
    if context.enable_hierarchical_cache:
        yield "it has a tier in host memory (--enable-hierarchical-cache)"
    for flag in ("enable_lmcache", "enable_flexkv", "enable_unified_cache_external_linker"):
        if getattr(memory, flag):
            yield f"it fetches KV from elsewhere (--{flag.replace('_', '-')})"
    if get_disagg().disaggregation_mode != "null":
        yield "it computes prefill and decode on different servers (--disaggregation-mode)"
    if params.is_eagle or get_spec().speculative_algorithm is not None:
        yield "it decodes speculatively (--speculative-algorithm)"
    if get_exec().dllm.dllm_algorithm is not None:
        yield "its model is a diffusion language model (--dllm-algorithm)"
    if params.enable_session_radix_cache or get_serving().enable_streaming_session:
        yield "it keeps KV by session (--enable-session-radix-cache, --enable-streaming-session)"
    if get_observability().kv_canary_sweep_interval > 0:
        yield "it looks through SGLang's own tree from time to time (--kv-canary-sweep-interval)"
    policy = params.eviction_policy.lower()
    if policy != "lru" and not params.disable:
        yield f"it evicts by {policy} (--radix-eviction-policy), and lru is covered"
    allocator = params.token_to_kv_pool_allocator
    plain = (TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator)
    if type(allocator) not in ((SWATokenToKVPoolAllocator,) if context.is_hybrid_swa else plain):
        yield f"its pages are handed out by a {type(allocator).__name__}"
    elif allocator.page_size != params.page_size:
        yield (
            f"its allocator has pages of {allocator.page_size} tokens and its cache pages of "
            f"{params.page_size}, which context parallelism does"
        )


def _of_windows(context: "TreeCacheBuildContext") -> Iterator[str]:
    params = context.params
    if context.full_tokens_per_layer == 0:
        yield "its model has sliding windows alone, and those beside full attention are covered"
    if not params.sliding_window_size or params.sliding_window_size <= 0:
        yield "its model has sliding windows of no size"
    if params.draft_swa_window:
        yield "its drafts read more of a window than the model does"
    ring = getattr(params.token_to_kv_pool_allocator, "swa_req_ring", False)
    if ring or not params.swa_gates_prefix_match or params.decoder_swa_bounded_replay:
        yield "its windows are the requests' own, and not cached"


def _of_states(context: "TreeCacheBuildContext") -> Iterator[str]:
    params = context.params
    if context.is_hybrid_swa:
        yield "its model has sliding windows and recurrent layers"
    pool = params.req_to_token_pool
    if type(pool) is not HybridReqToTokenPool or type(pool.mamba_allocator) is not (
        MambaSlotAllocator
    ):
        yield f"its states are in a {type(pool).__name__}"
        return
    if params.enable_mamba_extra_buffer_lazy:
        yield "slots of its states come late (--mamba-radix-cache-strategy extra_buffer_lazy)"
    if pool.mamba_pool.replayssm_write_pos is not None:
        yield "its states lag behind its tokens (--enable-linear-replayssm)"
    if pool.mamba_ckpt_pool is not None:
        yield "its cached states are of 8 bits (--enable-int8-mamba-checkpoint)"
    if not (params.enable_mamba_extra_buffer or params.disable or params.page_size == 1):
        yield "its states lie anywhere, and pages have more than one token"
    if get_exec().mamba.mamba_max_states_per_path > STATES_OF_A_PATH and not params.disable:
        yield f"more than {STATES_OF_A_PATH} states of a path (--mamba-max-states-per-path)"
