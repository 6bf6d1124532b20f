//! Two inserts that move the same lock.
use crate::{NEXT, SHARED, at_yield};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::{LockId, NodeId};
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, GroupRow, InsertRequest, Shared};
use radixkv::token::TokenList;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A portion of either index is a page with that.
const PAGE_SIZE: usize = 32;

/// Pages: what the lock is on first, and of what is inserted behind.
const FIRST: usize = 2;
const ALL: u32 = 8;

/// What somebody else inserts behind where the lock is.
const OTHERS: [&[u32]; 3] = [
    // A branch.
    &[900, 901],
    // What the long insert is about to bring, and more of that.
    &[2, 3, 4, 5],
    &[3, 4, 5, 6],
];

/// Inserts pages, of tokens that are all the same, with some of its own for each group, behind the
/// first so many and the node that those end at. Returns that of all, and the new lock if one is
/// asked for.
fn insert(
    shared: &Shared,
    ids: &[u32],
    after: Option<(NodeId, usize)>,
    (lock, moved): (bool, Option<LockId>),
) -> Result<(NodeId, Option<LockId>), Error> {
    let pools = 0..shared.group_count() as u32;
    let rows = pools.clone().map(|pool| shared.allocate_pool_pages(pool, ids.len()));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let groups = rows.iter().enumerate().skip(1);
    let groups: Vec<_> = groups.map(|(group, pages)| GroupRow { group, pages }).collect();
    let from_page = after.map_or(0, |(_, pages)| pages);
    let tokens: Vec<u32> = ids.iter().flat_map(|&id| [id; PAGE_SIZE]).collect();
    let request = InsertRequest {
        groups: &groups,
        namespace: &Namespace::default(),
        tokens: TokenList::text(&tokens),
        pages: &rows[0],
        from: after.map(|(node, _)| node),
        from_token: from_page * PAGE_SIZE,
        from_page,
        lock,
        moved,
    };
    let mut turn = shared.turn();
    let done = turn.insert(request, |state, done, _| (state.node_id(done.node), done.lock));
    // What is not the cache's now goes back.
    for (pool, row) in pools.zip(&rows) {
        row.iter().for_each(|&page| drop(turn.free_pages(pool, &[page])));
    }
    let ((node, lock), _) = done?;
    Ok((NodeId(node?), lock))
}

/// M06: whoever finds the lock that a long insert takes along, where it is between two portions,
/// may move it on: then it stays there, and protects what that call said.
fn moved_by_two(kinds: &[GroupKind], index: IndexKind) {
    let mut moves = 0;
    for more in OTHERS {
        for at in 0.. {
            NEXT.set(None);
            let mut groups = vec![GroupConfig::default()];
            let pools = kinds.iter().zip(1..).map(|(kind, pool)| kind.in_pool(pool));
            groups.extend(pools);
            let config = PageTableConfig {
                page_size: PAGE_SIZE as u32,
                page_count: 100,
                slot_count: 2,
                groups: Groups::new(&groups).unwrap(),
                more_pools: MorePools::new(&vec![100; kinds.len()]).unwrap(),
                ..PageTableConfig::default()
            };
            let shared = Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap();
            let shared = Arc::new(shared);
            shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
            SHARED.set(Some(shared.clone()));
            let ids: Vec<u32> = (0..ALL).collect();
            let (node, lock) = insert(&shared, &ids[..FIRST], None, (true, None)).unwrap();
            let lock = lock.unwrap();
            let went_to = Rc::new(Cell::new(None));
            let (noted, known) = (went_to.clone(), ids.clone());
            NEXT.set(Some((
                at,
                Box::new(move |shared: &Shared| {
                    for end in FIRST..=ALL as usize {
                        let behind = [&known[..end], more].concat();
                        let (node, _) = insert(shared, &known[..end], None, (false, None)).unwrap();
                        let after = Some((node, end));
                        if insert(shared, &behind, after, (true, Some(lock))).is_ok() {
                            noted.set(Some(behind));
                            break;
                        }
                    }
                    shared.read().audit().unwrap();
                }),
            )));
            let done = insert(&shared, &ids, Some((node, FIRST)), (true, Some(lock)));
            if NEXT.take().is_some() {
                break;
            }
            shared.read().audit().unwrap();
            let what = format!("{kinds:?}, {index:?}, {more:?} at {at}: {done:?}");
            for pool in (0..=kinds.len() as u32).rev() {
                shared.evict_from_pool(pool, usize::MAX, usize::MAX, |_| {}).unwrap();
                shared.read().audit().unwrap();
            }
            if let Some(behind) = went_to.take() {
                moves += 1;
                let first = shared.read().pool_stats(0).unwrap().cached;
                assert_eq!(first, behind.len(), "{what}");
            }
            shared.turn().unlock(lock).unwrap();
            for pool in (0..=kinds.len() as u32).rev() {
                shared.evict_from_pool(pool, usize::MAX, usize::MAX, |_| {}).unwrap();
                assert_eq!(shared.read().pool_stats(pool).unwrap().cached, 0, "{what}");
            }
            shared.read().audit().unwrap();
        }
    }
    assert!(moves > 5, "{moves} moves only");
}

#[test]
fn m06_a_lock_that_two_inserts_move_stays_where_the_second_put_it() {
    moved_by_two(&[], IndexKind::Radix);
    moved_by_two(&[], IndexKind::BlockHash);
}

#[test]
fn m06_a_lock_of_several_groups_that_two_inserts_move_stays_where_the_second_put_it() {
    // Those have no other index.
    let index = IndexKind::Radix;
    moved_by_two(&[GroupKind::Full], index);
    moved_by_two(&[GroupKind::Window { window: 100, sinks: 1 }], index);
    moved_by_two(&[GroupKind::Window { window: 70, sinks: 0 }, GroupKind::Full], index);
}
