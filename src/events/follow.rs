//! What a record changes: what is known of the pages, and the events that say so.
use super::announce::{Announcer, RUN_BLOCKS};
use super::blocks::Block;
use super::encoder::Progress;
use crate::error::Error;
use crate::index::Namespace;
use crate::journal::{Reason, Record, What};
use crate::memory::TryGrow;
use crate::token::PageDigest;

impl Progress {
    pub(super) fn announcer(&mut self) -> Announcer<'_> {
        let Self { wire, blocks, spaces, outbox, path, .. } = self;
        Announcer { wire, blocks, spaces, out: outbox, path }
    }

    fn pool(&self, group: usize) -> u32 {
        self.wire.groups.list()[group].pool
    }

    /// Applies a record, and tells of it if the others were told. When there is no memory it can be
    /// applied again: what was done is not done twice.
    pub(super) fn apply(&mut self, record: &Record<'_>, is_told: bool) -> Result<(), Error> {
        match record.what {
            What::Stored { .. } => self.store(record, is_told),
            What::Removed(reason) => self.remove(record, reason),
            What::Cleared(name) => self.clear_space(&name),
        }
    }

    fn store(&mut self, record: &Record<'_>, is_told: bool) -> Result<(), Error> {
        let What::Stored { namespace, parent, spine, .. } = record.what else { return Ok(()) };
        let (group, pool) = (record.group, self.pool(record.group));
        if !self.is_applied {
            let mut before = parent;
            for (index, &page) in record.pages.iter().enumerate() {
                let place = self.blocks.place(pool, page);
                self.replace(place)?;
                if group == 0 {
                    self.blocks.keep_tokens(place, record, index)?;
                } else {
                    before = spine[index];
                }
                // Only now: a page that is stored once more may have been the last of its space.
                let space = self.spaces.number(&namespace)?;
                let block = Block { before, space, group, told: false, listed: false };
                self.blocks.set(place, block);
                self.spaces.add_page(space);
                before = page;
            }
            self.is_applied = true;
        }
        if !is_told {
            return Ok(());
        }
        if group == 0 {
            let &last = record.pages.last().expect("a record names a page");
            return self.announcer().announce(last);
        }
        let mut places = [0; RUN_BLOCKS];
        let mut count = 0;
        for &page in record.pages {
            let place = self.blocks.place(pool, page);
            if self.blocks.get(place).is_some_and(|block| !block.told) {
                places[count] = place;
                count += 1;
            }
        }
        self.announcer().announce_hung(&places[..count])
    }

    /// What was known of a place is no more. A page that is stored was not held before, unless
    /// pages of different moments were told.
    fn replace(&mut self, place: u32) -> Result<(), Error> {
        let Some(block) = self.blocks.get(place) else { return Ok(()) };
        if block.told {
            self.tell_removed(&[place], block.group, Reason::Capacity)?;
        }
        self.forget(place, block);
        Ok(())
    }

    pub(super) fn forget(&mut self, place: u32, block: Block) {
        self.blocks.remove(place);
        self.spaces.take_told(block.space, block.told as usize);
        self.spaces.take_page(block.space);
    }

    fn tell_removed(&mut self, places: &[u32], group: usize, reason: Reason) -> Result<(), Error> {
        let mut digests = [PageDigest::default(); RUN_BLOCKS];
        for (digest, &place) in digests.iter_mut().zip(places) {
            *digest = self.blocks.digest(place);
        }
        Ok(self.wire.removed(&digests[..places.len()], group, reason, &mut self.outbox)?)
    }

    fn remove(&mut self, record: &Record<'_>, reason: Reason) -> Result<(), Error> {
        if reason == Reason::Destroyed {
            // All of them go, and not the leaves first: nothing of them is told any more.
            self.stop_telling();
            return match self.spaces.all_pages() {
                0 => Ok(()),
                _ => self.begin_to_drop_all(reason),
            };
        }
        let pool = self.pool(record.group);
        let mut places = [0; RUN_BLOCKS];
        let mut count = 0;
        let held = |progress: &Self, page: u32| {
            let place = progress.blocks.place(pool, page);
            let block = progress.blocks.get(place).filter(|block| block.group == record.group);
            block.map(|block| (place, block))
        };
        for &page in record.pages {
            if let Some((place, _)) = held(self, page).filter(|(_, block)| block.told) {
                places[count] = place;
                count += 1;
            }
        }
        if count > 0 {
            self.tell_removed(&places[..count], record.group, reason)?;
        }
        for &page in record.pages {
            if let Some((place, block)) = held(self, page) {
                self.forget(place, block);
            }
        }
        Ok(())
    }

    /// Nothing of a namespace is held any more.
    fn clear_space(&mut self, name: &Namespace) -> Result<(), Error> {
        let Some(space) = self.spaces.find(name) else { return Ok(()) };
        let (told, all) = self.spaces.told(space);
        if told > 0 && told == all && !self.wire.names_each() {
            self.wire.cleared(told, &mut self.outbox)?;
            self.untell(|block| block.space == space);
        }
        self.begin_to_drop(Some(space), Reason::Invalidated)
    }

    /// Nothing is held any more.
    pub(super) fn begin_to_drop_all(&mut self, reason: Reason) -> Result<(), Error> {
        let told = self.spaces.all_told();
        if told > 0 && !self.wire.names_each() {
            self.wire.cleared(told, &mut self.outbox)?;
            self.untell(|_| true);
        }
        self.begin_to_drop(None, reason)
    }

    /// Lists what is held in a namespace, or all, to be dropped bit by bit: events about all of it
    /// at once would take memory for each page.
    fn begin_to_drop(&mut self, space: Option<u32>, reason: Reason) -> Result<(), Error> {
        self.list_leaves_first(space)?;
        self.dropping = Some(reason);
        Ok(())
    }

    /// Forgets the last places on the path, if they are to be dropped, and tells of those that were
    /// told. False when none is. Nothing else is read or told before: what is stored next could not
    /// stand on blocks that are still to go.
    pub(super) fn drop_some(&mut self) -> Result<bool, Error> {
        let Some(reason) = self.dropping else { return Ok(false) };
        if !self.leave_listed(reason, Self::forget)? {
            self.dropping = None;
        }
        Ok(true)
    }

    /// Tells of the last places on the path that they are gone, if they were told, and then does
    /// something with each. False when there is none.
    pub(super) fn leave_listed(
        &mut self,
        reason: Reason,
        then: impl Fn(&mut Self, u32, Block),
    ) -> Result<bool, Error> {
        let from = self.path.len() - self.last_of_a_group();
        let mut places = [0; RUN_BLOCKS];
        let count = self.path.len() - from;
        for (place, &listed) in places.iter_mut().zip(self.path[from..].iter().rev()) {
            *place = listed;
        }
        self.leave(&places[..count], reason, then)?;
        self.path.truncate(from);
        Ok(count > 0)
    }

    /// How many places at the end of the path are of one group, of an event at most.
    fn last_of_a_group(&self) -> usize {
        let group = |place: &u32| self.blocks.get(*place).map(|block| block.group);
        let last = self.path.last().and_then(group);
        let same = self.path.iter().rev().take_while(|place| group(place) == last);
        same.take(RUN_BLOCKS).count()
    }

    /// Lists the places of a namespace, or of all, so that, from the end, each stands before those
    /// it stands on: pages of groups that hang on others, and a page after those before it.
    pub(super) fn list_leaves_first(&mut self, space: Option<u32>) -> Result<(), Error> {
        self.path.clear();
        for place in 0..self.blocks.end() {
            if let Some(block) = self.blocks.get(place) {
                self.blocks.set(place, Block { listed: false, ..block });
            }
        }
        for group in 0..self.wire.groups.list().len() {
            for place in 0..self.blocks.end() {
                let begin = self.path.len();
                let mut at = place;
                while let Some(block) = self.blocks.get(at) {
                    let is_other = space.is_some_and(|space| block.space != space);
                    if is_other || block.group != group || block.listed {
                        break;
                    }
                    self.path.try_push(at)?;
                    self.blocks.set(at, Block { listed: true, ..block });
                    if group > 0 || block.before == 0 {
                        break;
                    }
                    at = block.before;
                }
                self.path[begin..].reverse();
            }
        }
        Ok(())
    }

    /// What was told of some blocks counts no longer.
    pub(super) fn untell(&mut self, which: impl Fn(Block) -> bool) {
        for place in 0..self.blocks.end() {
            if let Some(block) = self.blocks.get(place).filter(|block| which(*block)) {
                self.untell_place(place, block);
            }
        }
    }

    /// Tells of places of one group that they are gone, if they were told, and then does something
    /// with each.
    fn leave(
        &mut self,
        places: &[u32],
        reason: Reason,
        then: impl Fn(&mut Self, u32, Block),
    ) -> Result<(), Error> {
        let (mut told, mut count, mut group) = ([0; RUN_BLOCKS], 0, 0);
        for &place in places {
            if let Some(block) = self.blocks.get(place).filter(|block| block.told) {
                (told[count], group) = (place, block.group);
                count += 1;
            }
        }
        if count > 0 {
            self.tell_removed(&told[..count], group, reason)?;
        }
        for &place in places {
            if let Some(block) = self.blocks.get(place) {
                then(self, place, block);
            }
        }
        Ok(())
    }
}
