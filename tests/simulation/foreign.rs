//! A second user of the same page table, which knows nothing of the engine: it matches and locks,
//! computes prefixes into pages of its own and inserts them, evicts, and fills rows.
use super::books::{Wrong, require};
use super::caller::{Lock, Seen};
use super::prompts::Prompts;
use super::tokens::Tokens;
use super::world::World;
use fastrand::Rng;

const LOCKS: usize = 6;
const SEEN: usize = 12;

pub struct Foreign {
    rng: Rng,
    loose: Vec<u32>,
    locks: Vec<Lock>,
    seen: Vec<Seen>,
    /// Rows, each with the lock that protects what it maps.
    slots: Vec<(u32, Option<Lock>)>,
}

fn pick<T>(rng: &mut Rng, from: &mut Vec<T>) -> Option<T> {
    if from.is_empty() {
        return None;
    }
    let at = rng.usize(0..from.len());
    Some(from.swap_remove(at))
}

impl Foreign {
    pub fn new(rng: Rng) -> Self {
        Foreign { rng, loose: vec![], locks: vec![], seen: vec![], slots: vec![] }
    }

    pub fn step(&mut self, world: &mut World, prompts: &mut Prompts) -> Result<(), Wrong> {
        let mut tokens = prompts.prompt(&mut self.rng);
        tokens.space = world.books.lives.space(tokens.ns);
        match self.rng.u8(0..20) {
            0..=4 => {
                let lock = self.rng.bool() && self.locks.len() < LOCKS;
                let (seen, lock) = world.lookup(&tokens, lock)?;
                seen.into_iter().for_each(|seen| self.remember(seen));
                self.locks.extend(lock);
                Ok(())
            }
            5 | 6 => world.probe(&tokens),
            7 if self.locks.len() < LOCKS => {
                let Some(seen) = pick(&mut self.rng, &mut self.seen) else { return Ok(()) };
                let lock = world.lock(&seen)?;
                if let Some(lock) = lock {
                    self.locks.push(lock);
                    self.seen.push(seen);
                }
                Ok(())
            }
            8..=10 => {
                let lock = pick(&mut self.rng, &mut self.locks);
                lock.map_or(Ok(()), |lock| world.unlock(lock))
            }
            11 | 12 => self.insert(world, &tokens),
            13 => self.insert_resumed(world, prompts),
            14 => {
                let most = world.books.counts.cached + 2;
                let count = if self.rng.u8(0..8) == 0 { most } else { self.rng.usize(0..4) };
                world.evict(count)
            }
            15 => {
                let count = self.rng.usize(0..4);
                self.loose.extend(world.allocate(count)?.unwrap_or_default());
                Ok(())
            }
            16 => {
                let count = self.rng.usize(0..=self.loose.len());
                let pages: Vec<u32> = self.loose.drain(..count).collect();
                world.free(&pages)
            }
            17 => self.add_row(world, &tokens),
            18 => {
                let positions = self.rng.usize(0..=3 * world.page_size());
                let Some((slot, _)) = self.slots.last() else { return Ok(()) };
                let rest = world.rows[*slot as usize].as_ref().map_or(0, Vec::len);
                let positions = positions + rest * world.page_size();
                if world.pages_for(positions) > world.row_limit() {
                    return Ok(());
                }
                world.reserve(*slot, positions).map(|_| ())
            }
            _ => self.drop_row(world),
        }
    }

    fn remember(&mut self, seen: Seen) {
        if self.seen.len() == SEEN {
            self.seen.remove(0);
        }
        self.seen.push(seen);
    }

    fn insert(&mut self, world: &mut World, tokens: &Tokens) -> Result<(), Wrong> {
        let count = tokens.positions() / world.page_size();
        let Ok(pages) = world.allocate(count)? else { return Ok(()) };
        self.insert_pages(world, tokens, None, pages)
    }

    /// Goes on from a node that was seen, with more tokens.
    fn insert_resumed(&mut self, world: &mut World, prompts: &mut Prompts) -> Result<(), Wrong> {
        let Some(seen) = pick(&mut self.rng, &mut self.seen) else { return Ok(()) };
        let end = seen.page_count * world.page_size();
        let mut tokens = seen.tokens.clone();
        if !tokens.is_boundary(end) {
            return Ok(()); // The node ends inside an image.
        }
        tokens.truncate(end);
        tokens.extend(&prompts.turn(&mut self.rng));
        let count = tokens.positions() / world.page_size() - seen.page_count;
        // The lock keeps the node while pages are allocated, if it is there.
        let Some(lock) = world.lock(&seen)? else { return Ok(()) };
        if let Ok(pages) = world.allocate(count)? {
            self.insert_pages(world, &tokens, Some(&seen), pages)?;
        }
        world.unlock(lock)
    }

    fn insert_pages(
        &mut self,
        world: &mut World,
        tokens: &Tokens,
        from: Option<&Seen>,
        pages: Vec<u32>,
    ) -> Result<(), Wrong> {
        match world.insert(tokens, from, &pages)? {
            Ok((seen, left)) => {
                seen.into_iter().for_each(|seen| self.remember(seen));
                if self.rng.bool() {
                    return world.free(&left);
                }
                self.loose.extend(left);
                Ok(())
            }
            Err(_) => world.free(&pages),
        }
    }

    /// A row that begins with what is cached and locked.
    fn add_row(&mut self, world: &mut World, tokens: &Tokens) -> Result<(), Wrong> {
        if self.slots.len() > 1 {
            return self.drop_row(world);
        }
        let Ok(slot) = world.allocate_slot()? else { return Ok(()) };
        let (_, lock) = world.lookup(tokens, true)?;
        if let Some(lock) = &lock {
            let pages = lock.whole_pages().to_vec();
            if pages.len() <= world.row_limit() {
                world.map(slot, &pages)?;
            }
        }
        let length = world.rows[slot as usize].as_ref().map_or(0, Vec::len);
        if length + self.loose.len() <= world.row_limit() && self.rng.bool() {
            let pages = std::mem::take(&mut self.loose);
            world.map(slot, &pages)?;
        }
        self.slots.push((slot, lock));
        Ok(())
    }

    fn drop_row(&mut self, world: &mut World) -> Result<(), Wrong> {
        let Some((slot, lock)) = pick(&mut self.rng, &mut self.slots) else { return Ok(()) };
        world.erase(slot)?;
        lock.map_or(Ok(()), |lock| world.unlock(lock))
    }

    /// Lets everything go, for the engine's sake.
    pub fn let_go(&mut self, world: &mut World) -> Result<bool, Wrong> {
        let had = self.loose.len() + self.locks.len() + self.slots.len() > 0;
        while !self.slots.is_empty() {
            self.drop_row(world)?;
        }
        while let Some(lock) = self.locks.pop() {
            world.unlock(lock)?;
        }
        if !self.loose.is_empty() {
            world.free(&std::mem::take(&mut self.loose))?;
        }
        Ok(had)
    }

    /// The cache is gone, and with it all nodes.
    pub fn forget_nodes(&mut self, world: &mut World) -> Result<(), Wrong> {
        self.locks.clear();
        self.slots.iter_mut().for_each(|(_, lock)| *lock = None);
        if let Some(seen) = self.seen.last() {
            let locked = world.lock(seen)?;
            require!(locked.is_none(), "a node of a destroyed cache is locked");
        }
        self.seen.clear();
        Ok(())
    }
}
