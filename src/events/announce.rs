//! Telling what is held: blocks after the blocks before them, in runs of bounded size.
use super::blocks::{Block, Blocks};
use super::outbox::Outbox;
use super::spaces::Spaces;
use super::wire::{Run, Wire};
use crate::error::Error;
use crate::memory::TryGrow;
use crate::token::PageDigest;

/// Blocks of an event at most.
pub(super) const RUN_BLOCKS: usize = 64;
/// Tokens of an event at most, unless one block has more.
const RUN_TOKENS: usize = 2048;
/// Bytes of the names of its blocks: each has that of the adapter.
const RUN_NAME_BYTES: usize = 1 << 15;

/// Tells of blocks what was not told yet.
pub(super) struct Announcer<'a> {
    pub wire: &'a Wire,
    pub blocks: &'a mut Blocks,
    pub spaces: &'a mut Spaces,
    pub out: &'a mut Outbox,
    /// Room for the places of a prefix.
    pub path: &'a mut Vec<u32>,
}

impl Announcer<'_> {
    /// Blocks of a namespace that an event has at most.
    fn run_limit(&self, space: u32) -> usize {
        let named = RUN_NAME_BYTES / self.spaces.get(space).lora_name_bytes().max(1);
        RUN_BLOCKS.min(RUN_TOKENS / self.wire.page_size).min(named).max(1)
    }

    /// Tells of the page at a place, if one is held there, and first of those before it.
    pub fn announce(&mut self, place: u32) -> Result<(), Error> {
        match self.blocks.get(place) {
            Some(block) if block.group == 0 => self.announce_prefix(place),
            Some(block) if !block.told => self.announce_hung(&[place]),
            _ => Ok(()),
        }
    }

    /// Tells of a page of group 0 and of those before it. What was told stays told when there is no
    /// memory for the rest.
    fn announce_prefix(&mut self, last: u32) -> Result<(), Error> {
        self.path.clear();
        let mut place = last;
        while let Some(block) = self.blocks.get(place).filter(|block| !block.told) {
            self.path.try_push(place)?;
            if block.before == 0 {
                break;
            }
            place = block.before;
        }
        if self.blocks.get(place).is_none() {
            // It went with a cache that is going: so will what follows it.
            return Ok(());
        }
        self.path.reverse();
        let Some(&first) = self.path.first() else { return Ok(()) };
        let (limit, mut from) = (self.run_limit(self.known(first)?.space), 0);
        while from < self.path.len() {
            let end = self.path.len().min(from + limit);
            self.tell_run(from, end)?;
            from = end;
        }
        Ok(())
    }

    fn tell_run(&mut self, from: usize, end: usize) -> Result<(), Error> {
        let places = &self.path[from..end];
        let first = self.known(places[0])?;
        let space = self.spaces.get(first.space);
        let parent = (first.before != 0).then(|| self.blocks.digest(first.before));
        let mut digests = [PageDigest::default(); RUN_BLOCKS];
        let mut last = parent.unwrap_or(space.digest());
        for (digest, &place) in digests.iter_mut().zip(places) {
            last = self.blocks.make_digest(place, last)?;
            *digest = last;
        }
        let digests = &digests[..places.len()];
        let run = Run { group: 0, parent, digests, spine: places, space };
        self.wire.stored(&run, self.blocks, self.out)?;
        for (at, digest) in (from..end).zip(digests) {
            self.mark_told(self.path[at], *digest)?;
        }
        Ok(())
    }

    /// Tells of pages of another group that hang on pages of group 0 which follow each other; of
    /// those first.
    pub fn announce_hung(&mut self, places: &[u32]) -> Result<(), Error> {
        let Some(&first) = places.first() else { return Ok(()) };
        for places in places.chunks(self.run_limit(self.known(first)?.space)) {
            let mut spine = [0; RUN_BLOCKS];
            let mut digests = [PageDigest::default(); RUN_BLOCKS];
            for (at, &place) in places.iter().enumerate() {
                spine[at] = self.known(place)?.before;
                self.announce_prefix(spine[at])?;
                if self.known(spine[at]).is_ok_and(|block| !block.told) {
                    return Ok(());
                }
                digests[at] = self.blocks.digest(spine[at]);
            }
            let (spine, digests) = (&spine[..places.len()], &digests[..places.len()]);
            let (block, first) = (self.known(places[0])?, self.known(spine[0])?);
            let parent = (first.before != 0).then(|| self.blocks.digest(first.before));
            let space = self.spaces.get(first.space);
            let run = Run { group: block.group, parent, digests, spine, space };
            self.wire.stored(&run, self.blocks, self.out)?;
            for (&place, digest) in places.iter().zip(digests) {
                self.mark_told(place, *digest)?;
            }
        }
        Ok(())
    }

    fn known(&self, place: u32) -> Result<Block, Error> {
        let unknown = || Error::Corrupt("an event is about a page of which no record told".into());
        self.blocks.get(place).ok_or_else(unknown)
    }

    fn mark_told(&mut self, place: u32, digest: PageDigest) -> Result<(), Error> {
        let block = self.known(place)?;
        if !block.told {
            self.spaces.add_told(block.space);
        }
        self.blocks.set(place, Block { told: true, ..block });
        self.blocks.set_digest(place, digest);
        Ok(())
    }
}
