"""Two of vLLM's schedulers side by side, one with each cache, on the same requests.

No model runs: the tokens are made up, the same for both.
"""

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    KVEventsConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

import radixkv_vllm

BLOCK_SIZE = 16
ABORTED = RequestStatus.FINISHED_ABORTED
#: Of each cache: the scheduler that waits for a step, and the one that schedules ahead.
CLASSES: dict[str, tuple[Any, Any]] = {
    "vLLM": (Scheduler, AsyncScheduler),
    "radixkv": (radixkv_vllm.SyncScheduler, radixkv_vllm.AsyncScheduler),
}


@dataclass(frozen=True)
class Prompt:
    name: str
    tokens: list[int]
    output_count: int


def prompts(count: int, seed: int) -> Iterator[Prompt]:
    """Chats: 20 system prompts of 300 to 900 tokens, on which conversations go on."""
    random_ = random.Random(seed)

    def text(low: int, high: int) -> list[int]:
        return [random_.randrange(100, 32000) for _ in range(random_.randrange(low, high))]

    systems = [text(300, 900) for _ in range(20)]
    open_: list[list[int]] = []
    for number in range(count):
        if open_ and random_.random() < 0.6:
            before = open_.pop(random_.randrange(len(open_)))
        else:
            before = random_.choice(systems)
        tokens = before + text(20, 200)
        if len(tokens) < 1800:
            open_.append(tokens)
        yield Prompt(f"request-{number}", tokens, random_.randrange(32, 129))


def make(
    name: str,
    model: str,
    block_count: int,
    events: bool = False,
    sequences: int = 64,
    *,
    windows: tuple[int, ...] = (),
    states: int = 0,
    batch: int = 2048,
    ahead: bool = True,
    block_size: int = BLOCK_SIZE,
    retention: int | None = 0,
    policy: str = "fcfs",
    chunk: int = 0,
) -> Any:
    """A scheduler with one of the caches; with a group of layers for each sliding window, and so
    many of recurrent layers, besides that of full attention."""
    size = 4096
    config = VllmConfig(
        model_config=ModelConfig(
            model=model, skip_tokenizer_init=True, dtype="float32", max_model_len=size
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=sequences,
            max_num_batched_tokens=batch,
            max_model_len=size,
            enable_chunked_prefill=True,
            async_scheduling=ahead,
            policy=policy,
            long_prefill_token_threshold=chunk,
            scheduler_reserve_full_isl=not chunk,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(
            block_size=block_size,
            enable_prefix_caching=True,
            mamba_block_size=block_size if states else None,
            mamba_cache_mode="align" if states else "none",
        ),
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null")
        if events
        else None,
    )
    shape: dict[str, Any] = {
        "block_size": block_size, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32
    }  # fmt: skip
    full = FullAttentionSpec(**shape)
    # As the engine has them: the group of full attention need not be the first, and a page of
    # states is as large as one of attention.
    specs: list[KVCacheSpec] = [SlidingWindowSpec(sliding_window=it, **shape) for it in windows]
    specs += [
        MambaSpec(
            block_size=block_size,
            shapes=((4, 32),),
            dtypes=(torch.float32,),
            page_size_padded=full.page_size_bytes,
            mamba_cache_mode="align",
        )
    ] * states
    specs.append(full)
    config.cache_config.num_gpu_blocks = block_count
    register_all_kvcache_specs(config)
    return CLASSES[name][ahead](
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=block_count,
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec([f"layer.{at}"], spec) for at, spec in enumerate(specs)
            ],
            prefix_cache_retention_interval=retention if windows or states else None,
        ),
        block_size=block_size,
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
    )


def start_hashing(block_size: int = BLOCK_SIZE) -> Callable[[Request], list[Any]]:
    """The hasher of blocks that vLLM gives to each request."""
    init_none_hash(sha256)
    hasher: Callable[[Request], list[Any]] = get_request_block_hasher(block_size, sha256)
    return hasher


def hasher_of(scheduler: Any) -> Callable[[Request], list[Any]] | None:
    """The same where vLLM's engine would make one: it asks for this once its scheduler is there."""
    return start_hashing() if scheduler.cache_config.enable_prefix_caching else None


def request_of(
    prompt: Prompt,
    hasher: Callable[[Request], list[Any]] | None,
    priority: int = 0,
    adapter: LoRARequest | None = None,
) -> Request:
    params = SamplingParams(max_tokens=prompt.output_count, temperature=0, ignore_eos=True)
    return Request(
        request_id=prompt.name,
        prompt_token_ids=prompt.tokens,
        sampling_params=params,
        pooling_params=None,
        lora_request=adapter,
        block_hasher=hasher,
        priority=priority,
    )


def step(scheduler: Any) -> dict[str, int]:
    """Schedules a step and answers it: the tokens that were found, of each request that began."""
    output = scheduler.schedule()
    begun = {it.req_id: it.num_computed_tokens for it in output.scheduled_new_reqs}
    names = list(output.num_scheduled_tokens)
    sampled = []
    for name in names:
        request = scheduler.requests[name]
        position = request.num_tokens
        done = request.num_computed_tokens >= position
        made_up = zlib.crc32(f"{name} {position}".encode()) % 32000
        sampled.append([made_up] if done else [])
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=sampled,
        ),
    )
    return begun
