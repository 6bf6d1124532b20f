//! Following the journal: what pages of the device hold, by digest.
use super::config::PagePolicy;
use super::pages::Page;
use super::table::Table;
use super::work::{PageTiers, TableGuard};
use crate::error::Error;
use crate::events::{Read, Reader};
use crate::index::Namespace;
use crate::journal::{Reason, Record, What};
use crate::memory::OutOfMemory;
use crate::token::{DigestChain, PageDigest, PageHasher, PartPieces, parts_within};

/// Records that are followed before anything else is looked at.
const RECORDS: usize = 64;
/// Pages that are forgotten before others are let in.
const PAGES: u32 = 512;

/// Pages of a record at most.
const RECORD_PAGES: usize = 64;

impl PageTiers {
    /// Follows the journal a little further. Whether there is more.
    pub(super) fn follow(&self, reader: &mut Reader) -> Result<bool, Error> {
        for _ in 0..RECORDS {
            let is_exact = reader.is_exact();
            let Some(waiting) = reader.take_waiting() else {
                if self.tell_again(reader)? {
                    continue;
                }
                match reader.read(&self.shared)? {
                    Read::Void => {
                        self.forget_all()?;
                        self.table().counters.lost_records += reader.take_lost();
                        reader.voided();
                    }
                    Read::More => {}
                    Read::Exact => self.table().applied = Some(reader.number()),
                    Read::Nothing | Read::NoCache => return Ok(false),
                }
                continue;
            };
            let first = waiting.first();
            let number = first.as_ref().map_or(0, |record| record.number);
            let applied = first.map_or(Ok(()), |record| self.apply(&record));
            reader.put_waiting(waiting);
            applied?;
            reader.drop_first();
            if is_exact {
                self.table().applied = Some(number);
            }
        }
        Ok(true)
    }

    /// Nothing is known of any page, and all are told.
    fn forget_all(&self) -> Result<(), OutOfMemory> {
        let end = {
            let mut table = self.table();
            table.applied = None;
            let end = table.pages.end();
            table.unknown.begin(end)?;
            end
        };
        self.forget_where(end, |_| true);
        Ok(())
    }

    fn forget_where(&self, end: u32, is_gone: impl Fn(&Page) -> bool) {
        let mut table = self.table();
        for from in (0..end).step_by(PAGES as usize) {
            for page in from..end.min(from + PAGES) {
                if table.pages.get(page).is_some_and(|what| is_gone(&what)) {
                    table.forget_page(page);
                }
            }
            TableGuard::bump(&mut table);
        }
    }

    fn apply(&self, record: &Record<'_>) -> Result<(), Error> {
        match record.what {
            What::Stored { namespace, spine, .. } if record.group > 0 => {
                self.hang_record(record, &namespace, spine)
            }
            What::Stored { namespace, parent, .. } => self.store_record(record, &namespace, parent),
            What::Removed(reason) => {
                let table = &mut *self.table();
                let pool = self.pool_of(record.group as u8);
                for &page in record.pages {
                    let is_lost = matches!(reason, Reason::Capacity | Reason::Caller);
                    self.note_removed(table, table.pages.number(pool, page), is_lost);
                }
                Ok(())
            }
            What::Cleared(name) => {
                let (space, end) = {
                    let table = self.table();
                    (table.map.spaces.find(&name), table.pages.end())
                };
                // Only this thread gives numbers to namespaces: it means the same all the while.
                if let Some(space) = space {
                    self.forget_where(end, |page| page.space == space);
                }
                Ok(())
            }
        }
    }

    fn store_record(
        &self,
        record: &Record<'_>,
        namespace: &Namespace,
        parent: u32,
    ) -> Result<(), Error> {
        let What::Stored { tokens, parts, .. } = record.what else { return Ok(()) };
        let before = {
            let table = &mut *self.table();
            match parent {
                0 => Some(namespace.digest()),
                page => table.pages.get(page).map(|page| page.digest),
            }
        };
        // Outside the lock: this is what takes time.
        let (page_size, mut digests) = (self.page_size, [PageDigest::default(); RECORD_PAGES]);
        if let Some(mut last) = before {
            for (index, digest) in digests.iter_mut().enumerate().take(record.pages.len()) {
                let [from, end] = [index * page_size, (index + 1) * page_size];
                let inside = parts_within(parts.iter(), from, end)?;
                let pieces = PartPieces::new(&tokens[from..end], &inside);
                let mut chain = DigestChain::new(PageHasher::new(page_size), last, pieces);
                let made = chain.next_page();
                last = made.ok_or_else(|| {
                    Error::Corrupt("a record of the journal has no whole page".into())
                })?;
                *digest = last;
            }
        }
        let table = &mut *self.table();
        let space = table.map.spaces.enter(namespace)?;
        let mut last = parent;
        for (&page, &digest) in record.pages.iter().zip(&digests) {
            if before.is_none() {
                // What stands before it is not known, so neither is what it is.
                table.forget_page(page);
                if page == record.pages[0] {
                    table.unknown.wait(page, parent); // the others are told with it
                }
                continue;
            }
            self.set_page(table, page, Page::new((digest, 0), last, space));
            last = page;
        }
        table.map.spaces.leave(space);
        Ok(())
    }

    /// Pages of a group beside the first have the digests of those that they hang on.
    fn hang_record(
        &self,
        record: &Record<'_>,
        namespace: &Namespace,
        spine: &[u32],
    ) -> Result<(), Error> {
        let table = &mut *self.table();
        let (group, space) = (record.group as u8, table.map.spaces.enter(namespace)?);
        let pool = self.pool_of(group);
        for (&page, &spine) in record.pages.iter().zip(spine) {
            let page = table.pages.number(pool, page);
            match table.pages.get(spine) {
                Some(on) if on.group == 0 => {
                    self.set_page(table, page, Page::new((on.digest, group), spine, space));
                }
                _ => {
                    table.forget_page(page);
                    table.unknown.wait(page, spine);
                }
            }
        }
        table.map.spaces.leave(space);
        Ok(())
    }

    fn set_page(&self, table: &mut Table, page: u32, what: Page) {
        table.set_page(page, what);
        if self.policy == PagePolicy::Through {
            self.queue_store(table, page);
        }
    }
}
