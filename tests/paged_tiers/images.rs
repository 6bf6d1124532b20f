//! Prompts with images: a hit ends at none of the positions within one.
use crate::world::{Setup, World};
use crate::{PLAIN, prompt};
use radixkv::tier::paged::Deadline;
use radixkv::token::{Item, TokenKind, TokenList};

/// T02, T03: what lies behind an image of more pages than land at once becomes the cache's in
/// parts, too.
#[test]
fn t02_what_follows_a_long_image_lands_in_parts() {
    let kind = TokenKind::Image { digest: [1; 16], positions: 80 };
    let (ids, items) = (prompt(1, 1200), [Item { token_index: 8, kind }]);
    let tokens = TokenList { ids: &ids, items: &items };
    let mut world = World::new(Setup::new(1000, 500, None));
    let first = world.shared.begin(&PLAIN, tokens, 0).unwrap();
    world.shared.write().publish(first.id, first.positions).unwrap();
    world.shared.turn().release(first.id).unwrap();
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.work();
    let id = world.shared.begin(&PLAIN, tokens, 0).unwrap().id;
    assert!(world.tiers.fetch(id, Deadline::Never, false).unwrap().is_begun);
    let mut early = 0;
    while world.fetched.is_empty() {
        world.work();
        world.poll(64);
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
        if world.shared.read().is_loading(id) {
            early = early.max(world.shared.read().page_table_stats().cached);
            world.shared.read().audit().unwrap();
        }
    }
    assert!(early > 100, "{early} pages before it ended");
    assert_eq!(world.fetched[0].positions, first.positions.div_ceil(4) * 4 - 4);
    world.shared.turn().release(id).unwrap();
    world.end();
}
