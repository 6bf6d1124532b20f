//! Proves that each page is in exactly one state, and that rows map only what they may.
use super::pool::{PagePool, PageState, RowOwner};
use super::table::PageTable;
use crate::error::{Error, text};
use crate::memory::try_zeros;

impl PageTable {
    /// `cached` has the pages that the index holds, `retained` the private ones of retained
    /// sequences, `taken` those that calls have taken early.
    pub fn audit(
        &self,
        cached: impl Iterator<Item = u32>,
        retained: impl Iterator<Item = u32>,
        taken: impl Iterator<Item = u32>,
    ) -> Result<(), Error> {
        let mut rows = self.count_rows()?;
        for page in retained {
            if self.pool.state(page) != Some(PageState::Retained) {
                return corrupt(page, "is a retained sequence's, but not marked as such");
            }
            rows[page as usize] += 1;
        }
        for page in taken {
            // Those of a row that ended are on their way to the pool.
            if !matches!(self.pool.state(page), Some(PageState::Taken | PageState::Sequence)) {
                return corrupt(page, "is on its way to a call, but not marked as such");
            }
            rows[page as usize] += 1;
        }
        self.audit_loans()?;
        audit_pages(&self.pool, cached, &rows)
    }

    /// The same of a pool beside the first. `private` has the pages of its groups' rows.
    pub fn audit_pool(
        &self,
        pool: usize,
        cached: impl Iterator<Item = u32>,
        private: impl Iterator<Item = u32>,
    ) -> Result<(), Error> {
        let pool = self.pool_at(pool);
        let mut rows = try_zeros(pool.total() + 1)?;
        private.for_each(|page| rows[page as usize] += 1);
        audit_pages(pool, cached, &rows)
    }

    fn audit_loans(&self) -> Result<(), Error> {
        for pool in (0..self.pool_count()).map(|pool| self.pool_at(pool)) {
            for (page, slot) in pool.loans() {
                let kept = matches!(
                    pool.state(page),
                    Some(PageState::Sequence | PageState::Retained | PageState::Lent)
                );
                let reader = self.rows.get(slot as usize).and_then(|row| row.owner);
                if !kept || reader != Some(RowOwner::Sequence) {
                    return corrupt(page, "is read by a copy, but not kept, or by no sequence's");
                }
            }
        }
        Ok(())
    }

    fn count_rows(&self) -> Result<Vec<u32>, Error> {
        let mut rows: Vec<u32> = try_zeros(self.pool.total() + 1)?;
        let (mut used, mut bytes) = (0, 0);
        for row in &self.rows {
            used += (row.owner.is_some() || row.is_used_up()) as usize;
            bytes += row.pages.capacity() * size_of::<u32>();
            if row.owner.is_none() && !row.pages.is_empty() {
                return Err(Error::Corrupt("row_unused: a free slot maps pages".into()));
            }
            for &page in &row.pages {
                match self.pool.state(page) {
                    Some(PageState::Cached) => rows[page as usize] += 1,
                    Some(PageState::Mapped) if row.owner == Some(RowOwner::Caller) => {
                        rows[page as usize] += 1;
                    }
                    Some(PageState::Sequence) if row.owner == Some(RowOwner::Sequence) => {
                        rows[page as usize] += 1;
                    }
                    _ => {
                        return corrupt(
                            page,
                            "is mapped in a row, but free, nobody's or of another kind of row",
                        );
                    }
                }
            }
        }
        if used + self.free_slots() != self.slots() {
            return Err(Error::Corrupt("slot_counts: slots in use and free disagree".into()));
        }
        if bytes != self.row_bytes {
            return Err(Error::Corrupt(text!("row_bytes: {bytes} counted")));
        }
        Ok(rows)
    }
}

/// Proves of each page of a pool that it is in exactly one state. `rows` has how often each is in a
/// row, or with a call.
fn audit_pages(
    pool: &PagePool,
    cached: impl Iterator<Item = u32>,
    rows: &[u32],
) -> Result<(), Error> {
    let mut indexed = try_zeros(pool.total() + 1)?;
    for page in cached {
        if !pool.is_cached(page) {
            return corrupt(page, "is in the index, but not marked as cached");
        }
        if std::mem::replace(&mut indexed[page as usize], true) {
            return corrupt(page, "is in the index twice");
        }
    }
    let mut free = try_zeros(pool.total() + 1)?;
    for &page in pool.free_list() {
        if pool.state(page) != Some(PageState::Free) {
            return corrupt(page, "is in the pool, but not marked as free");
        }
        if std::mem::replace(&mut free[page as usize], true) {
            return corrupt(page, "is in the pool twice");
        }
    }
    let (mut counts, mut copied) = ((0, 0, 0, 0), 0);
    for page in 1..=pool.total() as u32 {
        let at = page as usize;
        match pool.state(page) {
            Some(PageState::Free) if !free[at] => return corrupt(page, "leaked: free nowhere"),
            Some(PageState::Cached) if !indexed[at] => {
                return corrupt(page, "leaked: cached, but not in the index");
            }
            Some(PageState::Mapped | PageState::Sequence) if rows[at] != 1 => {
                return corrupt(page, "is private to a row, but not in exactly one");
            }
            Some(PageState::Loose | PageState::Lent) if rows[at] != 0 => {
                return corrupt(page, "is private and loose, but in a row");
            }
            Some(PageState::Retained | PageState::Taken) if rows[at] != 1 => {
                return corrupt(
                    page,
                    "is private, but not of exactly one retained sequence or call",
                );
            }
            Some(PageState::Lent)
                if pool.borrowers(page).next().is_none() && !pool.is_copied(page) =>
            {
                return corrupt(page, "leaked: kept for copies, but none reads it");
            }
            Some(PageState::Free | PageState::Loose | PageState::Mapped | PageState::Taken)
                if pool.is_copied(page) =>
            {
                return corrupt(page, "is copied between tiers, and somebody else's already");
            }
            Some(PageState::Free) => counts.0 += 1,
            Some(PageState::Cached) => {
                counts.1 += 1;
                copied += pool.is_copied(page) as usize;
            }
            // The counts tell when this is not the pool for it.
            Some(PageState::Outside) => counts.3 += 1,
            _ => counts.2 += 1,
        }
    }
    if copied != pool.copied().1 {
        return Err(Error::Corrupt(text!("page_counts: {copied} cached pages are being copied")));
    }
    if counts != (pool.free(), pool.cached(), pool.private(), pool.outside()) {
        return Err(Error::Corrupt(text!(
            "page_counts: counted {counts:?} free, cached, private and outside pages"
        )));
    }
    Ok(())
}

fn corrupt<T>(page: u32, what: &str) -> Result<T, Error> {
    Err(Error::Corrupt(text!("page_state: page {page} {what}")))
}
