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

/// T08, T16: pages that a tier copies can't be evicted. A prompt that shares them asks for none of
/// that, and gets the pages that are free.
#[test]
fn t08_who_shares_what_is_copied_gets_the_pages_that_are_free() {
    let mut world = GroupWorld::new(Setup {
        groups: vec![FULL, window(9, 0, 1)],
        pages: vec![80, 80],
        host_pages: vec![100, 100],
        store: None,
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        checkpoint_limit: 0,
        first: 0,
        slices: None,
    });
    let tokens = prompt(1, 300);
    let info = world.begin(&Namespace::default(), &tokens[..40]).unwrap();
    world.compute(info.id, 40);
    world.release(info.id);
    for _ in 0..4 {
        while world.tiers.work() {}
        world.poll(64);
    }
    let of_full = world.copies.iter().filter(|job| job.group == 0).count();
    assert_eq!(of_full, 10, "all pages of the beginning are being copied");
    // 75 pages, of which 10 are shared: 65 of the 69 or 70 that are free.
    let info = world.begin(&Namespace::default(), &tokens).expect("pages are free");
    assert_eq!(info.cached_positions, 40);
    world.settle();
    world.compute(info.id, 300);
    world.release(info.id);
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
