"""Values go to other processes, and errors with them."""

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from conftest import ids

import radixkv
from radixkv import Group, TokenItem

Again = Callable[[object], object]


def pickled(protocol: int) -> Again:
    return lambda value: pickle.loads(pickle.dumps(value, protocol))


WAYS: dict[str, Again] = {
    "2": pickled(2), "4": pickled(4), "5": pickled(5), "deepcopy": copy.deepcopy, "copy": copy.copy,
}


@pytest.mark.parametrize("way", WAYS)
def test_values_are_what_they_were(way: str, cache: radixkv.Cache) -> None:
    again = WAYS[way]
    spaces = [
        radixkv.Namespace(),
        radixkv.Namespace(lora_id=0, epoch=7, image_digest=bytes(range(16)), salt=b"s" * 32),
    ]
    items = [
        TokenItem.coord(1, 1000), TokenItem.size(3, 5, 6), TokenItem.image(9, 400, b"d" * 16),
    ]
    assert again(spaces) == spaces and again(items) == items
    groups = [
        Group.full(pool=1), Group.window(64, sinks=4, pool=2), Group.chunk(32),
        Group.state(pool=3, draft_state_count=2),
    ]
    assert repr(again(groups)) == repr(groups) and "draft_state_count=2" in repr(groups)
    for tokens in (radixkv.Tokens(ids(20), items), radixkv.Tokens([])):
        other = again(tokens)
        assert isinstance(other, radixkv.Tokens) and other.items == tokens.items
        np.testing.assert_array_equal(other.ids, tokens.ids)

    with cache.begin(ids(100)) as sequence:
        published = sequence.publish(100)
        cache.attach_tiers(96, 960)
        # Numbers of all kinds, pairs, and structs that lie in others.
        records: list[object] = [
            published, sequence.info(), cache.stats(), cache.tier_stats(), cache.table.stats(),
            cache.match(ids(100)), cache.probe_groups(ids(100))[0],
        ]
    for record in records:
        other = again(record)
        assert type(other) is type(record) and repr(other) == repr(record)
    assert "TierTotals(" in repr(records[3])


@pytest.mark.parametrize("way", WAYS)
def test_an_error_comes_with_its_numbers(way: str) -> None:
    with radixkv.PageTable(8) as table, radixkv.Cache(table) as cache:
        with cache.begin(ids(96)), pytest.raises(radixkv.OutOfPages) as refused:
            cache.begin(ids(64, 1000))
    error = refused.value
    other = WAYS[way](error)
    assert isinstance(other, radixkv.OutOfPages) and str(other) == str(error)
    assert other.status == radixkv.Status.OUT_OF_PAGES
    assert repr(other.shortage) == repr(error.shortage)
    assert other.shortage.needed_page_count > other.shortage.free_page_count > 0
