//! Pages of the groups beside the first: of which was told that they came, and those that came
//! last and are in no record yet.
//!
//! What such a page holds is known of the page of group 0 that it hangs on; nothing of it is kept
//! here but a byte.
use super::Journal;
use super::mirror::Mirror;
use super::record::{RECORD_PAGES, RECORD_WORDS};
use crate::group::HungPage;
use crate::memory::{OutOfMemory, TryGrow, try_touched_zeros};
use crate::token::{Images, Keys};

/// What came in and is in no record yet: pages of one group, one after another in a prefix.
#[derive(Debug, Default)]
struct Coming {
    group: usize,
    pages: Vec<u32>,
    spine: Vec<u32>,
    /// Room for the keys of all.
    keys: Vec<u32>,
}

/// All memory is taken in the beginning; none with one group.
#[derive(Debug, Default)]
pub(super) struct HungPages {
    /// By pool and page: whether a record said that it came.
    told: Vec<Vec<bool>>,
    coming: Coming,
    /// Pages that a record takes.
    limit: usize,
}

impl HungPages {
    /// `pool_pages` has how many pages each pool has, page 0 included.
    pub fn new(page_size: usize, pool_pages: &[usize]) -> Result<Self, OutOfMemory> {
        let mut told = Vec::new();
        for &pages in pool_pages {
            told.try_push(try_touched_zeros(pages)?)?;
        }
        let limit = RECORD_PAGES.min(RECORD_WORDS / page_size).max(1);
        let mut coming = Coming::default();
        coming.pages.try_reserve_exact(limit)?;
        coming.spine.try_reserve_exact(limit)?;
        coming.keys.try_reserve_exact(limit * page_size)?;
        Ok(Self { told, coming, limit })
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        let Coming { pages, spine, keys, .. } = &self.coming;
        let words = pages.capacity() + spine.capacity() + keys.capacity();
        let told: usize = self.told.iter().map(Vec::capacity).sum();
        words * size_of::<u32>() + told + self.told.capacity() * size_of::<Vec<bool>>()
    }

    /// Whether nothing waits for a record.
    pub fn is_told(&self) -> bool {
        self.coming.pages.is_empty()
    }

    /// Whether a record said of a page that it came.
    pub fn has_told(&self, pool: usize, page: u32) -> bool {
        self.told[pool][page as usize]
    }

    /// All of which a record said so, with their pools.
    pub fn all_told(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let pools = self.told.iter().enumerate();
        pools.flat_map(|(pool, told)| {
            let pages = (0..).zip(told).filter(|(_, told)| **told);
            pages.map(move |(page, _)| (pool, page))
        })
    }

    /// Says that a page goes. Returns whether a record said that it came.
    pub fn forget(&mut self, pool: usize, page: u32) -> bool {
        std::mem::take(&mut self.told[pool][page as usize])
    }
}

impl Coming {
    fn takes(&self, group: usize, spine: u32, limit: usize, mirror: &Mirror) -> bool {
        match self.spine.last() {
            None => true,
            Some(&last) => {
                self.group == group && self.pages.len() < limit && mirror.follows(spine, last)
            }
        }
    }
}

impl Journal {
    /// Writes down that a page of a pool hangs on a page of group 0 now; nothing when nobody was
    /// told of that one. Pages that follow each other come into records together, until
    /// `end_hanging`.
    pub fn hang(&mut self, hung: HungPage, pool: usize, spine: u32, images: &Images) {
        if !self.mirror.has(spine) {
            return;
        }
        let HungPage { group, page } = hung;
        if !self.hung.coming.takes(group, spine, self.hung.limit, &self.mirror) {
            self.end_hanging(images);
        }
        let HungPages { told, coming, .. } = &mut self.hung;
        told[pool][page as usize] = true;
        coming.group = group;
        coming.pages.push(page);
        coming.spine.push(spine);
    }

    /// Completes the record of the pages that came last.
    pub fn end_hanging(&mut self, images: &Images) {
        let Self { ring, mirror, hung, .. } = self;
        let Coming { group, pages, spine, keys } = &mut hung.coming;
        if let Some(&first) = spine.first() {
            keys.clear();
            spine.iter().for_each(|&page| keys.extend_from_slice(mirror.keys_of(page as usize, 1)));
            let stored = (*group, &pages[..], &spine[..]);
            super::write_stored(ring, mirror, mirror.parent(first), stored, Keys { keys, images });
        }
        pages.clear();
        spine.clear();
    }
}
