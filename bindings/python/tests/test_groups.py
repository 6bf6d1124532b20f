"""Several groups of layers: windows and recurrent states beside full attention."""

import numpy as np
import pytest
from conftest import ids

import radixkv
from radixkv import Group


def test_g01_a_window_beside_full_attention() -> None:
    groups = [Group.full(), Group.window(32, pool=1)]
    with radixkv.PageTable(pools=[200, 60], groups=groups, page_size=16) as table:
        with radixkv.Cache(table) as cache:
            with cache.begin(ids(160)) as sequence:
                sequence.publish(160)
                sequence.append([1])
                row = sequence.pages(group=1)
                assert (row[:7] == 0).all() and (row[9:] != 0).all()
                assert (sequence.pages() != 0).all()
                sequence.slide(161)
            depths, costs = cache.probe_groups(ids(160))
            assert depths.known_position_count == 160
            assert costs["group"].tolist() == [0, 1]
            assert costs["lost_position_count"].sum() == 160 - depths.position_count
            found = cache.match(ids(160), lock=True)
            assert found.position_count == depths.position_count
            locked = cache.locked_pages(found.lock, 1)
            assert 0 < len(locked) <= 3
            cache.unlock(found.lock)
            gone = np.zeros(64, radixkv.dtypes.evicted_page)
            count, freed = cache.evict_pool(1, 2, gone)
            assert freed == 2 and (gone["group"][:count] == 1).any()
            # A page of full attention takes what hangs on it: more go than the pool gets.
            assert cache.evict_pool(0, 100) == (18, 10)
            stats = cache.group_stats()
            assert stats["group"].tolist() == [0, 1]
            assert stats["cached_page_count"].tolist() == [0, 0]
            assert stats["evicted_page_count"].tolist() == [10, 10]
            cache.check()
        table.check()


def test_g06_a_lock_goes_along() -> None:
    groups = [Group.full(), Group.window(32, pool=1)]
    with radixkv.PageTable(pools=[20, 20], groups=groups, page_size=16) as table:
        with radixkv.Cache(table) as cache:
            rows = [np.zeros(10, np.uint32), np.zeros(10, np.uint32)]
            for pool, row in enumerate(rows):
                table.allocate_pages(row, pool=pool)
            done = cache.insert(ids(16), rows[0], groups=[(1, rows[1], None)], lock=True)
            lock = done.lock
            for count in range(2, 11):
                done = cache.insert(
                    ids(16 * count),
                    rows[0],
                    groups=[(1, rows[1], None)],
                    lock=True,
                    from_node=done.node,
                    from_token_index=16 * (count - 1),
                    from_page_index=count - 1,
                    moved_lock=lock,
                )
                assert done.lock == lock and cache.stats().lock_count == 1
            assert len(cache.locked_pages(lock, 1)) == 10
            cache.slide_lock(lock, 160)
            # Position 160 attends to 129 and up.
            assert cache.locked_pages(lock, 1)["page_index"].tolist() == [8, 9]
            with pytest.raises(radixkv.InvalidArgument, match="lock"):
                cache.insert(ids(16), rows[0], lock=True, moved_lock=lock)
            cache.unlock(lock)
            with pytest.raises(radixkv.StaleLock):
                cache.slide_lock(lock, 160)
            cache.check()
        table.check()


def test_g02_states_are_reused_where_they_were_saved() -> None:
    groups = [Group.full(), Group.state(pool=1)]
    with radixkv.PageTable(pools=[200, 20], groups=groups, page_size=16) as table:
        with radixkv.Cache(table) as cache:
            with cache.begin(ids(70)) as sequence:
                at = cache.match(ids(70)).checkpoint_at
                assert at == (64, 0)
                sequence.publish(64)
                assert sequence.published()["group"].tolist() == [1]
                assert sequence.checkpoint() == 1
                [copy] = sequence.copies()
                assert copy["group"] == 1
                sequence.confirm_copies()
            with cache.begin(ids(70)) as again:
                assert again.info().cached_position_count == 64
                assert again.copies()["group"].tolist() == [1]
                again.confirm_copies()
            cache.check()


def test_g07_g08_g11_states_of_a_sequence() -> None:
    groups = [Group.full(), Group.state(pool=1, draft_state_count=1)]
    with radixkv.PageTable(pools=[40, 9], groups=groups, page_size=4) as table:
        with radixkv.Cache(table, checkpoint_limit=1) as cache:
            sequence = cache.begin(ids(12))
            sequence.publish(8)
            assert sequence.published().tolist() == [(1, 0, 0, 0)]
            assert sequence.checkpoint() == 1
            sequence.confirm_copies()
            sequence.publish(12)
            own, draft = sequence.pages(group=1)
            sequence.append([5, 6])
            sequence.truncate(14)
            assert sequence.pages(group=1).tolist() == [draft, own]
            sequence.append([7, 8])
            sequence.truncate(16)
            sequence.publish(16)
            assert sequence.donate() == 1
            with pytest.raises(radixkv.StaleSequence):
                sequence.release()
            assert cache.stats().dropped_checkpoint_count == 1
            assert table.pool_stats(1).cached_page_count == 1
            cache.check()


def test_pages_of_groups_of_an_external_pool() -> None:
    groups = [Group.full(), Group.window(2, pool=1)]
    with radixkv.PageTable(pools=[50, 50], groups=groups, page_size=1, external=True) as table:
        with radixkv.Cache(table) as cache:
            published, other = np.zeros(5, np.uint32), np.zeros(5, np.uint32)
            window = np.array([0, 0, 0, 31, 32], np.uint32)
            done = cache.insert(
                ids(5), ids(5, 10), published=published, groups=[(1, window, other)]
            )
            assert (done.claimed_page_count, done.claimed_group_page_count) == (5, 2)
            assert other.tolist() == window.tolist()
            assert cache.match(ids(9)).token_count == 5


def test_kinds_are_shown() -> None:
    kinds = [Group.full(), Group.window(8, sinks=2, pool=1), Group.chunk(64), Group.state(pool=3)]
    assert [repr(kind) for kind in kinds] == [
        "Group.full(pool=0)", "Group.window(8, sinks=2, pool=1)", "Group.chunk(64, pool=0)",
        "Group.state(pool=3, draft_state_count=0)",
    ]
    with pytest.raises(radixkv.InvalidArgument, match="window"):
        radixkv.PageTable(pools=[9, 9], groups=[Group.full(), Group.window(0, pool=1)])
