//! What the cache holds, as changes in order: a bounded ring of records, and beside it a mirror
//! that says of each page what it holds now.
//!
//! ```text
//!   a page enters ──► mirror[page] = what it holds ──► record "stored"  ──► ring ──► readers
//!   a page leaves ──► mirror[page] = nothing       ──► record "removed" ──► ring
//! ```
//!
//! A record is complete in itself: nodes and pages may be gone when somebody reads it. The mirror
//! makes two things possible: all that is held can be told page by page, in slices and without the
//! tree, and an eviction needs to name nothing but pages. It is the same for every kind of index,
//! and neither splits nor merges of nodes touch it. It has the pages of group 0; what hangs on them
//! in other groups has the same keys.
//!
//! Writing a change down never fails: whatever may need memory is asked for by
//! [`Journal::try_reserve`], before the change.
#![forbid(unsafe_code)]

mod check;
mod contents;
mod hung;
mod left;
mod mirror;
mod names;
mod record;
mod ring;

pub use contents::Scratch;
pub use record::{Parts, Reason, Record, What, largest_record};
pub use ring::Ring;

use crate::error::{Error, text};
use crate::index::Namespace;
use crate::memory::{OutOfMemory, try_collect};
use crate::token::Keys;
use hung::HungPages;
use left::Left;
use mirror::Mirror;
use record::{Draft, RECORD_PAGES};

/// Pages that came in, one after another in a prefix.
#[derive(Debug, Clone, Copy)]
pub struct Entered<'a> {
    /// The namespace, for pages at the beginning of a prefix: others have that of their parent.
    pub namespace: &'a Namespace,
    /// The page before them; 0 when they begin a prefix.
    pub parent: u32,
    /// The pages.
    pub pages: &'a [u32],
    /// The keys of all their positions.
    pub keys: Keys<'a>,
}

/// The ring and the mirror of one cache.
#[derive(Debug)]
pub struct Journal {
    ring: Ring,
    mirror: Mirror,
    hung: HungPages,
    left: Left,
    /// Pages of each pool, page 0 included.
    pool_pages: Vec<usize>,
}

impl Journal {
    /// The journal of an empty cache: a ring of so many bytes, of which the first record gets the
    /// number `first`, and a mirror. `pool_pages` has how many pages each pool has, page 0
    /// included; with one group it is one pool.
    pub fn new(
        bytes: u64,
        page_size: usize,
        (pool_pages, has_groups): (&[usize], bool),
        first: u64,
    ) -> Result<Self, Error> {
        let least = 1024 + 256 * page_size as u64;
        if bytes < least {
            return Err(Error::argument(text!(
                "config.journal_bytes {bytes} is less than the {least} of the smallest ring for \
                 pages of {page_size} positions"
            )));
        }
        let pages: u64 = pool_pages.iter().map(|&pages| pages as u64).sum();
        if pages > u64::from(u32::MAX) {
            return Err(Error::unsupported(text!(
                "config.journal_bytes: a journal over {pages} pages, of all pools together"
            )));
        }
        let hung = match has_groups {
            true => HungPages::new(page_size, pool_pages),
            false => Ok(HungPages::default()),
        };
        let no_room = |_| Error::memory("the journal: config.journal_bytes");
        Ok(Self {
            ring: Ring::new(bytes, page_size, first)?,
            mirror: Mirror::new(page_size, pool_pages[0]).map_err(no_room)?,
            hung: hung.map_err(no_room)?,
            left: Left::new(),
            pool_pages: try_collect(pool_pages.iter().copied()).map_err(no_room)?,
        })
    }

    /// Pages of each pool, page 0 included.
    pub fn pool_pages(&self) -> &[usize] {
        &self.pool_pages
    }

    /// The records.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The records alone, when the cache is gone. None can follow.
    pub fn take_ring(&mut self) -> Ring {
        self.ring.take()
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        let pools = self.pool_pages.capacity() * size_of::<usize>();
        self.ring.bytes() + self.mirror.bytes() + self.hung.bytes() + pools
    }

    /// Makes room for what the next pages may bring with them: a namespace.
    pub fn try_reserve(&mut self) -> Result<(), OutOfMemory> {
        self.mirror.names.try_reserve()
    }

    /// Writes down pages of group 0 that came in; room was made.
    pub fn store(&mut self, entered: Entered<'_>) {
        self.mirror.store(&entered);
        let stored = (0, entered.pages, entered.pages);
        write_stored(&mut self.ring, &self.mirror, entered.parent, stored, entered.keys);
        self.mirror.set_number(entered.pages, self.ring.newest());
    }

    /// Of a page of group 0 that is held, a record from which on it has been what it is now.
    pub fn stored_by(&self, page: u32) -> Option<u64> {
        self.mirror.number(page, self.ring.newest())
    }

    /// Writes down that nothing of a namespace can be found any more. O(log(namespaces)).
    pub fn clear(&mut self, namespace: &Namespace) {
        if self.mirror.clear(namespace) {
            record::write_cleared(self.ring.push(record::CLEARED_WORDS), namespace);
        }
    }
}

/// Writes pages of a group that follow each other into as few records as they fit into; with them
/// the pages of group 0 at the same positions, which are held, and their keys.
fn write_stored(
    ring: &mut Ring,
    mirror: &Mirror,
    mut parent: u32,
    (group, mut pages, mut spine): (usize, &[u32], &[u32]),
    Keys { mut keys, images }: Keys<'_>,
) {
    let (page_size, limit) = (mirror.page_size(), ring.record_words());
    while !pages.is_empty() {
        let draft = |count: usize| Draft {
            stored: mirror.stored(parent, (group, &pages[..count], &spine[..count])),
            keys: Keys { keys: &keys[..count * page_size], images },
            open: mirror.open_before(spine[0]),
        };
        let (count, words) = fitting(pages.len().min(RECORD_PAGES), limit, draft);
        draft(count).write(ring.push(words));
        parent = spine[count - 1];
        (pages, spine, keys) = (&pages[count..], &spine[count..], &keys[count * page_size..]);
    }
}

/// As many pages, up to a count, as make a record within a limit, or one page; and the words of
/// that record.
fn fitting<'a>(most: usize, limit: usize, draft: impl Fn(usize) -> Draft<'a>) -> (usize, usize) {
    let mut count = most;
    loop {
        let words = draft(count).words();
        if count == 1 || words <= limit {
            return (count, words);
        }
        count /= 2;
    }
}
