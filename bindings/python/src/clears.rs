//! Which namespaces a cache cleared. A row that has published nothing yet inserts under the name
//! alone: the library can't know that its pages were computed before.
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::c::*;
use crate::space::{Namespace, Scope, Space};

/// The latest clears of a cache.
#[derive(Default)]
pub struct Clears(Mutex<Noted>);

#[derive(Default)]
pub struct Noted {
    /// Each clear has a number; 0 is before the first.
    latest: u64,
    /// Each scope once, in the order of the numbers.
    scopes: Vec<(u64, Scope)>,
    /// The highest number of those that are not remembered any more.
    forgotten: u64,
}

impl Clears {
    /// So many scopes are remembered, as in the library.
    const REMEMBERED: usize = 1024;

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the latest.
    pub fn latest(&self) -> u64 {
        self.noted().latest
    }

    /// Carries out a clear. It is noted before, so that nobody publishes behind it what is older,
    /// and again after, for those that began meanwhile.
    pub fn clear(&self, (flags, space): (u32, &Space), clear: impl FnOnce() -> i32) -> i32 {
        let names = flags != RKV_CLEAR_EVERYTHING || !space.c().is_null();
        if flags & RKV_CLEAR_EVERYTHING != 0 && names {
            // It is refused, and clears nothing.
            return clear();
        }
        let scope = Scope::of(flags, &space.namespace());
        self.noted().note(&scope);
        let status = clear();
        self.noted().note(&scope);
        status
    }

    /// Carries out an insert that begins at the root, if no clear concerns its namespace since the
    /// one of a number. None comes in between.
    pub fn insert(&self, (space, began): (&Space, u64), insert: impl FnOnce() -> i32) -> i32 {
        let noted = self.noted();
        if noted.concern(&space.namespace(), began) {
            return RKV_STATUS_STALE_NODE;
        }
        insert()
    }
}

impl Noted {
    fn note(&mut self, scope: &Scope) {
        self.latest += 1;
        if let Some(at) = self.scopes.iter().rposition(|(_, known)| known == scope) {
            self.scopes.remove(at);
        } else if self.scopes.len() == Clears::REMEMBERED {
            self.forgotten = self.scopes.remove(0).0;
        }
        self.scopes.push((self.latest, scope.clone()));
    }

    /// Whether a clear after that number concerns a namespace, or may have, where it began too long
    /// ago.
    fn concern(&self, space: &Namespace, began: u64) -> bool {
        let mut later = self.scopes.iter().rev().take_while(|(number, _)| *number > began);
        began < self.forgotten || later.any(|(_, scope)| scope.covers(space))
    }
}
