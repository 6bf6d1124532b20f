//! Which units of the data file are free: the smallest hole that fits is taken, and holes that
//! touch become one.
use crate::memory::{OrderedMap, OutOfMemory, TryGrow};
use smallvec::SmallVec;

/// Bytes of a unit.
pub(crate) const UNIT: u64 = 4096;

/// A record in more pieces than that isn't kept: each costs a request.
pub(crate) const EXTENTS_MAX: usize = 256;

/// Units that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub start: u64,
    pub units: u64,
}

impl Extent {
    pub fn end(self) -> u64 {
        self.start + self.units
    }
}

/// Those of a record, in order.
pub(crate) type Extents = SmallVec<[Extent; 1]>;

/// Why there is no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSpace {
    Full,
    /// There is enough, in more pieces than an extent list may have.
    Fragmented,
    OutOfMemory,
}

impl From<OutOfMemory> for NoSpace {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

#[derive(Debug, Default)]
pub(crate) struct Space {
    /// End of a hole by its start.
    by_start: OrderedMap<u64, u64>,
    /// Length and start of a hole.
    by_size: OrderedMap<(u64, u64), ()>,
    capacity: u64,
    free: u64,
    /// Extents that may be given back: there is room for as many holes more.
    promised: usize,
}

impl Space {
    /// The space beside extents that are taken, which are in order and do not overlap.
    /// Before one of those is given back it must be promised.
    pub fn beside(taken: impl Iterator<Item = Extent>, capacity: u64) -> Result<Self, OutOfMemory> {
        let mut space = Self { capacity, ..Self::default() };
        let mut at = 0;
        for extent in taken {
            space.make_room(1)?;
            space.add_hole(at, extent.start);
            at = extent.end();
        }
        space.make_room(1)?;
        space.add_hole(at, capacity);
        Ok(space)
    }

    /// Where what is taken ends.
    pub fn used_end(&self) -> u64 {
        self.hole_before(self.capacity).unwrap_or(self.capacity)
    }

    /// Room for all holes there can be when so many more extents are given back.
    fn make_room(&mut self, more: usize) -> Result<(), OutOfMemory> {
        self.by_start.try_reserve(self.promised + more)?;
        self.by_size.try_reserve(self.promised + more)
    }

    /// So many extents that were taken when this was made may be given back, which never fails.
    pub fn promise(&mut self, extents: usize) -> Result<(), OutOfMemory> {
        self.make_room(extents)?;
        self.promised += extents;
        Ok(())
    }

    /// Where the hole begins that ends there.
    fn hole_before(&self, end: u64) -> Option<u64> {
        let last = self.by_start.before(&end);
        last.filter(|hole| *hole.1 == end).map(|hole| *hole.0)
    }

    fn add_hole(&mut self, start: u64, end: u64) {
        if start < end {
            self.by_start.insert(start, end);
            self.by_size.insert((end - start, start), ());
            self.free += end - start;
        }
    }

    fn remove_hole(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(end - start, start));
        self.free -= end - start;
    }

    /// Takes so many units: the smallest hole that has them, otherwise the largest ones.
    pub fn take(&mut self, units: u64) -> Result<Extents, NoSpace> {
        if units > self.free {
            return Err(NoSpace::Full);
        }
        self.make_room(EXTENTS_MAX)?;
        let mut extents = Extents::new();
        let mut left = units;
        while left > 0 {
            let fits = self.by_size.from(&(left, 0)).next().map(|(hole, ())| *hole);
            let hole = fits.or_else(|| self.largest());
            let refused = match extents.len() < EXTENTS_MAX {
                true => extents.try_reserve(1).err().map(|_| NoSpace::OutOfMemory),
                false => Some(NoSpace::Fragmented),
            };
            if let Some(refused) = refused {
                self.give(&extents);
                return Err(refused);
            }
            let (length, start) = hole.expect("as much is free");
            let units = left.min(length);
            self.remove_hole(start, start + length);
            self.add_hole(start + units, start + length);
            extents.push(Extent { start, units });
            self.promised += 1;
            left -= units;
        }
        Ok(extents)
    }

    fn largest(&self) -> Option<(u64, u64)> {
        self.by_size.last().map(|(hole, ())| *hole)
    }

    /// Gives back what was taken, or promised.
    pub fn give(&mut self, extents: &[Extent]) {
        for extent in extents {
            let start = self.hole_before(extent.start);
            let end = self.by_start.get(&extent.end()).copied();
            if let Some(start) = start {
                self.remove_hole(start, extent.start);
            }
            if let Some(end) = end {
                self.remove_hole(extent.end(), end);
            }
            self.add_hole(start.unwrap_or(extent.start), end.unwrap_or(extent.end()));
            self.promised -= 1;
        }
    }
}

/// Of extents that are in order, the numbers of those that overlap one before or reach beyond the
/// end.
pub(crate) fn not_there(taken: &[(Extent, u32)], capacity: u64) -> Result<Vec<u32>, OutOfMemory> {
    let mut wrong = Vec::new();
    let mut end = 0;
    for &(extent, number) in taken {
        let fits = extent.start.checked_add(extent.units).is_some_and(|end| end <= capacity);
        if !fits || extent.start < end || extent.units == 0 {
            wrong.try_push(number)?;
        } else {
            end = extent.end();
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes and gives at random, beside a map of single units.
    #[test]
    fn takes_what_is_free_and_joins_what_touches() {
        let units = 500;
        let mut random = fastrand::Rng::with_seed(7);
        let mut space = Space::beside([].into_iter(), units).unwrap();
        let mut used = vec![false; units as usize];
        let mut held: Vec<Extents> = Vec::new();
        let mut refused = 0;
        for _ in 0..20_000 {
            let free = used.iter().filter(|used| !**used).count() as u64;
            if random.bool() {
                let wanted = random.u64(1..60);
                match space.take(wanted) {
                    Ok(extents) => {
                        let taken: u64 = extents.iter().map(|extent| extent.units).sum();
                        assert_eq!(taken, wanted);
                        for unit in extents.iter().flat_map(|e| e.start..e.end()) {
                            assert!(!std::mem::replace(&mut used[unit as usize], true));
                        }
                        held.push(extents);
                    }
                    Err(why) => {
                        assert!(wanted > free, "{why:?}: {wanted} of {free}");
                        refused += 1;
                    }
                }
            } else if !held.is_empty() {
                let extents = held.swap_remove(random.usize(..held.len()));
                space.give(&extents);
                for unit in extents.iter().flat_map(|e| e.start..e.end()) {
                    used[unit as usize] = false;
                }
            }
            let holes = used.chunk_by(|a, b| a == b).filter(|run| !run[0]).count();
            assert_eq!(space.by_start.len(), holes);
            assert_eq!(space.by_size.len(), holes);
            let end = used.iter().rposition(|used| *used).map_or(0, |at| at as u64 + 1);
            assert_eq!(space.used_end(), end);
        }
        assert!(refused > 100, "it was never full");
    }

    #[test]
    fn what_was_taken_before_is_promised_and_given_back() {
        let all: Vec<_> = (0..50).map(|at| Extent { start: 3 * at, units: 2 }).collect();
        let mut space = Space::beside(all.iter().copied(), 150).unwrap();
        assert_eq!((space.by_start.len(), space.used_end()), (50, 149));
        for (count, &extent) in all.iter().rev().enumerate() {
            space.promise(1).unwrap();
            space.give(&[extent]);
            assert_eq!(space.by_start.len(), 49 - count.min(48));
        }
        assert_eq!((space.take(150).unwrap().len(), space.free), (1, 0));
    }

    #[test]
    fn the_smallest_hole_that_fits_is_taken() {
        let extent = |start, units| Extent { start, units };
        let taken = [extent(0, 2), extent(12, 3), extent(20, 5), extent(29, 1)];
        let mut space = Space::beside(taken.into_iter(), 100).unwrap();
        assert_eq!(space.take(4).unwrap()[..], [extent(25, 4)]);
        assert_eq!(space.take(5).unwrap()[..], [extent(15, 5)]);
        assert_eq!(space.take(70).unwrap()[..], [extent(30, 70)]);
        assert_eq!(space.take(11), Err(NoSpace::Full));
        assert_eq!(space.take(10).unwrap()[..], [extent(2, 10)]);
        assert_eq!(space.take(1), Err(NoSpace::Full));
    }

    #[test]
    fn extents_that_cannot_be_are_found() {
        let extent = |start, units| Extent { start, units };
        let mut taken = vec![
            (extent(5, 5), 0),
            (extent(8, 1), 1),
            (extent(95, 6), 2),
            (extent(u64::MAX, 2), 3),
            (extent(0, 5), 4),
            (extent(20, 0), 5),
        ];
        taken.sort_unstable();
        let mut wrong = not_there(&taken, 100).unwrap();
        wrong.sort_unstable();
        assert_eq!(wrong, [1, 2, 3, 5]);
    }
}
