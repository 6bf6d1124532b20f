//! Parents and children: retain, continue, fork, drop.
use super::books::{Page, Wrong, require};
use super::sequence::{Birth, Copy, Kept, Sequence};
use super::tokens::Tokens;
use super::world::{Done, Fault, Refused, World};
use crate::model::abi::{Library, Status};
use crate::model::prompt::Piece;
use crate::model::tokens::TokenList;
use radixkv::capi::rkv_sequence_info;
use radixkv::sequence::Room;

/// What children take over.
struct Share {
    tokens: Tokens,
    reused: usize,
    row_pages: usize,
    /// Pages that a child's row begins with.
    first_pages: usize,
    /// Of the parent.
    path: Vec<u32>,
    row: Vec<u32>,
}

impl World {
    fn computed(&self, sequence: &Sequence) -> usize {
        match sequence.copy {
            Some(_) => sequence.shared * self.page_size(),
            None => sequence.computed,
        }
    }

    fn kept_pages_of(kept: &Kept) -> impl Iterator<Item = u32> + '_ {
        let sequence = &kept.sequence;
        sequence.path.iter().chain(&sequence.row[sequence.shared..]).copied()
    }

    /// Ends a sequence and keeps it for children. False when it is too large for that.
    pub fn retain(&mut self, slot: u32) -> Done<bool> {
        let pool = self.config.pool;
        let sequence = self.sequences[slot as usize].as_ref().expect("a sequence lives there");
        let (id, shared, computed) = (sequence.id, sequence.shared, self.computed(sequence));
        let partial = !pool.whole_pages && computed > shared * self.page_size();
        let partial = partial.then(|| sequence.row[shared]);
        let limit = match pool.retained_pages {
            0 => (pool.page_count - 1) / 2,
            limit => limit,
        };
        let fits = sequence.path.len() + usize::from(partial.is_some()) <= limit;
        let cleared = self.books.is_cleared(&sequence.tokens);
        let retains = fits && !cleared;
        self.log.say("retain", slot.into(), computed as u64);
        match self.call(|library| library.retain(id)) {
            Ok(retained) => require!(retained == retains, "retain of slot {slot} says {retained}"),
            Err(status) => return self.unforeseen("rkv_sequence_retain", status),
        }
        let mut sequence = self.end(slot, partial.filter(|_| retains))?;
        if !retains {
            self.gone(&sequence);
            self.mark(match cleared {
                true => "a sequence of before a clear is not retained",
                false => "a sequence is too large to be retained",
            });
            self.settle()?;
            return Ok(Ok(false));
        }
        sequence.row.truncate(shared);
        sequence.row.extend(partial);
        sequence.computed = computed;
        sequence.copy = None;
        let kept = Kept { sequence };
        for page in Self::kept_pages_of(&kept) {
            self.keepers[page as usize] += 1;
            self.kept_pages += usize::from(self.keepers[page as usize] == 1);
        }
        self.kept.push_back(kept);
        let most = if pool.retained_sequences == 0 { 1024 } else { pool.retained_sequences };
        while self.kept.len() > most || self.kept_pages > limit {
            self.mark("a retained sequence gives way");
            self.counters.displaced += 1;
            self.forget_kept(0);
        }
        self.settle()?;
        Ok(Ok(true))
    }

    pub fn forget_kept(&mut self, at: usize) {
        let kept = self.kept.remove(at).expect("it is retained");
        for page in Self::kept_pages_of(&kept) {
            self.keepers[page as usize] -= 1;
            self.kept_pages -= usize::from(self.keepers[page as usize] == 0);
        }
        let sequence = kept.sequence;
        sequence.row[sequence.shared..].iter().for_each(|&page| self.books.give_up(page));
        self.gone(&sequence);
    }

    /// Forgets a retained sequence.
    pub fn drop_kept(&mut self, at: usize) -> Result<(), Wrong> {
        let id = self.kept[at].sequence.id;
        self.log.say("drop", at as u64, 0);
        let dropped = self.call(|library| library.drop_sequence(id));
        dropped.map_err(|status| format!("rkv_sequence_drop: {status:?}"))?;
        if !self.slips(Fault::LostDrop) {
            self.forget_kept(at);
        }
        self.settle()
    }

    /// Forgets retained sequences until so many more pages can be had.
    pub fn drop_retained(&mut self, wanted: usize) -> Result<(), Wrong> {
        self.log.say("drop_retained", 0, wanted as u64);
        let before = self.room();
        let answer = self.call(|library| library.drop_retained(wanted));
        let gained = answer.map_err(|status| format!("rkv_cache_drop_retained: {status:?}"))?;
        let left = self.library.retained(self.kept.len());
        let left = left.map_err(|status| format!("rkv_cache_read_retained: {status:?}"))?;
        while self.kept.front().is_some_and(|kept| left.first() != Some(&kept.sequence.id)) {
            self.counters.displaced += 1;
            self.forget_kept(0);
        }
        require!(left.len() == self.kept.len(), "others than the first are dropped");
        require!(gained >= wanted || left.is_empty(), "{gained} of {wanted} pages are gained");
        self.settle()?;
        let now = self.room();
        require!(before + gained == now, "{gained} pages are gained, but {before} became {now}");
        Ok(())
    }

    pub fn kept_at(&self, id: u64) -> Option<usize> {
        self.kept.iter().position(|kept| kept.sequence.id == id)
    }

    pub fn parent(&self, id: u64) -> Option<&Sequence> {
        let live = self.sequences.iter().flatten().find(|sequence| sequence.id == id);
        live.or_else(|| self.kept_at(id).map(|at| &self.kept[at].sequence))
    }

    /// What children take over, when `limit` positions at most may be.
    fn share(&self, parent: &Sequence, limit: usize, more: &[Piece], room: Room) -> Share {
        let (page_size, whole_pages) = (self.page_size(), self.config.pool.whole_pages);
        let computed = self.computed(parent);
        let reused = parent.tokens.cut(computed, limit, page_size, whole_pages);
        let mut tokens = parent.tokens.clone();
        tokens.extend(more);
        let row_pages = self.pages_for(tokens.positions() + room.reserve);
        let first_pages = self.first_pages(&tokens, reused, room);
        let (path, row) = (parent.path.clone(), parent.row.clone());
        Share { tokens, reused, row_pages, first_pages, path, row }
    }

    /// Whether it was right to refuse children.
    fn refused<T>(&mut self, call: &str, status: Status, share: &Share, count: usize) -> Done<T> {
        let needed = (share.row_pages - share.reused / self.page_size()) * count;
        let refused = match status {
            Status::OutOfSlots => {
                require!(self.free_slots() < count, "{call}: there are slots for {count}");
                self.mark("refused for want of slots");
                Refused::Slots
            }
            Status::OutOfPages => {
                require!(self.free_slots() >= count, "{call}: pages are missed before slots");
                self.check_shortage(needed, &[])?;
                Refused::Pages
            }
            status => return self.unforeseen(call, status),
        };
        self.settle()?;
        Ok(Err(refused))
    }

    fn add_child(&mut self, share: &Share, state: &rkv_sequence_info) -> Result<u32, Wrong> {
        let (whole, copied) = (share.reused / self.page_size(), share.reused % self.page_size());
        let source = (copied > 0).then(|| share.row[whole]);
        let copy = self.copy_of(state.sequence)?;
        require!(
            source.unwrap_or(0) == copy.source_page,
            "a child copies from page {}, not from {source:?}",
            copy.source_page
        );
        if source.is_some_and(|page| self.books.state(page) != Page::Cached) {
            self.mark("a child copies from a private page");
        }
        self.counters.inherits += 1;
        self.counters.inherited_positions += share.reused;
        let path = share.path.clone();
        let (tokens, reused, row_pages) = (&share.tokens, share.reused, share.first_pages);
        let birth = Birth { tokens, reused, inherited: true, row_pages, path, source };
        self.birth("a child", birth, state)
    }

    /// Goes on from a parent, with `all` tokens at hand for when it is gone.
    pub fn go_on(
        &mut self,
        parent: u64,
        more: &[Piece],
        all: &Tokens,
        room: Room,
        has_all: bool,
        running: bool,
    ) -> Done<u32> {
        let mut suffix = TokenList::default();
        more.iter().for_each(|&piece| suffix.push(piece));
        let all_tokens = has_all.then_some(&all.list);
        self.log.say("continue", self.kept_at(parent).unwrap_or(999) as u64, more.len() as u64);
        let ns = all.ns;
        let answer =
            self.call(|library| library.go_on(parent, ns, &suffix, all_tokens, room, running));
        if answer.as_ref().err() == Some(&Status::OutOfMemory) {
            return self.unforeseen("rkv_sequence_continue", Status::OutOfMemory);
        }
        if self.parent(parent).is_none() {
            if has_all {
                self.mark("a child begins without its parent");
                return self.begun("rkv_sequence_continue", answer, all, room);
            }
            let answer = answer.map(|state| state.sequence);
            require!(answer == Err(Status::StaleSequence), "a parent that is gone: {answer:?}");
            self.settle()?;
            return Ok(Err(Refused::Gone));
        }
        let is_live = self.kept_at(parent).is_none();
        if is_live {
            self.mark(if running { "a parent runs on" } else { "a parent is waited for" });
        }
        if is_live && !running {
            let answer = answer.map(|state| state.sequence);
            require!(answer == Err(Status::Pending), "a parent that runs: {answer:?}");
            self.settle()?;
            return Ok(Err(Refused::Pending));
        }
        let from = self.parent(parent).expect("it was found");
        let limit = from.tokens.positions() - usize::from(more.is_empty());
        let share = self.share(from, limit, more, room);
        let state = match answer {
            Ok(state) => state,
            Err(status) => return self.refused("rkv_sequence_continue", status, &share, 1),
        };
        self.books.touch(&share.path);
        let born = self.add_child(&share, &state)?;
        self.settle()?;
        Ok(Ok(born))
    }

    /// Forks a live or retained sequence.
    pub fn fork(&mut self, parent: u64, count: usize, reserve: usize) -> Done<Vec<u32>> {
        self.log.say("fork", count as u64, reserve as u64);
        let answer = self.call(|library| library.fork(parent, count, reserve));
        let from = self.parent(parent).ok_or("the engine forks a parent that is gone")?;
        let share = self.share(from, from.tokens.positions(), &[], reserve.into());
        let children = match answer {
            Ok(children) => children,
            Err(status) => return self.refused("rkv_sequence_fork", status, &share, count),
        };
        self.books.touch(&share.path);
        let mut slots = Vec::new();
        for child in &children {
            let state = self.library.query(child.sequence);
            let state = state.map_err(|_| format!("query: {}", Library::last_message()))?;
            slots.push(self.add_child(&share, &state)?);
        }
        // One source for all.
        let copies: Vec<Copy> = slots.iter().filter_map(|&slot| self.sequence(slot).copy).collect();
        let same = copies.windows(2).all(|pair| pair[0].source == pair[1].source);
        require!(same, "children of one parent copy from different pages");
        self.settle()?;
        Ok(Ok(slots))
    }
}
