"""Several groups of layers in vLLM's scheduler, without a model: what is in each block (P05, G16).

A worker is played (`worker.py`) that only knows what the scheduler tells it: a block that was given
away while a step still used it, or handed out at a wrong place, is found.
"""

import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import twins
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from worker import STATE, Worker


def serve(scheduler: Any, worker: Worker, requests: list[Request], seed: int, depth: int) -> int:
    """Serves all of them, some of which go away, with `depth` steps under way; how many tokens of
    prompts were found."""
    random_ = random.Random(seed)
    waiting, under_way, found = requests[::-1], deque[Any](), 0
    while waiting or scheduler.has_unfinished_requests() or under_way:
        for _ in range(random_.randrange(3)):
            if waiting:
                scheduler.add_request(waiting.pop())
        output = scheduler.schedule()
        found += sum(it.num_computed_tokens for it in output.scheduled_new_reqs)
        idle = not output.total_num_scheduled_tokens
        if not idle:
            under_way.append(output)
        if not under_way or len(under_way) < depth and not idle:
            continue
        output = under_way.popleft()
        worker.told(output)
        starts = {it.req_id: it.num_computed_tokens for it in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        starts |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        parts = {
            name: (starts[name], starts[name] + count)
            for name, count in output.num_scheduled_tokens.items()
        }
        worker.run(parts)
        sampled = []
        for name, (_, end) in parts.items():
            tokens = worker.tokens[name]
            done = end >= len(tokens)
            sampled.append([random_.randrange(50)] if done else [])
            tokens.extend(sampled[-1])
        names = list(parts)
        scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: at for at, name in enumerate(names)},
                sampled_token_ids=sampled,
            ),
        )
        if random_.random() < 0.02 and scheduler.running:
            name = random_.choice(scheduler.running).request_id
            scheduler.finish_requests(name, twins.ABORTED)
    return found


def prompts(count: int, seed: int) -> list[twins.Prompt]:
    """Prompts that begin as earlier ones do, of few different tokens."""
    random_ = random.Random(seed)
    earlier: list[list[int]] = [[]]
    made = []
    for number in range(count):
        before = random_.choice(earlier)
        kept = before[: random_.randrange(len(before) + 1)]
        tokens = kept + [random_.randrange(3) for _ in range(random_.randrange(1, 150))]
        tokens = tokens[:400]
        earlier.append(tokens)
        made.append(twins.Prompt(f"request-{number}", tokens, random_.randrange(1, 60)))
    return made


WORLDS = [
    # Block size, windows, groups of states, blocks, tokens of a step, steps under way.
    (16, (50,), 0, 3000, 64, 1),
    (16, (50,), 0, 70, 64, 1),
    (4, (9,), 0, 230, 40, 1),
    (4, (2,), 0, 230, 40, 1),
    (16, (33, 33), 0, 110, 512, 1),
    (16, (128, 128, 128), 0, 150, 300, 1),
    (16, (50,), 0, 75, 64, 2),
    (4, (9, 9), 0, 350, 40, 2),
    (16, (), 1, 3000, 64, 1),
    (16, (), 1, 60, 64, 1),
    (4, (), 2, 230, 40, 1),
    (16, (), 3, 80, 300, 2),
    (16, (50,), 1, 90, 64, 2),
    (32, (), 1, 40, 20, 1),
]


@pytest.mark.parametrize("size, windows, states, blocks, batch, depth", WORLDS)
def test_what_a_step_reads_is_what_its_tokens_wrote(
    model: str,
    size: int,
    windows: tuple[int, ...],
    states: int,
    blocks: int,
    batch: int,
    depth: int,
) -> None:
    count, found = 120, {}
    for name in twins.CLASSES:
        scheduler = twins.make(
            name, model, blocks, sequences=6, windows=windows, states=states, batch=batch,
            ahead=depth > 1, block_size=size,
        )  # fmt: skip
        hasher = twins.start_hashing(size) if name == "vLLM" else None
        requests = [twins.request_of(it, hasher) for it in prompts(count, seed=size)]
        worker = Worker([*windows, *[STATE] * states, 0], size)
        found[name] = serve(scheduler, worker, requests, 1, depth)
        assert worker.read > 10_000
    manager = scheduler.kv_cache_manager
    manager.cache.check()
    manager.table.check()
    assert manager.usage == 0, "a request has left pages behind"
    assert scheduler.reset_prefix_cache()
    print(f"found by vLLM {found['vLLM']}, by radixkv {found['radixkv']}")
    assert found["radixkv"] >= found["vLLM"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    import models

    folder: Path = tmp_path_factory.mktemp("model")
    models.make(folder, "llama")
    return str(folder)
