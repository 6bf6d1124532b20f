//! A sequence that its owner makes longer during a fetch of several groups.
use super::group_remote::filled;
use super::group_world::{GroupWorld, Setup};
use super::groups::{hybrid, prompt};
use super::remote_store::Mood;
use radixkv::error::Error;
use radixkv::index::Namespace;
use radixkv::tier::paged::Deadline;
use radixkv::token::TokenList;

/// T16: its rows are the fetch's meanwhile, which makes them as long as what comes: pages and
/// tokens that are added wait for its end, and are there then, whatever came.
#[test]
fn t16_rows_grow_before_a_fetch_of_groups_or_after_it() {
    let tokens = prompt(1, 41);
    for spoiled in [false, true] {
        let remote = filled(&tokens, &[4, 10]);
        if spoiled {
            remote.set(Mood::Lies);
        }
        let setup = Setup { first: 8, remote: Some(remote.clone()), ..hybrid(None) };
        let mut world = GroupWorld::new(setup);
        let id = world.begin(&Namespace::default(), &tokens).unwrap().id;
        let rows = |world: &GroupWorld| {
            [0, 1].map(|group| world.shared.read().group_row(id, group, 0).unwrap().len())
        };
        assert_eq!(rows(&world), [2, 2]);
        while world.tiers.work() {}
        assert!(world.fetch(id, Deadline::Never).is_begun);
        let is_loading = |done| matches!(done, Err(Error::Loading(_)));
        assert!(is_loading(world.shared.allocate(id, tokens.len())));
        assert!(is_loading(world.shared.append(id, TokenList::text(&[7]))));
        world.settle();
        world.shared.allocate(id, tokens.len()).unwrap();
        assert_eq!(rows(&world), [11, 11]);
        world.compute(id, tokens.len());
        world.end();
    }
}
