//! Which pages are being copied between tiers: they are not used again before that is done.
use super::page_set::PageSet;
use crate::memory::OutOfMemory;

/// Pages that are being copied between tiers.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Without tiers there is no room in it.
    pages: PageSet,
    pub count: usize,
    /// Of those, pages of the index.
    pub cached: usize,
}

impl Copied {
    /// Makes room for copies of so many pages.
    pub fn try_reserve(&mut self, pages: usize) -> Result<(), OutOfMemory> {
        if self.pages.has_no_room() {
            self.pages = PageSet::below(pages)?;
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn has(&self, page: u32) -> bool {
        self.count > 0 && self.pages.has(page)
    }

    /// Sets a bit; whether it was otherwise.
    pub fn set(&mut self, page: u32, is_copied: bool) -> bool {
        let changes = self.pages.set(page, is_copied);
        if changes {
            self.count = if is_copied { self.count + 1 } else { self.count - 1 };
        }
        changes
    }

    pub fn bytes(&self) -> usize {
        self.pages.bytes()
    }
}
