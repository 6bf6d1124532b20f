//! M06: an eviction lets others in between two slices. Whoever is let in inserts pages of its own
//! and evicts too: each page that goes is told to one of them, and once.
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, InsertRequest, Shared};
use radixkv::token::TokenList;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

const PAGES: u32 = 60;

thread_local! {
    static SHARED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// Pages that nobody has, and how many prefixes there were.
    static FREE: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    static PREFIXES: Cell<u32> = const { Cell::new(0) };
    static LET_IN: Cell<u32> = const { Cell::new(0) };
}

/// Inserts a prefix of its own of three pages, of one position each.
fn insert(shared: &Shared) {
    let pages = FREE.with_borrow_mut(|free| free.split_off(free.len() - 3));
    let first = PREFIXES.replace(PREFIXES.get() + 1) * 10;
    let ids = [first, first + 1, first + 2];
    let request = InsertRequest {
        groups: &[],
        namespace: &Namespace::default(),
        tokens: TokenList::text(&ids),
        pages: &pages,
        from: None,
        from_token: 0,
        from_page: 0,
        lock: false,
        moved: None,
    };
    assert_eq!(shared.turn().insert(request, |_, done, _| done).unwrap().0.claimed, 3);
}

fn evict(shared: &Shared, count: usize) -> usize {
    let mut told = Vec::new();
    let evicted = shared.evict(count, |at, page| {
        assert_eq!(at, told.len());
        told.push(page);
    });
    assert_eq!(evicted.unwrap(), told.len());
    // All of them are known at the end of the call, as in C.
    FREE.with_borrow_mut(|free| free.extend(&told));
    told.len()
}

fn at_yield() {
    // Nobody is let in by those who were let in.
    let Some(shared) = SHARED.take() else { return };
    let turn = LET_IN.replace(LET_IN.get() + 1);
    shared.read().audit().unwrap();
    match turn % 3 {
        0 if FREE.with_borrow(Vec::len) >= 3 => insert(&shared),
        1 => assert!(evict(&shared, 2) > 0),
        _ => {}
    }
    SHARED.set(Some(shared));
}

#[test]
fn j07_others_are_let_in_while_pages_are_evicted() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let config = PageTableConfig {
            page_size: 1,
            page_count: PAGES + 1,
            external_pool: true,
            ..PageTableConfig::default()
        };
        let shared = Arc::new(Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap());
        shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
        FREE.set((1..=PAGES).collect());
        (0..15).for_each(|_| insert(&shared));
        LET_IN.set(0);
        SHARED.set(Some(shared.clone()));
        assert_eq!(evict(&shared, 20), 20);
        // Between two of them: for what the allocator does then, and for others.
        assert_eq!(LET_IN.get(), 2 * 19);
        SHARED.set(None);
        let mut free = FREE.take();
        let stats = shared.read().page_table_stats();
        assert_eq!((stats.outside, stats.cached), (free.len(), PAGES as usize - free.len()));
        assert!(free.iter().all(|&page| !shared.read().contains_page(page)));
        let count = free.len();
        free.sort_unstable();
        free.dedup();
        assert_eq!(free.len(), count, "a page was told twice");
        shared.read().audit().unwrap();
    }
}
