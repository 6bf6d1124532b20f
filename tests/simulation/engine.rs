//! The engine: requests wait, run in batches under a token budget, are preempted when pages are
//! short, fail with the device, and end in one of many ways. One step is one batch.
use super::books::{Wrong, require};
use super::config::Traffic;
use super::foreign::Foreign;
use super::prompts::Prompts;
use super::sequence::Sequence;
use super::snapshots::Snapshots;
use super::tokens::Tokens;
use super::world::{Fault, Refused, World};
use crate::model::prompt::Piece;
use fastrand::Rng;
use radixkv::capi::{RKV_CLEAR_EVERYTHING, RKV_CLEAR_NAMESPACE};
use radixkv::sequence::Room;
use std::collections::VecDeque;

/// Somebody waits for an answer.
pub struct Request {
    tokens: Tokens,
    /// Tokens still to be decoded.
    wanted: usize,
    /// The sequence it goes on from, and what comes after that one's tokens.
    parent: Option<(u64, Vec<Piece>)>,
}

/// A request with a slot.
pub struct Running {
    pub slot: u32,
    pub wanted: usize,
    /// Its copy is never carried out: it waits until it is cancelled.
    pub stuck: bool,
}

/// A conversation that may go on.
struct Chat {
    tokens: Tokens,
    parent: Option<u64>,
}

pub struct Engine {
    pub rng: Rng,
    pub traffic: Traffic,
    pub prompts: Prompts,
    waiting: VecDeque<Request>,
    pub running: Vec<Running>,
    chats: VecDeque<Chat>,
    foreign: Foreign,
    snapshots: Snapshots,
}

const CHATS: usize = 12;
/// As many as the library remembers: what it may err about afterwards, the model test knows.
const CLEARS: usize = 32;
/// Steps between two caches, in the middle.
const STEPS_OF_A_CACHE: u32 = 3000;

impl Engine {
    pub fn new(world: &World, mut rng: Rng) -> Self {
        Engine {
            traffic: world.config.traffic,
            prompts: Prompts::new(&world.config),
            waiting: VecDeque::new(),
            running: Vec::new(),
            chats: VecDeque::new(),
            foreign: Foreign::new(rng.fork()),
            snapshots: Snapshots::new(&mut rng),
            rng,
        }
    }

    pub fn chance(&mut self, of_256: u8) -> bool {
        self.rng.u8(..) < of_256
    }

    pub fn step(&mut self, world: &mut World) -> Result<(), Wrong> {
        if world.slips(Fault::SpoiledPage) {
            self.spoil(world);
        }
        if self.waiting.len() < self.traffic.waiting {
            let request = self.arrival(world);
            self.waiting.push_back(request);
        }
        self.admit(world)?;
        self.batch(world)?;
        if self.chance(self.traffic.cancels) {
            self.cancel(world)?;
        }
        if self.chance(self.traffic.foreign) {
            self.foreign.step(world, &mut self.prompts)?;
        }
        if self.chance(self.traffic.snapshots) {
            world.operations += self.snapshots.step()?;
        }
        if self.chance(2) {
            self.tidy(world)?;
        }
        if self.chance(self.traffic.clears) && world.books.lives.clears() < CLEARS {
            let all = self.rng.u8(0..4) == 0;
            let flags =
                if all { self.rng.u32(1..=RKV_CLEAR_EVERYTHING) } else { RKV_CLEAR_NAMESPACE };
            world.clear(self.rng.u8(0..self.traffic.namespaces), flags)?;
        }
        if self.rng.u32(0..STEPS_OF_A_CACHE) == 0 {
            self.running.clear();
            world.recreate_cache()?;
            self.foreign.forget_nodes(world)?;
        }
        Ok(())
    }

    fn arrival(&mut self, world: &World) -> Request {
        let wanted = self.rng.usize(0..=2 * world.page_size().min(12));
        if self.chance(self.traffic.chats)
            && let Some(chat) = self.chats.pop_front()
        {
            return self.next_turn(chat, wanted);
        }
        if self.chance(self.traffic.retains / 8) && !self.running.is_empty() {
            // Somebody does not wait for the end of the answer.
            let at = self.rng.usize(0..self.running.len());
            let running = world.sequences[self.running[at].slot as usize].as_ref();
            let Sequence { id, tokens, .. } = running.expect("it runs");
            let chat = Chat { tokens: tokens.clone(), parent: Some(*id) };
            return self.next_turn(chat, wanted);
        }
        Request { tokens: self.prompts.prompt(&mut self.rng), wanted, parent: None }
    }

    fn next_turn(&mut self, chat: Chat, wanted: usize) -> Request {
        let turn = if self.rng.u8(0..8) > 0 { self.prompts.turn(&mut self.rng) } else { vec![] };
        let Chat { mut tokens, parent } = chat;
        tokens.extend(&turn);
        let positions = tokens.positions();
        self.prompts.fit(&mut tokens);
        let parent = parent.filter(|_| tokens.positions() == positions);
        Request { tokens, wanted, parent: parent.map(|id| (id, turn)) }
    }

    // Admission.

    fn admit(&mut self, world: &mut World) -> Result<(), Wrong> {
        while !self.waiting.is_empty() {
            if world.free_slots() == 0 && self.rng.u8(0..8) > 0 {
                return Ok(());
            }
            match self.try_first(world)? {
                Ok(slot) => {
                    let Request { wanted, .. } = self.waiting.pop_front().expect("it was there");
                    let stuck = self.rng.u8(0..40) == 0;
                    self.running.push(Running { slot, wanted, stuck });
                }
                Err(Refused::Gone) => self.waiting[0].parent = None,
                Err(Refused::Pages) => {
                    if !self.running.is_empty() {
                        if self.chance(20) {
                            self.preempt(world, self.running.len() - 1)?;
                        }
                        return Ok(());
                    }
                    if !world.kept.is_empty() {
                        world.drop_retained(1)?;
                    } else if !self.foreign.let_go(world)? {
                        // It is too large for the pool.
                        self.waiting.pop_front();
                    }
                }
                Err(Refused::Slots) => {
                    if self.running.is_empty() {
                        self.foreign.let_go(world)?;
                    }
                    return Ok(());
                }
                Err(Refused::Memory | Refused::Pending) => return Ok(()),
            }
        }
        Ok(())
    }

    fn try_first(&mut self, world: &mut World) -> Result<Result<u32, Refused>, Wrong> {
        let reserve = if self.rng.u8(0..4) == 0 { self.rng.usize(0..6) } else { 0 };
        let limit = world.row_limit() * world.page_size();
        let request = &mut self.waiting[0];
        request.tokens.space = world.books.lives.space(request.tokens.ns);
        if let Some((parent, more)) = &request.parent {
            // One that runs has grown since.
            let more = more.iter().map(|piece| piece.positions()).sum::<usize>();
            let length = world.parent(*parent).map_or(0, |from| from.tokens.positions());
            request.parent = request.parent.take().filter(|_| length + more <= limit);
        }
        let reserve = reserve.min(limit - request.tokens.positions().min(limit));
        // Pages for a first chunk, or for the whole prompt.
        let first = if self.rng.bool() { 0 } else { self.rng.usize(1..=self.traffic.budget) };
        let room = Room { reserve, first };
        match &request.parent {
            None => world.begin(&request.tokens, room),
            Some((parent, more)) => {
                let (has_all, running) = (self.rng.bool(), self.rng.u8(0..8) > 0);
                let room = Room { reserve: 0, first };
                world.go_on(*parent, more, &request.tokens, room, has_all, running)
            }
        }
    }

    // The end of a request.

    pub fn finish(&mut self, world: &mut World, at: usize) -> Result<(), Wrong> {
        let Running { slot, .. } = self.running.swap_remove(at);
        if world.sequence(slot).copy.is_none() && self.rng.u8(0..4) > 0 {
            let _ = world.publish(slot)?;
        }
        let sequence = world.sequence(slot);
        let (id, tokens) = (sequence.id, sequence.tokens.clone());
        let mut parent = None;
        if self.chance(self.traffic.retains) {
            match world.retain(slot)? {
                // Also when it was too large, to ask for a parent that is gone.
                Ok(_) => parent = Some(id),
                Err(_) => drop(world.release(slot)?),
            }
        } else {
            world.release(slot)?;
        }
        self.prompts.remember(&tokens, &mut self.rng);
        if self.chats.len() == CHATS {
            self.chats.pop_front();
        }
        self.chats.push_back(Chat { tokens, parent });
        Ok(())
    }

    /// Its pages are needed: it begins again later, with what it has.
    pub fn preempt(&mut self, world: &mut World, at: usize) -> Result<(), Wrong> {
        let Running { slot, wanted, .. } = self.running.swap_remove(at);
        let Sequence { tokens, .. } = world.release(slot)?;
        world.mark("a request is preempted");
        let request = Request { tokens, wanted, parent: None };
        match self.rng.bool() {
            true => self.waiting.push_front(request),
            false => self.waiting.push_back(request),
        }
        Ok(())
    }

    /// Somebody does not wait any longer, whatever the state of the request.
    fn cancel(&mut self, world: &mut World) -> Result<(), Wrong> {
        let count = self.waiting.len() + self.running.len();
        if count == 0 {
            return Ok(());
        }
        let at = self.rng.usize(0..count);
        if at < self.waiting.len() {
            self.waiting.remove(at);
            return Ok(());
        }
        let Running { slot, .. } = self.running.swap_remove(at - self.waiting.len());
        world.mark("a request is cancelled");
        world.release(slot).map(|_| ())
    }

    /// Retained sequences are dropped, and everything foreign is let go.
    fn tidy(&mut self, world: &mut World) -> Result<(), Wrong> {
        let kept = world.kept.len();
        match self.rng.u8(0..4) {
            0 if kept > 0 => world.drop_kept(self.rng.usize(0..kept)),
            1 => world.drop_retained(self.rng.usize(0..=kept)),
            2 => self.foreign.let_go(world).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn spoil(&mut self, world: &mut World) {
        let shared = self.running.iter().find_map(|running| {
            let sequence = world.sequences[running.slot as usize].as_ref()?;
            sequence.row[..sequence.shared].first().copied()
        });
        match shared {
            Some(page) => *world.books.content_mut(page).last_mut().expect("a position") ^= 1,
            None => world.fault = Fault::SpoiledPage, // Not yet.
        }
    }

    /// Ends everything: nothing may be left.
    pub fn end(&mut self, world: &mut World) -> Result<(), Wrong> {
        while let Some(Running { slot, .. }) = self.running.pop() {
            world.release(slot)?;
        }
        self.foreign.let_go(world)?;
        world.drop_retained(usize::MAX)?;
        world.evict(world.config.pool.page_count)?;
        let (counts, total) = (world.books.counts, world.config.pool.page_count - 1);
        require!(counts.free == total, "pages are left at the end: {counts:?}");
        world.operations += self.snapshots.end()?;
        world.audit()
    }
}
