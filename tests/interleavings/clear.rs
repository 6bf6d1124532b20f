//! Clearing, interleaved with everything else.
use crate::{CLEARED, NEXT, SHARED, World, YIELDS, at_yield, tokens};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, Scope, Shared};
use radixkv::token::TokenList;
use std::sync::Arc;

/// K11: of all that was published before, or by whom that began before, nothing is found.
pub fn clear(world: &World) -> Result<(), Error> {
    CLEARED.set(true);
    world.shared.clear(Scope::default())?;
    for family in [1, 2, 3, 20, 21, 22, 23] {
        let ids = tokens(family, 8);
        let found = world.shared.probe(&Namespace::default(), TokenList::text(&ids))?;
        assert_eq!(found, (0, 0), "family {family}");
        let state = world.shared.read();
        let found = state.find(&Namespace::default(), TokenList::text(&ids))?;
        assert_eq!(found.positions(), 0, "family {family}");
    }
    Ok(())
}

/// K11: a begin that is short of pages gives up what it uses of windows, and lets others in: of
/// what they clear then it reuses nothing.
#[test]
fn k11_a_begin_that_leaves_its_windows_reuses_nothing_that_was_cleared() {
    let mut has_begun = false;
    for at in 0.. {
        NEXT.set(None);
        let window = GroupKind::Window { window: 16, sinks: 0 };
        let config = PageTableConfig {
            page_size: 2,
            page_count: 40,
            slot_count: 4,
            groups: Groups::new(&[GroupConfig::default(), window.in_pool(1)]).unwrap(),
            more_pools: MorePools::new(&[60]).unwrap(),
            ..PageTableConfig::default()
        };
        let shared = Arc::new(Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap());
        shared.attach_cache(CacheConfig::default()).unwrap();
        SHARED.set(Some(shared.clone()));
        let ids: Vec<u32> = (0..30).collect();
        let space = Namespace::default();
        let first = shared.begin(&space, TokenList::text(&ids[..20]), 0).unwrap().id;
        shared.turn().publish(first, 20).unwrap();
        shared.turn().release(first).unwrap();
        // Five pages more than those of the prefix are not to be had.
        let free = shared.read().pool_stats(0).unwrap().free;
        let loose = shared.allocate_pages(free - 1).unwrap();
        NEXT.set(Some((
            at,
            Box::new(move |shared: &Shared| {
                shared.clear(Scope::default()).unwrap();
                shared.turn().free_pages(0, &loose).unwrap();
                // The name leads somewhere again.
                let ids = [900, 901, 902];
                let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), 0);
                shared.turn().publish(begun.unwrap().id, 3).unwrap();
            }),
        )));
        let begun = shared.begin(&space, TokenList::text(&ids), 0);
        if NEXT.take().is_some() {
            assert!(has_begun, "nobody got in in time");
            break;
        }
        if let Ok(begun) = begun {
            has_begun = true;
            assert_eq!(begun.cached_positions, 0, "at {at}");
        }
        shared.read().audit().unwrap();
    }
}

/// K11: who is refused pages after its prompt was cleared leaves none of that behind.
#[test]
fn k11_a_begin_that_is_refused_leaves_nothing_that_was_cleared() {
    let mut was_refused = false;
    for at in 0.. {
        NEXT.set(None);
        let config = PageTableConfig {
            page_size: 1,
            page_count: 400,
            slot_count: 2,
            ..PageTableConfig::default()
        };
        let shared = Arc::new(Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap());
        shared.attach_cache(CacheConfig::default()).unwrap();
        SHARED.set(Some(shared.clone()));
        // More pages than go at once when somebody lets go of them.
        let ids: Vec<u32> = (0..320).collect();
        let space = Namespace::default();
        let first = shared.begin(&space, TokenList::text(&ids[..300]), 0).unwrap().id;
        shared.turn().publish(first, 300).unwrap();
        shared.turn().release(first).unwrap();
        NEXT.set(Some((
            at,
            Box::new(|shared: &Shared| {
                shared.clear(Scope::default()).unwrap();
                let free = shared.read().pool_stats(0).unwrap().free;
                shared.allocate_pages(free).unwrap();
            }),
        )));
        let begun = shared.begin(&space, TokenList::text(&ids), 0);
        if NEXT.take().is_some() {
            assert!(was_refused, "nobody got in in time");
            break;
        }
        if begun.is_err() {
            was_refused = true;
            assert_eq!(shared.read().pool_stats(0).unwrap().cached, 0, "at {at}");
        }
        shared.read().audit().unwrap();
    }
}

/// K11: a clear lets others in while it looks at retained sequences, also where it drops none.
#[test]
fn k11_m06_a_clear_looks_at_many_retained_sequences_in_portions() {
    const COUNT: u32 = 1000;
    NEXT.set(None);
    let config = PageTableConfig { page_count: 40, slot_count: 2, ..PageTableConfig::default() };
    let shared = Arc::new(Shared::with_slices(config, 256, Some(Box::new(at_yield))).unwrap());
    shared
        .attach_cache(CacheConfig { retained_sequences: COUNT, ..CacheConfig::default() })
        .unwrap();
    SHARED.set(Some(shared.clone()));
    // All keep the same page: the tree has little to look at.
    let ids = tokens(1, config.page_size + 1);
    for _ in 0..COUNT {
        let id = shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap().id;
        shared.turn().publish(id, config.page_size as usize).unwrap();
        assert!(shared.turn().retain(id).unwrap());
    }
    YIELDS.set(0);
    let other = Namespace { salt: [7; 32], ..Namespace::default() };
    let cleared = shared.clear(Scope::exactly(other)).unwrap();
    assert_eq!((cleared.namespaces, cleared.dropped), (0, 0));
    assert!(YIELDS.get() >= COUNT as usize / 64, "{} yields", YIELDS.get());
    assert_eq!(shared.clear(Scope::default()).unwrap().dropped, COUNT as usize);
    shared.read().audit().unwrap();
}
