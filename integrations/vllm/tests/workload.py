"""Requests that share prefixes, the same for every engine that is given the same seed."""

import random
from dataclasses import dataclass

VOCABULARY = 512
LONGEST = 400


@dataclass(frozen=True)
class Asked:
    """A request of the stream."""

    name: str
    tokens: list[int]
    output_count: int
    salt: str | None
    #: The client goes away after so many tokens of output; None stays.
    abort_after: int | None
    #: The engine's step before which it arrives.
    step: int


def requests(count: int, seed: int) -> list[Asked]:
    """Prompts that begin as earlier ones do, up to any position; a tenth have a salt, a tenth are
    aborted, some come again word for word."""
    random_ = random.Random(seed)
    earlier: list[list[int]] = [
        [random_.randrange(3, VOCABULARY) for _ in range(random_.randrange(20, 300))]
        for _ in range(5)
    ]
    asked, step = [], 0
    for number in range(count):
        tokens = random_.choice(earlier)
        kind = random_.random()
        if kind > 0.1:
            kept = random_.randrange(len(tokens) // 2, len(tokens) + 1)
            more = random_.randrange(1, 60)
            tokens = tokens[:kept] + [random_.randrange(3, VOCABULARY) for _ in range(more)]
            tokens = tokens[:LONGEST]
        if random_.random() < 0.5:
            earlier.append(tokens)
            if len(earlier) > 30:
                earlier.pop(random_.randrange(len(earlier)))
        output_count = random_.randrange(2, 40)
        aborted = random_.random() < 0.1 and output_count > 3
        asked.append(
            Asked(
                name=f"request-{number}",
                tokens=tokens,
                output_count=output_count,
                salt=random_.choice(["a", "b"]) if random_.random() < 0.1 else None,
                abort_after=random_.randrange(1, output_count - 1) if aborted else None,
                step=step,
            )
        )
        step += random_.choice([0, 0, 0, 1, 2])
    return asked
