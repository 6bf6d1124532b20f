"""What is not covered is refused when the engine starts, in a sentence."""

from collections.abc import Iterator

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec


class NotCovered(ValueError):
    """The engine is set up with something that this cache does not do."""


def check(scheduler: Scheduler) -> None:
    """Raises NotCovered with everything that stands against the engine's configuration."""
    if reasons := list(_reasons(scheduler)):
        raise NotCovered("radixkv_vllm does not cover this engine: " + "; ".join(reasons))


def _reasons(scheduler: Scheduler) -> Iterator[str]:
    config = scheduler.vllm_config
    groups = scheduler.kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        yield f"its layers are in {len(groups)} groups, and one group of full attention is covered"
    elif type(groups[0].kv_cache_spec) is not FullAttentionSpec:
        kind = type(groups[0].kv_cache_spec).__name__
        yield f"its layers are {kind}, and FullAttentionSpec is covered"
    elif scheduler.hash_block_size != scheduler.block_size:
        yield (
            f"it hashes blocks of {scheduler.hash_block_size} tokens and keeps blocks of "
            f"{scheduler.block_size}, and equal sizes are covered"
        )
    if scheduler.needs_kv_cache_zeroing:
        yield "it zeroes new blocks, which a mixed precision of the KV cache needs"
    if scheduler.connector is not None:
        yield "it has a KV connector (kv_transfer_config), which works on vLLM's own blocks"
    if scheduler.dcp_world_size > 1 or scheduler.pcp_world_size > 1:
        yield "a request's KV is spread over devices by context parallelism"
    if scheduler.use_eagle or scheduler.num_prefill_lookahead:
        yield "it speculates with a draft model that has KV of its own (EAGLE, MTP)"
    if config.model_config.supports_multimodal_inputs:
        yield "its model takes images or other media besides text"
    if scheduler.is_encoder_decoder:
        yield "its model has an encoder with KV of its own"
    if config.model_config.enable_prompt_embeds:
        yield "it takes embeddings instead of tokens (enable_prompt_embeds)"
    if scheduler.kv_metrics_collector is not None:
        yield "it samples how long blocks are held (kv_cache_metrics)"
