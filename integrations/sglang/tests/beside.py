"""The same conversations through two caches, one of them SGLang's own."""

import random
from collections.abc import Sequence

from conftest import Request, Scheduler


def hits(
    both: Sequence[Scheduler], seed: int, *, running_limit: int, said_limit: int
) -> list[tuple[int, ...]]:
    """What each request found in each cache. Some are aborted; those for which one cache has no
    room begin in neither."""
    source = random.Random(seed)
    told = [[source.randrange(50) for _ in range(source.randrange(8, 90))] for _ in range(6)]
    running: list[list[Request]] = []
    found = []
    for _ in range(300):
        if len(running) >= running_limit or running and source.random() < 0.4:
            ending = running.pop(source.randrange(len(running)))
            said = [source.randrange(50) for _ in range(source.randrange(1, said_limit))]
            keep = source.random() < 0.8
            for scheduler, request in zip(both, ending, strict=True):
                keep = scheduler.decode(request, said) and keep
                scheduler.finish(request, checkpoint=keep)
                scheduler.check()
            if keep:
                told[source.randrange(6)] = list(ending[0].full_untruncated_fill_ids)[:150]
            continue
        rest = [source.randrange(50) for _ in range(source.randrange(1, 30))]
        prompt, salt = source.choice(told) + rest, source.choice([None, None, "tenant"])
        chunk = source.choice([16, 512])
        started = [scheduler.start(prompt, None, salt, chunk) for scheduler in both]
        requests = [request for request in started if request is not None]
        if len(requests) < len(both):
            for scheduler, alone in zip(both, started, strict=True):
                if alone is not None:
                    scheduler.finish(alone, checkpoint=False)
            continue
        running.append(requests)
        found.append(tuple(request.prefix_len for request in requests))
    return found
