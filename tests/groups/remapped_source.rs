//! A parent publishes the page that a child is still to copy, and somebody else was first with the
//! tokens: the parent's page of a window hangs on the other one's page of group 0 then, and the
//! child, which uses it, must keep that one too.
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;

const PAGE_SIZE: u32 = 4;

/// A cache with a window of a page, in a pool of its own.
fn world() -> Shared {
    let window = GroupKind::Window { window: 4, sinks: 0 };
    let groups = [GroupConfig::default(), window.in_pool(1)];
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: 32,
        slot_count: 4,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[16]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 256, None).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    shared
}

fn begin(shared: &Shared, tokens: u32) -> SequenceId {
    let ids: Vec<u32> = (0..tokens).collect();
    shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap().id
}

fn check(shared: &Shared) {
    let state = shared.read();
    state.audit().unwrap();
    state.check().unwrap();
}

/// G06, G11.
#[test]
fn g06_what_a_child_is_to_copy_keeps_the_page_that_it_hangs_on() {
    let shared = world();
    let parent = begin(&shared, 6);
    shared.turn().publish(parent, 6).unwrap();
    let child = shared.fork(parent, 1, 0).unwrap()[0];
    assert_eq!((child.cached_positions, child.group_copies), (6, 1));
    assert!(child.copy.is_some(), "it ends inside page 1");

    // Somebody else is first with page 1, ...
    let other = begin(&shared, 9);
    shared.turn().publish(other, 8).unwrap();
    shared.turn().release(other).unwrap();
    // ... and its page of the window goes: the only one that nobody uses.
    let mut gone = Vec::new();
    shared.evict_from_pool(1, 1, 16, |page| gone.push(page.group)).unwrap();
    assert_eq!(gone, [1]);

    shared.append(parent, TokenList::text(&[6, 7])).unwrap();
    let published = shared.turn().publish(parent, 8).unwrap();
    assert_eq!((published.claimed, published.remapped), (0, 1));
    shared.turn().release(parent).unwrap();
    check(&shared);

    // Panics in `Hung::take_down`: the child uses what hangs on page 1, and nothing locks that.
    shared.evict(64, |_, _| {}).unwrap();
    check(&shared);
    shared.ending(|state| state.confirm_copies(child.id)).unwrap();
    check(&shared);
    shared.turn().release(child.id).unwrap();
    shared.evict(64, |_, _| {}).unwrap();
    check(&shared);
    for pool in 0..2 {
        let stats = shared.read().pool_stats(pool).unwrap();
        assert_eq!((stats.private, stats.cached), (0, 0), "pool {pool}");
    }
}
