//! Destroying a cache, interleaved with everything else.
use crate::interleavings::settings::{SETTINGS, Setting};
use crate::{LONG, Long, NEXT, PAGES, SECOND, SHARED, Second, Step, World};
use radixkv::error::Error;
use radixkv::journal::{Reason, What};
use radixkv::store::{CacheConfig, Shared};

/// Pages of the cache in all pools.
fn cached_pages(shared: &Shared) -> usize {
    let state = shared.read();
    (0..).map_while(|pool| state.pool_stats(pool).ok()).map(|stats| stats.cached).sum()
}

/// Destroys the cache, with a second call at a yield; says whether the yield came.
fn destroy(setting: Setting, second: Second, at: usize) -> bool {
    let what = format!("{setting:?}, destroy, at yield {at} {}", second.0);
    let world = std::rc::Rc::new(World::new(setting));
    let own = world.clone();
    let cached = cached_pages(&world.shared);
    assert!(cached > 10, "{what}");
    let step: Step = Box::new(move |shared| {
        // It is gone at once, whatever still has to come back.
        assert!(matches!(shared.read().cache_stats(), Err(Error::State(_))));
        assert_eq!(shared.attach_cache(CacheConfig::default()), Err(Error::Busy));
        let left = (1..PAGES).find(|&page| shared.read().contains_page(page));
        if let Some(page) = left {
            let mut turn = shared.turn();
            let len = turn.row_from(own.row, 0).map_or(0, <[u32]>::len);
            let refused = turn.map(own.row, len, &[page]);
            drop(turn);
            assert!(matches!(refused, Err(Error::Argument(_))), "{refused:?}");
        }
        (second.1)(&own);
        shared.read().audit().unwrap();
        shared.read_journal(0, &mut |_| true).unwrap();
    });
    NEXT.set(Some((at, step)));
    let shared = world.shared.clone();
    shared.detach_cache();
    let came = NEXT.take().is_none();
    shared.read().audit().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!shared.is_poisoned(), "{what}");
    assert_eq!(cached_pages(&shared), 0, "{what}");
    let stats = shared.read().page_table_stats();
    assert_eq!(stats.free + stats.private, stats.total, "{what}");
    // Every page that the records say is stored left again.
    let (mut held, mut destroyed) = (0, 0);
    let read = shared.read_journal(0, &mut |record| {
        match record.what {
            What::Stored { .. } => held += record.pages.len(),
            What::Removed(reason) => {
                held -= record.pages.len();
                let count = (reason == Reason::Destroyed) as usize * record.pages.len();
                destroyed += count;
            }
            What::Cleared(_) => {}
        }
        true
    });
    assert_eq!((read.unwrap().lost, held, destroyed), (0, 0, cached), "{what}");
    // Another cache finds its place.
    shared.attach_cache(CacheConfig { index: setting.index(), ..CacheConfig::default() }).unwrap();
    world.check(&what);
    SHARED.set(None);
    came
}

#[test]
fn m06_any_call_at_any_yield_of_a_destroy() {
    let mut runs = 0;
    for setting in SETTINGS {
        for second in SECOND {
            let mut at = 0;
            while destroy(setting, second, at) {
                at += 1;
            }
            runs += at;
        }
    }
    assert!(runs > 2000, "{runs} interleavings only");
}

/// Makes a long call, at a yield of which the cache goes. An engine must not do that; if it does,
/// the call fails, and every page is where it belongs.
pub fn destroy_at(world: fn(Setting) -> World, setting: Setting, long: &Long, at: usize) -> bool {
    let what = format!("{setting:?}, {}, at yield {at} destroy", long.name);
    let world = world(setting);
    NEXT.set(Some((at, Box::new(Shared::detach_cache))));
    let done = (long.call)(&world);
    let came = NEXT.take().is_none();
    if let Err(error) = &done {
        let expected = matches!(
            error,
            Error::State(_)
                | Error::StaleSequence(_)
                | Error::OutOfPages(_)
                | Error::OutOfSlots(..)
        );
        assert!(came && expected, "{what}: {error}");
    }
    let shared = &world.shared;
    shared.detach_cache();
    shared.read().audit().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(cached_pages(shared), 0, "{what}");
    let stats = shared.read().page_table_stats();
    assert_eq!(stats.free + stats.private, stats.total, "{what}");
    shared.attach_cache(CacheConfig { index: setting.index(), ..CacheConfig::default() }).unwrap();
    world.check(&what);
    SHARED.set(None);
    came
}

#[test]
fn m06_a_destroy_at_any_yield_of_a_long_call() {
    let mut runs = 0;
    for setting in SETTINGS {
        for long in LONG.iter().filter(|long| long.name != "follow the journal") {
            let mut at = 0;
            while destroy_at(World::new, setting, long, at) {
                at += 1;
            }
            runs += at;
        }
    }
    assert!(runs > 100, "{runs} interleavings only");
}
