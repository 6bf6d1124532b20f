"""vLLM's schedulers with radixkv's cache."""

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched import async_scheduler, scheduler
from vllm.v1.request import Request

from . import interface, limits
from .hybrid import HybridManager
from .manager import KVCacheManager


def _seat(of: scheduler.Scheduler) -> None:
    """Puts the cache into a scheduler that has made its own, which nothing has used yet."""
    limits.check(of)
    several = len(of.kv_cache_config.kv_cache_groups) > 1
    of.kv_cache_manager = (HybridManager if several else KVCacheManager)(
        of.kv_cache_config,
        max_model_len=of.max_model_len,
        scheduler_block_size=of.block_size,
        hash_block_size=of.hash_block_size,
        enable_caching=of.cache_config.enable_prefix_caching,
        log_stats=of.log_stats,
        enable_kv_cache_events=of.enable_kv_cache_events,
        watermark=of.scheduler_config.watermark,
        max_in_flight_tokens=of.vllm_config.max_in_flight_tokens,
        # By priority a request may lose its place in a step that it has pages for already.
        ahead=of.scheduler_config.policy != "priority",
    )
    if not of.enable_kv_cache_events:
        # The engine asks this, after its scheduler is made, whether to hash every block of every
        # request. Hashes find prefixes in vLLM's cache, and name blocks in events.
        of.cache_config.enable_prefix_caching = False


def _asked(of: scheduler.Scheduler) -> None:
    """The engine has asked. Where the worker is in its process, it has the same configuration, and
    with recurrent layers it wants to see that prefixes are cached."""
    of.cache_config.enable_prefix_caching = of.kv_cache_manager.enable_caching


class SyncScheduler(scheduler.Scheduler):
    """Schedules a step when the last one is done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        interface.check()
        super().__init__(*args, **kwargs)
        _seat(self)

    def add_request(self, request: Request) -> None:
        _asked(self)
        super().add_request(request)


class AsyncScheduler(async_scheduler.AsyncScheduler):
    """Schedules the next step while the last one is computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        interface.check()
        super().__init__(*args, **kwargs)
        _seat(self)

    def add_request(self, request: Request) -> None:
        _asked(self)
        super().add_request(request)


class Scheduler:
    """For `--scheduler-cls`: makes the scheduler that the engine's configuration asks for."""

    def __new__(cls, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> Any:
        ahead = vllm_config.scheduler_config.async_scheduling
        return (AsyncScheduler if ahead else SyncScheduler)(vllm_config, *args, **kwargs)
