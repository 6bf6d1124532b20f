//! Proofs, for tests and for engines that want them: each page is in exactly one state, and every
//! count is what a recount finds.
use super::group_rows::private_in_groups;
use super::sequence::Sequence;
use super::{PrefixCache, Retained, State};
use crate::error::{Error, text};
use crate::group::HungPage;
use crate::index::Node;
use crate::memory::{OutOfMemory, TryGrow, try_zeros};

impl State {
    /// Proves page by page that each is in exactly one state.
    pub fn audit(&self) -> Result<(), Error> {
        let mut cached = Vec::new();
        if let Some(cache) = &self.cache {
            cached.try_reserve_exact(self.table.pool.cached()).map_err(OutOfMemory::from)?;
            let mut listed = Ok(());
            cache.index.visit_all(&mut |pages, _| {
                listed = listed.and_then(|()| cached.try_extend_from_slice(pages));
            });
            listed?;
            if let Some(groups) = &cache.groups {
                for (page, _) in groups.hung.of_pool(0) {
                    cached.try_push(page.page)?;
                }
            }
        }
        if let Some(leaving) = &self.leaving {
            // What it still has, its index doesn't know.
            let cached = |pool: usize| {
                let pool = self.table.pool_at(pool);
                (1..=pool.total() as u32).filter(move |&page| pool.is_cached(page))
            };
            let of_rows = |pool: usize| leaving.private_in_groups(&self.table, pool);
            let kept = |pool: usize| leaving.retained_in_groups(&self.table, pool);
            for pool in 1..self.table.pool_count() {
                let private = of_rows(pool).chain(kept(pool)).chain(self.early_of(pool));
                self.table.audit_pool(pool, cached(pool), private)?;
            }
            let retained = leaving.private_pages().chain(kept(0));
            return self.table.audit(cached(0), retained, self.early_of(0).chain(of_rows(0)));
        }
        for pool in 1..self.table.pool_count() {
            // Without several groups none of their pages is cached.
            let hung = self.hung().into_iter().flat_map(|hung| hung.of_pool(pool));
            let kept = private_in_groups(self.retained.rows(), &self.table, pool);
            let private = self.private_in_groups(pool).chain(kept).chain(self.early_of(pool));
            self.table.audit_pool(pool, hung.map(|(page, _)| page.page), private)?;
        }
        let taken = self.early_of(0).chain(self.private_in_groups(0));
        let kept = private_in_groups(self.retained.rows(), &self.table, 0);
        let retained = self.retained.private_pages().chain(kept);
        self.table.audit(cached.into_iter(), retained, taken)?;
        for sequence in self.sequences.iter().filter(|sequence| sequence.id.is_some()) {
            self.audit_live(sequence)?;
        }
        let bytes: usize = self.sequences.iter().map(Sequence::bytes).sum();
        if bytes != self.sequence_bytes {
            return Err(Error::Corrupt(text!("sequence_bytes: {bytes} counted")));
        }
        self.audit_retained()
    }

    /// Checks every invariant of the index and of the images.
    pub fn check(&self) -> Result<(), Error> {
        let cache = self.cache()?;
        cache.index.check()?;
        if let Some(groups) = &cache.groups {
            let live = self.sequences.iter().map(|sequence| &sequence.groups);
            groups.check(&self.table, live, self.retained.rows())?;
        }
        let (mut keys, mut listed) = (Vec::new(), Ok(()));
        cache.index.visit_all(&mut |_, more| {
            for &key in more.iter().filter(|&&key| crate::token::image_number(key).is_some()) {
                listed = listed.and_then(|()| keys.try_push(key));
            }
        });
        listed?;
        if let Some(journal) = &cache.journal {
            let hung = cache.groups.as_ref().map(|groups| &groups.hung);
            let others = cache.index.detached_pages() + hung.map_or(0, |hung| hung.count(0));
            let found = (self.table.pool.cached() - others, hung);
            journal.check(cache.index.as_ref(), &cache.images, found)?;
        }
        let sequences = || self.sequences.iter().chain(self.retained.sequences());
        cache.check_locks(sequences().filter_map(|sequence| sequence.lock))?;
        for sequence in sequences() {
            keys.try_extend_from_slice(&sequence.images)?;
        }
        for images in cache.images_of_calls() {
            keys.try_extend_from_slice(images)?;
        }
        cache.images.check(keys.into_iter())
    }

    pub(super) fn audit_live(&self, sequence: &Sequence) -> Result<(), Error> {
        let slot = sequence.id.expect("the sequence is alive").slot();
        let pool = &self.table.pool;
        let source = sequence.copy.map(|copy| copy.source);
        let borrows = |page| pool.borrowers(page).any(|borrower| borrower == slot);
        if source.is_some_and(|page| pool.is_cached(page) == borrows(page)) {
            return Err(Error::Corrupt(text!(
                "sequence_copy: slot {slot} copies from a page that neither a lock nor a loan keeps"
            )));
        }
        let row = self.table.row(slot)?;
        // What it copies into may still be missing while it is made.
        let held = row.len() * self.table.page_size();
        if sequence.computed > held && !sequence.incomplete {
            return Err(Error::Corrupt(text!(
                "sequence_row: slot {slot} has computed more than its row holds"
            )));
        }
        if self.has_groups() && !sequence.incomplete {
            let (pages, shortest) = (row.len(), self.shortest_group_row(slot, row.len()));
            if shortest < pages {
                return Err(Error::Corrupt(text!(
                    "sequence_row: slot {slot} has {pages} pages, and {shortest} of a group"
                )));
            }
        }
        self.audit_sequence(sequence, row)
    }

    pub(super) fn audit_sequence(&self, sequence: &Sequence, row: &[u32]) -> Result<(), Error> {
        let id = sequence.id.expect("there is a sequence").0;
        let wrong = |what: &str| Err(Error::Corrupt(text!("sequence_row: {id:#x} {what}")));
        let pool = &self.table.pool;
        if !row[..sequence.shared].iter().all(|&page| pool.is_cached(page)) {
            return wrong("counts a page as shared that is not the cache's");
        }
        let own = |page| pool.is_in_use(page) && !pool.is_cached(page);
        if !row[sequence.shared..].iter().all(|&page| own(page)) {
            return wrong("counts a page as private that is not its own");
        }
        let keys = sequence.base_pages * self.table.page_size() + sequence.tail().len();
        if keys != sequence.positions && !sequence.incomplete {
            return wrong("has other tokens than positions");
        }
        let shared = sequence.shared * self.table.page_size();
        if sequence.computed < shared || sequence.computed > sequence.positions {
            return wrong("has computed less than it shares, or more than it has");
        }
        let Some(base) = sequence.base else {
            return if sequence.shared > 0 { wrong("shares pages without a node") } else { Ok(()) };
        };
        let index = &self.cache()?.index;
        if index.end_page(base) != sequence.base_pages {
            return wrong("says that its node ends elsewhere");
        }
        let mut agree = true;
        index.visit_path(base, &mut |start, pages| {
            let end = (start + pages.len()).min(sequence.shared);
            agree &= start >= end || row[start..end] == pages[..end - start];
        });
        if agree { Ok(()) } else { wrong("maps another page than the cache has there") }
    }

    /// The row that an entry stands for.
    fn row_of(&self, entry: &Retained) -> Result<Vec<u32>, Error> {
        let mut row = Vec::new();
        row.try_reserve_exact(entry.sequence.shared + 1).map_err(OutOfMemory::from)?;
        row.resize(entry.sequence.shared, 0);
        if let Some(base) = entry.sequence.base {
            self.cache()?.index.visit_path(base, &mut |start, pages| {
                let places = row.iter_mut().skip(start);
                places.zip(pages).for_each(|(place, &page)| *place = page);
            });
        }
        row.extend(entry.partial);
        Ok(row)
    }

    pub(super) fn audit_retained(&self) -> Result<(), Error> {
        let registry = &self.retained;
        let wrong = |what: &str| Err(Error::Corrupt(text!("retained: {what}")));
        let (mut is_kept, mut bytes) = (try_zeros::<u32>(self.table.pool.total() + 1)?, 0);
        for (id, entry) in registry.entries.iter() {
            bytes += entry.sequence.bytes();
            if registry.order.get(&entry.finished) != Some(id) {
                return wrong("a sequence has no place in the order");
            }
            self.audit_sequence(&entry.sequence, &self.row_of(entry)?)?;
            if entry.sequence.copy.is_some() || entry.sequence.lock != entry.sequence.base {
                return wrong("a sequence still has a copy to make");
            }
            let mut keep = |pages: &[u32]| pages.iter().for_each(|&at| is_kept[at as usize] = 1);
            if let Some(base) = entry.sequence.base {
                self.cache()?.index.visit_path(base, &mut |_, pages| keep(pages));
            }
            keep(entry.partial.as_slice());
        }
        for pool in 0..self.table.pool_count() {
            let mut is_kept = try_zeros::<u32>(self.table.pool_at(pool).total() + 1)?;
            let rows = registry.sequences().flat_map(|sequence| sequence.groups.pages());
            let in_pool =
                |page: &HungPage| self.table.groups().list()[page.group].pool as usize == pool;
            rows.filter(in_pool).for_each(|page| is_kept[page.page as usize] = 1);
            if let Some(groups) = self.cache.as_ref().and_then(|cache| cache.groups.as_deref()) {
                // What is about to be kept, or was until now.
                let kept = groups.kept_by_calls(&self.table).filter(in_pool);
                kept.for_each(|page| is_kept[page.page as usize] = 1);
            }
            let kept = is_kept.iter().sum::<u32>() as usize;
            let counted = self.cache.as_ref().map(|cache| registry.pages_in_groups(pool, cache));
            if kept != counted.unwrap_or(0) {
                return wrong("other pages of groups are kept than are counted");
            }
        }
        let kept = is_kept.iter().sum::<u32>() as usize;
        let too_many = registry.calls_above == 0
            && (registry.len() > registry.sequence_limit || kept > registry.page_limit);
        // What is about to be kept, or was until now.
        if let Some(cache) = &self.cache {
            for node in cache.footholds.iter().filter_map(|foothold| foothold.kept) {
                cache.index.visit_path(node, &mut |_, pages| {
                    pages.iter().for_each(|&at| is_kept[at as usize] = 1);
                });
            }
        }
        let kept = is_kept.iter().sum::<u32>() as usize;
        if bytes != registry.sequence_bytes {
            return wrong("the memory of the sequences is not what is counted");
        }
        if registry.order.len() != registry.len() {
            return wrong("there are others in the order than in the registry");
        }
        if kept != registry.pages(self.cache.as_ref()) || too_many {
            return wrong("there is more than the limit, or more than is counted");
        }
        Ok(())
    }
}

impl PrefixCache {
    /// Checks that the nodes have the locks that are out, and those of sequences, given by node.
    pub fn check_locks(&self, sequences: impl Iterator<Item = Node>) -> Result<(), Error> {
        let mut nodes = Vec::new();
        nodes.try_reserve(self.locks.out()).map_err(OutOfMemory::from)?;
        for node in self.locked_nodes().chain(sequences.map(|node| node.0)) {
            nodes.try_push(node)?;
        }
        nodes.sort_unstable();
        for same in nodes.chunk_by(|left, right| left == right) {
            let (node, taken) = (same[0], same.len());
            let locks = self.index.own_locks(Node(node));
            if locks as usize != taken {
                return Err(Error::Corrupt(text!(
                    "lock_ids: node {node} has {locks} locks, and {taken} were taken"
                )));
            }
        }
        let locks = self.index.lock_total();
        if locks != nodes.len() {
            let taken = nodes.len();
            return Err(Error::Corrupt(text!("lock_ids: {locks} locks, and {taken} were taken")));
        }
        Ok(())
    }
}
