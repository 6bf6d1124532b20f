//! The contents of the device while they are told: pages come by their numbers, so one may come
//! before the page that it stands behind.
use super::work::PageTiers;
use crate::error::Error;
use crate::events::Reader;
use crate::memory::{OutOfMemory, try_zeros};

/// Pages that are not known, for what they stand behind was not when they were told. They are told
/// again when it is. Nothing waits when the contents are not told.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    /// By page, the first one that waits for it; 0 for none.
    waiting: Vec<u32>,
    /// By page, the one behind it in a list: of those that wait for the same one, or of those to be
    /// told again. 0: it is in none.
    next: Vec<u32>,
    /// Those to be told again.
    first: u32,
    last: u32,
}

/// Behind the last of a list.
const END: u32 = u32::MAX;

impl Unknown {
    /// Contents of so many pages are going to be told.
    pub fn begin(&mut self, pages: u32) -> Result<(), OutOfMemory> {
        let (waiting, next) = (try_zeros(pages as usize)?, try_zeros(pages as usize)?);
        *self = Self { waiting, next, first: 0, last: 0 };
        Ok(())
    }

    /// All is told.
    fn end(&mut self) {
        *self = Self::default();
    }

    /// A page stands behind one that is not known.
    pub fn wait(&mut self, page: u32, before: u32) {
        if self.next.get(page as usize) != Some(&0) {
            return;
        }
        let others = std::mem::replace(&mut self.waiting[before as usize], page);
        self.next[page as usize] = if others == 0 { END } else { others };
    }

    /// A page is known now.
    pub fn came(&mut self, page: u32) {
        let Some(waiting) = self.waiting.get_mut(page as usize) else { return };
        let mut at = std::mem::take(waiting);
        while at != 0 && at != END {
            let next = std::mem::replace(&mut self.next[at as usize], END);
            match self.first {
                0 => self.first = at,
                _ => self.next[self.last as usize] = at,
            }
            (self.last, at) = (at, next);
        }
    }

    /// The first page that is to be told again.
    fn first(&self) -> Option<u32> {
        Some(self.first).filter(|&page| page != 0)
    }

    fn drop_first(&mut self) {
        let next = std::mem::take(&mut self.next[self.first as usize]);
        self.first = if next == END { 0 } else { next };
    }

    pub fn bytes(&self) -> usize {
        (self.waiting.capacity() + self.next.capacity()) * size_of::<u32>()
    }
}

impl PageTiers {
    /// Has a page told again that was told before the one that it stands behind. Whether there was
    /// any.
    pub(super) fn tell_again(&self, reader: &mut Reader) -> Result<bool, Error> {
        if reader.is_exact() {
            return Ok(false);
        }
        let page = {
            let table = &mut *self.table();
            // It may have come with another one that it was told with.
            while let Some(page) = table.unknown.first()
                && table.pages.get(page).is_some()
            {
                table.unknown.drop_first();
            }
            let Some(page) = table.unknown.first() else {
                if reader.has_all_contents() {
                    // The records from here on tell the rest: of what is not known still, other
                    // pages came meanwhile.
                    table.unknown.end();
                }
                return Ok(false);
            };
            page
        };
        reader.read_page(&self.shared, page)?;
        self.table().unknown.drop_first();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(unknown: &mut Unknown) -> Vec<u32> {
        let mut pages = Vec::new();
        while let Some(page) = unknown.first() {
            unknown.drop_first();
            pages.push(page);
        }
        pages
    }

    #[test]
    fn pages_wait_for_the_one_that_they_stand_behind() {
        let mut unknown = Unknown::default();
        // The contents are not told.
        unknown.wait(3, 7);
        unknown.came(7);
        assert_eq!(unknown.first(), None);
        unknown.begin(10).unwrap();
        for (page, before) in [(3, 7), (4, 7), (5, 8), (4, 8)] {
            unknown.wait(page, before);
        }
        unknown.came(7);
        unknown.came(7);
        unknown.came(8);
        unknown.came(9);
        assert_eq!(told(&mut unknown), [4, 3, 5]);
        // It may wait again, for another one.
        unknown.wait(4, 8);
        unknown.wait(3, 4);
        unknown.came(8);
        assert_eq!(told(&mut unknown), [4]);
        unknown.came(4);
        assert_eq!(told(&mut unknown), [3]);
    }
}
