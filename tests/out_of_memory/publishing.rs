//! A publish that finds no memory.
use super::failing::{Failure, failing};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;

/// M05, G08, G11: with several groups. What the publish before did is still to be read, and draft
/// tokens may be taken back as if nobody had published them.
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
        // The first of the four is kept alone.
        shared.write().truncate(id, 9).unwrap_or_else(|error| panic!("{request}: {error}"));
        refused += 1;
    }
    assert!(refused > 0, "nothing was refused");
}
