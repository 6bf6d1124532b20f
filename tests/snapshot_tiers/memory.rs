//! An attachment that runs out of memory.
use super::failing::{Failure, failing};
use super::world::{Part, World};
use super::{A, B, few};
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy, TieredSnapshots};

/// Each request for memory fails in turn: the store keeps all that it has, and the cache has none.
#[test]
fn m05_an_attachment_without_memory_loses_no_record() {
    let world = World::new(8, 64, TierPolicy::Through);
    let lists: Vec<Vec<u32>> =
        [A, B].map(Vec::from).into_iter().chain((10..30).map(|id| vec![id, 5, id])).collect();
    for list in &lists {
        world.insert(list, 1);
        world.settle();
    }
    let store = world.store.restarted();
    assert_eq!(store.records().len(), lists.len());
    let mut refused = 0;
    for request in 0.. {
        for failure in [Failure::From(request), Failure::Once(request)] {
            let cache = TieredSnapshots::<Part>::new(few(8)).unwrap();
            let (below, records) = (Box::new(store.clone()), store.records());
            let attach = || cache.attach(below, records, TierPolicy::Through);
            let (attached, failed) = failing(failure, attach);
            assert_eq!(store.records().len(), lists.len(), "{failure:?}");
            let stats = cache.tier_stats(&mut FreedSnapshots::new());
            match attached {
                Err(_) => {
                    assert!(failed > 0 && stats.is_none(), "{failure:?}");
                    refused += 1;
                }
                Ok(()) => assert_eq!(stats.unwrap().entries, lists.len()),
            }
            // Nor when the cache goes, which nobody detached.
            drop(cache);
            assert_eq!(store.records().len(), lists.len(), "{failure:?}");
            if failed == 0 {
                assert!(refused > 2 * lists.len(), "{refused} were refused");
                return;
            }
        }
    }
}
