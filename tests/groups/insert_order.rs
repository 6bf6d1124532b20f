//! Which pages that came with an insert go first, and what keeps a begin from all that is known.
use super::library::{Library, Rows};
use super::model::Kind;
use super::order::prompt;
use super::worlds::{group, world};

/// G08: of pages that came at once those at the end go first: all that come behind a page need it.
#[test]
fn g08_what_was_inserted_goes_from_its_end() {
    for kind in [Kind::Full, Kind::Window(100, 0), Kind::Chunk(100)] {
        let library = Library::new(&world(4, &[group(kind, 1)], &[20, 20]));
        let ids = prompt(&[], 8);
        let rows: Rows = (0..2).map(|pool| library.allocate(pool, 8).unwrap()).collect();
        library.insert(0, &ids, &rows, false).unwrap();
        // One page of pool 1, for somebody else: what is left can be reused but for one page.
        assert_eq!(library.evict(1, 1).1, 1);
        assert_eq!(library.probe(0, &ids).positions, 28, "{kind:?}");
    }
}

/// G03: what a begin loses because it leaves a token to compute is some group's cost, too.
#[test]
fn g03_a_begin_says_what_keeps_it_from_a_prompt_that_is_known_whole() {
    let library = Library::new(&world(4, &[group(Kind::State, 1)], &[40, 9]));
    let ids = prompt(&[], 8);
    let first = library.begin(0, &ids, 0).unwrap().sequence;
    library.publish(first, 32);
    assert_eq!(library.checkpoint(first), Ok(1));
    library.confirm(first);
    library.release(first);
    assert_eq!(library.probe(0, &ids).positions, 32);
    let again = library.begin(0, &ids, 0).unwrap();
    assert_eq!((again.cached_position_count, again.known_position_count), (0, 32));
    assert_eq!(again.limiting_group, 1);
    library.release(again.sequence);
}

/// G03: also where there is no page to go on from what the group left.
#[test]
fn g03_a_begin_says_what_keeps_it_though_what_is_left_has_no_room() {
    let library = Library::new(&world(4, &[group(Kind::State, 1)], &[40, 3]));
    let ids = prompt(&[], 8);
    let first = library.begin(0, &ids, 0).unwrap().sequence;
    for computed in [16, 32] {
        library.publish(first, computed);
        assert_eq!(library.checkpoint(first), Ok(1));
        library.confirm(first);
    }
    library.release(first);
    // Of the three pages one is somebody else's, one is locked, and the state after 16 is left.
    let other = library.allocate(1, 1).unwrap();
    let lock = library.lookup(0, &ids, true).lock;
    let again = library.begin(0, &ids, 0).unwrap();
    assert_eq!((again.cached_position_count, again.known_position_count), (0, 32));
    assert_eq!(again.limiting_group, 1);
    library.release(again.sequence);
    library.unlock(lock);
    library.free(1, &other);
}
