//! M07: no counter that use can exhaust ends in a panic. The counters of a cache begin near their
//! ends here; the index alone is tested in `tests/index_limits.rs`, the snapshot cache in
//! `tests/snapshot_limits.rs`.
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::{IndexKind, Limits, Namespace};
use radixkv::memory::Arc;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// A test takes all tags that there are: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The numbers of a slot's sequences are smaller.
const NUMBERS: u64 = 1 << 36;

fn table(slot_count: u32) -> Arc<Shared> {
    let config =
        PageTableConfig { page_size: 1, page_count: 40, slot_count, ..PageTableConfig::default() };
    Shared::new(config).unwrap()
}

fn begin(shared: &Shared, ids: &[u32]) -> Result<SequenceId, Error> {
    Ok(shared.begin(&Namespace::default(), TokenList::text(ids), 0)?.id)
}

fn check(shared: &Shared) {
    assert!(!shared.is_poisoned());
    let state = shared.read();
    state.audit().unwrap();
    state.check().unwrap();
}

/// The round that ended in an assertion after 8.4 million turns: each makes one leaf longer and
/// shorter again, and each of that takes a generation.
#[test]
fn m07_a_hot_leaf_outlives_its_generations() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        for generations in [100, 1000] {
            let shared = table(4);
            let limits = Limits { generations, ..Limits::default() };
            shared.attach_cache(CacheConfig { index, limits, ..CacheConfig::default() }).unwrap();
            for round in 0..20_000_u32 {
                let sequence = begin(&shared, &[1, 2, 3, 4 + round % 3]).unwrap();
                for count in 1..=4 {
                    shared.write().publish(sequence, count).unwrap();
                }
                shared.write().release(sequence).unwrap();
                assert_eq!(shared.evict(1, |_, _| {}), Ok(1));
                if round % 1000 == 0 {
                    check(&shared);
                }
            }
            check(&shared);
        }
    }
}

#[test]
fn m07_a_slot_whose_numbers_are_used_up_is_not_taken_again() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let shared = table(3);
    let limits = Limits { first_sequence: NUMBERS - 10, ..Limits::default() };
    shared.attach_cache(CacheConfig { limits, ..CacheConfig::default() }).unwrap();
    let mut seen = BTreeSet::new();
    let refused = loop {
        match begin(&shared, &[1, 2, 3]) {
            Ok(id) => {
                assert!(seen.insert(id), "sequence {:#x} came back", id.0);
                check(&shared);
                shared.write().release(id).unwrap();
            }
            Err(error) => break error,
        }
    };
    // Each slot had the ten numbers that were left.
    assert_eq!((seen.len(), refused), (30, Error::OutOfSlots(1, 0, 3)));
    for id in seen {
        let stale = shared.read().sequence_info(id).map(|info| info.id);
        assert_eq!(stale, Err(Error::StaleSequence(id.0)));
    }
    check(&shared);
}

#[test]
fn m07_ids_of_a_cache_that_is_gone_name_nothing_of_a_later_one() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (mut sequences, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    let shared = table(2);
    for round in 0..1000 {
        shared.attach_cache(CacheConfig::default()).unwrap();
        for _ in 0..1 + round % 3 {
            let id = begin(&shared, &[1, 2, 3]).unwrap();
            assert!(sequences.insert(id), "sequence {:#x} came back", id.0);
            shared.write().publish(id, 2).unwrap();
            let node = shared.read().sequence_info(id).unwrap().node.unwrap();
            shared.write().release(id).unwrap();
            // The same node is found as long as the cache is there.
            nodes.insert((node, round));
        }
        shared.detach_cache();
    }
    let different: BTreeSet<_> = nodes.iter().map(|(node, _)| node).collect();
    assert_eq!(different.len(), nodes.len(), "a node's id came back");
    // A cache that goes with its page table has used its ids as well.
    for _ in 0..600 {
        let shared = table(1);
        shared.attach_cache(CacheConfig::default()).unwrap();
        let id = begin(&shared, &[1, 2]).unwrap();
        assert!(sequences.insert(id), "sequence {:#x} came back", id.0);
    }
}

#[test]
fn m07_there_are_as_many_caches_at_a_time_as_there_are_tags() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let tables: Vec<_> = (0..300).map(|_| table(1)).collect();
    let mut made = 0;
    let refused = tables.iter().find_map(|shared| {
        let attached = shared.attach_cache(CacheConfig::default());
        made += usize::from(attached.is_ok());
        attached.err()
    });
    // Two other tests here use up all numbers of a tag.
    assert!((253..=255).contains(&made), "{made} caches");
    assert!(matches!(refused, Some(Error::State(_))), "{refused:?}");
    drop(tables);
    table(1).attach_cache(CacheConfig::default()).unwrap();
}

#[test]
fn m07_slots_that_one_cache_used_up_are_good_for_the_next() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let shared = table(3);
    // Each slot has one number left.
    let limits = Limits { first_sequence: NUMBERS - 1, ..Limits::default() };
    shared.attach_cache(CacheConfig { limits, ..CacheConfig::default() }).unwrap();
    for _ in 0..3 {
        let id = begin(&shared, &[1, 2, 3]).unwrap();
        shared.write().release(id).unwrap();
    }
    assert_eq!(begin(&shared, &[1, 2, 3]), Err(Error::OutOfSlots(1, 0, 3)));

    shared.detach_cache();
    shared.attach_cache(CacheConfig::default()).unwrap();
    check(&shared);
    let ids: Vec<_> = (0..3).map(|_| begin(&shared, &[1, 2, 3]).unwrap()).collect();
    check(&shared);
    ids.into_iter().for_each(|id| shared.write().release(id).unwrap());
    check(&shared);
}
