//! Long reads of rows: in portions, between which whoever waits to change something gets in.
use super::{Shared, State};
use crate::error::Error;
use crate::lock::RwLockReadGuard;
use crate::paging::{BatchArrays, BatchRow, check_positions};
use std::sync::atomic::Ordering;

/// Page numbers that are read before others are let in, for each page of a slice: 4096 in all, some
/// 2 microseconds.
const PAGES: usize = 16;
/// The same of pages each of which says which comes next: 1024.
const CHAINED: usize = 4;
/// Times that a read begins anew because its row changed meanwhile; then it keeps the lock.
const TRIES: usize = 4;

impl Shared {
    /// Page numbers that are read before others are let in.
    pub(crate) fn read_portion(&self) -> usize {
        PAGES * self.slice
    }

    /// Pages of a chain that are read before others are let in, each where the last one says.
    pub(super) fn locked_portion(&self) -> usize {
        CHAINED * self.slice
    }

    /// Lets threads in that wait to change something, in the middle of a read.
    pub(crate) fn read_on<'a>(
        &'a self,
        state: RwLockReadGuard<'a, State>,
    ) -> RwLockReadGuard<'a, State> {
        let nobody_waits = self.waiting_writers.load(Ordering::Relaxed) == 0;
        if nobody_waits && self.at_yield.0.is_none() {
            return state;
        }
        drop(state);
        self.without_lock();
        self.read()
    }

    /// KV positions of row positions, all of the row as it is at one moment. `write` may get one
    /// more than once.
    pub fn slot_mapping(
        &self,
        slot: u32,
        positions: &[u64],
        mut write: impl FnMut(usize, i64),
    ) -> Result<(), Error> {
        let mut state = self.read();
        if positions.len() > self.read_portion() {
            // Before anything is written, and without the lock.
            let capacity = state.row_capacity(slot)?;
            drop(state);
            check_positions(positions, 0..positions.len(), capacity)?;
            state = self.read();
        }
        let (mut version, mut done, mut tries) = (None, 0_usize, 0);
        loop {
            let now = state.table.row_version(slot)?.1;
            if version.replace(now).is_some_and(|before| before != now) {
                (done, tries) = (0, tries + 1);
            }
            let most = if tries < TRIES { self.read_portion() } else { usize::MAX };
            let end = positions.len().min(done.saturating_add(most));
            state.table.slot_mapping(slot, (positions, done..end), &mut write)?;
            done = end;
            if done == positions.len() {
                return Ok(());
            }
            state = self.read_on(state);
        }
    }

    /// The pages of a row from an index on, all as they are at one moment, if `begin` is content
    /// with how many those are. `write` gets parts of them and where each begins, and may get one
    /// more than once.
    pub fn row_from<E: From<Error>>(
        &self,
        slot: u32,
        first_index: usize,
        mut begin: impl FnMut(usize) -> Result<bool, E>,
        mut write: impl FnMut(usize, &[u32]),
    ) -> Result<(), E> {
        let mut state = self.read();
        let (mut version, mut tries) = (None, 0);
        let mut left = 0..0;
        loop {
            let (_, now) = state.table.row_version(slot)?;
            let pages = state.row_from(slot, first_index)?;
            if version.replace(now) != Some(now) || pages.len() < left.end {
                (left, tries) = (0..pages.len(), tries + 1);
                if !begin(pages.len())? {
                    return Ok(());
                }
            }
            let most = if tries > TRIES { usize::MAX } else { self.read_portion() };
            let end = left.end.min(left.start.saturating_add(most));
            write(left.start, &pages[left.start..end]);
            left.start = end;
            if left.is_empty() {
                return Ok(());
            }
            state = self.read_on(state);
        }
    }

    /// The arrays for a batch.
    pub fn batch(&self, rows: &[BatchRow]) -> Result<BatchArrays, Error> {
        let mut state = self.read();
        let mut pages = 0;
        for (at, row) in rows.iter().enumerate() {
            pages += state.table.batch_row(at, row)?.len();
        }
        let mut made = BatchArrays::new(state.table.page_size())?;
        if pages > self.read_portion() {
            // New memory takes the system longer than to copy to it.
            drop(state);
            made.touch(pages)?;
            state = self.read();
        }
        made.reserve(rows.len(), pages)?;
        let mut copied = 0;
        for (at, row) in rows.iter().enumerate() {
            if copied > self.read_portion() {
                (state, copied) = (self.read_on(state), 0);
            }
            let pages = state.table.batch_row(at, row)?;
            made.try_push(row.positions, pages)?;
            copied += pages.len();
        }
        Ok(made)
    }
}
