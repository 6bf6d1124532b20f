"""radixkv in the place of vLLM's KV cache manager.

    vllm serve MODEL --scheduler-cls radixkv_vllm.Scheduler
    LLM(model=..., scheduler_cls="radixkv_vllm.Scheduler")

The scheduler is vLLM's own; only its `kv_cache_manager` is another one. What vLLM offers and this
does not cover is refused when the engine starts, and so is a vLLM whose interface is another one.
"""

from .hybrid import HybridManager
from .interface import InterfaceChanged
from .limits import NotCovered
from .manager import KVCacheManager
from .scheduler import AsyncScheduler, Scheduler, SyncScheduler

__all__ = [
    "AsyncScheduler",
    "HybridManager",
    "InterfaceChanged",
    "KVCacheManager",
    "NotCovered",
    "Scheduler",
    "SyncScheduler",
]
