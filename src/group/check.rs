//! Proofs: what hangs where agrees from both sides, and what nobody uses is queued.
use super::Hung;
use crate::error::{Error, text};

impl Hung {
    /// Names the first invariant that is broken.
    pub fn check(&self) -> Result<(), Error> {
        for (number, pool) in self.pools.iter().enumerate() {
            let wrong = |what: &str| Err(Error::Corrupt(text!("groups: pool {number}: {what}")));
            let mut hung = 0;
            for (page, spine) in self.of_pool(number) {
                hung += 1;
                if self.pool_of(page.group) != number || self.page(page.group, spine) != page.page {
                    return wrong("a page doesn't hang where it says");
                }
                let entry = &pool.entries[page.page as usize];
                if entry.is_queued != (self.users(page) == 0) {
                    return wrong("a page is in use and queued, or neither");
                }
            }
            if hung != pool.hung {
                return wrong("more or fewer pages hang somewhere than are counted");
            }
            let mut queued = 0;
            for (class, queue) in pool.queues() {
                let mut time = 0;
                for page in queue.iter(&pool.entries) {
                    queued += 1;
                    let entry = &pool.entries[page as usize];
                    let stands = entry.is_queued && entry.class == class && entry.group != 0;
                    if !stands || entry.time < time {
                        return wrong("a queue has a page of another class, or out of order");
                    }
                    time = entry.time;
                }
            }
            let said = pool.entries.iter().filter(|entry| entry.is_queued).count();
            if queued != said || queued != self.reclaimable(number) {
                return wrong("more or fewer pages are queued than are counted");
            }
        }
        for group in 1..self.group_count() {
            let hang = self.groups_pages(group).filter(|&page| page != 0).count();
            let pool = &self.pools[self.pool_of(group)];
            let said = pool.entries.iter().filter(|entry| entry.group as usize == group).count();
            if hang != said || hang != self.count_of_group(group) {
                return Err(Error::Corrupt(text!("groups: group {group} has lost a page")));
            }
        }
        Ok(())
    }
}
