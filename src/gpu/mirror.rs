//! The page rows of a plan as they lie on the device, and what must be sent to bring them up to
//! date.
//!
//! A row keeps its place from step to step, so that a decode step sends a page now and then instead
//! of all pages of all rows. Rows lie one behind another with room to grow; when there is no place
//! left, all rows of the step are laid out anew.
use super::arguments::MirrorRun;
use crate::attention::{Batch, shared_start};
use crate::error::Error;

/// Where a row lies, and what the device has of it.
#[derive(Debug, Clone, Default)]
struct Line {
    begin: usize,
    room: usize,
    pages: Vec<u32>,
}

/// Entries that the device is to have room for: for the rows as they are, and for some to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    pub needed: usize,
    pub liked: usize,
}

#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// By slot.
    lines: Vec<Line>,
    used: usize,
    capacity: usize,
    /// The device lacked memory for more.
    is_limited: bool,
    /// What the last update must write: runs of `values`.
    pub(super) runs: Vec<MirrorRun>,
    pub(super) values: Vec<u32>,
}

impl Mirror {
    /// Entries that the device must have room for, so that rows of so many pages in all can come
    /// and go.
    pub(super) fn entries_for(rows: usize, pages: usize) -> usize {
        // As `update` would have it for the largest step; fewer pages never make it more.
        (2 * (pages + pages / 4 + rows * UNIT)).next_power_of_two()
    }

    /// Bytes of the runs and values of any update of such rows, and of what aligns them.
    pub(super) fn update_bytes(rows: usize, pages: usize) -> usize {
        rows * size_of::<MirrorRun>() + pages * size_of::<u32>() + 2 * 16
    }

    /// Makes the rows of a batch current; `slots` are the rows' slots. Returns what the device must
    /// have room for, when that is more than before: then nothing is there any more. A step whose
    /// rows do not fit into what kernels can count is refused, and changes nothing.
    pub(super) fn update(&mut self, batch: &Batch, slots: &[u32]) -> Result<Option<Growth>, Error> {
        let mut grown = None;
        if !self.has_room(batch, slots) {
            let needed = batch.rows().iter().map(|row| room_for(row.pages.len())).sum();
            let capacity = capacity_for(needed)?;
            self.lines.clear();
            self.used = 0;
            // What the device lacked memory for is asked for again when it is needed.
            if needed > self.capacity || (capacity > self.capacity && !self.is_limited) {
                (self.capacity, self.is_limited) = (capacity, false);
                grown = Some(Growth { needed, liked: capacity });
            }
        }
        self.runs.clear();
        self.values.clear();
        for (row, &slot) in batch.rows().iter().zip(slots) {
            self.place(slot as usize, batch.pages_of(row));
        }
        Ok(grown)
    }

    /// Says that there is room for no more than that.
    pub(super) fn limit(&mut self, entries: usize) {
        self.is_limited = entries < self.capacity;
        self.capacity = self.capacity.min(entries);
    }

    /// Whether all rows fit without being laid out anew.
    fn has_room(&self, batch: &Batch, slots: &[u32]) -> bool {
        let moved = batch.rows().iter().zip(slots).filter_map(|(row, &slot)| {
            let count = row.pages.len();
            let room = self.lines.get(slot as usize).map_or(0, |line| line.room);
            (room < count).then(|| room_for(count))
        });
        self.used + moved.sum::<usize>() <= self.capacity
    }

    fn place(&mut self, slot: usize, pages: &[u32]) {
        if self.lines.len() <= slot {
            self.lines.resize_with(slot + 1, Line::default);
        }
        let line = &mut self.lines[slot];
        if line.room < pages.len() {
            (line.begin, line.room) = (self.used, room_for(pages.len()));
            self.used += line.room;
            line.pages.clear();
        }
        let mut same = 0;
        loop {
            same += shared_start(&line.pages[same..], &pages[same..]);
            // What became a hole is not read any more: whatever the device has there may stay.
            let both = line.pages[same..].iter().zip(&pages[same..]);
            match both.take_while(|(_, new)| **new == 0).count() {
                0 => break,
                holes => same += holes,
            }
        }
        // What the device has behind a row that became shorter is still right if it grows again.
        if same == pages.len() {
            return;
        }
        let source = self.values.len() as i32;
        self.values.extend_from_slice(&pages[same..]);
        line.pages.truncate(same);
        line.pages.extend_from_slice(&pages[same..]);
        let (target, count) = ((line.begin + same) as i32, (pages.len() - same) as i32);
        self.runs.push(MirrorRun { target, source, count, reserved: 0 });
    }

    /// Where a slot's row begins.
    pub(super) fn begin_of(&self, slot: u32) -> i32 {
        self.lines[slot as usize].begin as i32
    }

    /// Forgets what the device has: a transfer failed.
    pub(super) fn forget(&mut self) {
        (self.used, self.capacity, self.is_limited) = (0, 0, false);
        self.lines.clear();
    }
}

/// Room of a row is a multiple of it.
const UNIT: usize = 16;

/// Kernels count entries in 32 bits: behind those there is no place for a row.
const ENTRIES_MAX: usize = 1 << 31;

/// Entries for rows that take so many. Rows that join later find place too, as far as there can be
/// more.
fn capacity_for(needed: usize) -> Result<usize, Error> {
    if needed > ENTRIES_MAX {
        return Err(Error::unsupported("plan: the page rows of the step have 2^31 entries"));
    }
    Ok((2 * needed).next_power_of_two().min(ENTRIES_MAX))
}

/// A row grows by a quarter before it has to move.
fn room_for(pages: usize) -> usize {
    (pages + pages / 4).next_multiple_of(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that applies what an update says.
    #[derive(Default)]
    struct Device {
        rows: Vec<u32>,
        /// It has no memory for more than is needed.
        is_short: bool,
    }

    impl Device {
        /// Returns how many values were sent.
        fn step(&mut self, mirror: &mut Mirror, rows: &[(u32, &[u32])]) -> usize {
            let mut batch = Batch::new(1).unwrap();
            for (_, pages) in rows {
                batch.push_row(pages.len() - 1, 1, pages, &[]).unwrap();
            }
            let slots: Vec<u32> = rows.iter().map(|row| row.0).collect();
            if let Some(Growth { needed, liked }) = mirror.update(&batch, &slots).unwrap() {
                self.rows = vec![u32::MAX; if self.is_short { needed } else { liked }];
                mirror.limit(self.rows.len());
            }
            for run in &mirror.runs {
                let (target, source) = (run.target as usize, run.source as usize);
                let values = &mirror.values[source..][..run.count as usize];
                self.rows[target..][..values.len()].copy_from_slice(values);
            }
            for (slot, pages) in rows {
                let begin = mirror.begin_of(*slot) as usize;
                let found = self.rows[begin..][..pages.len()].iter().zip(*pages);
                let is_right = |(found, page): (&u32, &u32)| *page == 0 || found == page;
                assert!(found.into_iter().all(is_right), "slot {slot}");
            }
            mirror.values.len()
        }
    }

    #[test]
    fn a_decode_step_sends_only_what_is_new() {
        let (mut device, mut mirror) = (Device::default(), Mirror::default());
        let pages: Vec<u32> = (1..2000).collect();
        assert_eq!(device.step(&mut mirror, &[(3, &pages[..100]), (0, &pages[50..60])]), 110);
        assert_eq!(device.step(&mut mirror, &[(3, &pages[..100]), (0, &pages[50..60])]), 0);
        assert_eq!(device.step(&mut mirror, &[(0, &pages[50..61]), (3, &pages[..101])]), 2);
        // A row that changes in the middle is sent from there on.
        let mut changed = pages[..101].to_vec();
        changed[40] = 7777;
        assert_eq!(device.step(&mut mirror, &[(3, &changed)]), 61);
    }

    /// G14: where a window slides, nothing is sent but the page that is new.
    #[test]
    fn g14_holes_are_not_sent() {
        let (mut device, mut mirror) = (Device::default(), Mirror::default());
        let mut pages: Vec<u32> = (1..300).collect();
        assert_eq!(device.step(&mut mirror, &[(2, &pages[..250])]), 250);
        for end in 250..290 {
            pages[end - 100] = 0;
            assert_eq!(device.step(&mut mirror, &[(2, &pages[..end])]), usize::from(end > 250));
        }
        // Another sequence in the slot has pages where the last one had holes.
        let others: Vec<u32> = (1000..1300).collect();
        assert_eq!(device.step(&mut mirror, &[(2, &others[..280])]), 280);
        // What it has there once it slid may be anything, until there is a page again.
        let mut slid = others.clone();
        slid[..200].fill(0);
        assert_eq!(device.step(&mut mirror, &[(2, &slid[..280])]), 0);
        assert_eq!(device.step(&mut mirror, &[(2, &pages[..280])]), 280);
    }

    /// Kernels find rows by numbers of 32 bits with a sign: no row begins behind those.
    #[test]
    fn no_row_lies_where_kernels_cannot_count() {
        assert_eq!(capacity_for(100).unwrap(), 256);
        let most = i32::MAX as usize + 1;
        for needed in [most / 2, most / 2 + 1, most] {
            assert_eq!(capacity_for(needed).unwrap(), most);
        }
        assert!(matches!(capacity_for(most + 1), Err(Error::Unsupported(_))));
        // Rows that find no place behind the others are laid out anew.
        let pages: Vec<u32> = (1..2000).collect();
        let mut batch = Batch::new(1).unwrap();
        batch.push_row(999, 1, &pages[..1000], &[]).unwrap();
        let (used, capacity) = (most - 1000, capacity_for(most).unwrap());
        let mut mirror = Mirror { used, capacity, ..Mirror::default() };
        assert_eq!(mirror.update(&batch, &[3]).unwrap(), None);
        assert_eq!((mirror.begin_of(3), mirror.runs[0].target), (0, 0));
    }

    #[test]
    fn rows_that_come_and_go_stay_within_what_was_reserved() {
        let mut random = fastrand::Rng::with_seed(8);
        let (most_rows, most_pages) = (6, 200);
        let mut mirror = Mirror::default();
        for round in 0..3000 {
            let mut left = most_pages;
            let mut rows: Vec<(u32, Vec<u32>)> = Vec::new();
            for slot in 0..most_rows {
                let pages = random.usize(..=left);
                if pages > 0 {
                    let slot = slot as u32 * 7 % 40 + random.u32(..2) * 50;
                    rows.push((slot, (0..pages).map(|_| random.u32(..)).collect()));
                    left -= pages;
                }
            }
            if rows.is_empty() {
                continue;
            }
            let mut batch = Batch::new(1).unwrap();
            for (_, pages) in &rows {
                batch.push_row(pages.len() - 1, 1, pages, &[]).unwrap();
            }
            let slots: Vec<u32> = rows.iter().map(|row| row.0).collect();
            mirror.update(&batch, &slots).unwrap();
            assert!(mirror.capacity <= Mirror::entries_for(most_rows, most_pages));
            let bytes = size_of_val(&mirror.runs[..]) + size_of_val(&mirror.values[..]);
            assert!(bytes <= Mirror::update_bytes(most_rows, most_pages));
            // What failed is laid out anew.
            if round % 50 == 0 {
                mirror.forget();
            }
        }
    }

    #[test]
    fn any_sequence_of_steps_leaves_the_right_rows() {
        for is_short in [false, true] {
            any_sequence_of_steps(Device { is_short, ..Device::default() });
        }
    }

    fn any_sequence_of_steps(mut device: Device) {
        let mut random = fastrand::Rng::with_seed(7);
        let mut mirror = Mirror::default();
        let mut rows: Vec<Vec<u32>> = (0..12).map(|slot| vec![slot]).collect();
        for _ in 0..2000 {
            let slots: Vec<u32> = (0..12).filter(|_| random.bool()).collect();
            for &slot in &slots {
                let row = &mut rows[slot as usize];
                match random.u32(0..10) {
                    0 => *row = vec![random.u32(..)],
                    1 => {
                        let at = random.usize(..row.len());
                        row[at] = random.u32(..);
                    }
                    2 => row.extend((0..random.usize(..300)).map(|_| random.u32(..))),
                    _ => row.push(random.u32(..)),
                }
            }
            let step: Vec<_> = slots.iter().map(|&slot| (slot, &*rows[slot as usize])).collect();
            device.step(&mut mirror, &step);
        }
    }

    /// A step does not ask for more, in vain, as long as the rows fit into what there is.
    #[test]
    fn what_the_device_lacked_is_asked_for_again_when_it_is_needed() {
        let mut mirror = Mirror::default();
        let mut grown = |pages: usize, slot| {
            let (mut batch, pages) = (Batch::new(1).unwrap(), vec![1; pages]);
            batch.push_row(pages.len() - 1, 1, &pages, &[]).unwrap();
            let grown = mirror.update(&batch, &[slot]).unwrap();
            if let Some(Growth { needed, .. }) = grown {
                mirror.limit(needed + needed / 4);
            }
            grown.is_some()
        };
        // Rows that come take the place behind those before, until all are laid out anew.
        assert_eq!([0, 1, 2, 3].map(|slot| grown(1000, slot)), [true, false, false, false]);
        assert!(!grown(1200, 4));
        assert!(grown(1300, 5));
    }
}
