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
from vllm.config.diffusion import DiffusionConfig
from vllm.config.speculative import SpeculativeConfig
from vllm.distributed.kv_events import AllBlocksCleared
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from worker import STATE, Worker

from radixkv_vllm import NotCovered, limits


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


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("size, windows, blocks", [(4, (), 130), (4, (9,), 240), (16, (), 40)])
def test_a_step_that_is_taken_back_leaves_nothing_to_find(
    model: str, size: int, windows: tuple[int, ...], blocks: int, depth: int
) -> None:
    """By priority a request may lose its place in a step after its pages were asked for."""
    scheduler = twins.make(
        "radixkv", model, blocks, sequences=6, windows=windows, batch=40, ahead=depth > 1,
        block_size=size, policy="priority",
    )  # fmt: skip
    random_ = random.Random(size)
    requests = [
        twins.request_of(it, None, priority=random_.randrange(5)) for it in prompts(200, seed=size)
    ]
    worker = Worker([*windows, 0], size)
    assert serve(scheduler, worker, requests, 1, depth) > 500, "nothing is found any more"
    assert worker.read > 10_000
    scheduler.kv_cache_manager.cache.check()
    assert scheduler.kv_cache_manager.usage == 0, "a request has left pages behind"


def test_priorities_find_windows_that_chunks_have_passed(model: str) -> None:
    """Also where a request ends far behind what it shares, in many steps that are waited for."""
    found = {}
    for name in twins.CLASSES:
        scheduler = twins.make(
            name, model, 3000, sequences=6, windows=(50,), batch=64, ahead=False, policy="priority"
        )
        hasher = twins.start_hashing(16) if name == "vLLM" else None
        requests = [twins.request_of(it, hasher) for it in prompts(120, seed=16)]
        found[name] = serve(scheduler, Worker([50, 0], 16), requests, 1, 1)
    print(f"found by vLLM {found['vLLM']}, by radixkv {found['radixkv']}")
    assert found["radixkv"] >= found["vLLM"]


@pytest.mark.parametrize("name", twins.CLASSES)
def test_a_long_prefill_holds_up_nobody_behind_who_shares_it(model: str, name: str) -> None:
    """Each of its steps leaves a state. Who would go on from it waits for one step, no more."""
    scheduler = twins.make(
        name, model, 300, states=1, sequences=8, batch=160, ahead=False, chunk=32
    )
    hasher = twins.hasher_of(scheduler)
    long = list(range(400))
    scheduler.add_request(twins.request_of(twins.Prompt("long", long, 2), hasher))
    begun = twins.step(scheduler)
    share = [twins.Prompt(f"shares {at}", [*long, 400 + at], 2) for at in range(3)]
    for prompt in *share, twins.Prompt("other", [500] * 10, 2):
        scheduler.add_request(twins.request_of(prompt, hasher))
    begun |= twins.step(scheduler) | twins.step(scheduler)
    assert set(begun) == {"long", "other"} | {prompt.name for prompt in share}
    if name == "radixkv":
        # The first step of the long one has more tokens, as it is alone then.
        found = {begun[prompt.name] for prompt in share}
        assert found == {160 + 32}, "they go on from the state that one waited for"
    while scheduler.has_unfinished_requests():
        twins.step(scheduler)
    assert scheduler.kv_cache_manager.usage == 0, "a request has left pages behind"


def test_who_could_have_all_of_a_prompt_in_the_next_step_waits(model: str) -> None:
    """Though somebody else has waited in the step before, for something else."""
    scheduler = twins.make("radixkv", model, 300, states=1, sequences=8, batch=300, ahead=False)
    hasher = twins.hasher_of(scheduler)
    begun: dict[str, int] = {}
    for name, token in ("a1", 5), ("a2", 5), ("c1", 6), ("c2", 6):
        prompt = twins.Prompt(name, [token] * 97, 2)
        scheduler.add_request(twins.request_of(prompt, hasher))
    while scheduler.has_unfinished_requests():
        begun |= twins.step(scheduler)
    assert begun == {"a1": 0, "a2": 96, "c1": 0, "c2": 96}


def test_what_was_never_computed_is_not_found(model: str) -> None:
    """A request has pages for a chunk when another one, scheduled behind it, takes its place. One
    of its two pages is left: when it comes again it must not find that."""
    scheduler = twins.make(
        "radixkv", model, 10, sequences=3, ahead=False, block_size=4, policy="priority", chunk=8
    )
    runs = twins.request_of(twins.Prompt("runs", [60] * 4, 4), None)
    late = twins.request_of(twins.Prompt("late", list(range(26)), 2), None, priority=4)
    takes = twins.request_of(twins.Prompt("takes", [50] * 4, 2), None)
    # The last one comes behind the first step.
    serve(scheduler, Worker([0], 4), [runs, late, takes], 3, 1)
    assert scheduler.kv_cache_manager.usage == 0 and late.num_preemptions == 1


def test_states_and_priorities_are_refused(model: str) -> None:
    with pytest.raises(NotCovered, match="schedules by priority"):
        twins.make("radixkv", model, 60, states=1, policy="priority")


@pytest.mark.parametrize("name", twins.CLASSES)
def test_an_adapter_from_elsewhere_finds_nothing_of_the_one_before(model: str, name: str) -> None:
    """Loaded in place it keeps name and number: vLLM tells adapters apart by their paths."""
    scheduler = twins.make(name, model, 60, ahead=False)
    hasher = twins.hasher_of(scheduler)
    found: list[int] = []
    for number, path in enumerate(["/first", "/first", "/second", "/first"]):
        prompt = twins.Prompt(f"request-{number}", [5] * 40, 2)
        adapter = LoRARequest("an adapter", 1, path)
        scheduler.add_request(twins.request_of(prompt, hasher, adapter=adapter))
        found += twins.step(scheduler).values()
        while scheduler.has_unfinished_requests():
            twins.step(scheduler)
    assert found == [0, 32, 0, 32]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    import models

    folder: Path = tmp_path_factory.mktemp("model")
    models.make(folder, "llama")
    return str(folder)


def test_outputs_that_go_by_hashes_of_blocks_are_refused(model: str) -> None:
    """Routed experts of a prefix that is found are stored by vLLM's hashes, which nobody makes."""
    scheduler = twins.make("vLLM", model, 60)
    limits.check(scheduler)
    scheduler.vllm_config.aux_output_config.enable_return_routed_experts = True
    with pytest.raises(NotCovered, match="enable_return_routed_experts"):
        limits.check(scheduler)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("ahead", [False, True])
def test_what_a_prompt_brings_into_the_cache_is_counted(
    model: str, policy: str, ahead: bool
) -> None:
    counted = {}
    for name in twins.CLASSES:
        scheduler = twins.make(name, model, 60, ahead=ahead, policy=policy)
        request = twins.request_of(twins.Prompt("a", [5] * 40, 2), twins.hasher_of(scheduler))
        stats = request.prefill_stats
        scheduler.add_request(request)
        twins.step(scheduler)
        counted[name] = stats.num_cache_creation_tokens
    assert counted == {"vLLM": 32, "radixkv": 32}


@pytest.mark.parametrize("name", twins.CLASSES)
def test_a_prompt_that_may_not_be_found_fits_though_it_is_cached(model: str, name: str) -> None:
    """As with prompt_logprobs. There is no room for its pages and those that the cache has."""
    scheduler = twins.make(name, model, 12, sequences=4, batch=32, ahead=False)
    hasher = twins.hasher_of(scheduler)
    for number, skips in enumerate([False, True]):
        prompt = twins.Prompt(f"request-{number}", list(range(130)), 1)
        request = twins.request_of(prompt, hasher)
        request.skip_reading_prefix_cache = skips
        scheduler.add_request(request)
        for _ in range(20):
            if scheduler.has_unfinished_requests():
                twins.step(scheduler)
        assert not scheduler.has_unfinished_requests(), "it is preempted again and again"
        assert not request.num_preemptions
    # What it computed is found by others.
    scheduler.add_request(twins.request_of(twins.Prompt("late", list(range(130)), 1), hasher))
    assert twins.step(scheduler) == {"late": 128}


def test_a_reset_with_a_namespace_for_each_page_is_told(model: str) -> None:
    """The journal has a record for each of them, all by one call."""
    count = 12_299
    scheduler = twins.make(
        "radixkv", model, count + 1, events=True, sequences=512, batch=8192, ahead=False
    )
    hasher = twins.start_hashing()
    for number in range(count):
        prompt = twins.Prompt(f"request-{number}", [5] * twins.BLOCK_SIZE, 1)
        adapter = LoRARequest(f"adapter {number}", number + 1, "/path")
        scheduler.add_request(twins.request_of(prompt, hasher, adapter=adapter))
    while scheduler.has_unfinished_requests():
        twins.step(scheduler)
    manager = scheduler.kv_cache_manager
    assert manager.cache.stats().cached_page_count == count
    assert scheduler.reset_prefix_cache()
    assert isinstance(manager.take_events()[-1], AllBlocksCleared)


def test_diffusion_is_refused(model: str) -> None:
    """vLLM has a scheduler of its own for it, which this one would take the place of."""
    scheduler = twins.make("vLLM", model, 60)
    scheduler.vllm_config.diffusion_config = DiffusionConfig(canvas_length=32)
    with pytest.raises(NotCovered, match="diffusion"):
        limits.check(scheduler)


@pytest.mark.parametrize("method", ["draft_model", "extract_hidden_states", "ngram"])
def test_drafts_with_kv_of_their_own_are_refused(model: str, method: str) -> None:
    scheduler = twins.make("vLLM", model, 60)
    drafts = SpeculativeConfig.__new__(SpeculativeConfig)
    drafts.method = method
    scheduler.vllm_config.speculative_config = drafts
    if method == "ngram":
        limits.check(scheduler)
        return
    with pytest.raises(NotCovered, match="drafts that have KV of their own"):
        limits.check(scheduler)


@pytest.mark.parametrize("name", twins.CLASSES)
@pytest.mark.parametrize("layers", [{"windows": (32,)}, {"states": 1}])
def test_what_a_prompt_that_may_not_be_found_passed_is_found(
    model: str, layers: dict[str, Any], name: str
) -> None:
    """As with prompt_logprobs: its output is longer than its windows, and states lie behind it."""
    scheduler = twins.make(name, model, 60, ahead=False, **layers)
    hasher = twins.hasher_of(scheduler)
    request = twins.request_of(twins.Prompt("scored", list(range(70)), 80), hasher)
    request.skip_reading_prefix_cache = True
    scheduler.add_request(request)
    while scheduler.has_unfinished_requests():
        twins.step(scheduler)
    scheduler.add_request(twins.request_of(twins.Prompt("next", [*range(70), 7], 1), hasher))
    assert twins.step(scheduler) == {"next": 64}


@pytest.mark.parametrize("name", twins.CLASSES)
def test_a_token_that_a_turn_gave_up_is_not_found(model: str, name: str) -> None:
    """A session goes on in the place of the token that ended its turn: what a step under way
    computes of that is overwritten."""
    scheduler = twins.make(name, model, 60, policy="priority")
    hasher = twins.hasher_of(scheduler)
    tokens = list(range(100, 179))  # With one more they fill a block.

    def turn(more: list[int]) -> Request:
        params = SamplingParams(max_tokens=8, temperature=0, stop_token_ids=[7])
        return Request("chat", more, params, None, block_hasher=hasher, resumable=True)

    scheduler.add_request(turn(list(tokens)))
    for output in [scheduler.schedule(), scheduler.schedule()]:
        answer = ModelRunnerOutput(
            req_ids=["chat"], req_id_to_index={"chat": 0}, sampled_token_ids=[[7]]
        )
        scheduler.update_from_output(output, answer)
    scheduler.add_request(turn([8, 9]))
    other = twins.Prompt("other", [*tokens, 7, 9], 1)
    scheduler.add_request(twins.request_of(other, hasher))
    assert twins.step(scheduler) == {"chat": 79, "other": 64}
