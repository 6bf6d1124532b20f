//! A sequence that has computed nothing is made to reuse less while a state of it is being saved,
//! or while a child is still to copy its state.
use super::states::{PAGE_SIZE, check, with_states};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::sequence::{ComputedRow, Continuation, Room};
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;

const PAGES: u32 = 64;

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

/// A child that was told to save the state that it got from its parent: that copy is open when the
/// ranks agree on less. It panics in `Hung::entry`: the source of a save is a private page.
#[test]
fn g07_a_state_that_is_being_saved_stands_in_no_way_of_sharing_less() {
    let shared = with_states(PAGES, 16, 256);
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
    let shared = with_states(PAGES, 16, 256);
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

/// A step that was planned with a copy is planned anew when ranks agree on so little that the copy
/// is given up: also where no page of the row is another one then.
#[test]
fn g07_a_copy_that_is_given_up_is_no_part_of_a_plan_any_more() {
    let alone = Groups::default();
    let two = Groups::new(&[GroupConfig::default(), GroupConfig::default()]).unwrap();
    for groups in [alone, two] {
        let config = PageTableConfig {
            page_size: PAGE_SIZE,
            page_count: PAGES,
            slot_count: 4,
            groups,
            ..PageTableConfig::default()
        };
        let shared = Shared::with_slices(config, 256, None).unwrap();
        shared.attach_cache(CacheConfig::default()).unwrap();
        let first = begin(&shared, 9);
        shared.turn().publish(first, 8).unwrap();

        // Seven positions are the same: three pages, and one of two in the fourth.
        let ids: Vec<u32> = (0..7).chain(100..103).collect();
        let room = Room::default();
        let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), room).unwrap();
        assert_eq!((begun.cached_positions, begun.shared_pages), (7, 3));
        let planned = |start: usize| {
            let state = shared.read();
            let row = state.row_to_compute(ComputedRow::Sequence(begun.id), start, 1).unwrap();
            (row.version, row.copy.is_some())
        };
        let (version, has_copy) = planned(7);
        assert!(has_copy);
        assert_eq!(shared.turn().share_less(begun.id, 6).unwrap(), 6);
        let (now, has_copy) = planned(6);
        assert!(!has_copy);
        assert_ne!(now, version, "the plan with the copy is still good");
        check(&shared);
    }
}

/// G07, G11: a parent goes on behind a child's copy of its state, which is confirmed later, and
/// leaves that state to the cache: it must not hang on a page that the child does not hold.
#[test]
fn g07_a_state_that_a_child_is_to_copy_hangs_on_nothing_that_may_go_first() {
    let shared = with_states(PAGES, 16, 256);
    let parent = begin(&shared, 9);
    shared.turn().publish(parent, 8).unwrap();
    let child = shared.fork(parent, 1, 0).unwrap()[0].id;
    let source = shared.read().open_copies(child).unwrap().1[0].source;
    // The copy is on its way; what is computed next comes behind it.
    shared.append(parent, TokenList::text(&[9])).unwrap();
    shared.turn().publish(parent, 10).unwrap();
    shared.turn().donate(parent).unwrap();
    check(&shared);

    // Panics in `Hung::take_down`: the child uses what hangs on page 4, and nothing locks that.
    shared.evict(64, |_, _| {}).unwrap();
    check(&shared);
    assert_eq!(shared.read().open_copies(child).unwrap().1[0].source, source);
    confirm(&shared, child);
    check(&shared);
    shared.turn().release(child).unwrap();
    shared.evict(64, |_, _| {}).unwrap();
    check(&shared);
    for pool in 0..2 {
        let stats = shared.read().pool_stats(pool).unwrap();
        assert_eq!((stats.private, stats.cached), (0, 0), "pool {pool}");
    }
}

/// T16: what becomes of its states is a fetch's business while one is open: a tier is writing to
/// the page that is the first of the row.
#[test]
fn t16_no_state_is_taken_back_while_a_fetch_fills_it() {
    let states = GroupConfig { kind: GroupKind::State, pool: 1, draft_states: 3 };
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: PAGES,
        slot_count: 4,
        groups: Groups::new(&[GroupConfig::default(), states]).unwrap(),
        more_pools: MorePools::new(&[16]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 256, None).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    let id = begin(&shared, 4);
    assert!(shared.write().open_group_fetch(id, 0).unwrap());
    let filled = shared.read().page_to_fill(id, 1, 0);
    assert!(filled.is_some());
    let done = shared.write().truncate(id, 4);
    assert!(matches!(done, Err(Error::Loading(_))), "{done:?}");
    assert_eq!(shared.read().page_to_fill(id, 1, 0), filled);
    shared.write().end_group_fetch(id).unwrap();
    shared.write().truncate(id, 4).unwrap();
    shared.turn().release(id).unwrap();
    check(&shared);
}

/// G05, G07: windows slide for tokens that nobody wants to keep. The state is after those then, and
/// not after what is published: it is saved, left and handed on nowhere before they are.
#[test]
fn g05_g07_a_state_after_tokens_that_nobody_keeps_is_not_that_of_what_is_published() {
    let shared = with_states(PAGES, 16, 256);
    let id = begin(&shared, 9);
    shared.turn().publish(id, 4).unwrap();
    // Two pages more are computed, which others are not to find.
    shared.turn().slide(id, 8).unwrap();
    let saved = shared.write().checkpoint(id);
    assert!(matches!(saved, Err(Error::State(_))), "{saved:?}");
    let child = shared.fork(id, 1, 0).unwrap()[0];
    assert_eq!(child.cached_positions, 0, "the state is after 8");
    shared.turn().release(child.id).unwrap();
    assert_eq!(shared.turn().donate(id).unwrap(), 0);
    let next = begin(&shared, 9);
    assert_eq!(shared.read().sequence_info(next).unwrap().cached_positions, 0);
    // Once they are published it is known what the state is after.
    shared.turn().publish(next, 4).unwrap();
    shared.turn().slide(next, 8).unwrap();
    shared.turn().publish(next, 8).unwrap();
    assert_eq!(shared.turn().donate(next).unwrap(), 1);
    check(&shared);
}

/// A window of 6 with sinks, over pages of one position.
fn with_sinks(sinks: u32) -> Shared {
    let window = GroupKind::Window { window: 6, sinks }.in_pool(0);
    let config = PageTableConfig {
        page_size: 1,
        page_count: PAGES,
        slot_count: 4,
        groups: Groups::new(&[GroupConfig::default(), window]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 256, None).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    shared
}

/// G05, G07: sinks stay when a window slides: that they are there says nothing of what is behind
/// them. Neither a child nor the sequence itself goes on where a window has passed that.
#[test]
fn g05_g07_sinks_do_not_stand_for_what_slid_behind_them() {
    let shared = with_sinks(2);
    let id = begin(&shared, 6);
    shared.turn().publish(id, 6).unwrap();
    shared.append(id, TokenList::text(&[6, 7, 8, 9])).unwrap();
    // A prefix of 6 positions attends to places 1 to 5, and to the first sink; 2 to 4 go.
    shared.turn().slide(id, 10).unwrap();
    let child = shared.fork(id, 1, 0).unwrap()[0];
    assert_eq!(child.cached_positions, 0, "its window has a hole");
    let back = shared.write().truncate(id, 6);
    assert!(matches!(back, Err(Error::State(_))), "{back:?}");
    shared.turn().release(child.id).unwrap();
    shared.turn().release(id).unwrap();
    check(&shared);
}

/// G05, G07: nor where fewer positions are kept than there are sinks: what was behind them is
/// written to anew.
#[test]
fn g05_g07_less_than_the_sinks_is_kept_only_where_nothing_slid_behind_them() {
    for (slid, is_refused) in [(9, false), (12, true)] {
        let shared = with_sinks(4);
        let id = begin(&shared, 2);
        shared.append(id, TokenList::text(&[2, 3, 4, 5, 6, 7, 8, 9, 10, 11])).unwrap();
        // A prefix of 9 positions attends to 4 to 8 beside the sinks, one of 12 to 7 to 11.
        shared.turn().slide(id, slid).unwrap();
        for keep in [3, 2] {
            let back = shared.write().truncate(id, keep);
            assert_eq!(matches!(back, Err(Error::State(_))), is_refused, "{keep}: {back:?}");
            assert_eq!(back.is_ok(), !is_refused);
        }
        shared.turn().release(id).unwrap();
        check(&shared);
    }
}

/// G05, T16: a sequence whose windows slid has computed, also where nothing of it is published.
#[test]
fn g05_a_sequence_whose_windows_slid_shares_no_less() {
    let window = GroupKind::Window { window: 3, sinks: 0 }.in_pool(1);
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: PAGES,
        slot_count: 4,
        groups: Groups::new(&[GroupConfig::default(), window]).unwrap(),
        more_pools: MorePools::new(&[PAGES]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 256, None).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    let first = begin(&shared, 16);
    shared.turn().publish(first, 16).unwrap();
    shared.turn().release(first).unwrap();
    let id = begin(&shared, 20);
    assert_eq!(shared.read().sequence_info(id).unwrap().cached_positions, 16);
    shared.turn().slide(id, 20).unwrap();
    // Nor is anything fetched for it.
    assert_eq!(shared.read().fetchable_pages(id, false).unwrap().1, 0);
    let less = shared.turn().share_less(id, 8);
    assert!(matches!(less, Err(Error::State(_))), "{less:?}");
    shared.turn().publish(id, 20).unwrap();
    assert!(shared.turn().retain(id).unwrap());
    check(&shared);
    shared.turn().drop_retained(id).unwrap();
    check(&shared);
    // Panicked in `Hung::take_down`: what hung on page 7 was in use for ever.
    shared.evict(64, |_, _| {}).unwrap();
    check(&shared);
    assert_eq!([0, 1].map(|pool| shared.read().pool_stats(pool).unwrap().cached), [0, 0]);
}
