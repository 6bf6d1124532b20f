//! What is known of a sequence, and how one comes into being: by a lookup or from a parent.
use super::books::{Page, Wrong, require};
use super::tokens::Tokens;
use super::world::{Done, Fault, Refused, World};
use crate::model::abi::Status;
use radixkv::capi::rkv_sequence_info;
use radixkv::sequence::Room;

/// What keeps the page to copy from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is on the path that the sequence has locked.
    Path,
    /// Its private owner must leave it.
    Borrowed,
    /// A lock on it.
    Page,
    /// A lock on its node, which may be longer: its parent published it meanwhile.
    Node,
}

#[derive(Clone, Copy, Debug)]
pub struct Copy {
    pub source: u32,
    pub positions: usize,
    pub hold: Hold,
}

#[derive(Clone)]
pub struct Sequence {
    pub id: u64,
    pub slot: u32,
    pub tokens: Tokens,
    pub prompt_positions: usize,
    /// Positions that the library was told are computed.
    pub computed: usize,
    /// Positions that are.
    pub written: usize,
    pub cached_positions: usize,
    pub inherited: bool,
    /// Leading pages of the row that are the cache's.
    pub shared: usize,
    /// The cached pages of the prefix that it keeps locked.
    pub path: Vec<u32>,
    pub row: Vec<u32>,
    pub copy: Option<Copy>,
}

/// A retained sequence; its row ends with what it computed.
pub struct Kept {
    pub sequence: Sequence,
}

/// A sequence that is about to be.
pub struct Birth<'a> {
    pub tokens: &'a Tokens,
    /// Positions that are reused.
    pub reused: usize,
    pub inherited: bool,
    pub row_pages: usize,
    /// Cached pages that it will have locked.
    pub path: Vec<u32>,
    /// Where the pages before the cut are: the path's, or a parent's.
    pub source: Option<u32>,
}

impl World {
    pub fn sequence(&mut self, slot: u32) -> &mut Sequence {
        self.sequences[slot as usize].as_mut().expect("a sequence lives there")
    }

    pub fn begin(&mut self, tokens: &Tokens, room: Room) -> Done<u32> {
        self.log.say("begin", tokens.positions() as u64, (room.reserve + room.first) as u64);
        let answer = self.call(|library| library.begin(tokens.ns, &tokens.list, room));
        self.begun("rkv_sequence_begin", answer, tokens, room)
    }

    /// Pages that a row begins with.
    pub fn first_pages(&self, tokens: &Tokens, reused: usize, room: Room) -> usize {
        match room.first {
            first if (1..tokens.positions()).contains(&first) => self.pages_for(first.max(reused)),
            _ => self.pages_for(tokens.positions() + room.reserve),
        }
    }

    /// Compares what a begin said with the books, and enters it there.
    pub fn begun(
        &mut self,
        call: &str,
        answer: Result<rkv_sequence_info, Status>,
        tokens: &Tokens,
        room: Room,
    ) -> Done<u32> {
        let (page_size, whole_pages) = (self.page_size(), self.config.pool.whole_pages);
        let positions = tokens.positions();
        let row_pages = self.pages_for(positions + room.reserve);
        let mut path = self.books.path(tokens);
        let (found, limit) = (self.found(tokens, path.len()), positions - 1);
        let most = tokens.cut(found, limit, page_size, whole_pages);
        // What is given up when protecting all that was found is too much.
        let least = tokens.cut(found, limit, page_size, true);
        let needed = |reused: usize| row_pages - reused / page_size;
        let state = match answer {
            Ok(state) => state,
            Err(Status::OutOfSlots) => {
                require!(self.free_slots() == 0, "{call}: there are free slots");
                self.mark("refused for want of slots");
                self.settle()?;
                return Ok(Err(Refused::Slots));
            }
            Err(Status::OutOfPages) => {
                require!(self.free_slots() > 0, "{call}: pages are missed before slots");
                self.check_shortage(needed(least), &path[..least / page_size])?;
                self.settle()?;
                return Ok(Err(Refused::Pages));
            }
            Err(status) => return self.unforeseen(call, status),
        };
        let reused = state.cached_position_count as usize;
        require!(
            reused == most || (reused == least && needed(most) > self.books.counts.free),
            "{call}: {reused} positions are reused, {most} could be, or {least}"
        );
        path.truncate(found / page_size);
        if reused == least && needed(most) > self.books.counts.free {
            // It may have kept less than was found, which the cut need not show.
            let kept = self.node_pages(state.node)?;
            require!(kept == path.len() || kept == least / page_size, "{call}: locks {kept} pages");
            if kept < path.len() {
                self.mark("a begin gives reuse up");
            }
            path.truncate(kept);
        }
        let copied = reused % page_size;
        let source = (copied > 0).then_some(self.copy_of(state.sequence)?.source_page);
        // What is copied from was used with the pages before it.
        let used: Vec<u32> = path.iter().copied().chain(source).collect();
        self.books.touch(&used);
        if let Some(source) = source {
            let index = reused / page_size;
            let known = path.get(index).is_none_or(|&page| page == source);
            require!(known, "{call}: copies from {source}, which is not on its path");
            self.mark("a begin copies");
        }
        let counters = &mut self.counters;
        counters.lookups += 1;
        counters.lookup_positions += positions;
        counters.hit_positions += reused;
        counters.partial_hit_positions += copied;
        let row_pages = self.first_pages(tokens, reused, room);
        let birth = Birth { tokens, reused, inherited: false, row_pages, path, source };
        let born = self.birth(call, birth, &state)?;
        self.settle()?;
        Ok(Ok(born))
    }

    /// Pages up to the end of a node.
    fn node_pages(&self, node: u64) -> Result<usize, Wrong> {
        if node == 0 {
            return Ok(0);
        }
        let info = self.library.node_info(node);
        let info = info.map_err(|status| format!("rkv_node_read_info: {status:?}"))?;
        Ok(info.end_position as usize / self.page_size())
    }

    /// Positions of a prompt that a match finds.
    pub fn found(&self, tokens: &Tokens, whole: usize) -> usize {
        let page_size = self.page_size();
        let pool = &self.config.pool;
        let partial = if pool.block_hash { 0 } else { self.books.partial(tokens, whole) };
        let raw = whole * page_size + partial;
        tokens.cut(raw, tokens.positions(), page_size, pool.whole_pages)
    }

    /// Enters a new sequence. What it reuses must hold what its tokens mean.
    pub fn birth(
        &mut self,
        call: &str,
        birth: Birth,
        state: &rkv_sequence_info,
    ) -> Result<u32, Wrong> {
        let Birth { tokens, reused, inherited, row_pages, path, source } = birth;
        let (page_size, slot) = (self.page_size(), state.slot);
        let place = self.sequences.get(slot as usize);
        let is_free = place.is_some_and(Option::is_none) && self.rows[slot as usize].is_none();
        require!(is_free, "{call}: slot {slot} is handed out while in use");
        require!(state.sequence != 0 && !self.ended.contains(&state.sequence), "an id is reused");
        let other = self.sequences.iter().flatten().map(|other| other.slot).next();
        let from = other.filter(|_| self.slips(Fault::OtherRow)).unwrap_or(slot);
        let row = self.library.row(from, 0).map_err(|status| format!("row: {status:?}"))?;
        require!(row.len() == row_pages, "{call}: {} pages, not {row_pages}", row.len());
        let (shared, copied) = (reused / page_size, reused % page_size);
        require!(
            row[..shared] == path[..shared],
            "{call}: the row {row:?} does not begin with {:?}",
            &path[..shared]
        );
        self.books.protect(&path);
        let mut copy = None;
        if let Some(source) = source {
            let hold = match self.books.state(source) {
                Page::Cached if path.get(shared) == Some(&source) => Hold::Path,
                Page::Cached => Hold::Page,
                _ => Hold::Borrowed,
            };
            match hold {
                Hold::Path => {}
                Hold::Borrowed => self.books.borrow(source),
                Hold::Page | Hold::Node => {
                    require!(!inherited, "{call}: nothing keeps page {source} to copy from");
                    self.books.protect(&[source]);
                }
            }
            copy = Some(Copy { source, positions: copied, hold });
        }
        self.books.hand_out(&row[shared..], Page::Row(slot))?;
        let mut holding = row[..shared].to_vec();
        holding.extend(source);
        self.books.holds(&holding, tokens, reused)?;
        self.sequences[slot as usize] = Some(Sequence {
            id: state.sequence,
            slot,
            prompt_positions: tokens.positions(),
            computed: reused,
            written: reused,
            cached_positions: reused,
            inherited,
            shared,
            path,
            row,
            copy,
            tokens: tokens.clone(),
        });
        self.compare_state(slot, state)?;
        Ok(slot)
    }

    /// A sequence and its row, as the library has them.
    pub fn compare_sequence(&mut self, slot: u32) -> Result<(), Wrong> {
        let id = self.sequence(slot).id;
        let state = self.library.query(id).map_err(|status| format!("query: {status:?}"))?;
        self.compare_state(slot, &state)?;
        let row = self.library.row(slot, 0).map_err(|status| format!("row: {status:?}"))?;
        let ours = &self.sequence(slot).row;
        require!(row == *ours, "row {slot} is {row:?}, in the books {ours:?}");
        Ok(())
    }

    fn compare_state(&mut self, slot: u32, state: &rkv_sequence_info) -> Result<(), Wrong> {
        let ours = self.sequence(slot);
        let copy = ours.copy.map_or([0, 0, 0], |copy| {
            [copy.positions as u64, copy.source.into(), ours.row[ours.shared].into()]
        });
        let inherited = if ours.inherited { ours.cached_positions } else { 0 };
        let expected = [
            ours.id,
            u64::from(ours.slot),
            ours.tokens.positions() as u64,
            ours.cached_positions as u64,
            ours.tokens.count_within(ours.cached_positions) as u64,
            ours.row.len() as u64,
            ours.shared as u64,
            inherited as u64,
            copy[0],
            copy[1],
            copy[2],
        ];
        let seen_copy = self.copy_of(state.sequence)?;
        let seen = [
            state.sequence,
            u64::from(state.slot),
            state.position_count,
            state.cached_position_count,
            state.cached_token_count,
            state.page_count,
            state.shared_page_count,
            state.inherited_position_count,
            u64::from(seen_copy.position_count),
            u64::from(seen_copy.source_page),
            u64::from(seen_copy.target_page),
        ];
        require!(seen == expected, "slot {slot} is {seen:?}, in the books {expected:?}");
        Ok(())
    }
}
