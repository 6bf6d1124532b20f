//! Calls over many items, each of which has a status, and mostly a result, of its own.
use super::elements::{AbiElement, GivenElements, WantedElements};
use super::guard::{Fail, item_status};
use super::pointer::check_out;
use super::status::rkv_status;
use crate::store::{Shared, Turn};

/// The items of a call, and where the statuses go.
pub(crate) struct Many<'a, T> {
    items: GivenElements<'a, T>,
    name: &'static str,
    statuses: *mut rkv_status,
}

impl<T: AbiElement> Many<'_, T> {
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
        Ok(Self { items, name, statuses })
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
        mut results: WantedElements<R>,
        mut each: impl FnMut(T) -> Result<R, Fail>,
    ) -> Result<(), Fail> {
        for (at, item) in self.items.iter().enumerate() {
            self.put(at, each(item), &mut results);
        }
        Ok(())
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
