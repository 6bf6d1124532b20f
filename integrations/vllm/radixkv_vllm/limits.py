"""What is not covered is refused when the engine starts, in a sentence."""

from collections.abc import Iterator

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

#: RKV_GROUP_LIMIT: groups that a page table has at most.
_GROUP_LIMIT = 8


class NotCovered(ValueError):
    """The engine is set up with something that this cache does not do."""


def check(scheduler: Scheduler) -> None:
    """Raises NotCovered with everything that stands against the engine's configuration."""
    _raise(_of_scheduler(scheduler))


def check_layers(config: KVCacheConfig, block_size: int, hash_block_size: int) -> None:
    """Raises NotCovered unless the layers are groups that are covered."""
    _raise(_of_layers(config, block_size, hash_block_size))


def check_request(request: Request) -> None:
    """Raises NotCovered when more than tokens decides what a request's KV is."""
    if request.mm_features or request.prompt_embeds is not None:
        raise NotCovered(f"request {request.request_id}: media or embeddings besides tokens")


def _raise(reasons: Iterator[str]) -> None:
    if said := "; ".join(reasons):
        raise NotCovered(f"radixkv_vllm does not cover this engine: {said}")


def _of_layers(config: KVCacheConfig, block_size: int, hash_block_size: int) -> Iterator[str]:
    specs = [group.kv_cache_spec for group in config.kv_cache_groups]
    kinds = ", ".join(type(spec).__name__ for spec in specs)
    full = [spec for spec in specs if type(spec) is FullAttentionSpec]
    windows = [spec for spec in specs if type(spec) is SlidingWindowSpec]
    states = [spec for spec in specs if type(spec) is MambaSpec]
    if not full or len(full) + len(windows) + len(states) < len(specs):
        yield (
            f"its groups of layers are ({kinds}), and FullAttentionSpec, alone or beside "
            "SlidingWindowSpec and MambaSpec, is covered"
        )
    elif len(specs) > _GROUP_LIMIT:
        yield f"it has {len(specs)} groups of layers, and {_GROUP_LIMIT} are covered"
    elif any(spec.mamba_cache_mode != "align" for spec in states):
        yield (
            "its recurrent layers keep no states for other requests (mamba_cache_mode none), as "
            "without prefix caching, and align is covered"
        )
    elif any(spec.num_speculative_blocks for spec in states):
        yield "its recurrent layers keep states for drafts (speculative decoding)"
    elif any(spec.num_prefill_checkpoint_blocks for spec in states):
        yield "its recurrent layers leave a second state in the middle of a step"
    elif any(spec.extra_retained_tokens for spec in windows):
        yield "its windows keep more tokens than they attend to, for drafts"
    elif {spec.block_size for spec in specs} != {block_size} or block_size != hash_block_size:
        sizes = ", ".join(str(spec.block_size) for spec in specs)
        yield (
            f"it keeps blocks of {sizes} tokens, schedules blocks of {block_size} "
            f"and hashes blocks of {hash_block_size}, and equal sizes are covered"
        )
    elif config.prefix_cache_retention_interval and not windows and not states:
        yield "prefix_cache_retention_interval is set, and it has no sliding-window or Mamba layers"
    elif config.needs_kv_cache_zeroing and not states:
        yield "it zeroes new blocks, as a KV cache of mixed precision needs"


def _of_scheduler(scheduler: Scheduler) -> Iterator[str]:
    config = scheduler.vllm_config
    yield from _of_layers(
        scheduler.kv_cache_config, scheduler.block_size, scheduler.hash_block_size
    )
    if scheduler.connector is not None:
        yield "it has a KV connector (kv_transfer_config), which works on vLLM's own blocks"
    if scheduler.dcp_world_size > 1 or scheduler.pcp_world_size > 1:
        yield "a request's KV is spread over devices by context parallelism"
    drafts = config.speculative_config
    if scheduler.use_eagle or (drafts is not None and drafts.uses_draft_kv_cache()):
        yield "it speculates with drafts that have KV of their own (EAGLE, MTP, draft models)"
    elif scheduler.num_prefill_lookahead:
        yield "its drafts look ahead in prompts"
    if config.model_config.supports_multimodal_inputs:
        yield "its model takes images or other media besides text"
    if scheduler.is_encoder_decoder:
        yield "its model has an encoder with KV of its own"
    if config.model_config.enable_prompt_embeds:
        yield "it takes embeddings instead of tokens (enable_prompt_embeds)"
    kinds = {type(group.kv_cache_spec) for group in scheduler.kv_cache_config.kv_cache_groups}
    if config.scheduler_config.policy == "priority" and MambaSpec in kinds:
        yield (
            "it schedules by priority, which takes back steps at whose end recurrent layers have "
            "left a state"
        )
    if config.diffusion_config is not None:
        yield "its model writes by diffusion, for which vLLM has a scheduler of its own"
    if config.aux_output_config.enabled:
        yield (
            "it returns what each token's experts were (enable_return_routed_experts), which its "
            "workers keep by vLLM's hashes of blocks"
        )
    if scheduler.kv_metrics_collector is not None:
        yield "it samples how long blocks are held (kv_cache_metrics)"
