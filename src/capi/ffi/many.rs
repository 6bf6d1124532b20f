//! Calls over many items, each of which has a status of its own.
use super::guard::{Fail, item_status};
use super::pointer::check_out;
use super::status::rkv_status;
use crate::sequence::{Shared, Turn};

/// Where the statuses of the items go.
pub(crate) struct Statuses {
    first: *mut rkv_status,
    count: usize,
}

impl Statuses {
    /// # Safety
    /// `first` is NULL, or `count` statuses are writable there as long as this lives.
    pub(crate) unsafe fn new(first: *mut rkv_status, count: usize) -> Result<Self, Fail> {
        check_out(first, count, "statuses")?;
        Ok(Self { first, count })
    }

    /// Writes what came of an item; a failure, with its name, is the thread's last message.
    pub(crate) fn put(&mut self, at: usize, done: Result<(), Fail>, name: &str) {
        assert!(at < self.count, "each item has a status");
        // SAFETY: it lies within what `new` was promised.
        unsafe { self.first.add(at).write(item_status(done, name, at)) };
    }

    /// Does something for each item under one lock, which others get between two.
    pub(crate) fn for_each<T>(
        mut self,
        shared: &Shared,
        name: &str,
        mut items: impl ExactSizeIterator<Item = T>,
        mut each: impl FnMut(&mut Turn<'_>, usize, T) -> Result<(), Fail>,
    ) {
        shared.each(items.len(), |turn, at| {
            let item = items.next().expect("there are as many items");
            let poisoned = turn.is_poisoned();
            let done = if poisoned { Err(Fail::poisoned()) } else { each(turn, at, item) };
            self.put(at, done, name);
        });
    }
}
