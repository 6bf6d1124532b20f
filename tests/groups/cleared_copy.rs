//! Ranks agree on less for a sequence that is still to copy a part of a page, whose
//! namespace was cleared: what hangs on that page is let go of before the page, which goes at once.
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, Scope, Shared};
use radixkv::token::TokenList;

fn world() -> Shared {
    let window = GroupKind::Window { window: 9, sinks: 0 };
    let groups = [GroupConfig::default(), window.in_pool(1)];
    let config = PageTableConfig {
        page_size: 4,
        page_count: 64,
        slot_count: 4,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[40]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 256, None).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    shared
}

fn check(shared: &Shared) {
    let state = shared.read();
    state.audit().unwrap();
    state.check().unwrap();
}

/// G07, K11.
#[test]
fn g07_a_cleared_page_that_is_to_be_copied_goes_when_ranks_agree_on_less() {
    let (shared, space) = (world(), Namespace::default());
    let long: Vec<u32> = (0..25).collect();
    let first = shared.begin(&space, TokenList::text(&long), 0).unwrap().id;
    shared.turn().publish(first, 24).unwrap();
    shared.turn().release(first).unwrap();

    // It leaves the known prompt inside page 4.
    let other: Vec<u32> = long[..18].iter().copied().chain(100..104).collect();
    let begun = shared.begin(&space, TokenList::text(&other), 0).unwrap();
    assert_eq!((begun.cached_positions, begun.group_copies), (18, 1));
    assert!(begun.copy.is_some());
    shared.clear(Scope::default()).unwrap();
    check(&shared);

    // Panics in `Hung::take_down`: the group's copy still uses what hangs on page 4.
    assert_eq!(shared.turn().share_less(begun.id, 17).unwrap(), 16);
    check(&shared);
    shared.turn().release(begun.id).unwrap();
    check(&shared);
    for pool in 0..2 {
        let stats = shared.read().pool_stats(pool).unwrap();
        assert_eq!((stats.private, stats.cached), (0, 0), "pool {pool}");
    }
}
