//! What goes from below first.
use super::world::{BYTES, World};
use super::{A, C, few};
use radixkv::snapshot::tiered::TierPolicy;

#[test]
fn t10_the_least_recently_used_goes_from_below() {
    let world = World::new(1, 2, TierPolicy::Through);
    world.insert(A, 1);
    world.settle();
    world.insert(C, 2);
    world.settle();
    assert_eq!(world.bring(A), Some((3, 1)));
    // A third one: what was used least recently below is C, whose removal has to be committed
    // before its room can be used.
    world.insert(&[9], 3);
    assert_eq!(world.stats().counters.full, 1);
    world.settle();
    world.stats();
    world.settle();
    assert_eq!(world.find(C), (None, 0));
    assert_eq!(world.find(A), (None, 3));
    let stats = world.stats();
    assert_eq!((stats.entries, stats.store.bytes), (2, 2 * BYTES));
    assert_eq!(world.restarted(few(1)).stats().entries, 2);
}

/// T10: what is used in memory is used below too: the whole of it, and its beginning.
#[test]
fn t10_what_memory_uses_most_does_not_go_from_below_first() {
    for (trims, asked) in
        [(false, &[1, 2, 3][..]), (false, &[1, 2, 3, 4][..]), (true, &[1, 2, 9][..])]
    {
        let mut world = World::new(8, 2, TierPolicy::Through);
        world.trims = trims;
        world.insert(A, 1);
        world.settle();
        world.insert(C, 2);
        world.settle();
        assert_eq!(world.find(asked).0, Some((3, 1, false)), "{asked:?}");
        // One has to go for a third one, whose room comes with a commit.
        world.insert(&[9], 3);
        world.settle();
        world.stats();
        world.settle();
        let again = world.restarted(few(8));
        assert_eq!(again.find(C), (None, 0), "{asked:?}: nobody used it");
        assert_eq!(again.find(A), (None, 3), "{asked:?}: it was used last");
    }
}
