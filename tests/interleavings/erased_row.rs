//! Rows of the caller's whose pages others have by now.
use crate::{NEXT, SHARED, Step, at_yield};
use radixkv::index::Namespace;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, InsertRequest, Shared};
use radixkv::token::TokenList;
use std::sync::Arc;

/// K12: a row that is erased gives up its own pages alone: not one that went to the cache from it,
/// was evicted, and is somebody else's now.
#[test]
fn k12_an_erased_row_gives_up_no_page_of_a_sequence() {
    let config =
        PageTableConfig { page_size: 1, page_count: 3, slot_count: 2, ..Default::default() };
    let shared = Shared::new(config).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    let slot = shared.write().allocate_slot().unwrap();
    shared.reserve_row(slot, 1).unwrap();
    let pages = shared.read().row_from(slot, 0).unwrap().to_vec();
    let request = InsertRequest {
        groups: &[],
        namespace: &Namespace::default(),
        tokens: TokenList::text(&[7]),
        pages: &pages,
        from: None,
        from_token: 0,
        from_page: 0,
        lock: false,
        moved: None,
    };
    assert_eq!(shared.turn().insert(request, |_, done, _| done).unwrap().0.claimed, 1);
    assert_eq!(shared.evict(1, |_, _| {}).unwrap(), 1);
    let begun = shared.begin(&Namespace::default(), TokenList::text(&[9]), 0).unwrap();
    assert_eq!(shared.read().row_from(begun.slot, 0).unwrap(), &pages[..], "it got that page");

    shared.turn().erase(slot).unwrap();
    assert_eq!(shared.read().page_table_stats().free, 1, "the sequence has the other one");
    shared.read().audit().unwrap();
    shared.turn().release(begun.id).unwrap();
    assert_eq!(shared.read().page_table_stats().free, 2);
    shared.read().audit().unwrap();
}

/// M06: a row that is erased while its cache goes takes nothing from the next one's turn: that
/// loses its cached pages, which are somebody else's soon.
#[test]
fn m06_a_row_that_goes_with_the_cache_leaves_no_page_in_the_next() {
    for at in 0.. {
        SHARED.set(None);
        NEXT.set(None);
        let config =
            PageTableConfig { page_size: 1, page_count: 8, slot_count: 3, ..Default::default() };
        let shared = Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap();
        let shared = Arc::new(shared);
        shared.attach_cache(CacheConfig::default()).unwrap();
        SHARED.set(Some(shared.clone()));
        let begun = shared.begin(&Namespace::default(), TokenList::text(&[7, 8]), 0).unwrap();
        shared.turn().publish(begun.id, 1).unwrap();
        shared.turn().release(begun.id).unwrap();
        let cached = (1..8).find(|&page| shared.read().contains_page(page)).unwrap();
        let mut rows = [(); 2].map(|()| shared.write().allocate_slot().unwrap());
        rows.sort_unstable();
        let [first, second] = rows;
        // Longer than a slice, and no page of the cache in it.
        shared.reserve_row(first, 3).unwrap();
        shared.turn().map(second, 0, &[cached]).unwrap();
        let step: Step = Box::new(move |shared| shared.turn().erase(first).unwrap());
        NEXT.set(Some((at, step)));
        shared.detach_cache();
        let came = NEXT.take().is_none();
        assert!(shared.read().row_from(second, 0).unwrap().is_empty(), "at yield {at}");
        shared.read().audit().unwrap();
        SHARED.set(None);
        if !came {
            assert!(at > 3, "{at} yields only");
            return;
        }
    }
}
