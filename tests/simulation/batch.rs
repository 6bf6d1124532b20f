//! One batch of the engine: chunks of prefills and steps of decoding under a token budget, drafts
//! that are taken back, forks, and a device that fails in the middle.
use super::books::{Wrong, require};
use super::engine::{Engine, Running};
use super::world::{Refused, World};
use crate::model::prompt::Piece;

impl Engine {
    pub fn batch(&mut self, world: &mut World) -> Result<(), Wrong> {
        let mut budget = self.traffic.budget;
        let failing = self.chance(self.traffic.device_failures);
        if self.rng.u8(0..8) == 0 {
            self.read_rows(world)?;
        }
        let mut at = 0;
        while at < self.running.len() && budget > 0 {
            let Running { slot, stuck, .. } = self.running[at];
            let copies = world.sequence(slot).copy.is_some();
            if copies && stuck {
                at += 1;
                if self.rng.u8(0..8) == 0 {
                    self.finish(world, at - 1)?;
                }
                continue;
            }
            if copies {
                world.copy(slot)?;
            }
            let before = self.running.len();
            self.advance(world, at, &mut budget, failing)?;
            at += usize::from(self.running.len() >= before);
        }
        if failing {
            self.device_failed(world)?;
        }
        Ok(())
    }

    /// The arrays that a kernel would read.
    fn read_rows(&mut self, world: &mut World) -> Result<(), Wrong> {
        let row = |running: &Running| {
            let sequence = world.sequences[running.slot as usize].as_ref().expect("it runs");
            (running.slot, sequence.tokens.positions(), &sequence.row)
        };
        let (mut rows, mut pages) = (Vec::new(), Vec::new());
        for (slot, positions, row) in self.running.iter().map(row) {
            let positions = positions.min(row.len() * world.page_size());
            rows.push((slot, positions));
            let used = &row[..world.pages_for(positions)];
            pages.extend(used.iter().map(|&page| page as i32));
        }
        world.log.say("batch", rows.len() as u64, pages.len() as u64);
        let arrays = world.library.batch(&rows, pages.len());
        let [_, indices, _] =
            arrays.map_err(|status| format!("rkv_page_table_read_batch: {status:?}"))?;
        require!(indices == pages, "the batch has pages {indices:?}, in the books {pages:?}");
        world.settle()
    }

    /// A chunk of a prefill, or a step of decoding.
    fn advance(
        &mut self,
        world: &mut World,
        at: usize,
        budget: &mut usize,
        failing: bool,
    ) -> Result<(), Wrong> {
        let Running { slot, wanted, .. } = self.running[at];
        let sequence = world.sequence(slot);
        let (written, positions) = (sequence.written, sequence.tokens.positions());
        if written < positions {
            let end = (written + *budget).min(positions);
            match world.allocate_for(slot, end)? {
                Ok(()) => {}
                Err(Refused::Pages) => return self.give_way(world),
                Err(_) => return Ok(()),
            }
            *budget -= end - written;
            world.compute(slot, end)?;
            let publishes = end == positions || self.chance(self.traffic.publishes);
            if publishes && !failing {
                return world.publish(slot).map(|_| ());
            }
            return Ok(());
        }
        if self.chance(self.traffic.forks) && self.fork(world, slot)? {
            return Ok(());
        }
        if wanted == 0 {
            return self.finish(world, at);
        }
        let drafts = if self.chance(self.traffic.drafts) { self.rng.usize(1..=5) } else { 0 };
        let words: Vec<Piece> = (0..=drafts).map(|_| self.prompts.word(&mut self.rng)).collect();
        let length = world.pages_for(positions + words.len());
        if length > world.row_limit() {
            return self.finish(world, at);
        }
        match world.append(slot, &words)? {
            Ok(()) => {}
            Err(Refused::Pages) => return self.give_way(world),
            Err(_) => return Ok(()),
        }
        *budget = budget.saturating_sub(words.len());
        world.compute(slot, positions + words.len())?;
        let accepted = positions + 1 + self.rng.usize(0..=drafts);
        if drafts > 0 && self.rng.u8(0..16) == 0 {
            // Not what an engine should do: drafts are told before they are looked at, and children
            // are made of them. What is published or lent can't be taken back.
            let _ = world.publish(slot)?;
            if self.chance(self.traffic.forks) {
                self.fork(world, slot)?;
            }
        }
        if drafts > 0 && accepted < positions + words.len() {
            // A child that copies may stand against it; the drafts stay then.
            world.truncate(slot, accepted)?;
        }
        self.running[at].wanted = wanted.saturating_sub(words.len());
        if !failing && self.rng.u8(0..4) == 0 {
            return world.publish(slot).map(|_| ());
        }
        Ok(())
    }

    /// A running request lacks pages.
    fn give_way(&mut self, world: &mut World) -> Result<(), Wrong> {
        if !world.kept.is_empty() && self.rng.bool() {
            return world.drop_retained(1);
        }
        // The youngest gives way, perhaps the one itself.
        self.preempt(world, self.running.len() - 1)
    }

    /// What was written in this step is lost. Requests are computed again, or cancelled.
    fn device_failed(&mut self, world: &mut World) -> Result<(), Wrong> {
        world.mark("the device fails");
        let retries = self.rng.bool();
        for at in (0..self.running.len()).rev() {
            world.lose(self.running[at].slot);
            if !retries && self.rng.bool() {
                let Running { slot, .. } = self.running.swap_remove(at);
                world.release(slot)?;
            }
        }
        Ok(())
    }

    /// Several go on where one stands; the losers will be dropped.
    fn fork(&mut self, world: &mut World, slot: u32) -> Result<bool, Wrong> {
        let count = self.rng.usize(1..=3);
        let positions = world.sequence(slot).tokens.positions();
        let reserve = self.rng.usize(0..2);
        if world.pages_for(positions + reserve) > world.row_limit() {
            return Ok(false);
        }
        let kept = world.kept.len();
        let parent = match kept {
            1.. if self.rng.u8(0..4) == 0 => {
                let sequence = &world.kept[self.rng.usize(0..kept)].sequence;
                let length = world.pages_for(sequence.tokens.positions() + reserve);
                if length > world.row_limit() {
                    return Ok(false);
                }
                sequence.id
            }
            _ => world.sequence(slot).id,
        };
        let Ok(children) = world.fork(parent, count, reserve)? else { return Ok(false) };
        for slot in children {
            let wanted = self.rng.usize(0..4);
            self.running.push(Running { slot, wanted, stuck: self.rng.u8(0..16) == 0 });
        }
        world.mark("a fork");
        Ok(true)
    }
}
