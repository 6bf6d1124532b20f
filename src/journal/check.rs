//! Proves that the mirror is what the index holds: the pages, what they hold, and where they stand.
use super::Journal;
use crate::error::{Error, text};
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
        cached: usize,
    ) -> Result<(), Error> {
        let mirror = &self.mirror;
        let mut goes_on = try_zeros::<bool>(mirror.page_count())?;
        let mut held = 0;
        for page in (1..mirror.page_count() as u32).filter(|&page| mirror.has(page)) {
            held += 1;
            goes_on[mirror.parent(page) as usize] = true;
            self.check_place(page, images)?;
        }
        if self.left_count != 0 || (held, held) != (mirror.held(), cached) {
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
