//! A call goes down a path that is cleared, and another cache comes while it lets go of that.
use super::calls::Long;
use super::clear::clear;
use super::deep::{DEEP, FREE, IMAGES, PAGES, deep, publish_path};
use super::settings::{SETTINGS, Setting};
use crate::{NEXT, SHARED, World, tokens};
use radixkv::error::Error;
use radixkv::index::Namespace;
use radixkv::store::{CacheConfig, Found, Scope, Shared, State};
use radixkv::token::{Item, TokenKind, TokenList};

/// The path of another image, to which a new cache gives the number that the old one had for ours.
fn publish_other_image(shared: &Shared) {
    let other = [Item { token_index: 0, kind: TokenKind::Image { digest: [8; 16], positions: 3 } }];
    for page in 1..PAGES {
        let ids = [tokens(IMAGES, 2 * page), tokens(100 * IMAGES + page, 2)].concat();
        let list = TokenList { ids: &ids, items: &other };
        let Ok(made) = shared.begin(&Namespace::default(), list, 0) else { continue };
        drop(shared.write().confirm_copies(made.id));
        drop(shared.turn().publish(made.id, made.positions));
        drop(shared.turn().release(made.id));
    }
}

/// Whether both yields came.
fn another_cache(setting: Setting, long: &Long, [first, second]: [usize; 2]) -> bool {
    let what = format!("{setting:?}, {}, yields {first} and {second}", long.name);
    let world = std::rc::Rc::new(deep(setting));
    let own = world.clone();
    NEXT.set(Some((
        first,
        Box::new(move |_| {
            clear(&own).unwrap();
            NEXT.set(Some((
                second,
                Box::new(move |shared: &Shared| {
                    shared.detach_cache();
                    let index = setting.index();
                    shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
                    publish_path(shared, FREE);
                    publish_other_image(shared);
                }),
            )));
        }),
    )));
    let done = (long.call)(&world);
    let came = NEXT.take().is_none();
    if let Err(error) = &done {
        assert!(matches!(error, Error::State(_) | Error::OutOfPages(_)), "{what}: {error}");
    }
    world.check(&what);
    if came {
        world.shared.evict(1000, |_, _| {}).unwrap();
        let left = world.shared.read().page_table_stats().cached;
        assert_eq!(left, 0, "{what}: they are held, and nobody holds them");
    }
    SHARED.set(None);
    came
}

#[test]
fn m06_what_comes_while_a_call_lets_go_is_another_cache() {
    let names = ["match", "match and lock", "match behind an image"];
    let mut runs = 0;
    for setting in SETTINGS {
        for long in DEEP.iter().filter(|long| names.contains(&long.name)) {
            for first in 0..40 {
                let came = (0..40).take_while(|&at| another_cache(setting, long, [first, at]));
                runs += came.count();
            }
        }
    }
    assert!(runs > 100, "{runs} interleavings only");
}

/// An image, and more text behind it than the pages of which are had at once.
fn long_ids() -> Vec<u32> {
    tokens(IMAGES, 40)
}

const IMAGE: [Item; 1] =
    [Item { token_index: 0, kind: TokenKind::Image { digest: [7; 16], positions: 3 } }];

type Call = fn(&World) -> Result<(), Error>;

fn long_match(world: &World) -> Result<(), Error> {
    let ids = long_ids();
    let list = TokenList { ids: &ids, items: &IMAGE };
    let take = |state: &mut State, found: Found, _: usize| {
        let now = state.find(&Namespace::default(), list)?;
        assert!(found.positions() <= now.positions(), "another image is found");
        state.take_match(found, false)
    };
    world.shared.turn().lookup(&Namespace::default(), list, take).map(drop)
}

fn long_begin(world: &World) -> Result<(), Error> {
    let ids = long_ids();
    let list = TokenList { ids: &ids, items: &IMAGE };
    let id = world.shared.begin(&Namespace::default(), list, 0)?.id;
    world.shared.turn().release(id)
}

/// And while there is made room for the pages of a long prompt.
#[test]
fn m06_what_comes_before_a_long_way_down_is_another_cache() {
    let calls: [(&str, Call); 2] = [("match", long_match), ("begin", long_begin)];
    let mut runs = 0;
    for setting in SETTINGS {
        for (name, call) in calls {
            let comes = |at: &usize| {
                let what = format!("{setting:?}, {name}, yield {at}");
                let world = deep(setting);
                NEXT.set(Some((
                    *at,
                    Box::new(move |shared: &Shared| {
                        shared.detach_cache();
                        let index = setting.index();
                        let config = CacheConfig { index, ..CacheConfig::default() };
                        shared.attach_cache(config).unwrap();
                        publish_path(shared, FREE);
                        publish_other_image(shared);
                    }),
                )));
                let done = call(&world);
                let came = NEXT.take().is_none();
                if let Err(error) = &done {
                    let expected = matches!(
                        error,
                        Error::State(_) | Error::StaleSequence(_) | Error::OutOfPages(_)
                    );
                    assert!(expected, "{what}: {error}");
                }
                world.check(&what);
                SHARED.set(None);
                came
            };
            runs += (0..60).take_while(comes).count();
        }
    }
    assert!(runs > 20, "{runs} interleavings only");
}

/// A clear ends with its cache.
#[test]
fn m06_a_clear_does_not_go_on_in_another_cache() {
    let mut runs = 0;
    for setting in SETTINGS {
        let comes = |at: &usize| {
            let what = format!("{setting:?}, yield {at}");
            let world = deep(setting);
            // What it frees is counted from here on.
            clear(&world).unwrap();
            publish_path(&world.shared, FREE);
            NEXT.set(Some((
                *at,
                Box::new(move |shared: &Shared| {
                    shared.detach_cache();
                    let index = setting.index();
                    shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
                    publish_path(shared, FREE);
                }),
            )));
            let done = world.shared.clear(Scope::default());
            let came = NEXT.take().is_none();
            if came {
                assert!(matches!(done, Err(Error::State(_))), "{what}: {done:?}");
                assert!(world.shared.read().page_table_stats().cached > 0, "{what}");
            }
            world.check(&what);
            SHARED.set(None);
            came
        };
        runs += (0..200).take_while(comes).count();
    }
    assert!(runs > 20, "{runs} interleavings only");
}
