"""P04, P06: one engine that answers the requests of the comparison; what it said goes to a file.

    serve.py MODEL RESULTS --backend measured-radixkv --page-size 1 [--quick] [--room]

First one request at a time: conversations over shared system prompts, some with extra keys or
salts. Then many at once in a pool with too little room for them, some of which are aborted on the
way; every so many steps SGLang is made to retract one. In both, prompts are longer than a chunk of
prefill. With --room only the first, in a pool where nothing has to be evicted.
"""

import argparse
import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import Any

VOCABULARY = 512
POOL = 6144
ROOM = 65536
#: States of recurrent layers, for models that have them.
STATES = {False: 96, True: 4096}
CHUNK = 256


def tokens(source: random.Random, count: int) -> list[int]:
    return [source.randrange(3, VOCABULARY) for _ in range(count)]


class Client:
    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.answers: list[dict[str, Any]] = []

    async def ask(self, name: str, prompt: list[int], new: int, **options: Any) -> list[int]:
        from sglang.srt.managers.io_struct import GenerateReqInput

        abort_after = options.pop("abort_after", None)
        request = GenerateReqInput(
            rid=name,
            input_ids=prompt,
            sampling_params={"max_new_tokens": new, "temperature": 0, "ignore_eos": True},
            stream=abort_after is not None,
            **options,
        )
        said: list[int] = []
        async for part in self.engine.tokenizer_manager.generate_request(request, None):
            # With skip_tokenizer_init a streamed part has the tokens since the one before, or all.
            ids = part["output_ids"]
            said = ids if len(ids) >= len(said) else said + ids
            about = part["meta_info"]
            if abort_after is not None and len(said) >= abort_after:
                self.engine.tokenizer_manager.abort_request(rid=name)
                abort_after = 1 << 30
        self.answers.append(
            {
                "name": name,
                "prompt": len(prompt),
                "cached": about.get("cached_tokens", 0),
                "output": said,
                "ended": about["finish_reason"]["type"],
                "retractions": about.get("num_retractions", 0),
            }
        )
        return said

    async def one_at_a_time(self, conversations: int, turns: int) -> None:
        source = random.Random(1)
        system = [tokens(source, length) for length in (130, 240, 500, 900)]
        talks = []
        for number in range(conversations):
            keys = [{}, {}, {"extra_key": "tenant a"}, {"cache_salt": "tenant b"}][number % 4]
            opening = system[source.randrange(4)] + tokens(source, source.randrange(5, 60))
            talks.append((number, opening, keys))
        for turn in range(turns):
            source.shuffle(talks)
            following = []
            for number, prompt, keys in talks:
                said = await self.ask(f"talk-{number}-{turn}", prompt, 12, **keys)
                question = tokens(source, source.randrange(5, 40))
                following.append((number, prompt + said + question, keys))
            talks = following

    async def many_at_once(self, count: int) -> None:
        source = random.Random(2)
        system = [tokens(source, length) for length in (200, 400, 700)]
        asked = []
        for number in range(count):
            prompt = source.choice(system) + tokens(source, source.randrange(10, 120))
            # What is aborted runs until then: when the abort arrives is not in our hands.
            options = {"abort_after": source.randrange(1, 8)} if number % 9 == 4 else {}
            new = 400 if options else source.randrange(40, 160)
            asked.append(self.ask(f"many-{number}", prompt, new, **options))
        await asyncio.gather(*asked)


def main() -> None:
    import sglang

    reader = argparse.ArgumentParser()
    reader.add_argument("model")
    reader.add_argument("results", type=Path)
    reader.add_argument("--backend", required=True)
    reader.add_argument("--page-size", type=int, required=True)
    reader.add_argument("--quick", action="store_true")
    reader.add_argument("--room", action="store_true")
    args = reader.parse_args()

    # Read in SGLang's scheduler, which is another process. A request that runs alone is left.
    os.environ.update(SGLANG_TEST_RETRACT="1", SGLANG_TEST_RETRACT_INTERVAL="20")
    # Rounded states would tell where a chunk ended.
    os.environ["SGLANG_MAMBA_CONV_DTYPE"] = "float32"
    engine = sglang.Engine(
        model_path=args.model,
        skip_tokenizer_init=True,
        device="cpu",
        dtype="float32",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        disable_overlap_schedule=True,
        disable_cuda_graph=True,
        mem_fraction_static=0.2,
        max_total_tokens=ROOM if args.room else POOL,
        max_mamba_cache_size=STATES[args.room],
        chunked_prefill_size=CHUNK,
        max_running_requests=48,
        page_size=args.page_size,
        radix_cache_backend=args.backend,
        sleep_on_idle=True,
        log_level="warning",
    )
    client = Client(engine)
    started = time.monotonic()
    small = (12, 3, 24) if args.quick else (60, 5, 120)
    engine.loop.run_until_complete(client.one_at_a_time(*small[:2]))
    if not args.room:
        engine.loop.run_until_complete(client.many_at_once(small[2]))
    print(f"{args.backend}: {len(client.answers)} requests, {time.monotonic() - started:.0f} s")
    args.results.write_text(json.dumps(client.answers))
    engine.shutdown()


if __name__ == "__main__":
    main()
