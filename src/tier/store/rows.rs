//! What is made of the rows of a file while they are read: entries, and what the caller is told.
use super::entries::Entry;
use super::notes::Notes;
use super::sorted::Sorted;
use super::{Contents, DiskStore};
use crate::memory::{Arc, OutOfMemory, SharedBytes, TryGrow, try_zeros};
use crate::tier::paged::chain;
use crate::tier::records::Row;
use crate::tier::space::{Extent, not_there};
use crate::tier::{FoundRecords, Key, Record};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// No store has counted so many uses.
const USES: u64 = 1 << 62;

/// Rows, in the order of their keys.
#[derive(Default)]
pub(super) struct Rows {
    pub entries: Sorted,
    /// Of the same rows, in parts as they were read.
    records: Vec<Vec<Record>>,
    /// With the number of the row; in order when all parts are there.
    extents: Vec<(Extent, u32)>,
    /// When rows were used, with their numbers.
    uses: Vec<(u64, u32)>,
    /// What they cost. Of wrong ones that may be anything, and is taken off again: without them the
    /// sum is right, whatever it wrapped around.
    pub cost: u64,
    /// A key does not come after the one before it: what a damaged file says.
    is_in_disorder: bool,
}

/// Rows of a part of the file.
#[derive(Default)]
pub(super) struct Part {
    /// Without its records.
    rows: Rows,
    records: Vec<Record>,
    /// Of the last records.
    notes: Notes,
}

impl Part {
    /// Adds a row that was read.
    pub fn add(&mut self, row: Row<'_>) -> Result<(), OutOfMemory> {
        let Row { key, place, note, used } = row;
        // It has no checksum: counting goes on from the largest of them.
        let used = if used < USES { used } else { 0 };
        let record = Record { key, bytes: place.bytes, note: SharedBytes::default() };
        let cost = DiskStore::cost_of(place.bytes, note.len());
        self.push(Entry::found(Arc::new(place)?, cost, used), record)?;
        self.notes.add(note, &mut self.records)
    }

    fn push(&mut self, entry: Entry, record: Record) -> Result<(), OutOfMemory> {
        let (rows, number) = (&mut self.rows, self.records.len() as u32);
        rows.is_in_disorder |= rows.entries.last_key().is_some_and(|last| *last >= record.key);
        for &extent in &entry.place.extents {
            rows.extents.try_push((extent, number))?;
        }
        rows.uses.try_push((entry.used, number))?;
        rows.cost = rows.cost.wrapping_add(entry.cost);
        rows.entries.push(record.key, entry)?;
        self.records.try_push(record)
    }
}

impl Rows {
    /// All rows, of which these are the parts.
    pub fn new(parts: Vec<Part>) -> Result<Self, OutOfMemory> {
        let (mut all, mut first) = (Self::default(), 0);
        all.records.try_reserve_exact(parts.len())?;
        for Part { rows, mut records, mut notes } in parts {
            notes.give(&mut records)?;
            let last = all.entries.last_key();
            let is_behind =
                records.first().is_none_or(|next| last.is_none_or(|last| *last < next.key));
            all.is_in_disorder |= rows.is_in_disorder || !is_behind;
            all.extents
                .try_extend(rows.extents.iter().map(|&(extent, at)| (extent, first + at)))?;
            all.uses.try_extend(rows.uses.iter().map(|&(used, at)| (used, first + at)))?;
            all.cost = all.cost.wrapping_add(rows.cost);
            all.entries.append(rows.entries)?;
            first += records.len() as u32;
            all.records.push(records);
        }
        if all.is_in_disorder {
            return all.put_in_order();
        }
        all.extents.sort_unstable();
        Ok(all)
    }

    /// The same in their order, each key once.
    fn put_in_order(self) -> Result<Self, OutOfMemory> {
        let mut rows = Vec::new();
        rows.try_reserve_exact(self.entries.len())?;
        rows.extend(self.into_rows());
        rows.sort_unstable_by_key(|(_, record)| record.key);
        rows.dedup_by_key(|(_, record)| record.key);
        Self::of(rows.into_iter())
    }

    fn into_rows(self) -> impl Iterator<Item = (Entry, Record)> {
        let entries = self.entries.into_iter().map(|(_, entry)| entry);
        entries.zip(self.records.into_iter().flatten())
    }

    fn of(rows: impl Iterator<Item = (Entry, Record)>) -> Result<Self, OutOfMemory> {
        let (mut part, mut parts) = (Part::default(), Vec::new());
        for (entry, record) in rows {
            part.push(entry, record)?;
        }
        parts.try_push(part)?;
        Self::new(parts)
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = (&Entry, &Record)> {
        self.entries.iter().map(|(_, entry)| entry).zip(self.records.iter().flatten())
    }

    /// Rows go of which `stays` doesn't say otherwise; it may change an entry.
    pub fn retain(
        &mut self,
        mut stays: impl FnMut(u32, &mut Entry, &Record) -> bool,
    ) -> Result<(), OutOfMemory> {
        let rows = (0..).zip(std::mem::take(self).into_rows());
        *self = Self::of(rows.filter_map(|(number, (mut entry, record))| {
            stays(number, &mut entry, &record).then_some((entry, record))
        }))?;
        Ok(())
    }

    /// Rows of these numbers, which are in order, go.
    fn take_out(&mut self, numbers: &[u32], gone: &mut Vec<Key>) -> Result<(), OutOfMemory> {
        gone.try_reserve(numbers.len())?;
        let mut numbers = numbers.iter().peekable();
        if numbers.peek().is_none() {
            return Ok(());
        }
        self.retain(|number, _, record| {
            let goes = numbers.next_if(|&&next| next == number).is_some();
            gone.extend(goes.then_some(record.key));
            !goes
        })
    }

    /// Rows go that name what is not there, or what another one names as well. Returns how many.
    pub fn take_out_wrong(&mut self, units: u64, gone: &mut Vec<Key>) -> Result<u64, OutOfMemory> {
        let mut wrong = not_there(&self.extents, units)?;
        wrong.sort_unstable();
        wrong.dedup();
        self.take_out(&wrong, gone)?;
        Ok(wrong.len() as u64)
    }

    /// Uses of pages, which are in their order, so that none comes before those of pages that go on
    /// from it, or hang on it; those that hang on it stay as long.
    fn ends_first(&self) -> Result<Vec<(u64, u32)>, OutOfMemory> {
        let count = self.uses.len();
        let (mut numbers, mut parents) = (HashMap::with_hasher(RandomState::default()), Vec::new());
        let mut beside = Vec::new();
        numbers.try_reserve(count)?;
        parents.try_reserve_exact(count)?;
        for (number, record) in (0_u32..).zip(self.records.iter().flatten()) {
            let links = chain(&record.note);
            if let Some((name, _)) = links {
                numbers.insert(name, number);
                if name.group > 0 {
                    beside.try_push(number)?;
                }
            }
            parents.push(links.and_then(|(_, before)| before));
        }
        // Of each page the first of another group that hangs on it, and of those the next one:
        // their numbers plus one.
        let (mut hanging, mut next_hanging) = (try_zeros::<u32>(count)?, try_zeros::<u32>(count)?);
        for number in beside {
            let on = parents[number as usize].and_then(|name| numbers.get(&name).copied());
            if let Some(on) = on {
                let before = std::mem::replace(&mut hanging[on as usize], number + 1);
                next_hanging[number as usize] = before;
            }
        }
        let (mut uses, mut path) = (Vec::new(), Vec::new());
        let mut is_listed = try_zeros::<bool>(count)?;
        uses.try_reserve_exact(count)?;
        // A page is used when one behind it is: from the last use on, all that it needs.
        for &(used, number) in self.uses.iter().rev() {
            let mut next = Some(number);
            // That also ends where a damaged file has pages that go on from each other.
            while let Some(at) = next.filter(|&at| !is_listed[at as usize]) {
                is_listed[at as usize] = true;
                path.try_push((used, at))?;
                next = parents[at as usize].and_then(|name| numbers.get(&name).copied());
            }
            for (used, at) in path.drain(..).rev() {
                uses.push((used, at));
                let mut next = hanging[at as usize];
                while let Some(other) = next.checked_sub(1) {
                    if !std::mem::replace(&mut is_listed[other as usize], true) {
                        uses.push((used, other));
                    }
                    next = next_hanging[other as usize];
                }
            }
        }
        uses.reverse();
        Ok(uses)
    }

    /// Rows go that a smaller bound has no room for, least recently used first. Of pages, ends of
    /// prefixes go before beginnings.
    pub fn take_out_old(
        &mut self,
        bytes: u64,
        contents: Contents,
        gone: &mut Vec<Key>,
    ) -> Result<(), OutOfMemory> {
        if self.cost <= bytes {
            return Ok(());
        }
        self.uses.sort_unstable();
        let mut costs = Vec::new();
        costs.try_reserve_exact(self.entries.len())?;
        costs.extend(self.iter().map(|(entry, _)| entry.cost));
        let (mut left, mut numbers) = (self.cost, Vec::new());
        let ends_first = match contents {
            Contents::Pages => Some(self.ends_first()?),
            Contents::Snapshots => None,
        };
        for &(_, number) in ends_first.as_ref().unwrap_or(&self.uses) {
            if left <= bytes {
                break;
            }
            left -= costs[number as usize];
            numbers.try_push(number)?;
        }
        numbers.sort_unstable();
        self.take_out(&numbers, gone)
    }

    /// Extents of all rows, in their order. No two overlap when wrong rows have gone.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + DoubleEndedIterator {
        self.extents.iter().map(|&(extent, _)| extent)
    }

    /// How many of the first rows were used before all others, and in their order: mostly they were
    /// written so.
    fn used_in_order(&self) -> usize {
        let descent = self.uses.windows(2).position(|two| two[0] > two[1]);
        let ordered = descent.map_or(self.uses.len(), |at| at + 1);
        let least = self.uses[ordered..].iter().min();
        least.map_or(ordered, |least| self.uses[..ordered].partition_point(|use_| use_ < least))
    }

    /// Records, least recently used first, and when the last one was used.
    pub fn records_by_use(&mut self) -> Result<(FoundRecords, u64), OutOfMemory> {
        let in_order = self.used_in_order();
        let rest = &mut self.uses[in_order..];
        if !rest.is_empty() {
            rest.sort_unstable();
            let (mut all, mut sorted, mut first) = (Vec::new(), Vec::new(), 0);
            all.try_reserve_exact(rest.len())?;
            sorted.try_reserve_exact(rest.len())?;
            self.records.try_reserve(1)?;
            for part in &mut self.records {
                let (from, next) = (in_order.saturating_sub(first), first + part.len());
                all.extend(part.drain(from.min(part.len())..));
                first = next;
            }
            sorted.extend(rest.iter().map(|&(_, number)| {
                let Record { key, bytes, note } = &mut all[number as usize - in_order];
                Record { key: *key, bytes: *bytes, note: std::mem::take(note) }
            }));
            self.records.push(sorted);
        }
        let last = self.uses.last().map_or(0, |last| last.0);
        Ok((FoundRecords::of_parts(std::mem::take(&mut self.records)), last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::paged::{note_beside, note_of};
    use crate::tier::records::Place;
    use smallvec::smallvec;

    const UNIT: u64 = crate::tier::space::UNIT;

    /// A row of one unit.
    fn row(key: u8, start: u64, used: u64) -> Row<'static> {
        let place = Place::new(UNIT, smallvec![Extent { start, units: 1 }]).unwrap();
        Row { key: [key; 32], place, note: &[], used }
    }

    fn rows(parts: &[&[(u8, u64, u64)]]) -> Rows {
        let part = |rows: &&[(u8, u64, u64)]| {
            let mut part = Part::default();
            for &(key, start, used) in *rows {
                part.add(row(key, start, used)).unwrap();
            }
            part
        };
        Rows::new(parts.iter().map(part).collect()).unwrap()
    }

    fn keys(rows: &Rows) -> Vec<u8> {
        let records = rows.iter().map(|(entry, record)| {
            assert_eq!(rows.entries.get(&record.key).unwrap().used, entry.used);
            record.key[0]
        });
        records.collect()
    }

    #[test]
    fn rows_come_in_order_whatever_the_file_says() {
        for parts in [
            &[&[(1, 0, 5), (2, 1, 6)][..], &[(3, 2, 7), (9, 3, 8)][..]][..],
            &[&[(2, 1, 6), (1, 0, 5)], &[(9, 3, 8), (3, 2, 7)]],
            &[&[(3, 2, 7), (9, 3, 8)], &[(1, 0, 5), (2, 1, 6)]],
            &[&[(1, 0, 5), (9, 3, 8)], &[], &[(2, 1, 6), (3, 2, 7), (9, 3, 8)]],
            &[&[], &[(9, 3, 8), (9, 3, 8), (3, 2, 7), (2, 1, 6), (1, 0, 5)]],
        ] {
            let mut rows = rows(parts);
            assert_eq!((keys(&rows), rows.cost), (vec![1, 2, 3, 9], 4 * UNIT));
            let starts = rows.extents().map(|extent| extent.start);
            assert!(starts.eq(0..4));
            let (records, last) = rows.records_by_use().unwrap();
            let records = records.into_iter().map(|record| record.key[0]);
            assert_eq!((records.collect::<Vec<_>>(), last), (vec![1, 2, 3, 9], 8));
        }
    }

    #[test]
    fn records_are_told_in_the_order_of_their_use() {
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..300_u64 {
            // Some that were never used again, and some that were, or all of them at random.
            let (count, again) = (random.u8(1..60), random.u8(..20));
            let mut used: Vec<(u8, u64, u64)> =
                (0..count).map(|key| (key, u64::from(key), u64::from(key))).collect();
            for _ in 0..if round % 3 == 0 { 0 } else { again } {
                let from = if round % 3 == 1 { count.saturating_sub(5) } else { 0 };
                used[random.usize(usize::from(from)..usize::from(count))].2 = random.u64(100..200);
            }
            let cut = random.usize(..used.len());
            let mut rows = rows(&[&used[..cut], &used[cut..]]);
            used.sort_by_key(|&(key, _, used)| (used, key));
            let (records, last) = rows.records_by_use().unwrap();
            let keys = records.into_iter().map(|record| record.key[0]);
            assert!(keys.eq(used.iter().map(|row| row.0)), "round {round}");
            assert_eq!(last, used[used.len() - 1].2);
        }
    }

    #[test]
    fn what_is_wrong_goes_first_and_then_what_is_old() {
        let first = [(1, 7, 50), (2, 3, 10), (3, 3, 90), (4, 9, 40)];
        let second = [(5, 10, 99), (6, 0, 20), (7, 5, 30)];
        let (mut rows, mut gone) = (rows(&[&first, &second]), Vec::new());
        // One names what another one has, and one what is not there.
        assert_eq!(rows.take_out_wrong(10, &mut gone), Ok(2));
        assert_eq!((keys(&rows), rows.cost), (vec![1, 2, 4, 6, 7], 5 * UNIT));
        assert_eq!(gone, [[3; 32], [5; 32]]);
        assert_eq!(rows.take_out_wrong(10, &mut gone), Ok(0));
        rows.take_out_old(5 * UNIT, Contents::Snapshots, &mut gone).unwrap();
        assert_eq!(gone.len(), 2);
        rows.take_out_old(4 * UNIT - 1, Contents::Snapshots, &mut gone).unwrap();
        assert_eq!((keys(&rows), rows.cost), (vec![1, 4, 7], 3 * UNIT));
        assert_eq!(gone[2..], [[2; 32], [6; 32]]);
        let starts = rows.extents().map(|extent| extent.start);
        assert!(starts.eq([5, 7, 9]));
        let (records, last) = rows.records_by_use().unwrap();
        let records = records.into_iter().map(|record| record.key[0]);
        assert_eq!((records.collect::<Vec<_>>(), last), (vec![7, 4, 1], 50));
    }

    /// T10: whatever the order in which pages were used, none stays without the one before it.
    #[test]
    fn t10_pages_stay_that_can_be_fetched() {
        // The page, the one before it, and when it was used.
        let pages = [
            (1, None, 1),
            (2, Some(1), 9),
            (3, Some(2), 2),
            (4, Some(1), 3),
            // The one before it is not there.
            (5, Some(99), 8),
            // What only a damaged file says.
            (6, Some(7), 4),
            (7, Some(6), 5),
            (8, Some(8), 6),
        ];
        let cost = DiskStore::cost_of(UNIT, note_of(1, None).len());
        let all: [&[u8]; 9] = [
            &[],
            &[1],
            &[1, 2],
            &[1, 2, 5],
            &[1, 2, 5, 8],
            &[1, 2, 5, 6, 8],
            &[1, 2, 5, 6, 7, 8],
            &[1, 2, 4, 5, 6, 7, 8],
            &[1, 2, 3, 4, 5, 6, 7, 8],
        ];
        for (count, expected) in (0..).zip(all) {
            let mut part = Part::default();
            for (page, before, used) in pages {
                let note = note_of(page, before);
                part.add(Row { note: &note, ..row(page, page.into(), used) }).unwrap();
            }
            let mut rows = Rows::new(vec![part]).unwrap();
            rows.take_out_old(count * cost, Contents::Pages, &mut Vec::new()).unwrap();
            assert_eq!(keys(&rows), expected);
        }
    }

    /// T10: pages of other groups stay with the one that they hang on, and as long: without the
    /// ones nobody can fetch the others.
    #[test]
    fn t10_pages_of_all_groups_stay_together() {
        // Two pages of the first group, those of another one that hang on them, and one whose page
        // is not there; and when each was used.
        let notes = [
            (1, note_of(1, None), 2),
            (2, note_of(2, Some(1)), 9),
            (3, note_beside(1), 1),
            (4, note_beside(2), 8),
            (5, note_beside(99), 7),
        ];
        let cost = DiskStore::cost_of(UNIT, notes[0].1.len());
        let all: [&[u8]; 6] = [&[], &[1], &[1, 3], &[1, 2, 3], &[1, 2, 3, 4], &[1, 2, 3, 4, 5]];
        for (count, expected) in (0..).zip(all) {
            let mut part = Part::default();
            for (key, note, used) in &notes {
                part.add(Row { note, ..row(*key, u64::from(*key), *used) }).unwrap();
            }
            let mut rows = Rows::new(vec![part]).unwrap();
            rows.take_out_old(count * cost, Contents::Pages, &mut Vec::new()).unwrap();
            assert_eq!(keys(&rows), expected);
        }
    }

    /// T06: numbers of uses have no checksum: what cannot have been counted is none, and counting
    /// goes on.
    #[test]
    fn t06_a_number_of_uses_that_nobody_counted_is_none() {
        for wrong in [u64::MAX, u64::MAX - 1, 1 << 63] {
            let mut rows = rows(&[&[(1, 0, 5), (2, 1, wrong), (3, 2, 6)]]);
            let (records, last) = rows.records_by_use().unwrap();
            let keys = records.into_iter().map(|record| record.key[0]);
            assert_eq!((keys.collect::<Vec<_>>(), last), (vec![2, 1, 3], 6), "{wrong}");
        }
    }
}
