//! The executable specification of clearing. A name that is cleared leads to something new from
//! then on; what it led to before nobody finds, whoever adds to it, and it goes with its last
//! holder.
use super::naive::{Fault, Naive, Page, Sequence, Wrong, require};
use super::spaces::Space;

/// Clears that the library is to remember.
pub const REMEMBERED: usize = 2;

/// What a clear did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    pub namespaces: usize,
    /// Cached pages; those that retained sequences had alone are not counted.
    pub freed: usize,
    pub held: usize,
    pub dropped: usize,
}

impl Naive {
    /// What a namespace leads to now.
    pub fn space(&self, ns: u8) -> Space {
        self.lives.space(ns)
    }

    /// A space to which no name leads.
    pub fn hidden_space(&mut self, name: u8) -> Space {
        self.mark("a sequence of before a clear publishes");
        self.lives.hidden(name)
    }

    pub fn is_cleared(&self, space: Space) -> bool {
        !self.lives.is_found(space) && self.fault != Fault::ForgetsClear
    }

    /// Whether the library may take a sequence for one that began before a clear of its namespace:
    /// it has neither found nor published anything, and more clears came than are remembered.
    pub fn may_count_as_cleared(&self, sequence: &Sequence) -> bool {
        sequence.base == 0 && self.lives.clears() - sequence.began > REMEMBERED
    }

    /// Whether the library is right to take a sequence for one that began before a clear, or not.
    pub fn check_fate(&self, sequence: &Sequence, as_cleared: bool) -> Result<(), Wrong> {
        let cleared = self.is_cleared(sequence.ns);
        let mistaken = as_cleared && !cleared && self.may_count_as_cleared(sequence);
        if mistaken {
            self.mark("a sequence is taken for one of before a clear");
        }
        require!(
            as_cleared == cleared || mistaken,
            "of a sequence in {:?} it is {as_cleared} that it was cleared, in the model {cleared}",
            sequence.ns
        );
        Ok(())
    }

    /// Clears the namespaces that `covers` says. `stays` says which of the retained sequences the
    /// library kept.
    pub fn clear(
        &mut self,
        covers: impl Fn(u8) -> bool,
        stays: impl Fn(usize) -> bool,
    ) -> Result<Cleared, Wrong> {
        let mut done = Cleared::default();
        let before = self.counters.cleared;
        for space in self.lives.clear(covers) {
            done.namespaces += usize::from(self.cache.roots.contains_key(&space));
        }
        for kept in self.retained.clone() {
            let dropped = !stays(kept.index);
            self.check_fate(&kept.sequence, dropped)?;
            if dropped {
                self.mark("a retained sequence is cleared");
                self.drop_kept(kept.index).expect("it is retained");
                done.dropped += 1;
            }
        }
        self.drop_cleared();
        done.freed = self.counters.cleared - before;
        done.held = self.cleared_pages().len();
        if done.freed > 0 {
            self.mark("a clear frees pages");
        }
        if done.held > 0 {
            self.mark("a clear leaves pages to who holds them");
        }
        Ok(done)
    }

    /// Pages that were cleared, or published by sequences of before a clear.
    pub fn cleared_pages(&self) -> Vec<u32> {
        let cleared = self.cache.pages.iter().filter(|page| !self.lives.is_found(page.ns));
        cleared.map(|page| page.page).collect()
    }

    /// Pages that were cleared go when nobody holds them any more.
    pub fn drop_cleared(&mut self) {
        let cleared = self.cleared_pages();
        let is_held = |&page: &u32| {
            let at = self.cache.by_page(page).expect("it was just seen");
            !self.cache.is_reclaimable(at)
        };
        let gone: Vec<u32> = cleared.into_iter().filter(|page| !is_held(page)).collect();
        if self.fault == Fault::EvictsCleared {
            self.counters.evicted += gone.len();
        }
        self.counters.cleared += gone.len();
        self.cache.pages.retain(|page| !gone.contains(&page.page));
        gone.iter().for_each(|&page| self.pages[page as usize] = Page::Free);
        let hidden = self.cache.roots.keys().filter(|&&space| !self.lives.is_found(space));
        hidden.copied().collect::<Vec<_>>().into_iter().for_each(|ns| self.cache.prune_root(ns));
    }
}
