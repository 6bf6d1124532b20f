//! What is told of the contents is of several moments until the records since are applied: pages
//! may stand before each other in a circle then. Counting uses must end all the same.
use crate::world::{Setup, World};
use crate::{PLAIN, prompt, row};
use radixkv::ids::SequenceId;
use radixkv::tier::paged::{Deadline, PagePolicy};
use radixkv::token::TokenList;
use std::sync::mpsc::channel;
use std::time::Duration;

/// More pages than the tiers' thread is told of in one round.
const MANY: u32 = 20_000;

// Nobody looks at what is in the pages.
fn begin(world: &World, tokens: &[u32]) -> SequenceId {
    world.shared.begin(&PLAIN, TokenList::text(tokens), 0).unwrap().id
}

fn publish(world: &World, id: SequenceId, positions: usize) {
    world.shared.turn().publish(id, positions).unwrap();
}

fn release(world: &World, id: SequenceId) {
    world.shared.turn().release(id).unwrap();
}

/// T08: uses are counted while the contents are told: a prefix was `y, x` when that began, and is
/// `x, y` when its pages are told.
#[test]
fn t08_uses_are_counted_while_the_contents_are_told() {
    let policy = PagePolicy::AfterUses(200);
    let world = World::new(Setup { policy, ..Setup::new(MANY + 1000, 4, None) });
    let many = begin(&world, &prompt(1, 4 * MANY + 1));
    publish(&world, many, 4 * MANY as usize);
    let filler = begin(&world, &prompt(3, 801));
    // `y` is cached, the page before it by number is the next that is given out.
    let before = begin(&world, &prompt(9, 3));
    let first = begin(&world, &prompt(2, 5));
    publish(&world, first, 4);
    let y = row(&world, first)[0];
    release(&world, first);
    release(&world, before);
    // The contents are told from here on, `y` not in the first round.
    world.tiers.work();
    assert_eq!(world.tiers.stats().applied, 0);
    let second = begin(&world, &prompt(2, 9));
    let x = row(&world, second)[1];
    assert_eq!((row(&world, second)[0], x + 1), (y, y));
    publish(&world, second, 8); // record: x goes on from y
    release(&world, second);
    for page in 1..=200 {
        publish(&world, filler, 4 * page); // more records than are applied in a round
    }
    // Nothing else can be evicted: the other prefixes are in use.
    assert_eq!(world.shared.evict(2, |_, _| {}).unwrap(), 2);
    let holds_y = begin(&world, &prompt(9, 3));
    assert_eq!(row(&world, holds_y)[0], y);
    let begun = begin(&world, &prompt(4, 5));
    publish(&world, begun, 4);
    release(&world, begun);
    release(&world, holds_y);
    let turned = begin(&world, &prompt(4, 9));
    assert_eq!(row(&world, turned)[..2], [x, y]);
    publish(&world, turned, 8);
    // Somebody asks for what follows `y`, again and again.
    let asks = begin(&world, &prompt(4, 13));
    let (tiers, (done, is_done)) = (world.tiers.clone(), channel());
    std::thread::spawn(move || {
        while tiers.stats().applied == 0 {
            tiers.fetch(asks, Deadline::Never, false).unwrap();
            tiers.work();
        }
        let _ = done.send(());
    });
    let ended = is_done.recv_timeout(Duration::from_secs(60));
    assert!(ended.is_ok(), "the tiers' thread goes in a circle");
}

/// T08: a page that is told before the one that it stands behind is told again, when that one may
/// hold something else.
#[test]
fn t08_what_changed_before_a_page_is_told_again_is_applied() {
    // More records than are applied in a round.
    const FILLERS: u32 = 100;
    let mut world = World::new(Setup::new(200, 256, None));
    let before = world.begin(&PLAIN, &prompt(9, 3)).unwrap().id;
    let first = world.begin(&PLAIN, &prompt(2, 5)).unwrap().id;
    let y = row(&world, first)[0];
    world.compute(first, 5);
    world.release(first);
    world.release(before);
    // The page after `y` has a lower number: it is told first, and not known in the first pass.
    let second = world.begin(&PLAIN, &prompt(2, 9)).unwrap().id;
    let x = row(&world, second)[1];
    assert_eq!((row(&world, second)[0], x + 1), (y, y));
    world.compute(second, 9);
    world.release(second);
    for family in 100..100 + FILLERS {
        let id = world.begin(&PLAIN, &prompt(family, 5)).unwrap().id;
        world.compute(id, 5);
        world.release(id);
    }
    // The contents are copied, and some of them applied.
    world.tiers.work();
    assert_eq!(world.tiers.stats().applied, 0);
    // Both pages hold something else from here on.
    assert_eq!(world.shared.evict(2, |_, _| {}).unwrap(), 2);
    let third = world.begin(&PLAIN, &prompt(4, 9)).unwrap().id;
    assert_eq!(row(&world, third)[..2], [y, x]);
    world.compute(third, 9);
    world.release(third);
    world.settle();
    assert!(world.tiers.stats().applied > 0);
    // The first page of the one prompt, and the second of the other: nobody computed that.
    assert_eq!(world.run(&PLAIN, &prompt(2, 5)), (0, 0));
    world.settle();
    let mut mixed = prompt(2, 4);
    mixed.extend_from_slice(&prompt(4, 9)[4..]);
    assert_eq!(world.run(&PLAIN, &mixed), (4, 0), "KV of another prefix was brought");
    world.settle();
    // What was computed is found by its own name.
    world.shared.evict(200, |_, _| {}).unwrap();
    assert_eq!(world.run(&PLAIN, &prompt(4, 9)), (0, 8));
    world.end();
}

/// Free pages come in the opposite order then: the last of those that were taken first.
fn turn_round(world: &mut World, count: u32) {
    let ids: Vec<_> =
        (0..count).map(|at| world.begin(&PLAIN, &prompt(50 + at, 3)).unwrap().id).collect();
    ids.into_iter().for_each(|id| world.release(id));
}

/// T08: a prefix is known to its end, however often a page has a lower number than the one before.
#[test]
fn t08_contents_in_any_order_are_known_whole() {
    let mut world = World::new(Setup::new(40, 64, None));
    turn_round(&mut world, 16);
    let first = world.begin(&PLAIN, &prompt(2, 4 * 16 + 1)).unwrap().id;
    world.compute(first, 4 * 16 + 1);
    world.release(first);
    turn_round(&mut world, 15);
    let second = world.begin(&PLAIN, &prompt(2, 4 * 31 + 1)).unwrap().id;
    let pages = row(&world, second);
    let descents = pages[..31].windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert_eq!(descents, 29, "{pages:?}");
    world.compute(second, 4 * 31 + 1);
    world.release(second);
    world.settle();
    assert_eq!(world.tiers.stats().host.pages, 31);
    world.end();
}
