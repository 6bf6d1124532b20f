//! M05: memory ends while more than a portion is published. The states of the sequence are after
//! all that was computed, not after what came to the cache of it.
use super::failing::{Failure, failing};
use super::states::{PAGE_SIZE, check, with_states};
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::store::Shared;
use radixkv::token::TokenList;

const PAGES: usize = 20;

fn begin(shared: &Shared) -> SequenceId {
    let ids: Vec<u32> = (0..PAGES as u32 * PAGE_SIZE + 1).collect();
    shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap().id
}

#[test]
fn m05_g07_a_state_is_not_that_of_a_part_that_could_be_published() {
    let (all, mut cut_short) = (PAGES * PAGE_SIZE as usize, 0);
    for at in 0.. {
        let shared = with_states(100, 16, 1);
        let id = begin(&shared);
        let (published, failed) = failing(Failure::Once(at), || shared.turn().publish(id, all));
        if failed == 0 {
            break;
        }
        if published.is_ok_and(|done| (1..PAGES).contains(&done.shared_pages)) {
            cut_short += 1;
            let saved = shared.write().checkpoint(id);
            assert!(matches!(saved, Err(Error::State(_))), "{at}: {saved:?}");
            let child = shared.fork(id, 1, 0).unwrap()[0];
            assert_eq!(child.cached_positions, 0, "{at}: the state is after {all}");
            shared.turn().release(child.id).unwrap();
            if cut_short % 2 == 0 {
                // Once the rest is published it is known what they are after.
                assert_eq!(shared.turn().publish(id, all).unwrap().shared_pages, PAGES);
                assert_eq!(shared.turn().donate(id).unwrap(), 1);
            } else {
                assert_eq!(shared.turn().donate(id).unwrap(), 0, "{at}");
            }
        } else {
            shared.turn().release(id).unwrap();
        }
        check(&shared);
    }
    assert!(cut_short > 1, "no request for memory was one of a later portion");
}
