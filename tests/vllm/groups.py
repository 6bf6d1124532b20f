#!/usr/bin/env python3
"""How far vLLM's own rules reuse a prompt, and how far radixkv does, request by request (G16).

    python groups.py [REQUESTS] [SEED]

Both get the same random streams of prompts, in pools so large that nothing is ever evicted: models
with full attention and one or two sliding windows, several page sizes, prompts computed whole or in
chunks. vLLM's side is its KV cache manager, driven as its scheduler drives it, without a model.
"""
import random
import sys

import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

import radixkv

LONGEST = 640
VOCABULARY = 3


class Theirs:
    """vLLM's manager: a group for full attention and one for each window."""

    def __init__(self, page_size, windows, pages):
        shape = dict(num_kv_heads=1, head_size=16, dtype=torch.float32)
        full = FullAttentionSpec(block_size=page_size, **shape)
        sliding = [
            SlidingWindowSpec(block_size=page_size, sliding_window=window, **shape)
            for window in windows
        ]
        groups = [
            KVCacheGroupSpec(layer_names=[f"layer.{at}"], kv_cache_spec=spec)
            for at, spec in enumerate([full, *sliding])
        ]
        config = KVCacheConfig(
            num_blocks=pages * len(groups), kv_cache_tensors=[], kv_cache_groups=groups
        )
        self.manager = KVCacheManager(
            kv_cache_config=config,
            max_model_len=2 * LONGEST,
            scheduler_block_size=page_size,
            hash_block_size=page_size,
        )
        self.hasher = get_request_block_hasher(page_size, sha256)
        self.count = 0

    def serve(self, ids, chunk):
        self.count += 1
        request = Request(
            request_id=str(self.count),
            prompt_token_ids=ids,
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            block_hasher=self.hasher,
        )
        blocks, cached, _ = self.manager.get_computed_blocks(request)
        computed = cached
        while computed < len(ids):
            new = min(chunk, len(ids) - computed)
            first = computed == cached
            done = self.manager.allocate_slots(
                request, new, cached if first else 0, blocks if first else None
            )
            assert done is not None, "the pool has room for all"
            computed += new
            request.num_computed_tokens = computed
        self.manager.free(request)
        return cached


class Ours:
    """radixkv: a sequence with a row in each group."""

    def __init__(self, page_size, windows, pages):
        groups = [radixkv.Group.full()]
        groups += [radixkv.Group.window(window, pool=1 + at) for at, window in enumerate(windows)]
        pools = [pages] * len(groups)
        self.table = radixkv.PageTable(pools=pools, groups=groups, page_size=page_size)
        self.cache = radixkv.Cache(self.table, whole_pages=True)
        self.page_size = page_size

    def serve(self, ids, chunk):
        with self.cache.begin(np.array(ids, np.uint32)) as sequence:
            cached = sequence.info().cached_position_count
            computed = cached
            while computed < len(ids):
                computed = min(computed + chunk, len(ids))
                sequence.publish(computed)
        return cached

    def close(self):
        assert self.table.stats().free_page_count > 0
        self.cache.check()
        self.table.check()
        self.cache.close()
        self.table.close()


def prompts(random_, count):
    """Prompts that go on from parts of earlier ones."""
    asked = [[]]
    for _ in range(count):
        before = random_.choice(asked)
        ids = before[: random_.randrange(len(before) + 1)]
        more = random_.randrange(1, 200)
        ids = (ids + [random_.randrange(VOCABULARY) for _ in range(more)])[:LONGEST]
        asked.append(ids)
        if len(asked) > 50:
            asked.pop(random_.randrange(len(asked)))
        yield ids


def g16_prompts_are_reused_as_far_as_by_vllm():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    random_ = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    init_none_hash(sha256)
    worlds = [(size, windows) for size in (1, 4, 16, 32) for windows in ((2,), (9,), (40,), (128,))]
    # Two groups of windows have one size in vLLM's own configurations; so do they here.
    worlds += [(16, (64, 64)), (4, (17, 17))]
    requests, reused, positions = 0, 0, 0
    for page_size, windows in worlds:
        each = -(-count // len(worlds))
        pages = each * LONGEST // page_size + 64
        theirs, ours = Theirs(page_size, windows, pages), Ours(page_size, windows, pages)
        for ids in prompts(random_, each):
            chunk = random_.choice([LONGEST, 7, 32, 100])
            a, b = theirs.serve(ids, chunk), ours.serve(ids, chunk)
            what = f"pages of {page_size}, windows {windows}, request {requests}"
            assert a == b, f"{what}: vLLM reuses {a} positions, radixkv {b}, of {len(ids)}"
            requests, reused, positions = requests + 1, reused + a, positions + len(ids)
        ours.close()
    assert reused > positions // 10, "hardly anything was reused"
    print(f"{requests} requests in {len(worlds)} worlds:", end=" ")
    print(f"{reused} of {positions} positions reused by both")


g16_prompts_are_reused_as_far_as_by_vllm()
