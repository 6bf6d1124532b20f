//! Calls over many items, each of which has a status, and mostly a result, of its own.
use super::elements::{AbiElement, GivenElements, WantedElements};
use super::guard::{Fail, item_status};
use super::pointer::check_out;
use super::status::rkv_status;
use crate::error::Error;
use crate::index::{Ask, Namespace, Ways};
use crate::lock::unless_left;
use crate::store::{READY, ReadyDigests, Shared, Turn};
use std::cell::Cell;
use std::mem::MaybeUninit;

/// The items of a call, and where the statuses go.
pub(crate) struct Many<'a, T, L = Lookup<'a, T>> {
    items: GivenElements<'a, T>,
    name: &'static str,
    statuses: *mut rkv_status,
    /// Items that have a status.
    done: Cell<usize>,
    lookup: Option<L>,
}

/// What an item is going to look up, if that can be told beforehand.
type Lookup<'a, T> = for<'n> fn(&T, &'n mut Option<Namespace>) -> Option<Ask<'a, &'n Namespace>>;

impl<'a, T: AbiElement> Many<'a, T> {
    /// # Safety
    /// `items` and `statuses` are NULL, or as long as `count` says, and stay during the call.
    pub(crate) unsafe fn new(
        (items, name): (*const T, &'static str),
        count: usize,
        item_size: usize,
        statuses: *mut rkv_status,
    ) -> Result<Self, Fail> {
        // SAFETY: the caller's contract.
        let items = unsafe { GivenElements::new(items, count, (item_size, "item_size"), name)? };
        check_out(statuses, count, "statuses")?;
        Ok(Self { items, name, statuses, done: Cell::new(0), lookup: None })
    }

    /// The items once more: for who looks at the next ones before it is their turn.
    pub(crate) fn items(&self) -> impl Iterator<Item = T> + use<'a, T> {
        self.items.iter()
    }

    /// Lets what the items look up go ahead of them, so that they wait less for memory.
    pub(crate) fn with_lookups<L>(self, lookup: L) -> Many<'a, T, L>
    where
        L: for<'n> Fn(&T, &'n mut Option<Namespace>) -> Option<Ask<'a, &'n Namespace>> + Copy,
    {
        let Self { items, name, statuses, done, lookup: _ } = self;
        Many { items, name, statuses, done, lookup: Some(lookup) }
    }
}

impl<'a, T: AbiElement, L> Many<'a, T, L>
where
    L: for<'n> Fn(&T, &'n mut Option<Namespace>) -> Option<Ask<'a, &'n Namespace>> + Copy,
{
    /// Does something for each item, in order, under one lock, which others get between two.
    pub(crate) fn in_turn<R: AbiElement>(
        self,
        shared: &Shared,
        mut results: WantedElements<R>,
        mut each: impl FnMut(&mut Turn<'_>, usize, &T) -> Result<R, Fail>,
    ) -> Result<(), Fail> {
        let count = self.items.len();
        let (lookup, mut asked, mut ways) = (self.lookup(), 0..count, Ways::default());
        let (mut hashed, ready) = (self.asks(), ReadyDigests::default());
        let item = |turn: &mut Turn<'_>, at: usize| {
            if let Some(next) = &mut hashed
                && at.is_multiple_of(READY)
                && !turn.is_poisoned()
                && !turn.make_ready(next)
            {
                hashed = None;
            }
            // Another call may have panicked while it was let in.
            if turn.is_poisoned() {
                return self.put(at, Err(Fail::poisoned()), &mut results);
            }
            if let Some(lookup) = lookup {
                turn.state().go_ahead(&mut ways, at, |named| {
                    lookup(self.items.get(asked.next()?, &mut MaybeUninit::uninit()), named)
                });
            }
            let mut copy = MaybeUninit::uninit();
            let item = self.items.get(at, &mut copy);
            self.put(at, each(turn, at, item), &mut results);
            if lookup.is_some() && at + 1 == count {
                turn.state().end_ahead();
            }
        };
        let all = unless_left(|| {
            shared.each_with(count, &ready, item);
            Ok(())
        });
        self.refuse_rest(all, &mut results);
        Ok(())
    }

    /// Does something for each item, in order, without a lock over all. `each` gets also whether
    /// its lookup went ahead, and what may be hashed.
    pub(crate) fn one_by_one<R: AbiElement>(
        self,
        shared: &Shared,
        mut results: WantedElements<R>,
        mut each: impl FnMut(&T, (bool, Option<&ReadyDigests>)) -> Result<R, Fail>,
    ) -> Result<(), Fail> {
        let count = self.items.len();
        let (lookup, mut asked, mut ways) = (self.lookup(), 0..count, Ways::default());
        let ready = ReadyDigests::default();
        let mut hashed = self.asks().and_then(|asks| Some((asks, shared.digested_pages()?)));
        let item = |at: usize| {
            if let Some((asks, page_size)) = &mut hashed
                && at.is_multiple_of(READY)
                && !shared.is_poisoned()
            {
                shared.make_ready(&ready, *page_size, asks);
            }
            // Another call may have panicked meanwhile, also one that had the lock just now.
            if shared.is_poisoned() {
                return self.put(at, Err(Fail::poisoned()), &mut results);
            }
            let is_ahead = lookup.is_some_and(|lookup| {
                shared.go_ahead(&mut ways, at, |named| {
                    lookup(self.items.get(asked.next()?, &mut MaybeUninit::uninit()), named)
                })
            });
            let ready = hashed.is_some().then_some(&ready);
            let mut copy = MaybeUninit::uninit();
            let item = self.items.get(at, &mut copy);
            self.put(at, each(item, (is_ahead, ready)), &mut results);
        };
        let all = unless_left(|| {
            (0..count).for_each(item);
            Ok(())
        });
        self.refuse_rest(all, &mut results);
        Ok(())
    }

    /// What another call's panic interrupted, and what is behind that, is refused.
    fn refuse_rest<R: AbiElement>(&self, all: Result<(), Error>, results: &mut WantedElements<R>) {
        if all.is_err() {
            for at in self.done.get()..self.items.len() {
                self.put(at, Err(Fail::poisoned()), results);
            }
        }
    }

    /// Tells what an item looks up, if there are several: a single one has nobody to go ahead of.
    fn lookup(&self) -> Option<L> {
        self.lookup.filter(|_| self.items.len() > 1)
    }

    /// What the items look up, if there are several.
    fn asks(&self) -> Option<impl Iterator<Item = Option<Ask<'a>>>> {
        let lookup = self.lookup()?;
        Some(self.items.iter().map(move |item| {
            let mut named = None;
            lookup(&item, &mut named).map(|(namespace, keys)| (*namespace, keys))
        }))
    }

    /// Writes what came of an item; a failure, with its name, is the thread's last message.
    fn put<R: AbiElement>(
        &self,
        at: usize,
        done: Result<R, Fail>,
        results: &mut WantedElements<R>,
    ) {
        // Without room they are not wanted.
        let done = done.map(|made| {
            if results.capacity() > 0 {
                results.put(at, &made);
            }
        });
        self.done.set(at + 1);
        // SAFETY: `new` was promised one for each item.
        unsafe { self.statuses.add(at).write(item_status(done, self.name, at)) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::index::IndexKind;
    use crate::paging::PageTableConfig;
    use crate::store::CacheConfig;

    /// M02: what a panic of another call left half done is looked at no more, in whatever batch.
    #[test]
    fn m02_the_rest_of_a_batch_is_refused_after_a_panic() {
        let config =
            PageTableConfig { page_size: 1, page_count: 4, slot_count: 1, ..Default::default() };
        let shared = Shared::new(config).expect("a page table");
        let (items, mut statuses) = ([1_u64, 2, 3], [rkv_status::Internal; 3]);
        let (count, size) = (items.len(), size_of::<u64>());
        let into = statuses.as_mut_ptr();
        // SAFETY: arrays of so many, which stay.
        let many = unsafe { Many::new((items.as_ptr(), "items"), count, size, into) };
        let done = many.ok().expect("good arrays").one_by_one(
            &shared,
            WantedElements::none(),
            |&item, _| {
                if item == 2 {
                    // As a panic of another thread does.
                    shared.poison();
                }
                Ok(())
            },
        );
        assert!(done.is_ok());
        assert!(statuses == [rkv_status::Ok, rkv_status::Ok, rkv_status::Poisoned]);
    }

    /// M02: also an item that lets others in.
    #[test]
    fn m02_an_item_that_let_a_panic_in_is_refused_with_the_rest() {
        let config =
            PageTableConfig { page_size: 1, page_count: 4, slot_count: 1, ..Default::default() };
        let shared = Shared::new(config).expect("a page table");
        let (items, mut statuses) = ([1_u64, 2, 3], [rkv_status::Internal; 3]);
        let (into, size) = (statuses.as_mut_ptr(), size_of::<u64>());
        // SAFETY: arrays of so many, which stay.
        let many = unsafe { Many::new((items.as_ptr(), "items"), items.len(), size, into) };
        let many = many.ok().expect("good arrays");
        let mut ended = Vec::new();
        let done = many.in_turn(&shared, WantedElements::none(), |turn, at, _| {
            if at == 1 {
                // As a panic of another thread does.
                shared.poison();
                turn.let_others_in();
            }
            ended.push(at);
            Ok(())
        });
        assert!(done.is_ok());
        assert!(statuses == [rkv_status::Ok, rkv_status::Poisoned, rkv_status::Poisoned]);
        assert_eq!(ended, [0]);
    }

    /// M02: nor does anything go ahead for those that are refused.
    #[test]
    fn m02_nothing_goes_ahead_after_a_panic() {
        const COUNT: usize = 200;
        for takes_turns in [false, true] {
            let config = PageTableConfig {
                page_size: 1,
                page_count: 4,
                slot_count: 1,
                ..Default::default()
            };
            let shared = Shared::new(config).expect("a page table");
            shared.attach_cache(CacheConfig::default()).expect("a cache");
            let items: Vec<u64> = (0..COUNT as u64).collect();
            let mut statuses = [rkv_status::Internal; COUNT];
            let (into, size) = (statuses.as_mut_ptr(), size_of::<u64>());
            let (asked, at_panic) = (Cell::new(0), Cell::new(None));
            // SAFETY: arrays of so many, which stay.
            let many = unsafe { Many::new((items.as_ptr(), "items"), COUNT, size, into) };
            let many = many.ok().expect("good arrays").with_lookups(
                |_: &u64, named: &mut Option<Namespace>| {
                    asked.set(asked.get() + 1);
                    Some((&*named.insert(Namespace::default()), &[7_u32][..]))
                },
            );
            let each = |item: u64| {
                if item == 2 {
                    at_panic.set(Some(asked.get()));
                    // As a panic of another thread does.
                    shared.poison();
                }
                Ok(())
            };
            let done = match takes_turns {
                true => many.in_turn(&shared, WantedElements::none(), |_, _, &item| each(item)),
                false => many.one_by_one(&shared, WantedElements::none(), |&item, _| each(item)),
            };
            assert!(done.is_ok());
            assert_eq!(at_panic.get(), Some(asked.get()), "lookups that went ahead");
            assert!(statuses[3..].iter().all(|&status| status == rkv_status::Poisoned));
        }
    }

    /// M02: while digests are made ready others have the lock: who panics then is not overlooked.
    #[test]
    fn m02_a_panic_while_digests_are_made_is_not_overlooked() {
        const COUNT: usize = 2 * READY;
        for takes_turns in [false, true] {
            let config = PageTableConfig {
                page_size: 1,
                page_count: 4,
                slot_count: 1,
                ..Default::default()
            };
            let shared = Shared::new(config).expect("a page table");
            let config = CacheConfig { index: IndexKind::BlockHash, ..Default::default() };
            shared.attach_cache(config).expect("a cache");
            let items: Vec<u64> = (0..COUNT as u64).collect();
            let mut statuses = [rkv_status::Internal; COUNT];
            let (into, size) = (statuses.as_mut_ptr(), size_of::<u64>());
            // SAFETY: arrays of so many, which stay.
            let many = unsafe { Many::new((items.as_ptr(), "items"), COUNT, size, into) };
            let many = many.ok().expect("good arrays").with_lookups(
                |&item: &u64, named: &mut Option<Namespace>| {
                    if item == READY as u64 {
                        // As a panic of another thread does.
                        shared.poison();
                    }
                    Some((&*named.insert(Namespace::default()), &[7_u32][..]))
                },
            );
            let done = match takes_turns {
                true => many.in_turn(&shared, WantedElements::none(), |_, _, _| Ok(())),
                false => many.one_by_one(&shared, WantedElements::none(), |_, _| Ok(())),
            };
            assert!(done.is_ok());
            let (before, behind) = statuses.split_at(READY);
            assert!(before.iter().all(|&status| status == rkv_status::Ok));
            assert!(behind.iter().all(|&status| status == rkv_status::Poisoned), "{takes_turns}");
        }
    }
}
