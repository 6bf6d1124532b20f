//! Rows of the caller's whose pages others have by now.
use radixkv::index::Namespace;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, InsertRequest, Shared};
use radixkv::token::TokenList;

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
