//! What a Rust engine uses: a page table, a cache, and sequences, locks and matches that end
//! themselves. No call of these leaves a lock of the library in a caller's hands.
//!
//! The same operations as [`crate::capi`] exports, on the same objects, with the same promises:
//! every call works from any thread, takes effect whole or not at all, and after a panic inside the
//! library every later call on that page table returns [`Error::Poisoned`]. What goes past them
//! promises less, see [`PageTable::shared`].
#![forbid(unsafe_code)]

mod cache;
mod groups;
mod page_table;
mod sequence;

pub use cache::{Cache, Inserted, Lock, Match, PartialPage};
pub use groups::{Evicted, GroupDepths, InsertedGroups, LockedPage};
pub use page_table::PageTable;
pub use sequence::Sequence;

// What those take and give.
pub use crate::error::Error;
pub use crate::group::{GroupConfig, GroupKind, Groups};
pub use crate::index::{IndexKind, Namespace};
pub use crate::paging::{BatchRow, MorePools, PageCopy, PageTableConfig};
pub use crate::sequence::{Continuation, Room};
pub use crate::store::{CacheConfig, Cleared, GroupRow, Scope};
pub use crate::token::TokenList;

use crate::lock::unless_left;
use crate::store::Shared;

/// Refuses further calls when one unwinds and may have left things half done.
struct Watch<'a>(&'a Shared);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.poison();
    }
}

/// Makes a call, unless an earlier one panicked.
fn call<R>(shared: &Shared, body: impl FnOnce(&Shared) -> Result<R, Error>) -> Result<R, Error> {
    shared.check_whole()?;
    watched(shared, body)
}

/// The same for what looks itself whether one did.
fn watched<R>(shared: &Shared, body: impl FnOnce(&Shared) -> Result<R, Error>) -> Result<R, Error> {
    let watch = Watch(shared);
    let made = unless_left(|| body(shared));
    std::mem::forget(watch);
    made
}

/// For what cannot be refused, as it ends something that there is. Does nothing after a panic.
fn end(shared: &Shared, body: impl FnOnce(&Shared) -> Result<(), Error>) {
    match call(shared, body) {
        Ok(()) | Err(Error::Poisoned) => {}
        // Only the owner could have ended it, and it did not.
        Err(error) => debug_assert!(false, "{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arc;
    use crate::store::Lower;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// M02: a cache that goes with its last sequence panics like any call.
    #[test]
    fn m02_a_panic_while_a_cache_goes_poisons() {
        static PANICS: AtomicBool = AtomicBool::new(false);
        let at_yield = || {
            if PANICS.load(Ordering::Relaxed) {
                resume_unwind(Box::new("a bug"));
            }
        };
        let config = PageTableConfig { page_size: 1, page_count: 9, ..PageTableConfig::default() };
        let shared = Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap();
        let table = PageTable { shared: Arc::new(shared).unwrap() };
        let cache = table.cache(CacheConfig::default()).unwrap();
        let mut sequence =
            cache.begin(&Namespace::default(), TokenList::text(&[1, 2, 3]), 0).unwrap();
        sequence.publish(3).unwrap();
        drop(sequence);
        PANICS.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(cache))).is_err());
        assert_eq!(table.allocate_pages(1), Err(Error::Poisoned));
    }

    /// What lies below a cache, and does something when it ends.
    struct Below(Box<dyn Fn() + Send + Sync>);

    impl Lower for Below {
        fn close(&self) {
            (self.0)();
        }

        fn cleared(&self) {}
    }

    /// A cache that goes with this below it, and what that came to.
    fn ended(close: impl Fn(&Shared) + Send + Sync + 'static) -> (bool, PageTable) {
        let config = PageTableConfig { page_count: 9, ..PageTableConfig::default() };
        let table = PageTable::new(config).unwrap();
        let cache = table.cache(CacheConfig::default()).unwrap();
        let shared = table.shared.clone();
        let below = Below(Box::new(move || close(&shared)));
        table.shared.attach_lower(std::sync::Arc::new(below)).unwrap();
        (catch_unwind(AssertUnwindSafe(|| drop(cache))).is_ok(), table)
    }

    /// M02: the same where nobody has the lock; and one that goes on where another call panicked is
    /// left without a word.
    #[test]
    fn m02_a_panic_of_what_goes_with_a_cache_poisons() {
        let (is_good, table) = ended(|_| resume_unwind(Box::new("a bug")));
        assert!(!is_good);
        assert_eq!(table.allocate_pages(1), Err(Error::Poisoned));
        let (is_good, table) = ended(|shared| {
            shared.poison();
            drop(shared.read());
        });
        assert!(is_good, "a destructor unwinds");
        assert_eq!(table.allocate_pages(1), Err(Error::Poisoned));
    }

    /// M02: nor does what is dropped while the engine panics go on where another call panicked.
    #[test]
    fn m02_what_a_panic_of_the_engine_drops_is_left_as_well() {
        static GOES_ON: AtomicBool = AtomicBool::new(false);
        let table = PageTable::new(PageTableConfig { page_count: 9, ..PageTableConfig::default() });
        let table = table.unwrap();
        let cache = table.cache(CacheConfig::default()).unwrap();
        let shared = table.shared.clone();
        let close = move || {
            shared.poison();
            drop(shared.read());
            GOES_ON.store(true, Ordering::Relaxed);
        };
        table.shared.attach_lower(std::sync::Arc::new(Below(Box::new(close)))).unwrap();
        let wrong = catch_unwind(AssertUnwindSafe(|| {
            let _cache = cache;
            resume_unwind(Box::new("the engine's own fault"));
        }));
        assert!(wrong.is_err());
        assert!(!GOES_ON.load(Ordering::Relaxed), "it goes on");
    }

    /// M02: nor does a call go on that a panic of another one came in between.
    #[test]
    fn m02_a_call_that_let_a_panic_in_is_refused() {
        let config = PageTableConfig { page_count: 9, ..PageTableConfig::default() };
        let table = PageTable::new(config).unwrap();
        let done = call(&table.shared, |shared| {
            let mut turn = shared.turn();
            shared.poison();
            turn.let_others_in();
            Ok(())
        });
        assert_eq!(done, Err(Error::Poisoned));
    }

    /// M02: what is dropped while the engine itself panics is no cause of it.
    #[test]
    fn m02_what_a_panic_of_the_engine_drops_poisons_nothing() {
        let table = PageTable::new(PageTableConfig { page_count: 9, ..PageTableConfig::default() });
        let table = table.unwrap();
        let cache = table.cache(CacheConfig::default()).unwrap();
        let wrong = catch_unwind(AssertUnwindSafe(|| {
            let tokens = TokenList::text(&[1, 2, 3]);
            let _sequence = cache.begin(&Namespace::default(), tokens, 0).unwrap();
            resume_unwind(Box::new("the engine's own fault"));
        }));
        assert!(wrong.is_err());
        assert!(table.allocate_pages(1).is_ok());
    }

    /// M02: after a panic inside the library every call refuses, and what there is can be dropped.
    #[test]
    fn m02_a_panic_poisons() {
        let config = PageTableConfig { page_count: 9, ..PageTableConfig::default() };
        let table = PageTable::new(config).unwrap();
        let cache = table.cache(CacheConfig::default()).unwrap();
        let tokens = TokenList::text(&[1, 2, 3]);
        let sequence = cache.begin(&Namespace::default(), tokens, 0).unwrap();
        let other = table.clone();
        let bug = catch_unwind(AssertUnwindSafe(|| {
            call(&table.shared, |_| -> Result<(), Error> { panic!("a bug") })
        }));
        assert!(bug.is_err());
        assert_eq!(other.allocate_pages(1), Err(Error::Poisoned));
        assert!(matches!(sequence.info(), Err(Error::Poisoned)));
        let begun = cache.begin(&Namespace::default(), tokens, 0);
        assert!(matches!(begun, Err(Error::Poisoned)));
        drop((sequence, cache, table, other));
    }
}
