//! Tokens that are taken back behind what windows have passed.
use super::library::Library;
use super::model::Kind;
use super::order::prompt;
use super::worlds::{drafting, group, world};
use radixkv::capi::*;

/// G11: tokens are taken back no farther than to where windows and chunks still have what the next
/// one attends to, whoever let them slide.
#[test]
fn g11_tokens_are_taken_back_as_far_as_windows_reach() {
    for kind in [Kind::Window(3, 0), Kind::Chunk(10)] {
        for slides in [false, true] {
            let library = Library::new(&world(4, &[group(kind, 1)], &[60, 20]));
            let id = library.begin(0, &prompt(&[], 2), 0).unwrap().sequence;
            library.publish(id, 8);
            library.append(id, &[5, 6]).unwrap();
            match slides {
                true => library.slide(id, 10),
                false => _ = library.publish(id, 10),
            }
            let row = library.group_row(id, 1);
            assert_eq!(
                (row.len(), row[0], row[1]),
                (3, 0, 0),
                "{kind:?}: position 10 needs the last"
            );
            for keep in [8, 9] {
                let refused = Err(rkv_status::InvalidState);
                assert_eq!(library.truncate(id, keep), refused, "{kind:?}: {keep}");
            }
            assert_eq!(library.info(id).position_count, 10, "nothing was taken back");
            // Drafts behind that are.
            library.append(id, &[7, 8, 9]).unwrap();
            library.truncate(id, 10).unwrap();
            library.release(id);
            library.check();
        }
    }
}

/// G11: what slid is computed: the states after draft tokens are counted from there, too.
#[test]
fn g11_draft_states_are_counted_from_what_slid() {
    let library = Library::new(&world(4, &[drafting(2, 1)], &[60, 9]));
    let id = library.begin(0, &prompt(&[], 3), 0).unwrap().sequence;
    library.publish(id, 12);
    let row = library.group_row(id, 1);
    // A token that nobody wants to keep.
    library.append(id, &[5]).unwrap();
    library.slide(id, 13);
    // The state after 14 is in the first page, that after 15 in the second.
    library.append(id, &[6, 7, 8]).unwrap();
    library.truncate(id, 15).unwrap();
    assert_eq!(library.group_row(id, 1), [row[1], row[0], row[2]]);
    // No draft holds: nothing moves, and the token is computed as slide says.
    library.append(id, &[9, 10]).unwrap();
    library.truncate(id, 16).unwrap();
    library.slide(id, 16);
    assert_eq!(library.group_row(id, 1), [row[1], row[0], row[2]]);
    library.append(id, &[1, 2, 3]).unwrap();
    let refused = Err(rkv_status::InvalidArgument);
    assert_eq!(library.truncate(id, 16), refused, "the state was changed in place");
    library.truncate(id, 19).unwrap();
    assert_eq!(library.group_row(id, 1), [row[2], row[0], row[1]]);
    library.release(id);
    library.check();
}
