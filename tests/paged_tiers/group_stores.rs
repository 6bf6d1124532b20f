//! How much of a pool is copied to host memory at once.
use super::group_world::{GroupWorld, Setup};
use super::groups::{FULL, prompt, window};
use radixkv::index::Namespace;
use radixkv::tier::paged::PagePolicy;

/// T08, T16: of each pool an eighth is copied at once, no more: what is copied can't be evicted.
#[test]
fn t08_stores_copy_an_eighth_of_each_pool_at_once() {
    let mut world = GroupWorld::new(Setup {
        groups: vec![FULL, window(9, 0, 1)],
        pages: vec![160, 16],
        host_pages: vec![100, 100],
        store: None,
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        checkpoint_limit: 0,
        first: 0,
        slices: None,
    });
    let tokens = prompt(1, 41);
    let info = world.begin(&Namespace::default(), &tokens).unwrap();
    world.compute(info.id, 41);
    world.release(info.id);
    for _ in 0..4 {
        while world.tiers.work() {}
        world.poll(64);
    }
    let of_window = world.copies.iter().filter(|job| job.group == 1).count();
    // Page 0 is counted.
    assert!((1..=17_usize.div_ceil(8)).contains(&of_window), "{of_window} of 16 pages at once");
    world.settle();
    assert_eq!(world.tiers.stats().host.pages, 20, "the others come later");
    world.end();
}

/// T10, T16: host memory that is within its bytes gives nothing up, however its pools share them.
#[test]
fn t10_a_pool_may_have_more_than_its_part_while_others_have_less() {
    let mut world = GroupWorld::new(Setup {
        groups: vec![FULL, window(9, 0, 1)],
        pages: vec![160, 16],
        host_pages: vec![16, 100],
        store: None,
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        checkpoint_limit: 0,
        first: 0,
        slices: None,
    });
    let tokens = prompt(1, 41);
    let info = world.begin(&Namespace::default(), &tokens).unwrap();
    world.compute(info.id, 41);
    world.release(info.id);
    world.settle();
    let before = world.tiers.stats().host;
    assert_eq!((before.pages, before.bytes), (20, 10 * 16 + 10 * 24));
    // Of a half of all the first pool's part is 8 pages.
    world.tiers.shrink_to(before.limit / 2, u64::MAX);
    assert_eq!(world.tiers.stats().host.pages, 20);
    world.tiers.shrink_to(before.bytes, u64::MAX);
    assert_eq!(world.tiers.stats().host.pages, 20);
    world.tiers.shrink_to(before.bytes - 1, u64::MAX);
    assert_eq!(world.tiers.stats().host.pages, 19, "one is enough");
    world.tiers.shrink_to(0, u64::MAX);
    assert_eq!(world.tiers.stats().host.pages, 0);
    world.end();
}
