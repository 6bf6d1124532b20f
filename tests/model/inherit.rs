//! The executable specification of children and parents: retain, continue, fork, and what becomes
//! of a page that copies are still to be made of.
use super::naive::{Copy, Cut, Fault, Naive, Page, Refusal, Sequence, Wrong, require};
use super::prompt::Tokens;
use radixkv::capi::rkv_status as Status;
use radixkv::sequence::Room;
use std::collections::BTreeSet;

/// A retained sequence.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Among all sequences.
    pub index: usize,
    pub sequence: Sequence,
    /// The pages that hold what it computed.
    pub row: Vec<u32>,
}

/// What a child comes to.
#[derive(Clone, Debug)]
pub struct ChildPlan {
    pub tokens: Tokens,
    pub cut: Cut,
    /// Pages that the row begins with.
    pub row_pages: usize,
}

/// How a continuation is asked for.
pub struct Asked<'a> {
    pub ns: u8,
    pub more: &'a Tokens,
    pub room: Room,
    pub running: bool,
}

impl Naive {
    pub fn kept(&self, index: usize) -> Option<&Kept> {
        self.retained.iter().find(|kept| kept.index == index)
    }

    /// A live or retained sequence, and its pages.
    fn parent(&self, index: usize) -> Result<(&Sequence, &[u32]), Status> {
        if let Some(kept) = self.kept(index) {
            return Ok((&kept.sequence, &kept.row));
        }
        let sequence = self.sequence(index)?;
        Ok((sequence, &self.row(sequence.slot)?.pages))
    }

    /// Positions that others may take over: what is to be copied is not there yet.
    fn computed(&self, sequence: &Sequence) -> usize {
        match sequence.copy {
            Some(_) => sequence.shared * self.config.page_size,
            None => sequence.computed,
        }
    }

    // Pages that copies read.

    /// Live sequences that are still to copy from a page.
    fn readers(&self, page: u32) -> Vec<usize> {
        let live = self.live_sequences();
        let reads = |sequence: &Sequence| sequence.copy.is_some_and(|copy| copy.source == page);
        live.filter(|(_, sequence)| reads(sequence)).map(|(index, _)| index).collect()
    }

    /// The owner of a private page does not need it any more.
    pub fn give_up(&mut self, page: u32) {
        let lent = !self.readers(page).is_empty() && self.fault != Fault::ForgetsLoan;
        if lent {
            self.mark("a page outlives its owner for a copy");
        }
        self.pages[page as usize] = if lent { Page::Lent } else { Page::Free };
    }

    /// A copy out of a page is done, or will never be.
    pub fn copy_ended(&mut self, source: u32) {
        if self.pages[source as usize] == Page::Lent && self.readers(source).is_empty() {
            self.pages[source as usize] = Page::Free;
        }
    }

    /// The end of what copies of a sequence's private pages are still to read.
    pub fn lent_positions(&self, sequence: &Sequence) -> usize {
        let row = &self.row(sequence.slot).expect("a sequence has a row").pages;
        let copies = self.live_sequences().filter_map(|(_, reader)| reader.copy);
        let lent = copies.filter_map(|copy| {
            let index = row.iter().position(|&page| page == copy.source)?;
            (index >= sequence.shared).then_some(index * self.config.page_size + copy.positions)
        });
        lent.max().unwrap_or(0)
    }

    /// Pages became the cache's: who copies from one locks it there.
    pub fn protect_sources(&mut self, claimed: &[u32]) {
        for &page in claimed {
            for reader in self.readers(page) {
                self.mark("a child locks what its parent published meanwhile");
                let at = self.cache.by_page(page).expect("it was just published");
                let owner = self.cache.label(self.cache.node_end(at));
                let before = self.sequences[reader].as_mut().expect("it is live").node;
                self.move_lock(before, Some(owner));
                self.sequences[reader].as_mut().expect("it is live").node = Some(owner);
            }
        }
    }

    // Retained sequences.

    /// Pages that retained sequences keep.
    pub fn kept_pages(&self) -> usize {
        let mut pages = BTreeSet::new();
        self.retained.iter().for_each(|kept| pages.extend(self.pages_kept_by(kept)));
        pages.len()
    }

    fn pages_kept_by(&self, kept: &Kept) -> Vec<u32> {
        let Sequence { ns, ref tokens, base, shared, .. } = kept.sequence;
        let path = self.whole_pages(ns, tokens, base);
        path.into_iter().chain(kept.row[shared..].iter().copied()).collect()
    }

    /// Whether the sequence is retained afterwards. What was cleared is not; where the library may
    /// err about that, `kept` is what it did.
    pub fn retain(&mut self, index: usize, kept: bool) -> Result<bool, Refusal> {
        let sequence = self.sequence(index)?.clone();
        if self.is_cleared(sequence.ns) || (!kept && self.may_count_as_cleared(&sequence)) {
            self.mark("a sequence of before a clear is not retained");
            self.release(index)?;
            return Ok(false);
        }
        let Sequence { ns, slot, shared, base, copy, node, .. } = sequence;
        let computed = self.computed(&sequence);
        let count =
            if self.config.whole_pages { shared } else { self.pages_for(computed).max(shared) };
        let row = self.row(slot)?.pages[..count].to_vec();
        let end = self.node_after(ns, &sequence.tokens, base);
        let sequence = Sequence { computed, copy: None, node: end, ..sequence };
        let kept = Kept { index, sequence, row };
        if self.pages_kept_by(&kept).len() > self.retained_page_limit() {
            self.mark("a sequence is too large to be retained");
            self.release(index)?;
            return Ok(false);
        }
        self.move_lock(node, end);
        self.sequences[index] = None;
        if let Some(copy) = copy {
            self.copy_ended(copy.source);
        }
        for &page in &kept.row[shared..] {
            self.pages[page as usize] = Page::Kept;
        }
        self.drop_row(slot);
        self.retained.push(kept);
        while self.retained.len() > self.retained_limit()
            || self.kept_pages() > self.retained_page_limit()
        {
            self.displace()?;
        }
        Ok(true)
    }

    fn displace(&mut self) -> Result<(), Refusal> {
        self.mark("a retained sequence gives way");
        self.counters.displaced += 1;
        self.drop_kept(self.retained[0].index)
    }

    pub fn drop_kept(&mut self, index: usize) -> Result<(), Refusal> {
        let at = self.retained.iter().position(|kept| kept.index == index);
        let Kept { sequence, row, .. } = self.retained.remove(at.ok_or(Status::StaleSequence)?);
        if let Some(node) = sequence.node {
            self.unlock(node);
        }
        row[sequence.shared..].iter().for_each(|&page| self.give_up(page));
        Ok(())
    }

    /// Returns how many more pages can be had.
    pub fn drop_retained(&mut self, wanted: usize) -> Result<usize, Refusal> {
        let room = |model: &Self| model.free() + model.cache.reclaimable();
        let before = room(self);
        while room(self) - before < wanted && !self.retained.is_empty() {
            self.displace()?;
        }
        Ok(room(self) - before)
    }

    // Children.

    /// Plans a continuation. None: there is no such parent, which is for the caller to refuse.
    pub fn continue_plan(
        &self,
        parent: usize,
        asked: &Asked,
    ) -> Result<Option<ChildPlan>, Refusal> {
        let Ok((from, _)) = self.parent(parent) else { return Ok(None) };
        if from.ns.name != asked.ns {
            return Err(Status::InvalidArgument.into());
        }
        if self.kept(parent).is_none() && !asked.running {
            return Err(Status::Pending.into());
        }
        if asked.more.bad {
            return Err(Status::InvalidArgument.into());
        }
        // One token at least is computed.
        let limit = from.tokens.positions() - usize::from(asked.more.positions() == 0);
        self.child_plan(from, limit, asked.more, asked.room, 1).map(Some)
    }

    pub fn fork_plan(
        &self,
        parent: usize,
        count: usize,
        reserve: usize,
    ) -> Result<ChildPlan, Refusal> {
        let (from, _) = self.parent(parent)?;
        self.child_plan(from, from.tokens.positions(), &Tokens::default(), reserve.into(), count)
    }

    fn child_plan(
        &self,
        from: &Sequence,
        limit: usize,
        more: &Tokens,
        room: Room,
        count: usize,
    ) -> Result<ChildPlan, Refusal> {
        let cut = self.cut(&from.tokens, self.computed(from), limit, self.config.whole_pages);
        let mut tokens = from.tokens.clone();
        tokens.append(more);
        let row_pages = self.pages_for(tokens.positions() + room.reserve);
        if row_pages > self.row_limit() {
            return Err(Status::InvalidArgument.into());
        }
        if self.rows.iter().filter(|row| row.is_none()).count() < count {
            return Err(Status::OutOfSlots.into());
        }
        self.check_room((row_pages - cut.whole_pages) * count, 0)?;
        let row_pages = self.first_pages(&tokens, cut, room).unwrap_or(row_pages);
        Ok(ChildPlan { tokens, cut, row_pages })
    }

    /// Children are made of what a parent has: that is a use of it.
    pub fn use_parent(&mut self, parent: usize) {
        let (from, _) = self.parent(parent).expect("it was looked up");
        let Sequence { ns, ref tokens, base, .. } = *from;
        let tokens = tokens.clone();
        self.refresh(ns, &tokens, base);
    }

    /// Adds a child in the slot and with the pages that the library chose.
    pub fn add_child(
        &mut self,
        parent: usize,
        plan: &ChildPlan,
        slot: u32,
        chosen: &[u32],
        source: u32,
    ) -> Result<(), Wrong> {
        let (from, row) = self.parent(parent).expect("it was looked up");
        let Sequence { ns, began, base, .. } = *from;
        let cut = plan.cut;
        let shared = row[..cut.whole_pages].to_vec();
        let copy = (cut.partial > 0).then(|| row[cut.whole_pages]);
        require!(
            copy.unwrap_or(0) == source,
            "a child copies from page {source}, in the model from {copy:?}"
        );
        if let Some(page) = copy {
            let cached = self.pages[page as usize] == Page::Cached;
            let whose = if cached { "the cache" } else { "its parent" };
            self.mark(if cached { "a child copies from the cache" } else { "a child copies" });
            require!(page != 0, "a child copies from {whose}, but no page");
        }
        let node = self.node_after(ns, &from.tokens.clone(), base);
        if let Some(node) = node {
            self.lock(node).expect("it is live");
        }
        self.allocate_slot(slot, true)?;
        self.rows[slot as usize].as_mut().expect("just taken").pages = shared;
        let needed = plan.row_pages - cut.whole_pages;
        require!(chosen.len() == needed, "{} pages for a child, not {needed}", chosen.len());
        let positions = plan.tokens.positions();
        let inherited = cut.whole_pages * self.config.page_size + cut.partial;
        self.counters.inherits += 1;
        self.counters.inherited_positions += inherited;
        self.sequences.push(Some(Sequence {
            ns,
            began,
            slot,
            prompt_positions: positions,
            computed: inherited,
            cached_positions: inherited,
            cached_tokens: cut.tokens,
            inherited: true,
            shared: cut.whole_pages,
            base,
            tokens: plan.tokens.clone(),
            copy: copy.map(|source| Copy { source, positions: cut.partial }),
            node,
        }));
        self.grow(slot, chosen)
    }
}
