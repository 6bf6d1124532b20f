//! A publish, or an allocate, that finds no memory, with several groups.
use super::failing::{Failure, failing};
use radixkv::attention::RowMask;
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::Namespace;
use radixkv::memory::Arc;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::plan::{Plan, PlanRow};
use radixkv::sequence::{ComputedRow, Room};
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;

/// M05, G11: with several groups. What the publish before did is still to be read. But a state
/// is not that after what the others find: all of it was computed.
#[test]
fn m05_a_publish_without_memory_changes_nothing_in_any_group() {
    let window = GroupKind::Window { window: 64, sinks: 0 }.in_pool(1);
    let state = GroupConfig { kind: GroupKind::State, pool: 2, draft_states: 3 };
    let config = PageTableConfig {
        page_size: 4,
        page_count: 9,
        slot_count: 1,
        groups: Groups::new(&[GroupConfig::default(), window, state]).unwrap(),
        more_pools: MorePools::new(&[9, 9]).unwrap(),
        ..PageTableConfig::default()
    };
    let ids: Vec<u32> = (0..8).collect();
    let mut refused = 0;
    for request in 0.. {
        let shared = Shared::new(config).unwrap();
        shared.attach_cache(CacheConfig::default()).unwrap();
        let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap();
        let id = begun.id;
        shared.turn().publish(id, 8).unwrap();
        let before = shared.read().published_groups(id).unwrap();
        assert_eq!(before.claimed[1], 2);
        shared.append(id, TokenList::text(&[8, 9, 10, 11])).unwrap();
        let publish = || shared.turn().publish(id, 12);
        let (done, _) = failing(Failure::From(request), publish);
        shared.read().check().unwrap();
        if done.is_ok() {
            assert_eq!(shared.read().published_groups(id).unwrap().claimed[1], 1);
            break;
        }
        assert!(matches!(done, Err(Error::OutOfMemory(_))), "{done:?}");
        assert_eq!(shared.read().published_groups(id).unwrap(), before, "request {request}");
        // The states are after 12 positions, whoever finds how many of them.
        let saved = shared.write().checkpoint(id);
        assert!(matches!(saved, Err(Error::State(_))), "{saved:?}");
        refused += 1;
    }
    assert!(refused > 0, "nothing was refused");
}

/// M05, J04: a plan that was set before stays good: its pages are where they were.
#[test]
fn m05_an_allocate_without_memory_leaves_plans_as_they_are() {
    let window = GroupKind::Window { window: 64, sinks: 0 }.in_pool(1);
    let config = PageTableConfig {
        page_size: 1,
        page_count: 101,
        slot_count: 1,
        groups: Groups::new(&[GroupConfig::default(), window]).unwrap(),
        more_pools: MorePools::new(&[101]).unwrap(),
        ..PageTableConfig::default()
    };
    let ids: Vec<u32> = (0..100).collect();
    let mut refused = 0;
    for request in 0.. {
        let shared = Arc::new(Shared::with_slices(config, 1, None).unwrap()).unwrap();
        shared.attach_cache(CacheConfig::default()).unwrap();
        let room = Room { reserve: 0, first: 2 };
        let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), room).unwrap();
        let plan = Plan::new(shared.clone()).unwrap();
        let row = PlanRow {
            row: ComputedRow::Sequence(begun.id),
            start: 0,
            count: 2,
            mask: RowMask::Causal,
            regions: &[],
            tree_masks: &[],
        };
        plan.set(&[row]).unwrap();
        let allocate = || shared.turn().allocate(begun.id, 100);
        let (done, _) = failing(Failure::From(request), allocate);
        if done.is_ok() {
            break;
        }
        assert!(matches!(done, Err(Error::OutOfMemory(_))), "{done:?}");
        assert!(plan.to_compute().is_ok(), "request {request}");
        refused += 1;
    }
    assert!(refused > 0, "nothing was refused");
}
