//! What lies below the device, as the store sees it: something that goes before the cache does, and
//! pages that are read and written meanwhile.
use super::{Shared, State, page_at};
use crate::error::Error;
use crate::ids::SequenceId;
use crate::index::Namespace;
use crate::memory::try_collect;
use crate::token::TokenList;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The tiers of a cache. They may take the store's lock, and the store calls them without it.
pub trait Lower: Any + Send + Sync {
    /// Nothing is copied any more, and nothing of the cache is touched from now on.
    fn close(&self);
    /// Namespaces were cleared: what is kept of them goes at once.
    fn cleared(&self);
}

/// The one that a cache has.
#[derive(Default)]
pub(super) struct Attached {
    lower: RwLock<Option<Arc<dyn Lower>>>,
    is_there: AtomicBool,
    /// Fetches and prefetches that were ever begun, whatever was below the cache then.
    loads: AtomicU64,
    /// Copies that were ever given out.
    copies: AtomicU64,
    carried_out: Mutex<CarriedOut>,
}

/// What one directory is told from others by.
pub type Identity = (u64, u64);

/// Directories of which it is known what they have carried out.
const DIRECTORIES: usize = 8;

/// Which clears the directories that were below the cache have carried out: each its own.
#[derive(Default)]
struct CarriedOut {
    /// The latest clear for each of the last ones, the last one first.
    of: [Option<(Identity, u64)>; DIRECTORIES],
}

impl CarriedOut {
    /// None, 0, for one that is not known any more, that can't be told from others, or that was
    /// never here: what it has may have been stored before all of them.
    fn latest(&self, directory: Option<Identity>) -> u64 {
        let known = self.of.iter().flatten().find(|(known, _)| Some(*known) == directory);
        known.map_or(0, |&(_, clear)| clear)
    }

    fn set(&mut self, directory: Option<Identity>, clear: u64) {
        let Some(directory) = directory else { return };
        let is_it = |known: &Option<(Identity, u64)>| known.is_some_and(|(of, _)| of == directory);
        let at = self.of.iter().position(is_it).unwrap_or(DIRECTORIES - 1);
        self.of[..=at].rotate_right(1);
        self.of[0] = Some((directory, clear));
    }
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_there.load(Ordering::Relaxed) { "tiers" } else { "nothing" })
    }
}

impl Shared {
    /// Numbers a fetch or a prefetch. None has the number of another one, also when other tiers
    /// were attached meanwhile: who cancels an old one would end a new one.
    pub(crate) fn number_load(&self) -> u64 {
        self.lower.loads.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The last number that was given.
    pub(crate) fn last_load(&self) -> u64 {
        self.lower.loads.load(Ordering::Relaxed)
    }

    /// Numbers a copy, in the same way: who completes an old one would end a new one.
    pub(crate) fn number_copy(&self) -> u64 {
        self.lower.copies.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Says that of all that was cleared up to a clear nothing is left in a directory.
    pub(crate) fn end_lower_at(&self, directory: Option<Identity>, clear: u64) {
        let mut carried_out = self.lower.carried_out.lock().unwrap_or_else(PoisonError::into_inner);
        carried_out.set(directory, clear);
    }

    /// That clear, or one before it.
    pub(crate) fn lower_ended_at(&self, directory: Option<Identity>) -> u64 {
        let carried_out = self.lower.carried_out.lock().unwrap_or_else(PoisonError::into_inner);
        carried_out.latest(directory)
    }

    /// Puts something below the cache, which has nothing there.
    pub fn attach_lower(&self, lower: Arc<dyn Lower>) -> Result<(), Error> {
        let mut attached = self.lower.lower.write().unwrap_or_else(PoisonError::into_inner);
        if attached.is_some() {
            return Err(Error::state("the cache has tiers: detach those first"));
        }
        *attached = Some(lower);
        self.lower.is_there.store(true, Ordering::Release);
        Ok(())
    }

    /// What is below the cache, if it is of this type.
    pub fn lower<T: Lower>(&self) -> Option<Arc<T>> {
        if !self.lower.is_there.load(Ordering::Acquire) {
            return None;
        }
        let attached = self.lower.lower.read().unwrap_or_else(PoisonError::into_inner);
        let lower: Arc<dyn Any + Send + Sync> = attached.clone()?;
        lower.downcast().ok()
    }

    /// Tells what is below the cache of a clear.
    pub(super) fn tell_lower_of_clear(&self) {
        if self.lower.is_there.load(Ordering::Acquire) {
            let attached = self.lower.lower.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(lower) = &*attached {
                lower.cleared();
            }
        }
    }

    /// Takes away what is below the cache.
    pub fn detach_lower(&self) {
        let mut attached = self.lower.lower.write().unwrap_or_else(PoisonError::into_inner);
        let lower = attached.take();
        self.lower.is_there.store(false, Ordering::Release);
        drop(attached);
        if let Some(lower) = lower {
            lower.close();
        }
    }
}

/// A page of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolPage {
    /// The pool.
    pub pool: usize,
    /// The page's number there.
    pub page: u32,
}

/// The beginning of a token list that the device has.
#[derive(Debug, Clone, Copy)]
pub struct OnDevice {
    /// Whole pages.
    pub pages: usize,
    /// The last of them, and a record from which on it has held what it holds.
    pub last: Option<(u32, u64)>,
    /// The latest clear at that time.
    pub clear: u64,
}

impl Shared {
    /// How much of a list the device has.
    pub fn on_device(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> Result<OnDevice, Error> {
        self.find_and(namespace, (tokens, None), |state, found| {
            let last = found.pages().checked_sub(1).zip(found.walk).and_then(|(last, walk)| {
                let page = page_at(state.cache.as_ref()?.index.as_ref(), walk.node, last);
                state.held_since(page).map(|since| (page, since))
            });
            OnDevice { pages: found.pages(), last, clear: state.latest_clear() }
        })
    }
}

impl State {
    /// A record of the journal from which on a page, which can be found, has held what it holds
    /// now.
    pub fn held_since(&self, page: u32) -> Option<u64> {
        let journal = self.cache.as_ref()?.journal.as_ref()?;
        journal.stored_by(page).filter(|_| self.table.pool.is_cached(page))
    }

    /// The number of the latest clear.
    pub fn latest_clear(&self) -> u64 {
        self.clears.latest()
    }

    /// The namespaces that were cleared after a clear: true for those that were, or may have been.
    pub fn cleared_since(&self, clear: u64) -> impl Fn(&Namespace) -> bool + '_ {
        move |namespace| self.clears.concern(namespace, clear)
    }

    /// Makes room for copies between tiers; refused where pages are somebody else's.
    pub fn reserve_copied(&mut self) -> Result<(), Error> {
        self.check_own_pool()?;
        for pool in 0..self.table.pool_count() {
            self.table.pool_at_mut(pool).reserve_copied()?;
        }
        Ok(())
    }

    /// Pages of each pool, page 0 included.
    pub fn pool_pages(&self) -> Result<Vec<usize>, Error> {
        let pools = 0..self.table.pool_count();
        Ok(try_collect(pools.map(|pool| self.table.pool_at(pool).total() + 1))?)
    }

    /// The page of a group beside the first that hangs on a page of group 0; 0 for none.
    pub fn hung_page(&self, group: usize, spine: u32) -> u32 {
        let groups = self.cache.as_ref().and_then(|cache| cache.groups.as_deref());
        groups.map_or(0, |groups| groups.hung.page(group, spine))
    }

    /// Whether a page of a group beside the first hangs on a page of group 0.
    pub fn hangs_on(&self, group: usize, page: PoolPage, spine: u32) -> bool {
        let groups = self.cache.as_ref().and_then(|cache| cache.groups.as_deref());
        groups.is_some_and(|groups| groups.hung.place(page.pool, page.page) == Some((group, spine)))
    }

    /// A tier copies a page of the cache, which is this one of group 0 or hangs on it. That one has
    /// held the same since a record. False when the cache has other things there now, or it is
    /// being copied already.
    pub fn begin_store(&mut self, page: PoolPage, spine: u32, known: u64) -> bool {
        let is_same = self.held_since(spine).is_some_and(|since| since <= known);
        is_same && self.table.pool_at_mut(page.pool).begin_copied(page.page)
    }

    /// A tier writes to a page of a sequence that waits for that.
    pub fn begin_load(&mut self, id: SequenceId, page: PoolPage) -> bool {
        self.sequence(id).is_ok_and(|sequence| sequence.is_loading)
            && self.table.pool_at_mut(page.pool).begin_copied(page.page)
    }

    /// Such a copy is done.
    pub fn end_copied(&mut self, page: PoolPage) {
        self.table.pool_at_mut(page.pool).end_copied(page.page);
    }

    /// Pages that are being copied between tiers.
    pub fn copied_pages(&self) -> usize {
        (0..self.table.pool_count()).map(|pool| self.table.pool_at(pool).copied().0).sum()
    }

    /// Gives `take` pages of a pool in the order in which evictions will take them, or nearly: so
    /// many at most of group 0, and as many of the groups beside it.
    pub fn cold_pages(&self, pool: usize, count: usize, take: &mut dyn FnMut(u32)) {
        let Some(cache) = &self.cache else { return };
        if let Some(groups) = &cache.groups {
            groups.hung.cold(pool).take(count).for_each(&mut *take);
        }
        if pool > 0 {
            return;
        }
        // Whose turn it is first is a matter of time: all that go may be of either kind.
        let mut left = count;
        cache.index.visit_cold(&mut |pages| {
            let taken = left.min(pages.len());
            pages[pages.len() - taken..].iter().rev().for_each(|&page| take(page));
            left -= taken;
            left > 0
        });
    }
}
