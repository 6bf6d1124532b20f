"""Places that no page has: what an engine's row says by mistake is not published."""

from typing import Any

import numpy as np
import pytest
from conftest import ids, pages

import radixkv
from radixkv import Group

PAGE = 4
# The first place of a page that lies within one, of either of two pages.
WRONG = [
    ([41, 42, 43, 44, 45, 46, 47, 48], 41),
    ([80, 81, 82, 83, 87, 88, 89, 90], 87),
]


def a_cache(*, is_windowed: bool) -> radixkv.Cache:
    groups = [Group.full(), Group.window(8, pool=1)][: 1 + is_windowed]
    table = radixkv.PageTable(
        pools=[64] * len(groups), groups=groups, page_size=PAGE, external=True
    )
    return radixkv.Cache(table, whole_pages=True)


@pytest.mark.parametrize(("places", "wrong"), WRONG)
@pytest.mark.parametrize("is_windowed", [False, True])
def test_a_place_within_a_page_is_refused(
    places: list[int], wrong: int, is_windowed: bool
) -> None:
    cache, rows = a_cache(is_windowed=is_windowed), np.zeros((2, 8), np.int32)
    tables: dict[str, Any] = {"mapping": np.arange(257)} if is_windowed else {}
    placed = radixkv.PlacedRows(cache, rows=rows, **tables)
    rows[1] = places
    found = pages(*[0] * 8)
    for given in ({"row": 1}, {"places": rows[1]}):
        with pytest.raises(ValueError, match=f"^places: {wrong} begins no page"):
            placed.publish(ids(8), 8, **given)
        assert cache.match(ids(8), found).page_count == 0
    with pytest.raises(ValueError, match=f"^places: {wrong} begins no page"):
        placed.release(1, 0, 8)
    with pytest.raises(ValueError, match=f"^places: {wrong} begins no page"):
        radixkv.page_numbers(rows[1], PAGE, found)
    # A page's other places are not looked at.
    rows[1] = [40, 0, 0, 0, 80, 0, 0, 0]
    assert placed.publish(ids(8), 8, 1).page_count == 2
    cache.match(ids(8), found)
    assert found[:2].tolist() == [10, 20]
    cache.check()


def test_a_window_place_within_a_page_is_refused() -> None:
    cache = a_cache(is_windowed=True)
    placed = radixkv.PlacedRows(cache)
    places = np.arange(40, 48)
    with pytest.raises(ValueError, match="^window_places: 33 begins no page"):
        placed.publish(ids(8), 8, places=places, window_places=np.array([20, 33]))
    assert cache.match(ids(8)).page_count == 0
    mapping = np.zeros(257, np.int64)
    mapping[40:48] = range(21, 29)
    placed = radixkv.PlacedRows(cache, mapping=mapping)
    with pytest.raises(ValueError, match="^mapping: 21 begins no page"):
        placed.publish(ids(8), 8, places=places)
    assert cache.match(ids(8)).page_count == 0
    mapping[40:48] = range(20, 28)
    assert placed.publish(ids(8), 8, places=places).page_count == 2
    cache.check()
