//! A long list that is inserted in portions, of which a later one lacks memory.
use super::failing::{Failure, failing};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, GroupRow, InsertRequest, InsertResult, Shared};
use radixkv::token::TokenList;

const PAGE_SIZE: u32 = 2;
/// Some portions of either index, when a slice is a page.
const COUNT: u32 = 70;

/// A cache whose slices are a page, and a list with pages for it.
fn ready(index: IndexKind) -> (Shared, Vec<u32>, Vec<u32>) {
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: COUNT + 2,
        slot_count: 2,
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 1, None).unwrap();
    shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
    let pages = shared.allocate_pages(COUNT as usize).unwrap();
    let ids: Vec<u32> = (0..COUNT * PAGE_SIZE).collect();
    (shared, ids, pages)
}

fn insert(shared: &Shared, ids: &[u32], pages: &[u32]) -> Result<InsertResult, Error> {
    let request = InsertRequest {
        groups: &[],
        namespace: &Namespace::default(),
        tokens: TokenList::text(ids),
        pages,
        from: None,
        from_token: 0,
        from_page: 0,
        lock: true,
        moved: None,
    };
    shared.turn().insert(request, |_, done, _| done).map(|(done, _)| done)
}

fn check(shared: &Shared) {
    let state = shared.read();
    state.audit().unwrap();
    state.check().unwrap();
}

#[test]
fn m05_a_long_insert_says_how_far_it_came() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let (mut refused, mut short) = (0, 0);
        for at in 0.. {
            let (shared, ids, pages) = ready(index);
            let before = shared.read().page_table_stats();
            let failure = if at % 2 == 0 { Failure::From(at / 2) } else { Failure::Once(at / 2) };
            let (done, failed) = failing(failure, || insert(&shared, &ids, &pages));
            check(&shared);
            let stats = shared.read().page_table_stats();
            let Ok(done) = done else {
                // Nothing changed: all pages are the caller's.
                assert!(failed > 0, "{index:?} at {at}: {done:?}");
                assert_eq!((stats.cached, stats.private), (before.cached, before.private));
                shared.turn().free_pages(0, &pages).unwrap();
                refused += 1;
                continue;
            };
            assert_eq!((done.pages, stats.cached), (done.claimed, done.claimed));
            // Those behind are the caller's still; the others are locked, and stay.
            shared.turn().free_pages(0, &pages[done.pages..]).unwrap();
            shared.evict(COUNT as usize, |_, _| {}).unwrap();
            assert_eq!(shared.read().page_table_stats().cached, done.claimed);
            let found = shared.read().find(&Namespace::default(), TokenList::text(&ids)).unwrap();
            assert_eq!(found.pages(), done.pages);
            shared.turn().unlock(done.lock.unwrap()).unwrap();
            shared.evict(COUNT as usize, |_, _| {}).unwrap();
            let stats = shared.read().page_table_stats();
            assert_eq!((stats.cached, stats.free), (0, COUNT as usize + 1));
            check(&shared);
            short += usize::from(done.pages < COUNT as usize);
            if failed == 0 {
                assert_eq!(done.pages, COUNT as usize);
                break;
            }
        }
        assert!(refused > 2 && short > 2, "{index:?}: {refused} refused, {short} short");
    }
}

/// What a later portion would be refused for is refused before the first.
#[test]
fn m05_a_long_insert_that_is_wrong_at_its_end_changes_nothing() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let (shared, ids, pages) = ready(index);
        let wrong = |ids: &[u32], pages: &[u32], named: &str| {
            let refused = insert(&shared, ids, pages).unwrap_err();
            assert!(format!("{refused}").contains(named), "{refused}");
            let stats = shared.read().page_table_stats();
            assert_eq!((stats.cached, stats.private), (0, COUNT as usize));
            check(&shared);
        };
        let mut given = pages.clone();
        for bad in [0, pages[3], COUNT + 1, COUNT + 50] {
            *given.last_mut().unwrap() = bad;
            wrong(&ids, &given, &format!("args.pages[{}] {bad}", COUNT - 1));
        }
        let mut keys = ids.clone();
        *keys.last_mut().unwrap() = 1 << 31;
        wrong(&keys, &pages, &format!("ids[{}]", COUNT * PAGE_SIZE - 1));
        wrong(&ids, &pages[1..], "args.page_count");
    }
}

/// The same with other groups, whose pages come last.
#[test]
fn m05_a_long_insert_of_groups_says_what_came() {
    insert_groups(GroupKind::Window { window: 7, sinks: 2 }, [3, 1]);
    // The second page is not given: a lock protects the one before it.
    insert_groups(GroupKind::Full, [1, 1]);
}

/// Inserts pages of a group of that kind, and of states. A lock on all protects so many of them.
fn insert_groups(kind: GroupKind, protected: [usize; 2]) {
    let (spine, state) = (GroupConfig::default(), GroupKind::State.in_pool(1));
    let groups = Groups::new(&[spine, kind.in_pool(1), state]).unwrap();
    let (mut refused, mut short) = (0, 0);
    for at in 0.. {
        let config = PageTableConfig {
            page_size: PAGE_SIZE,
            page_count: COUNT + 2,
            slot_count: 2,
            groups,
            more_pools: MorePools::new(&[2 * COUNT + 2]).unwrap(),
            ..PageTableConfig::default()
        };
        let shared = Shared::with_slices(config, 1, None).unwrap();
        let (index, checkpoint_limit) = (IndexKind::Radix, 3);
        shared
            .attach_cache(CacheConfig { index, checkpoint_limit, ..CacheConfig::default() })
            .unwrap();
        let ids: Vec<u32> = (0..COUNT * PAGE_SIZE).collect();
        let pages = shared.allocate_pages(COUNT as usize).unwrap();
        let rows = [1, 2].map(|group| {
            let mut row = shared.allocate_pool_pages(1, COUNT as usize).unwrap();
            // Some are not given.
            for place in (0..COUNT as usize).filter(|place| place % 3 == group) {
                shared.turn().free_pages(1, &[std::mem::take(&mut row[place])]).unwrap();
            }
            row
        });
        let groups = [1, 2].map(|group| GroupRow { group, pages: &rows[group - 1] });
        let request = InsertRequest {
            groups: &groups,
            namespace: &Namespace::default(),
            tokens: TokenList::text(&ids),
            pages: &pages,
            from: None,
            from_token: 0,
            from_page: 0,
            lock: true,
            moved: None,
        };
        let failure = if at % 2 == 0 { Failure::From(at / 2) } else { Failure::Once(at / 2) };
        let mut published = [[0; COUNT as usize]; 2];
        let mut tell = |row: usize, place: usize, page| published[row][place] = page;
        let insert = || shared.turn().insert_telling(request, Some(&mut tell), |_, done, _| done);
        let (done, failed) = failing(failure, insert);
        check(&shared);
        let mut turn = shared.turn();
        let mut free = |row: &[u32], published: &[u32]| {
            let ours = row.iter().zip(published).filter(|(page, at)| page != at && **page != 0);
            ours.for_each(|(page, _)| turn.free_pages(1, &[*page]).unwrap());
        };
        rows.iter().zip(&published).for_each(|(row, published)| free(row, published));
        drop(turn);
        let Ok((done, _)) = done else {
            assert!(failed > 0, "at {at}: {done:?}");
            assert_eq!(published, [[0; COUNT as usize]; 2]);
            assert_eq!(shared.read().page_table_stats().cached, 0);
            shared.turn().free_pages(0, &pages).unwrap();
            refused += 1;
            continue;
        };
        shared.turn().free_pages(0, &pages[done.pages..]).unwrap();
        let claimed = published.iter().flatten().filter(|&&page| page != 0).count();
        assert_eq!(claimed, done.hung.claimed, "at {at}");
        let cached = |pool| shared.read().pool_stats(pool).unwrap().cached;
        assert_eq!((cached(0), cached(1)), (done.pages, claimed), "at {at}");
        let is_whole = done.pages == COUNT as usize && claimed > 0;
        // A lock protects what its end needs.
        shared.evict_from_pool(1, usize::MAX, usize::MAX, |_| {}).unwrap();
        let lock = done.lock.unwrap();
        let locked =
            [1, 2].map(|group| shared.read().locked_pages(lock, group).unwrap().iter().len());
        assert_eq!(locked.iter().sum::<usize>(), cached(1), "at {at}");
        assert!(!is_whole || locked == protected, "{kind:?}, at {at}: {locked:?}");
        shared.turn().unlock(lock).unwrap();
        shared.evict(COUNT as usize, |_, _| {}).unwrap();
        assert_eq!((cached(0), cached(1)), (0, 0), "at {at}");
        check(&shared);
        short += usize::from(!is_whole);
        if failed == 0 {
            assert!(is_whole, "{done:?}");
            break;
        }
    }
    assert!(refused > 5 && short > 5, "{refused} refused, {short} short");
}
