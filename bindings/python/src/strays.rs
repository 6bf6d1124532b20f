//! Pages of a window that the cache did not take: memory ran out in the middle of a long insert.
use std::collections::HashMap;

/// They hang on the cache's pages of full attention, by the engine's mapping, and the cache does
/// not know: nobody else finds them. A request that goes on still reads them there, so they stay
/// until that page goes or the cache takes another one there.
#[derive(Default)]
pub struct Strays {
    /// By the page of full attention.
    by_page: HashMap<u32, u32>,
    /// Those in whose place the cache took another one.
    loose: Vec<u32>,
}

impl Strays {
    /// The cache has a window's page for a page.
    pub fn taken(&mut self, page: u32, window: u32) {
        if !self.by_page.is_empty() {
            self.loose.extend(self.by_page.remove(&page).filter(|&stray| stray != window));
        }
    }

    /// It was given one for a page and has none. Returns the one that hangs there from now on.
    pub fn left(&mut self, page: u32, window: u32) -> u32 {
        *self.by_page.entry(page).or_insert(window)
    }

    /// The page goes; and its stray, which is returned.
    pub fn gone(&mut self, page: u32) -> Option<u32> {
        if self.by_page.is_empty() { None } else { self.by_page.remove(&page) }
    }

    /// Those that hang nowhere any more.
    pub fn loose(&self) -> &[u32] {
        &self.loose
    }

    /// They went.
    pub fn forget_loose(&mut self) {
        self.loose.clear();
    }

    /// Whether some hang on pages that the cache has.
    pub fn hang(&self) -> bool {
        !self.by_page.is_empty()
    }

    pub fn count(&self) -> usize {
        self.by_page.len() + self.loose.len()
    }

    /// All of them, in order.
    pub fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.by_page.values().chain(&self.loose).copied().collect();
        all.sort_unstable();
        all
    }
}
