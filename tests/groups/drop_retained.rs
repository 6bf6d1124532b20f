//! Retained sequences give way for the pool that is short.
use super::states::with_states;
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::token::TokenList;

/// G09, C01: as many go as the pool wants that is short. By the count of pool 0, in which there is
/// room enough, either none would have to go or all.
#[test]
fn g09_c01_retained_sequences_give_way_for_the_pool_that_is_short() {
    let shared = with_states(60, 4, 256);
    let begin = |first: u32| -> Result<SequenceId, Error> {
        let ids: Vec<u32> = (first..first + 9).collect();
        Ok(shared.begin(&Namespace::default(), TokenList::text(&ids), 0)?.id)
    };
    let mut retained = Vec::new();
    for first in [0, 100, 200] {
        let id = begin(first).unwrap();
        shared.turn().publish(id, 8).unwrap();
        assert!(shared.turn().retain(id).unwrap());
        retained.push(id);
    }
    let Err(Error::OutOfPages(lack)) = begin(300) else { panic!("there is no state left") };
    assert_eq!((lack.pool, lack.needed, lack.free, lack.reclaimable), (1, 1, 0, 0));
    assert_eq!(lack.retained, 3);
    assert!(matches!(shared.drop_retained(2, 1), Err(Error::Argument(_))), "there are two pools");
    assert_eq!(shared.drop_retained(1, 1).unwrap(), 1);
    assert_eq!(shared.read().retained_ids().unwrap(), retained[1..]);
    let id = begin(300).unwrap();
    shared.turn().release(id).unwrap();
    assert_eq!(shared.drop_retained(1, usize::MAX).unwrap(), 2);
    shared.read().check().unwrap();
}
