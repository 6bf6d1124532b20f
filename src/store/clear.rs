//! Clearing namespaces while requests run.
//!
//! At one moment the namespace stops to lead to its tree, which lives on without a name until the
//! last of those lets go who hold something in it. What nobody holds goes in slices, between which
//! others are let in. A sequence that has a node in the tree publishes there, and so to nobody. One
//! that has none yet might publish under the name, so each remembers after which clear it began.
use super::sequence::Sequence;
use super::{Shared, State, Turn};
use crate::error::Error;
use crate::index::{Namespace, Node, Portion};
use crate::memory::OutOfMemory;

/// Namespaces that are looked at and cleared before others are let in.
const NAMES: usize = 256;
const ROOTS: usize = 16;
/// Retained sequences that are looked at before others are let in.
const RETAINED: usize = 64;

/// Namespaces: those that have the same as one in each of the chosen fields; all when none is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scope {
    /// What the fields are compared with.
    pub like: Namespace,
    /// The adapter is compared.
    pub lora: bool,
    /// The image is compared.
    pub image: bool,
    /// What separates tenants is compared.
    pub salt: bool,
    /// The version is compared.
    pub epoch: bool,
}

impl Scope {
    /// One namespace.
    pub fn exactly(like: Namespace) -> Self {
        Self { like, lora: true, image: true, salt: true, epoch: true }
    }

    fn covers(&self, other: &Namespace) -> bool {
        let like = &self.like;
        (!self.lora || like.lora == other.lora)
            && (!self.image || like.image == other.image)
            && (!self.salt || like.salt == other.salt)
            && (!self.epoch || like.epoch == other.epoch)
    }

    fn is_one(&self) -> bool {
        *self == Self::exactly(self.like)
    }
}

/// What a clear did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cleared {
    /// Namespaces that had pages, or locks.
    pub namespaces: usize,
    /// Cached pages that went back to the pool.
    pub freed: usize,
    /// Pages, of this clear and of earlier ones, that go when those who hold them let go.
    pub held: usize,
    /// Pages of an external pool that evictions give up before all others.
    pub waiting: usize,
    /// Retained sequences that were dropped.
    pub dropped: usize,
}

/// The latest clears, each with a number.
#[derive(Debug, Default)]
pub(crate) struct Clears {
    latest: u64,
    /// Each scope once, in the order of the numbers. There is room for all, so that a clear needs
    /// no memory.
    scopes: Vec<(u64, Scope)>,
    /// How many of those at most.
    limit: usize,
    /// The highest number of those that are not remembered any more.
    forgotten: u64,
}

impl Clears {
    /// The number of the latest; 0 for none.
    #[inline]
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Room for so many scopes.
    pub(super) fn of(limit: u32) -> Result<Self, OutOfMemory> {
        let limit = limit as usize;
        let mut scopes = Vec::new();
        scopes.try_reserve_exact(limit)?;
        Ok(Self { scopes, limit, ..Self::default() })
    }

    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        self.scopes.capacity() * size_of::<(u64, Scope)>()
    }

    /// Goes on from the clears of the cache before, which directories of tiers may still lack.
    pub(super) fn follow(&mut self, before: &Self) {
        (self.latest, self.forgotten) = (before.latest, before.forgotten);
        let (gone, kept) = before.scopes.split_at(before.scopes.len().saturating_sub(self.limit));
        self.forgotten = gone.last().map_or(self.forgotten, |(number, _)| *number);
        self.scopes.extend_from_slice(kept);
    }

    /// From now on what began earlier was before a clear.
    fn note(&mut self, scope: Scope) {
        self.latest += 1;
        // Most often it is the last one: a clear that goes on.
        let known = self.scopes.iter().rposition(|(_, known)| *known == scope);
        let is_full = self.scopes.len() >= self.limit;
        if let Some(at) = known {
            self.scopes.remove(at);
        } else if is_full && !self.scopes.is_empty() {
            self.forgotten = self.scopes.remove(0).0;
        } else if is_full {
            self.forgotten = self.latest;
            return;
        }
        self.scopes.push((self.latest, scope));
    }

    /// Whether a namespace was cleared after something that began when a clear was the latest one.
    /// What began too long ago counts as cleared: it may have been.
    #[inline]
    pub(crate) fn concern(&self, namespace: &Namespace, began: u64) -> bool {
        began != self.latest && self.may_concern(namespace, began)
    }

    #[cold]
    fn may_concern(&self, namespace: &Namespace, began: u64) -> bool {
        let mut later = self.scopes.iter().rev().take_while(|(number, _)| *number > began);
        began < self.forgotten || later.any(|(_, scope)| scope.covers(namespace))
    }
}

impl State {
    /// Whether what a sequence publishes is found by nobody.
    pub(crate) fn is_cleared(&self, sequence: &Sequence) -> bool {
        match (sequence.base, &self.cache) {
            (Some(base), Some(cache)) => cache.index.is_detached(base),
            _ => self.clears.concern(&sequence.namespace, sequence.began),
        }
    }

    /// Puts cleared pages that nobody holds back into the pool. Those of an external one wait for
    /// an eviction, which reports them.
    pub(super) fn drop_cleared(&mut self, most: Portion) {
        let cache = self.cache.as_mut().filter(|_| !self.table.pool.is_external());
        let dropped = cache.map_or(0, |cache| cache.drop_cleared(&mut self.table, most));
        self.has_let_go = dropped > 0;
        self.housekeeping.evicted(dropped);
    }

    /// Clears some namespaces of a scope after one; returns how many, and the last one that it
    /// looked at, unless there are no more.
    fn detach_next(
        &mut self,
        scope: &Scope,
        after: Option<&Namespace>,
    ) -> Result<(usize, Option<Namespace>), Error> {
        let cache = self.cache.as_mut().ok_or_else(super::no_cache)?;
        self.clears.note(*scope);
        if scope.is_one() {
            let root = cache.index.find_root(&scope.like);
            root.into_iter().for_each(|root| cache.detach_root(&scope.like, root));
            return Ok((root.is_some() as usize, None));
        }
        let mut found = [(Namespace::default(), Node(0)); ROOTS];
        let (mut count, mut left, mut last) = (0, NAMES, None);
        cache.index.visit_roots(after, &mut |name, root| {
            left -= 1;
            last = Some(*name);
            if scope.covers(name) {
                found[count] = (*name, root);
                count += 1;
            }
            count < ROOTS && left > 0
        });
        found[..count].iter().for_each(|(name, root)| cache.detach_root(name, *root));
        Ok((count, last.filter(|_| count == ROOTS || left == 0)))
    }
}

impl Shared {
    /// Clears namespaces. Needs no memory.
    pub fn clear(&self, scope: Scope) -> Result<Cleared, Error> {
        let mut turn = self.turn();
        let gone = turn.caches_gone;
        let mut done = Cleared::default();
        let mut last = None;
        loop {
            let (count, next) = turn.detach_next(&scope, last.as_ref())?;
            done.namespaces += count;
            last = next;
            if last.is_none() {
                break;
            }
            turn.let_others_in();
            turn.check_cache(gone)?;
        }
        let freed_before = turn.cache()?.counters.cleared_pages;
        // Those that finish from now on are not retained if this concerns them; to look at them too
        // might never end.
        let (mut after, last) = (Some(0), turn.retained.last_finished());
        while let Some(finished) = after {
            let (dropped, next) = turn.drop_next_cleared((finished, last), RETAINED);
            done.dropped += dropped as usize;
            after = next;
            turn.drop_let_go();
            turn.let_others_in();
            turn.check_cache(gone)?;
        }
        let mut next = Some(0);
        while let Some(node) = next {
            let index = &mut turn.cache.as_mut().ok_or_else(super::no_cache)?.index;
            let swept = index.sweep(node, self.slice);
            next = swept.next;
            done.held += swept.held;
            done.waiting += if self.has_external_pool() { swept.unlocked } else { 0 };
            turn.let_others_in();
            turn.drop_cleared(self.portion(self.slice));
            turn.drop_let_go();
            turn.check_cache(gone)?;
        }
        done.freed = (turn.cache()?.counters.cleared_pages - freed_before) as usize;
        drop(turn);
        self.tell_lower_of_clear();
        Ok(done)
    }

    /// Does what may let go of cleared pages, and drops those.
    pub fn ending<T>(&self, end: impl FnOnce(&mut State) -> Result<T, Error>) -> Result<T, Error> {
        let mut turn = self.turn();
        let done = end(&mut turn);
        turn.drop_let_go();
        done
    }
}

impl Turn<'_> {
    /// Refused when another cache has gone since so many had: it was this call's.
    fn check_cache(&self, gone: u64) -> Result<(), Error> {
        if self.caches_gone == gone { Ok(()) } else { Err(super::no_cache()) }
    }

    /// Drops the cleared pages that `let_go` left, in slices.
    #[inline(always)] // most often there are none
    pub(crate) fn drop_let_go(&mut self) {
        if self.has_let_go {
            self.drop_let_go_in_slices();
        }
    }

    #[cold]
    fn drop_let_go_in_slices(&mut self) {
        while self.has_let_go {
            self.let_others_in();
            let most = self.shared.portion(self.shared.slice);
            self.drop_cleared(most);
        }
    }
}
