//! Publishing many pages: others get in between two portions.
use super::settings::{SETTINGS, Setting};
use crate::{NEXT, World, YIELDS, tokens};
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::{IndexKind, Namespace};
use radixkv::sequence::Published;
use radixkv::store::Shared;
use radixkv::token::TokenList;
use std::cell::Cell;
use std::rc::Rc;

const LEN: usize = 36;
const PAGES: usize = LEN / 2;

/// Pages of a portion, with slices of one page.
fn portion(setting: Setting) -> usize {
    match setting {
        Setting::One(IndexKind::BlockHash) => 1,
        Setting::One(IndexKind::Radix) => 16,
        // Those of the other groups come along.
        _ => 1,
    }
}

/// Yields while all is published, one portion after another; where pages have digests, those of
/// each are made while others have the lock.
fn yields(setting: Setting) -> usize {
    let between = (PAGES - 1) / portion(setting);
    if setting.index() == IndexKind::BlockHash { PAGES + between } else { between }
}

/// A world in which a sequence has all its pages, and has published none.
fn world(setting: Setting) -> World {
    let world = World::new(setting);
    world.shared.allocate(world.short, LEN).unwrap();
    YIELDS.set(0);
    world
}

/// Publishes; at a yield `act` does something. Says whether the yield came.
fn publish_with(
    world: &World,
    at: usize,
    act: impl Fn(&Shared, SequenceId) + 'static,
) -> (Result<Published, Error>, bool) {
    let short = world.short;
    NEXT.set(Some((at, Box::new(move |shared| act(shared, short)))));
    let done = world.shared.turn().publish(short, LEN);
    let came = NEXT.take().is_none();
    world.check(&format!("at yield {at}"));
    (done, came)
}

/// Positions of the prompt that group 0 has.
fn published(world: &World, setting: Setting) -> usize {
    let ids = tokens(4, LEN as u32);
    let state = world.shared.read();
    let found = state.find(&Namespace::default(), TokenList::text(&ids)).unwrap();
    if matches!(setting, Setting::One(_)) {
        found.positions()
    } else {
        found.depths().known as usize
    }
}

/// Another one computes and publishes the same prompt meanwhile: pages of either are the cache's,
/// each once, and the row and the result say which.
#[test]
fn m06_another_publishes_the_same_between_two_portions() {
    for setting in SETTINGS {
        for len in [2, 10, 30, LEN] {
            for at in 0.. {
                let world = world(setting);
                let before = world.shared.read().row_from(world.short.slot(), 0).unwrap().to_vec();
                let (done, came) = publish_with(&world, at, move |shared, _| {
                    let ids = tokens(4, len as u32 + 1);
                    let Ok(other) = shared.begin(&Namespace::default(), TokenList::text(&ids), 0)
                    else {
                        return;
                    };
                    shared.write().publish(other.id, len).unwrap();
                    shared.turn().release(other.id).unwrap();
                });
                let (what, done) = (format!("{setting:?}, {len} at {at}"), done.unwrap());
                assert_eq!(done.shared_pages, PAGES, "{what}");
                assert_eq!(published(&world, setting), LEN, "{what}");
                assert_eq!(done.claimed + done.remapped, PAGES, "{what}");
                let state = world.shared.read();
                let now = state.row_from(world.short.slot(), 0).unwrap();
                let changed = (0..PAGES).filter(|&page| now[page] != before[page]);
                assert_eq!(changed.clone().count(), done.remapped, "{what}");
                assert_eq!(changed.min().unwrap_or(PAGES), done.first_remapped, "{what}");
                if !came {
                    assert_eq!(at, yields(setting), "{what}");
                    break;
                }
            }
        }
    }
}

/// A sequence that ends meanwhile is stale; one that is cut short keeps what it has published.
#[test]
fn m06_a_sequence_ends_or_is_cut_between_two_portions() {
    for setting in SETTINGS {
        let ended = world(setting);
        // The first yield is for digests.
        let between = usize::from(setting.index() == IndexKind::BlockHash);
        let (done, came) =
            publish_with(&ended, between, |shared, short| shared.turn().release(short).unwrap());
        assert!(came);
        assert_eq!(done.unwrap_err(), Error::StaleSequence(ended.short.0));
        assert_eq!(published(&ended, setting), 2 * portion(setting), "a portion is published");

        let cut = world(setting);
        let kept = Rc::new(Cell::new(0));
        let noted = kept.clone();
        let (done, came) = publish_with(&cut, between, move |shared, short| {
            // Down to what is published: what is behind it counts as drafts.
            let info = shared.read().sequence_info(short).unwrap();
            noted.set(info.shared_pages);
            drop(shared.write().truncate(short, info.shared_pages * 2));
        });
        let info = cut.shared.read().sequence_info(cut.short).unwrap();
        let done = done.unwrap();
        assert!(came && kept.get() == portion(setting), "{}", kept.get());
        assert_eq!(done.shared_pages, info.shared_pages);
        assert_eq!(done.shared_pages, if info.positions < LEN { kept.get() } else { PAGES });
    }
}
