//! Calls over many items, each of which has a status, and mostly a result, of its own.
use super::elements::{AbiElement, GivenElements, WantedElements};
use super::guard::{Fail, item_status};
use super::pointer::check_out;
use super::status::rkv_status;
use crate::index::{Ask, LOOKAHEAD};
use crate::store::{Shared, Turn};

/// The items of a call, and where the statuses go.
pub(crate) struct Many<'a, T> {
    items: GivenElements<'a, T>,
    name: &'static str,
    statuses: *mut rkv_status,
    lookup: Option<Lookup<'a, T>>,
}

/// What an item is going to look up, if that can be told beforehand.
type Lookup<'a, T> = fn(&T) -> Option<Ask<'a>>;

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
        Ok(Self { items, name, statuses, lookup: None })
    }

    /// Has what the items look up fetched into the processor's cache before, some side by side.
    pub(crate) fn with_lookups(self, lookup: Lookup<'a, T>) -> Self {
        Self { lookup: Some(lookup), ..self }
    }

    /// Does something for each item, in order, under one lock, which others get between two.
    pub(crate) fn in_turn<R: AbiElement>(
        self,
        shared: &Shared,
        mut results: WantedElements<R>,
        mut each: impl FnMut(&mut Turn<'_>, usize, T) -> Result<R, Fail>,
    ) -> Result<(), Fail> {
        let mut items = self.items.iter();
        shared.each(items.len(), |turn, at| {
            self.look_ahead(at, items.clone(), |asks| turn.fetch(asks));
            let item = items.next().expect("there are as many items");
            let poisoned = turn.is_poisoned();
            let done = if poisoned { Err(Fail::poisoned()) } else { each(turn, at, item) };
            self.put(at, done, &mut results);
        });
        Ok(())
    }

    /// Does something for each item, in order, without a lock over all.
    pub(crate) fn one_by_one<R: AbiElement>(
        self,
        shared: &Shared,
        mut results: WantedElements<R>,
        mut each: impl FnMut(T) -> Result<R, Fail>,
    ) -> Result<(), Fail> {
        let mut items = self.items.iter();
        for at in 0..items.len() {
            self.look_ahead(at, items.clone(), |asks| shared.fetch(asks));
            let item = items.next().expect("there are as many items");
            self.put(at, each(item), &mut results);
        }
        Ok(())
    }

    /// Has what the next items look up fetched, if it is time to.
    fn look_ahead(
        &self,
        at: usize,
        next: impl ExactSizeIterator<Item = T>,
        fetch: impl FnOnce(&mut dyn Iterator<Item = Ask<'a>>),
    ) {
        let Some(lookup) = self.lookup.filter(|_| at.is_multiple_of(LOOKAHEAD)) else { return };
        // A single one has nobody to wait beside.
        if next.len() > 1 {
            fetch(&mut next.take(LOOKAHEAD).filter_map(|item| lookup(&item)));
        }
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
        // SAFETY: `new` was promised one for each item.
        unsafe { self.statuses.add(at).write(item_status(done, self.name, at)) };
    }
}
