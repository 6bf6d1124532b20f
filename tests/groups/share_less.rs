//! A sequence that has computed nothing is made to reuse less while a state of it is being saved,
//! or while a child is still to copy its state.
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::sequence::{Continuation, Room};
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;

const PAGE_SIZE: u32 = 2;
const PAGES: u32 = 64;

/// A cache with a group of states in a pool of its own.
fn world() -> Shared {
    let groups = [GroupConfig::default(), GroupKind::State.in_pool(1)];
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: PAGES,
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

fn confirm(shared: &Shared, id: SequenceId) {
    shared.ending(|state| state.confirm_copies(id)).unwrap();
}

/// Publishes so many positions of a sequence, and saves its state there.
fn publish_and_save(shared: &Shared, id: SequenceId, computed: usize) {
    shared.turn().publish(id, computed).unwrap();
    assert_eq!(shared.write().checkpoint(id).unwrap(), 1);
    confirm(shared, id);
}

fn check(shared: &Shared) {
    let state = shared.read();
    state.audit().unwrap();
    state.check().unwrap();
}

/// A child that was told to save the state that it got from its parent: that copy is open when the
/// ranks agree on less. It panics in `Hung::entry`: the source of a save is a private page.
#[test]
fn g07_a_state_that_is_being_saved_stands_in_no_way_of_sharing_less() {
    let shared = world();
    let parent = begin(&shared, 9);
    publish_and_save(&shared, parent, 4);
    shared.turn().publish(parent, 8).unwrap();
    let child = shared
        .continue_from(&Continuation {
            parent,
            namespace: &Namespace::default(),
            suffix: TokenList::text(&[100]),
            all: None,
            room: Room::default(),
            running: true,
        })
        .unwrap();
    assert_eq!(child.cached_positions, 8);
    confirm(&shared, child.id);
    // Nobody has saved the state after 8 positions yet.
    assert_eq!(shared.write().checkpoint(child.id).unwrap(), 1);
    check(&shared);
    match shared.turn().share_less(child.id, 5) {
        Ok(reused) => assert_eq!(reused, 4),
        Err(error) => assert!(matches!(error, Error::State(_)), "{error}"),
    }
    check(&shared);
    shared.turn().release(child.id).unwrap();
    shared.turn().release(parent).unwrap();
    check(&shared);
    assert_eq!(shared.read().pool_stats(1).unwrap().private, 0);
}

/// A child that is still to copy the state of its parent gets that one, not the one before it to
/// which the parent goes back meanwhile.
#[test]
fn g07_a_state_that_a_child_is_to_copy_is_not_overwritten_by_sharing_less() {
    let shared = world();
    let first = begin(&shared, 9);
    publish_and_save(&shared, first, 4);
    publish_and_save(&shared, first, 8);
    shared.turn().release(first).unwrap();

    let parent = begin(&shared, 9);
    confirm(&shared, parent);
    let child = shared.fork(parent, 1, 0).unwrap()[0].id;
    let source = shared.read().open_copies(child).unwrap().1[0].source;
    match shared.turn().share_less(parent, 5) {
        Ok(reused) => assert_eq!(reused, 4),
        Err(error) => return assert!(matches!(error, Error::State(_)), "{error}"),
    }
    let state = shared.read();
    let (_, copies) = state.open_copies(parent).unwrap();
    assert!(
        copies.iter().all(|copy| copy.target != source),
        "the engine is told to write {source}, which the child is still to read: {copies:?}"
    );
}
