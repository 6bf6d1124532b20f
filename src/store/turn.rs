//! The right to change a page table and its cache, which a call gives to others now and then.
//!
//! A call takes it for all that it does, a batch for all its items. What a turn knew before it let
//! others in is nothing that it uses afterwards: everything is looked up anew, by its id.
use super::housekeeping::is_much;
use super::shared::{READER_PAUSES, WRITER_PAUSES};
use super::{ReadyDigests, Shared, State};
use crate::error::Error;
use crate::lock::RwLockWriteGuard;
use crate::memory::{OutOfMemory, grow_allocator, touch, try_touched_room};
use crate::tree::SpareTable;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::thread::panicking;

/// Pauses in which a thread that waits to change something sees that the lock is free.
const TURN_PAUSES: u32 = 16 * WRITER_PAUSES;

/// The lock, and the state that it guards.
pub struct Turn<'a> {
    pub(crate) shared: &'a Shared,
    pub(super) state: RwLockWriteGuard<'a, State>,
    /// Of a call over many: what was hashed for the next ones.
    pub(super) ready: Option<&'a ReadyDigests>,
    /// A panic is not of what the turn does: one of the engine's that was there before, and drops
    /// what takes a turn, or that comes from a function of the engine's.
    is_no_cause: bool,
}

impl Drop for Turn<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.state.housekeeping.is_due() || panicking() {
            self.end();
        }
    }
}

impl Deref for Turn<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Turn<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Shared {
    /// Takes the lock for a call, or for several. Unwinds as `read` does, and so do the calls that
    /// let others in.
    #[inline(always)]
    pub fn turn(&self) -> Turn<'_> {
        Turn { shared: self, state: self.write(), ready: None, is_no_cause: panicking() }
    }

    /// Does something for each of so many items, in order: as many calls, with one lock as long as
    /// nobody waits for it.
    pub fn each(&self, count: usize, item: impl FnMut(&mut Turn<'_>, usize)) {
        self.each_with(count, &ReadyDigests::default(), item);
    }

    /// The same with digests that are made for some of them.
    pub(crate) fn each_with<'a>(
        &'a self,
        count: usize,
        ready: &'a ReadyDigests,
        mut item: impl FnMut(&mut Turn<'a>, usize),
    ) {
        if count == 0 {
            return;
        }
        let mut turn = self.turn();
        turn.ready = Some(ready);
        for at in 0..count {
            if at > 0 {
                turn.let_waiting_in();
            }
            item(&mut turn, at);
        }
    }
}

/// Does something while others have the lock. Who comes back for it waits like one who begins. (Who
/// lets others in between two items does not: two calls of many would take turns item by item.)
pub(super) fn unlocked<R>(
    shared: &Shared,
    state: &mut RwLockWriteGuard<'_, State>,
    work: impl FnOnce() -> R,
) -> R {
    let done = set_aside(shared, state, work);
    shared.poison.check();
    done
}

/// The same for who may be done with the state, and looks whether it is whole if he is not.
fn set_aside<R>(
    shared: &Shared,
    state: &mut RwLockWriteGuard<'_, State>,
    work: impl FnOnce() -> R,
) -> R {
    let done = RwLockWriteGuard::unlocked(state, || {
        let done = work();
        shared.come_back();
        done
    });
    shared.is_back();
    done
}

impl Turn<'_> {
    /// The state as it is now.
    #[inline]
    pub fn state(&mut self) -> &mut State {
        &mut self.state
    }

    /// Calls a function of the engine's, which finds the state whole and leaves it so when it
    /// panics.
    pub(crate) fn call_out<R>(&mut self, function: impl FnOnce() -> R) -> R {
        let before = std::mem::replace(&mut self.is_no_cause, true);
        let done = function();
        self.is_no_cause = before;
        done
    }

    /// Whether a call panicked, perhaps while this turn had let it in.
    pub fn is_poisoned(&self) -> bool {
        self.shared.is_poisoned()
    }

    /// Pages that are published before others are let in, with those of all groups: a slice of
    /// those beside the first, each of which then hangs somewhere, is in use, and has a class. The
    /// journal's records take as long as another group.
    pub(crate) fn publish_portion(&self) -> Result<usize, Error> {
        let (slice, hung) = (self.shared.slice, self.table.groups().list().len() - 1);
        let cache = self.cache()?;
        let portion = cache.index.publish_portion(slice);
        Ok(match hung {
            0 => portion,
            _ => portion.min(slice.div_ceil(hung + usize::from(cache.journal.is_some()))),
        })
    }

    /// Does something that needs nothing of the state while others have the lock.
    pub(crate) fn unlocked<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let Self { shared, state, .. } = self;
        unlocked(shared, state, || {
            let done = work();
            shared.without_lock();
            done
        })
    }

    /// The same for a call that goes on in its cache: refused when that went meanwhile.
    pub(crate) fn unlocked_in_cache<R>(&mut self, work: impl FnOnce() -> R) -> Result<R, Error> {
        let gone = self.caches_gone;
        let done = self.unlocked(work);
        if self.caches_gone == gone { Ok(done) } else { Err(super::no_cache()) }
    }

    /// Does what waits for the end of a turn. A panic leaves the state as it is, which nobody is to
    /// see: who waits gets the lock next.
    #[cold]
    fn end(&mut self) {
        if !panicking() {
            self.keep_house();
        } else if !self.is_no_cause {
            self.shared.poison.set();
        }
    }

    /// Does what waits for that, while others may get in. Whether there was anything. Also at the
    /// end of a call, which can't be refused for what others did then.
    #[inline]
    fn keep_house(&mut self) -> bool {
        let is_due = self.state.housekeeping.is_due();
        if is_due {
            self.do_housework();
        }
        is_due
    }

    #[cold]
    fn do_housework(&mut self) {
        let Self { shared, state, .. } = self;
        let work = state.housekeeping.take();
        set_aside(shared, state, || {
            work.carry_out();
            shared.without_lock();
        });
    }

    /// Has memory made ready, while others have the lock, for many positions that are about to be
    /// inserted. They may get in only when there are many.
    #[inline]
    pub(crate) fn ready_heap(&mut self, positions: usize) {
        if is_much(positions) {
            self.unlocked(grow_allocator);
        }
    }

    /// Makes a part of the larger table that the index needs soon while others have the lock. They
    /// may get in only when there is one to be made.
    #[inline]
    pub(crate) fn make_wanted_table(&mut self) {
        let cache = self.state.cache.as_mut();
        if let Some(spare) = cache.and_then(|cache| cache.index.wanted_table()) {
            self.make_some_of(spare);
        }
    }

    #[cold]
    fn make_some_of(&mut self, mut spare: SpareTable) {
        self.unlocked(|| {
            spare.make_some();
            // It may have used what was ready for whoever wants it.
            grow_allocator();
        });
        let left = match &mut self.state.cache {
            Some(cache) => cache.index.keep_table(spare).err(),
            None => Some(spare),
        };
        if left.is_some() {
            self.unlocked(|| drop(left));
        }
    }

    /// An empty list for so many page numbers. Much memory is had, and touched, while others have
    /// the lock: the system takes longer to give it than a portion of page numbers takes.
    pub(crate) fn room_for_pages(&mut self, count: usize) -> Result<Vec<u32>, OutOfMemory> {
        match count > self.shared.read_portion() {
            true => self.unlocked(|| try_touched_room(count)),
            false => try_touched_room(count),
        }
    }

    /// Touches a long row of the caller's while others have the lock.
    pub(super) fn touch_row(&mut self, row: &mut [MaybeUninit<u32>]) {
        if row.len() > self.shared.read_portion() {
            self.unlocked(|| touch(row));
        }
    }

    /// Lets waiting threads in, in the middle of a call. The state must be whole.
    pub(crate) fn let_others_in(&mut self) {
        self.keep_house();
        let Self { shared, state, .. } = self;
        if let Some(at_yield) = &shared.at_yield.0 {
            RwLockWriteGuard::unlocked(state, at_yield);
        } else if shared.waiting_readers.load(Ordering::Relaxed) == 0 {
            RwLockWriteGuard::bump(state);
        } else {
            // Until they look again.
            let pause = || (0..READER_PAUSES).for_each(|_| std::hint::spin_loop());
            // Who has gone to sleep is handed the lock: it would never be quick enough to take it.
            RwLockWriteGuard::unlocked_fair(state, pause);
        }
        shared.poison.check();
    }

    /// The same between two short steps of a call, at once and only when somebody waits: also who
    /// spins, and would be at it for as long as all the steps take. Whether somebody may have got
    /// in.
    #[inline]
    pub(crate) fn let_waiting_in(&mut self) -> bool {
        let Self { shared, state, .. } = self;
        // A clock in the lock times each step by itself.
        let is_quiet = !cfg!(feature = "timed-lock")
            && !state.housekeeping.is_due()
            && shared.at_yield.0.is_none()
            && shared.waiting_readers.load(Ordering::Relaxed) == 0
            && shared.waiting_writers.load(Ordering::Relaxed) == 0;
        !is_quiet && self.let_some_in()
    }

    /// The same where something waits, if only work for the allocator.
    #[inline(never)]
    fn let_some_in(&mut self) -> bool {
        let was_free = self.keep_house();
        let Self { shared, state, .. } = self;
        let readers = shared.waiting_readers.load(Ordering::Relaxed);
        let is_timed = cfg!(feature = "timed-lock");
        if shared.at_yield.0.is_some() || readers > 0 || is_timed {
            self.let_others_in();
            return true;
        }
        let is_waited_for = shared.waiting_writers.load(Ordering::Relaxed) > 0;
        if is_waited_for {
            let pause = || (0..TURN_PAUSES).for_each(|_| std::hint::spin_loop());
            RwLockWriteGuard::unlocked_fair(state, pause);
        }
        shared.poison.check();
        is_waited_for || was_free
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::paging::PageTableConfig;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    /// Who gives the lock up only for the allocator says so too: others may have changed all.
    #[test]
    fn housework_lets_others_in() {
        let config =
            PageTableConfig { page_size: 1, page_count: 4, slot_count: 1, ..Default::default() };
        let shared = Shared::new(config).expect("a page table");
        let mut turn = shared.turn();
        assert!(!turn.let_waiting_in());
        turn.housekeeping.discard(Vec::with_capacity(1 << 20));
        assert!(turn.let_waiting_in());
        assert!(!turn.let_waiting_in());
        // So many tokens that their memory has to be made ready again; all at once, or one by one.
        for (positions, times) in [(1 << 14, 1), (0, 1000), (1, 100)] {
            (0..times).for_each(|_| turn.housekeeping.inserted(positions));
            assert_eq!(turn.let_waiting_in(), positions > 0);
            assert!(!turn.let_waiting_in());
        }
    }

    /// J03: who comes back to a call is let in between two items of another one, as who begins is.
    #[test]
    fn j03_who_comes_back_gets_in_between_two_items() {
        let config =
            PageTableConfig { page_size: 1, page_count: 4, slot_count: 1, ..Default::default() };
        let shared = Shared::new(config).expect("a page table");
        let [is_out, may_return, is_back] = [const { AtomicBool::new(false) }; 3];
        let wait_for = |flag: &AtomicBool| {
            while !flag.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = shared.turn();
                turn.unlocked(|| {
                    is_out.store(true, Ordering::SeqCst);
                    wait_for(&may_return);
                });
                is_back.store(true, Ordering::SeqCst);
            });
            wait_for(&is_out);
            let mut was_back = false;
            // On a machine that does much else a thread may be long in coming.
            shared.each(10_000, |_, at| {
                may_return.store(true, Ordering::SeqCst);
                was_back |= at > 0 && is_back.load(Ordering::SeqCst);
                if !was_back {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            assert!(was_back, "it waited for all items");
        });
    }
}
