"""What an engine does, from the first request to the last."""

import numpy as np
import pytest
from conftest import PAGE_SIZE, ids, pages

import radixkv


def test_p02_second_request_computes_what_is_new(cache: radixkv.Cache) -> None:
    prompt = ids(100)
    with cache.begin(prompt) as first:
        info = first.info()
        assert (info.cached_position_count, info.position_count) == (0, 100)
        assert info.page_count == 7
        done = first.publish(100)
        assert (done.claimed_page_count, done.shared_page_count) == (6, 6)
        first.append([9001, 9002])
        assert first.info().position_count == 102
        shared = first.pages()[:6]
    longer = np.append(prompt, ids(20, 5000))
    with cache.begin(longer) as second:
        info = second.info()
        assert (info.cached_position_count, info.shared_page_count) == (96, 6)
        np.testing.assert_array_equal(second.pages()[:6], shared)
        assert second.slot == info.slot
        np.testing.assert_array_equal(cache.table.row(second.slot), second.pages())
    assert cache.stats().sequence_count == 0
    assert cache.stats().hit_position_count == 96
    assert cache.table.stats().cached_page_count == 6


def test_match_reports_pages_and_ends_inside_one(cache: radixkv.Cache) -> None:
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
        row = sequence.pages()
    into = np.zeros(8, np.uint32)
    prompt = ids(64)
    prompt[40:] = 7
    found = cache.match(prompt, into)
    assert (found.token_count, found.page_count, found.partial_position_count) == (40, 2, 8)
    np.testing.assert_array_equal(into[:3], [row[0], row[1], 0])
    assert found.partial_page == row[2]
    assert cache.probe(prompt) == 40
    assert cache.match(ids(3, 9999)).token_count == 0


def test_s05_a_lock_keeps_its_pages(cache: radixkv.Cache) -> None:
    with cache.begin(ids(64)) as sequence:
        sequence.publish(64)
    found = cache.match(ids(64), lock=True)
    with cache.hold(found.lock) as lock:
        assert lock.id == found.lock
        assert cache.evict(100) == 0
        assert cache.stats().lock_count == 1
    assert cache.stats().lock_count == 0
    out = np.zeros(100, np.uint32)
    assert cache.evict(100, out) == 4
    assert len(set(out[:4].tolist())) == 4
    with cache.hold(cache.match(ids(64), lock=True).lock):  # nothing matched: nothing to undo
        pass


def test_j07_an_engine_with_pages_of_its_own(external: radixkv.Cache) -> None:
    tokens, mine = ids(10), ids(10, 100)
    published = np.zeros(10, np.uint32)
    done = external.insert(tokens, mine, published=published, lock=True)
    assert (done.claimed_page_count, done.duplicate_page_count) == (10, 0)
    np.testing.assert_array_equal(published, mine)

    # Another request computed the same four tokens, and two of its own.
    other = np.append(tokens[:4], [77, 78]).astype(np.uint32)
    found = external.match(other, published)
    assert found.page_count == 4
    theirs = np.append(published[:4], [200, 201]).astype(np.uint32)
    done = external.insert(
        other,
        theirs,
        published=published,
        from_node=found.node,
        from_token_index=found.token_count,
        from_page_index=found.page_count,
    )
    assert done.claimed_page_count == 2
    again = external.insert(tokens, ids(10, 500), published=published)
    assert (again.claimed_page_count, again.duplicate_page_count) == (0, 10)
    np.testing.assert_array_equal(published, mine)

    # What was locked by the insert stays; the other branch goes.
    gone = np.zeros(64, np.uint32)
    count = external.evict(64, gone)
    assert sorted(gone[:count].tolist()) == [200, 201]
    assert external.contains_page(100) and not external.contains_page(200)
    with pytest.raises(radixkv.Unsupported):
        external.begin(tokens)


def test_k11_namespaces_share_nothing(cache: radixkv.Cache) -> None:
    first = radixkv.namespace_of("tenant a")
    second = radixkv.namespace_of("tenant b")
    with cache.begin(ids(64), space=first) as sequence:
        sequence.publish(64)
    assert cache.probe(ids(64), space=first) == 64
    assert cache.probe(ids(64), space=second) == 0
    assert cache.probe(ids(64)) == 0
    assert [space for space, _ in cache.namespaces()] == [first]
    assert cache.clear(second).namespace_count == 0
    done = cache.clear(first)
    assert (done.namespace_count, done.freed_page_count) == (1, 4)
    assert cache.probe(ids(64), space=first) == 0


def test_clear_by_field(cache: radixkv.Cache) -> None:
    spaces = [radixkv.Namespace(lora_id=lora, epoch=epoch) for lora in (0, 1) for epoch in (0, 1)]
    for space in spaces:
        with cache.begin(ids(32), space=space) as sequence:
            sequence.publish(32)
    assert cache.clear(spaces[0], lora=True).namespace_count == 2
    assert [cache.probe(ids(32), space=space) for space in spaces] == [0, 0, 32, 32]
    assert cache.clear(everything=True).namespace_count == 2


def test_c02_continue_fork_and_retain(cache: radixkv.Cache) -> None:
    parent = cache.begin(ids(40))
    parent.publish(40)
    children = cache.fork(parent.id, 3, reserve=16)
    assert len({child.id for child in children}) == 3
    for child in children:
        assert child.info().inherited_position_count > 0
        copies = child.copies()
        assert copies["position_count"].tolist() == [8]
        child.confirm_copies()
        child.append([1])
        child.release()
    kept = parent.retain()
    assert kept is not None and cache.retained().tolist() == [kept]
    with cache.continue_from(kept, ids(5, 700)) as child:
        assert child.info().position_count == 45
        assert child.info().inherited_position_count == 40
    with pytest.raises(ValueError, match="pool"):
        cache.drop_retained(1, pool=1)
    assert cache.drop_retained(pool=0) > 0
    with pytest.raises(radixkv.StaleSequence):
        cache.continue_from(kept, [1])
    with cache.continue_from(kept, all_tokens=ids(45)) as child:
        assert child.info().inherited_position_count == 0


def test_j08_pages_come_chunk_by_chunk(cache: radixkv.Cache) -> None:
    with cache.begin(ids(100), allocate=32) as sequence:
        assert sequence.info().page_count == 2
        sequence.allocate(64)
        assert sequence.info().page_count == 4
        sequence.allocate(100)
        sequence.append([1])
        sequence.truncate(100)
        assert sequence.info().position_count == 100


def test_rows_of_an_engine_that_keeps_them_itself(table: radixkv.PageTable) -> None:
    slot = table.allocate_slot()
    mine = np.zeros(3, np.uint32)
    table.allocate_pages(mine)
    table.map(slot, 0, mine[:2])
    table.reserve(slot, 50)
    assert table.row_capacity(slot) == 64
    np.testing.assert_array_equal(table.row(slot)[:2], mine[:2])
    assert table.can_reserve(slot, 100) and table.can_reserve(None, 100)
    assert not table.can_reserve(None, 100_000)
    mapping = np.zeros(3, np.int64)
    table.read_slot_mapping(slot, np.array([0, 17, 31], np.uint64), mapping)
    a, b = int(mine[0]) * PAGE_SIZE, int(mine[1]) * PAGE_SIZE
    assert mapping.tolist() == [a, b + 1, b + 15]
    indptr, indices, last = np.zeros(2, np.int32), np.zeros(8, np.int32), np.zeros(1, np.int32)
    rows = (pages(slot), pages(20))
    assert table.read_batch(*rows, indptr, None, last) == 2
    assert table.read_batch(*rows, indptr, indices, last) == 2
    assert (indptr.tolist(), last.tolist()) == ([0, 2], [4])
    assert indices[:2].tolist() == mine[:2].tolist()
    table.free_pages(mine[2:])
    table.free_slot(slot)
    assert table.stats().free_page_count == table.stats().total_page_count


def test_the_tree_can_be_looked_at(cache: radixkv.Cache) -> None:
    with cache.begin(ids(64)) as sequence:
        node = sequence.publish(64).node
        row = sequence.pages()
    info = cache.node_info(node)
    assert (info.page_count, info.end_position, info.child_count) == (4, 64, 0)
    np.testing.assert_array_equal(cache.node_pages(node), row[:4])
    [(space, root)] = cache.namespaces()
    assert space == radixkv.Namespace()
    assert cache.node_children(root).tolist() == [node]
    assert '"pages"' in cache.dump() or "pages" in cache.dump()
    assert cache.dump("dot").startswith("digraph")


def test_block_hash_index_finds_the_same(table: radixkv.PageTable) -> None:
    with radixkv.Cache(table, index="block_hash") as cache:
        with cache.begin(ids(100)) as sequence:
            sequence.publish(100)
        assert cache.probe(ids(100)) == 96
        cache.check()
