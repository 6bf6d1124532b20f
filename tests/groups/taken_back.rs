//! Tokens that are taken back behind what windows have passed.
use super::library::Library;
use super::model::Kind;
use super::order::prompt;
use super::worlds::{group, world};
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
