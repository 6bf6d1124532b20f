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
