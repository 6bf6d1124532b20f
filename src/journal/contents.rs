//! All that is held now, told page by page: those of pool 0, and then those of each other pool.
use super::record::{Draft, RECORD_PAGES, RECORD_WORDS, Record, largest_record};
use super::{Journal, fitting};
use crate::group::Hung;
use crate::memory::{OutOfMemory, try_zeros};
use crate::token::{Images, Keys};

/// Room of a reader for a record at a time.
#[derive(Debug)]
pub struct Scratch {
    record: Vec<u32>,
    keys: Vec<u32>,
}

impl Scratch {
    /// For pages of so many positions.
    pub fn new(page_size: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            record: try_zeros(largest_record(page_size))?,
            keys: try_zeros(RECORD_WORDS.max(page_size))?,
        })
    }
}

/// Pages whose numbers follow each other, to be told together.
#[derive(Debug, Clone, Copy)]
struct Run {
    group: usize,
    count: usize,
}

/// Where a page stands among those of all pools.
#[derive(Debug, Clone, Copy)]
struct Place {
    pool: usize,
    page: u32,
    /// How many places are left in the pool, with this one.
    left: usize,
}

impl Journal {
    /// Pages of all pools together, each with its page 0.
    pub fn place_count(&self) -> usize {
        self.pool_pages.iter().sum()
    }

    fn place(&self, mut at: usize) -> Place {
        let mut pool = 0;
        while at >= self.pool_pages[pool] {
            at -= self.pool_pages[pool];
            pool += 1;
        }
        Place { pool, page: at as u32, left: self.pool_pages[pool] - at }
    }

    /// Gives `take` what is held from a place on, as records of `number` that were never in the
    /// ring, until it returns false or about so many words were looked at. Returns the first place
    /// that is still to be told, and whether `take` wants more. Pages of pool 0 have the places of
    /// their numbers, and those of the other pools the ones behind.
    pub fn tell_contents(
        &self,
        (images, hung): (&Images, Option<&Hung>),
        (first, number): (usize, u64),
        words: usize,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> (usize, bool) {
        let (page_size, end) = (self.mirror.page_size(), self.place_count());
        let (mut at, mut seen) = (first, 0);
        while at < end && seen < words {
            let place = self.place(at);
            let Some(run) = self.run(place, hung) else {
                at += 1;
                seen += 1;
                continue;
            };
            let (mut pages, mut spine) = ([0; RECORD_PAGES], [0; RECORD_PAGES]);
            for (at, page) in (place.page..).take(run.count).enumerate() {
                let hangs_on = || hung.and_then(|hung| hung.place(place.pool, page));
                pages[at] = page;
                spine[at] = if run.group == 0 { page } else { hangs_on().map_or(0, |on| on.1) };
                let keys = self.mirror.keys_of(spine[at] as usize, 1);
                scratch.keys[at * page_size..][..page_size].copy_from_slice(keys);
            }
            let (parent, open) = (self.mirror.parent(spine[0]), self.mirror.open_before(spine[0]));
            let draft = |count: usize| Draft {
                stored: self.mirror.stored(parent, (run.group, &pages[..count], &spine[..count])),
                keys: Keys { keys: &scratch.keys[..count * page_size], images },
                open,
            };
            let (count, words) = fitting(run.count, scratch.record.len(), draft);
            draft(count).write(&mut scratch.record[..words]);
            if !take(&Record::read(number, page_size, &scratch.record[..words])) {
                return (at, false);
            }
            at += count;
            seen += words;
        }
        (at, true)
    }

    /// How many pages from one on go into one record: each stands right behind the one before. None
    /// when the page is not held, or nobody was told of it.
    fn run(&self, place: Place, hung: Option<&Hung>) -> Option<Run> {
        let Place { pool, page: first, left } = place;
        let most = RECORD_PAGES.min(RECORD_WORDS / self.mirror.page_size()).max(1);
        let end = first + most.min(left) as u32;
        if pool == 0 && self.mirror.has(first) {
            let follows = |page: &u32| self.mirror.follows(*page, *page - 1);
            let more = (first + 1..end).take_while(follows).count();
            return Some(Run { group: 0, count: 1 + more });
        }
        let told = |page: u32| hung?.place(pool, page).filter(|_| self.hung.has_told(pool, page));
        let (group, mut last) = told(first).filter(|(_, spine)| self.mirror.has(*spine))?;
        let follows = |page: &u32| match told(*page) {
            Some((of, spine)) if of == group && self.mirror.follows(spine, last) => {
                last = spine;
                true
            }
            _ => false,
        };
        Some(Run { group, count: 1 + (first + 1..end).take_while(follows).count() })
    }
}
