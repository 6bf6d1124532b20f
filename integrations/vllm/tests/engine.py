#!/usr/bin/env python3
"""The whole engine, with its own cache and with radixkv's: tokens and hits (P05, P06).

    engine.py MODEL [--kind llama|gemma3|lfm2] [--requests N] [--seed N]

A tiny model with random weights (made in the folder MODEL when it is not there), of full attention
alone or beside sliding windows, answers the same stream of requests in processes of their own, in
three worlds: a pool where nothing is evicted, a tight one with eviction and preemption, and that
with async scheduling. Prompts are computed in chunks, clients go away, some requests have salts.
All tokens have to be equal, where vLLM's own don't depend on what else a step computes, and where
nothing is evicted, every request has at least as many hits.
In the end radixkv's invariants are checked, where the engine is in the process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
import workload

CLASSES = {"vLLM": "", "radixkv": "radixkv_vllm.Scheduler"}


@dataclass(frozen=True)
class World:
    name: str
    block_count: int
    ahead: bool


WORLDS = {
    it.name: it
    for it in (
        World("room", 4096, ahead=False),
        World("tight", 32, ahead=False),
        World("tight, async", 32, ahead=True),
    )
}


def serve(model: str, scheduler: str, world: World, count: int, seed: int) -> dict[str, Any]:
    """What one engine answers."""
    # In one process the engine does not schedule ahead.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(world.ahead))
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=model,
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=512,
        block_size=32,
        max_num_seqs=8,
        max_num_batched_tokens=128,
        num_gpu_blocks_override=world.block_count,
        # The states of recurrent layers are kept where blocks end; others have none to keep.
        mamba_cache_mode="align" if args.kind in models.RECURRENT else "none",
        disable_log_stats=False,
        **({"scheduler_cls": scheduler} if scheduler else {}),
    )
    engine = llm.llm_engine
    waiting = workload.requests(count, seed)[::-1]
    aborts = {it.name: it.abort_after for it in waiting if it.abort_after}
    answers: dict[str, dict[str, Any]] = {}
    step = 0
    while waiting or engine.has_unfinished_requests():
        while waiting and waiting[-1].step <= step:
            it = waiting.pop()
            prompt: dict[str, Any] = {"prompt_token_ids": it.tokens}
            if it.salt:
                prompt["cache_salt"] = it.salt
            params = SamplingParams(
                max_tokens=it.output_count, temperature=0, ignore_eos=True, detokenize=False
            )
            engine.add_request(it.name, prompt, params)
        for output in engine.step():
            tokens = list(output.outputs[0].token_ids)
            answers[output.request_id] = {"tokens": tokens, "hits": output.num_cached_tokens}
            after = aborts.get(output.request_id)
            if after and len(tokens) >= after and not output.finished:
                engine.abort_request([output.request_id])
        step += 1
    if scheduler and not world.ahead:
        manager = engine.engine_core.engine_core.scheduler.kv_cache_manager
        manager.cache.check()
        manager.table.check()
        assert manager.usage == 0, "a request has left pages behind"
    preempted = [it.value for it in llm.get_metrics() if it.name == "vllm:num_preemptions"]
    return {"answers": answers, "preempted": int(sum(preempted))}


def run(model: str, name: str, world: str, count: int, seed: int) -> dict[str, Any]:
    """The same in a process of its own, which vLLM needs."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, __file__, model, "--serve", name, world, file.name]
        command += ["--kind", args.kind, "--requests", str(count), "--seed", str(seed)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            sys.stdout.buffer.write(done.stdout[-8000:])
            raise SystemExit(f"{name} failed in the world {world}")
        return dict(json.load(open(file.name)))


def compare(world: World, theirs: dict[str, Any], ours: dict[str, Any], count: int) -> str:
    """A line of the table; asserts what has to be equal."""
    asked = {it.name: it for it in workload.requests(count, args.seed)}
    tokens = hits = their_hits = fewer = more = 0
    for name, it in asked.items():
        a, b = theirs["answers"][name], ours["answers"][name]
        # A client that goes away does so at about the same time.
        length = min(len(a["tokens"]), len(b["tokens"]))
        assert length == it.output_count or it.abort_after, f"{name}: {length} tokens"
        equal = a["tokens"][:length] == b["tokens"][:length]
        assert equal or args.kind in models.RECURRENT, f"{world.name}: {name} differs"
        tokens += length if equal else 0
        hits, their_hits = hits + b["hits"], their_hits + a["hits"]
        fewer, more = fewer + (b["hits"] < a["hits"]), more + (b["hits"] > a["hits"])
        if world.name == "room":
            assert b["hits"] >= a["hits"], f"{name}: {b['hits']} hits, vLLM {a['hits']}"
    if world.name != "room":
        assert theirs["preempted"] and ours["preempted"], "nothing was preempted"
    prompts = sum(len(it.tokens) for it in asked.values())
    cells = [
        world.name, len(asked), tokens, prompts, their_hits, hits, more, fewer,
        theirs["preempted"], ours["preempted"],
    ]  # fmt: skip
    return "| " + " | ".join(str(it) for it in cells) + " |"


def main() -> None:
    models.make(Path(args.model), args.kind)
    print("| pool | requests | equal tokens | prompt tokens | hits, vLLM | hits, radixkv "
          "| more | fewer | preempted, vLLM | preempted, radixkv |")  # fmt: skip
    print("|---" * 10 + "|")
    for world in WORLDS.values():
        theirs, ours = (
            run(args.model, name, world.name, args.requests, args.seed) for name in CLASSES
        )
        print(compare(world, theirs, ours, args.requests), flush=True)


parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("model")
parser.add_argument("--kind", choices=models.MODELS, default="llama")
parser.add_argument("--requests", type=int, default=400)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
args = parser.parse_args()
if __name__ == "__main__":
    if args.serve:
        name, world, file = args.serve
        done = serve(args.model, CLASSES[name], WORLDS[world], args.requests, args.seed)
        with open(file, "w") as into:
            json.dump(done, into)
    else:
        main()
