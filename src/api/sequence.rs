//! A sequence of a Rust engine.
use super::cache::Cache;
use super::{call, end};
use crate::error::Error;
use crate::ids::SequenceId;
use crate::memory::{OutOfMemory, try_to_vec};
use crate::paging::PageCopy;
use crate::sequence::Published;
use crate::store::{GroupCopy, PublishedGroups, SequenceInfo};
use crate::token::TokenList;

/// A live sequence, with its row and its lock. Dropping it releases it: its private pages are free
/// then, and what it published stays cached.
#[derive(Debug)]
pub struct Sequence {
    cache: Cache,
    id: SequenceId,
    slot: u32,
    has_ended: bool,
}

impl Sequence {
    pub(super) fn of(cache: Cache, begun: SequenceInfo) -> Self {
        Self { cache, id: begun.id, slot: begun.slot, has_ended: false }
    }

    /// Its id.
    pub fn id(&self) -> SequenceId {
        self.id
    }

    /// Its row in the page table.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// How it stands.
    pub fn info(&self) -> Result<SequenceInfo, Error> {
        call(self.cache.shared(), |shared| shared.read().sequence_info(self.id))
    }

    /// The page copy to carry out, in every layer, before it computes.
    pub fn copy(&self) -> Result<Option<PageCopy>, Error> {
        Ok(self.info()?.copy)
    }

    /// Says that the copy is done.
    pub fn confirm_copies(&mut self) -> Result<(), Error> {
        call(self.cache.shared(), |shared| shared.ending(|state| state.confirm_copies(self.id)))
    }

    /// Takes the pages of its first positions, if it began with fewer. All or none.
    pub fn allocate(&mut self, positions: usize) -> Result<(), Error> {
        call(self.cache.shared(), |shared| shared.allocate(self.id, positions))
    }

    /// Adds tokens, and the pages that they need.
    pub fn append(&mut self, tokens: TokenList<'_>) -> Result<(), Error> {
        call(self.cache.shared(), |shared| shared.append(self.id, tokens))
    }

    /// Keeps its first positions, at least those of the prompt and of what is published.
    pub fn truncate(&mut self, positions: usize) -> Result<(), Error> {
        call(self.cache.shared(), |shared| shared.turn().truncate(self.id, positions))
    }

    /// Says that its first `computed` positions are computed: the whole pages among them become the
    /// cache's, and others find them. Of very many, others get in between two portions; where
    /// memory runs out after the first, what is published stays, and the result says how far it is.
    pub fn publish(&mut self, computed: usize) -> Result<Published, Error> {
        call(self.cache.shared(), |shared| shared.turn().publish(self.id, computed))
    }

    /// What its last publishing did in the groups beside the first.
    pub fn published_groups(&self) -> Result<PublishedGroups, Error> {
        call(self.cache.shared(), |shared| shared.read().published_groups(self.id))
    }

    /// The copies to carry out in groups beside the first, before it computes.
    pub fn group_copies(&self) -> Result<Vec<GroupCopy>, Error> {
        call(self.cache.shared(), |shared| Ok(try_to_vec(shared.read().open_copies(self.id)?.1)?))
    }

    /// Gives each copy that it waits for to `copy`, with its group, and then says that they are
    /// done. Returns how many.
    pub fn carry_out_copies(
        &mut self,
        mut copy: impl FnMut(usize, PageCopy),
    ) -> Result<usize, Error> {
        let (first, others) = call(self.cache.shared(), |shared| {
            let state = shared.read();
            let (first, others) = state.open_copies(self.id)?;
            Ok((first, try_to_vec(others)?))
        })?;
        first.into_iter().for_each(|one| copy(0, one));
        others.iter().for_each(|one| copy(one.group, one.into()));
        let count = usize::from(first.is_some()) + others.len();
        if count > 0 {
            self.confirm_copies()?;
        }
        Ok(count)
    }

    /// Its row in a group: holes, 0, where the window has passed; of a STATE group the page with
    /// the state that the next step changes, and those for states after draft tokens.
    pub fn group_row(&self, group: usize) -> Result<Vec<u32>, Error> {
        call(self.cache.shared(), |shared| {
            Ok(try_to_vec(shared.read().group_row(self.id, group, 0)?)?)
        })
    }

    /// Begins to save its states where it is. Returns how many copies there are to carry out, and
    /// then to confirm.
    pub fn checkpoint(&mut self) -> Result<usize, Error> {
        call(self.cache.shared(), |shared| shared.turn().checkpoint(self.id))
    }

    /// Ends it, and leaves its states to the cache as checkpoints where all that it computed is
    /// published and ends with a page: how many. It is released, too, where this fails: there is no
    /// STATE group.
    pub fn donate(mut self) -> Result<usize, Error> {
        let donated = call(self.cache.shared(), |shared| shared.turn().donate(self.id))?;
        self.has_ended = true;
        Ok(donated)
    }

    /// Lets its windows slide over what is computed without publishing it.
    pub fn slide(&mut self, computed: usize) -> Result<(), Error> {
        call(self.cache.shared(), |shared| shared.turn().slide(self.id, computed))
    }

    /// Begins `count` sequences with the same tokens, all or none, each with room for `reserve`
    /// positions more.
    pub fn fork(&self, count: usize, reserve: usize) -> Result<Vec<Self>, Error> {
        // Before there are any: nobody else would end them.
        let mut children = Vec::new();
        children.try_reserve_exact(count).map_err(OutOfMemory::from)?;
        let begun = call(self.cache.shared(), |shared| shared.fork(self.id, count, reserve))?;
        children.extend(begun.into_iter().map(|child| Self::of(self.cache.clone(), child)));
        Ok(children)
    }

    /// Ends it, and keeps it for others to go on from: its id. None when it is too large to be
    /// kept, was cleared, or has pages of a fetch that are not published. It was released then, as
    /// it is when this fails.
    pub fn retain(mut self) -> Result<Option<SequenceId>, Error> {
        let retained = call(self.cache.shared(), |shared| shared.turn().retain(self.id))?;
        self.has_ended = true;
        Ok(retained.then_some(self.id))
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        if !self.has_ended {
            end(self.cache.shared(), |shared| shared.turn().release(self.id));
        }
    }
}
