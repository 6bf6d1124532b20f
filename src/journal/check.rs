//! Proves that the mirror is what the index holds: the pages, what they hold, and where they stand;
//! and that what hangs on them was told.
use super::Journal;
use crate::error::{Error, text};
use crate::group::Hung;
use crate::index::PrefixIndex;
use crate::memory::{TryGrow, try_zeros};
use crate::token::{Images, Keys};

impl Journal {
    /// Compares the mirror with an index that holds so many pages: every prefix that the mirror has
    /// is looked up, and none is left over.
    pub fn check(
        &self,
        index: &dyn PrefixIndex,
        images: &Images,
        (cached, hung): (usize, Option<&Hung>),
    ) -> Result<(), Error> {
        self.check_hung(hung)?;
        let mirror = &self.mirror;
        let mut goes_on = try_zeros::<bool>(mirror.page_count())?;
        let mut held = 0;
        for page in (1..mirror.page_count() as u32).filter(|&page| mirror.has(page)) {
            held += 1;
            goes_on[mirror.parent(page) as usize] = true;
            self.check_place(page, images)?;
        }
        if !self.left.is_empty() || (held, held) != (mirror.held(), cached) {
            return corrupt(0, "another number of pages is held than the index has");
        }
        if mirror.names.count() != Some(held) {
            return corrupt(0, "the namespaces count other pages than there are");
        }
        let (mut pages, mut keys) = (Vec::new(), Vec::new());
        for last in (1..mirror.page_count() as u32).filter(|&page| mirror.has(page)) {
            if goes_on[last as usize] {
                continue;
            }
            pages.clear();
            let up = |&page: &u32| Some(mirror.parent(page)).filter(|&parent| parent != 0);
            for page in std::iter::successors(Some(last), up) {
                pages.try_push(page)?;
            }
            pages.reverse();
            keys.clear();
            for &page in &pages {
                keys.try_extend_from_slice(mirror.keys_of(page as usize, 1))?;
            }
            let found = index.find_root(mirror.name(last));
            let found = found.map(|root| index.walk(root, Keys { keys: &keys, images }));
            let Some(found) = found.filter(|found| found.pages == pages.len()) else {
                return corrupt(last, "holds a prefix that the index doesn't have");
            };
            let mut agree = true;
            index.visit_path(found.node, &mut |start, there| {
                let ours = pages[start.min(pages.len())..].iter();
                agree &= ours.zip(there).all(|(ours, there)| ours == there);
            });
            if !agree {
                return corrupt(last, "is not at the place where the index has it");
            }
        }
        Ok(())
    }

    /// Of a page that hangs on one that is held, a record said that it came; of one that hangs
    /// nowhere, none did that another one didn't take back.
    fn check_hung(&self, hung: Option<&Hung>) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::Corrupt(text!("journal: {what}")));
        if !self.hung.is_told() {
            return wrong("pages came that are in no record");
        }
        let Some(hung) = hung else { return Ok(()) };
        let mut all = (0..self.pool_pages.len())
            .flat_map(|pool| hung.of_pool(pool).map(move |(page, spine)| (pool, page.page, spine)));
        if all.any(|(pool, page, spine)| self.mirror.has(spine) && !self.hung.has_told(pool, page))
        {
            return wrong("a page hangs on one that is held, and nobody was told");
        }
        if self.hung.all_told().any(|(pool, page)| hung.place(pool, page).is_none()) {
            return wrong("a page was told that hangs nowhere");
        }
        Ok(())
    }

    /// A page stands after its parent.
    fn check_place(&self, page: u32, images: &Images) -> Result<(), Error> {
        let mirror = &self.mirror;
        let place = (mirror.index(page), mirror.open_before(page));
        let expected = match mirror.parent(page) {
            0 => (0, 0),
            parent if !mirror.has(parent) => return corrupt(page, "goes on from no page"),
            parent if mirror.name(parent) != mirror.name(page) => {
                return corrupt(page, "is in another namespace than the page before it");
            }
            parent => (mirror.index(parent) + 1, mirror.open_after(parent, images)),
        };
        if place == expected { Ok(()) } else { corrupt(page, "does not follow its parent") }
    }
}

fn corrupt<T>(page: u32, what: &str) -> Result<T, Error> {
    Err(Error::Corrupt(text!("journal_mirror: page {page} {what}")))
}
