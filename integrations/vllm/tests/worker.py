"""A worker that only knows what the scheduler tells it, and what is in each block.

Each step writes the K and V of its tokens into the blocks that it was told of, all requests first,
and then reads what each token attends to in each group. What is read has to be what the same tokens
in front of it wrote. States are as vLLM's workers have them: before a step each is copied to the
block where the step ends, and is there of exactly the tokens up to the step's end afterwards.
"""

from typing import Any

#: In the place of a window: recurrent layers. 0 is full attention.
STATE = -1


class Worker:
    """Blocks and what is in them."""

    def __init__(self, windows: list[int], block_size: int) -> None:
        self.windows, self.block_size = windows, block_size
        #: By group and block number: for each position in it, the tokens up to there. A state is
        #: at position 0.
        self.blocks: dict[tuple[int, int], dict[int, int]] = {}
        #: Of each request: its rows of blocks, and its tokens.
        self.rows: dict[str, list[list[int]]] = {}
        self.tokens: dict[str, list[int]] = {}
        #: Positions that were read.
        self.read = 0

    def told(self, output: Any) -> None:
        fresh_blocks = set[int]()
        for it in output.scheduled_new_reqs:
            self.rows[it.req_id] = [list(row) for row in it.block_ids]
            self.tokens[it.req_id] = list(it.prompt_token_ids)
            for row, window in zip(it.block_ids, self.windows, strict=True):
                found = it.num_computed_tokens // self.block_size
                fresh_blocks.update(row[found:] if window != STATE else [])
        cached = output.scheduled_cached_reqs
        for name, fresh in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                self.rows[name] = [list(row) for row in fresh]
            elif fresh is not None:
                for row, more, window in zip(self.rows[name], fresh, self.windows, strict=True):
                    row.extend(more)
                    fresh_blocks.update(more if window != STATE else [])
        if STATE in self.windows:
            zeroed = set(output.new_block_ids_to_zero or [])
            assert fresh_blocks <= zeroed, "a block of attention is not zeroed"
            for group in range(len(self.windows)):
                for block in zeroed:
                    self.blocks.pop((group, block), None)

    def run(self, parts: dict[str, tuple[int, int]]) -> None:
        """Computes the positions [first, end) of each request."""
        keys = {name: self._keys(name, end) for name, (_, end) in parts.items()}
        self._copy_states(parts)
        for name, (first, end) in parts.items():
            for group, row in enumerate(self.rows[name]):
                what = f"{name}: group {group}, computing {first} to {end}"
                if self.windows[group] == STATE:
                    held = self._written(group, row[(end - 1) // self.block_size], what)
                    assert not first or held.get(0) == keys[name][first - 1], f"{what}: state"
                    held[0] = keys[name][end - 1]
                    self.read += 1
                    continue
                for at in range(first, end):
                    held = self._written(group, row[at // self.block_size], what)
                    held[at % self.block_size] = keys[name][at]
        for name, (first, end) in parts.items():
            for group, row in enumerate(self.rows[name]):
                window = self.windows[group]
                if window == STATE:
                    continue
                begin = max(0, first - window + 1) if window else 0
                for at in range(begin, end):
                    held = self.blocks.get((group, row[at // self.block_size]), {})
                    found = held.get(at % self.block_size)
                    what = f"{name}: position {at} of group {group}, computing {first} to {end}"
                    assert found == keys[name][at], what
                    self.read += 1

    def _copy_states(self, parts: dict[str, tuple[int, int]]) -> None:
        """All at once: no copy reads what another one writes."""
        copies = []
        for name, (first, end) in parts.items():
            for group, row in enumerate(self.rows[name]):
                if self.windows[group] != STATE or not first:
                    continue
                source, target = (row[(at - 1) // self.block_size] for at in (first, end))
                if source != target:
                    what = f"{name}: the state of group {group} at {first}"
                    assert source, f"{what} has no block"
                    copies.append((group, target, dict(self.blocks.get((group, source), {})), what))
        for group, target, state, what in copies:
            self._written(group, target, what).update(state)

    def _written(self, group: int, block: int, what: str) -> dict[int, int]:
        """What is in a block that is written now, by a group alone: there is one pool."""
        assert block, f"{what}: there is no block"
        for other in range(len(self.windows)):
            if other != group:
                self.blocks.pop((other, block), None)
        return self.blocks.setdefault((group, block), {})

    def _keys(self, name: str, end: int) -> list[int]:
        """A number for the tokens up to each position."""
        keys, key = [], 0
        for token in self.tokens[name][:end]:
            key = hash((key, token))
            keys.append(key)
        return keys
