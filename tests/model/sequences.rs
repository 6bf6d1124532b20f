//! The executable specification of sequences: begin, publish, release and what is between.
use super::naive::{Copy, Cut, Fault, Naive, Page, Refusal, Sequence, Wrong, require};
use super::prompt::Tokens;
use super::published::Label;
use super::spaces::Space;
use radixkv::capi::rkv_status as Status;
use radixkv::sequence::Room;

/// What a begin comes to.
#[derive(Clone, Debug)]
pub struct BeginPlan {
    pub cut: Cut,
    /// Whole pages that the prompt matched, before the cut: the node of these is split off, locked
    /// and refreshed.
    pub matched_pages: usize,
    /// Pages that the row must be able to have in all, and those that it begins with.
    pub row_pages: usize,
    pub first_pages: usize,
}

/// What a publish did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publishing {
    pub claimed: usize,
    pub remapped: usize,
    pub first_remapped: usize,
    pub shared: usize,
}

impl Naive {
    /// Plans a begin. `source` is the page that the library copies from, 0 when it copies none or
    /// refused.
    pub fn begin_plan(
        &self,
        ns: Space,
        tokens: &Tokens,
        room: Room,
        source: u32,
    ) -> Result<BeginPlan, Refusal> {
        let Some(&total) = tokens.ends.last() else { return Err(Status::InvalidArgument.into()) };
        let row_pages = self.pages_for(total + room.reserve);
        if row_pages > self.row_limit() {
            return Err(Status::InvalidArgument.into());
        }
        self.can_allocate_slot()?;
        // One token at least is computed, also when all of them are cached.
        let limit = tokens.boundary_within(total - 1);
        let found = self.match_cut(ns, tokens);
        let found_positions = found.whole_pages * self.config.page_size + found.partial;
        let cut = self.cut(tokens, found_positions, limit, self.config.whole_pages);
        let plan = |cut, matched_pages| {
            let first_pages = self.first_pages(tokens, cut, room).unwrap_or(row_pages);
            BeginPlan { cut, matched_pages, row_pages, first_pages }
        };
        let most = plan(cut, found.whole_pages);
        if self.check_begin(ns, tokens, &most, source).is_ok() {
            return Ok(most);
        }
        self.mark("a begin gives reuse up");
        // What is reused in part, or found beyond the cut, is given up when protecting it is what
        // makes the allocation impossible.
        let cut = self.cut(tokens, found_positions, limit, true);
        let least = plan(cut, cut.whole_pages);
        self.check_begin(ns, tokens, &least, source).map(|()| least)
    }

    /// Pages for the first positions alone, if only those are asked for; at least those of what is
    /// reused, whole or in part.
    pub fn first_pages(&self, tokens: &Tokens, cut: Cut, room: Room) -> Option<usize> {
        let only_some = (1..tokens.positions()).contains(&room.first);
        if only_some {
            self.mark("a prompt gets pages for its beginning alone");
        }
        let reused = cut.whole_pages + usize::from(cut.partial > 0);
        only_some.then(|| self.pages_for(room.first).max(reused))
    }

    /// Whether the private pages can be had while what is reused stays.
    fn check_begin(
        &self,
        ns: Space,
        tokens: &Tokens,
        plan: &BeginPlan,
        source: u32,
    ) -> Result<(), Refusal> {
        let cut = plan.cut;
        let needed = plan.row_pages - cut.whole_pages;
        let found = self.pages_of_prefix(ns, tokens, plan.matched_pages);
        if cut.partial == 0 || cut.whole_pages < plan.matched_pages {
            return self.check_room(needed, self.unprotected(&found));
        }
        // The page to copy from is kept, and none after it. Which page that is the library may
        // choose; when it names none, it may have refused the most expensive.
        let whole = cut.whole_pages * self.config.page_size;
        let sources = self.cache.copy_sources(ns, &tokens.keys, whole, cut.partial);
        let chosen = sources.iter().copied().filter(|&page| source == 0 || source == page);
        let kept = chosen.map(|page| {
            let page = self.cache.by_page(page).expect("it is published");
            self.unprotected(&found.iter().copied().chain([page]).collect::<Vec<_>>())
        });
        self.check_room(needed, kept.max().unwrap_or(0))
    }

    /// How many of these pages no lock protects yet.
    fn unprotected(&self, pages: &[usize]) -> usize {
        pages.iter().filter(|&&page| self.cache.is_reclaimable(page)).count()
    }

    fn pages_of_prefix(&self, ns: Space, tokens: &Tokens, whole: usize) -> Vec<usize> {
        self.cache.longest(ns, &tokens.keys).path[..whole].to_vec()
    }

    /// Carries out a begin with the slot, the new pages and the copy that the library chose.
    pub fn begin(
        &mut self,
        ns: Space,
        tokens: Tokens,
        plan: &BeginPlan,
        slot: u32,
        chosen: &[u32],
        source: u32,
    ) -> Result<(), Wrong> {
        let cut = plan.cut;
        self.count_lookup(tokens.positions(), cut);
        if cut.partial > 0 {
            self.mark("a begin copies");
        }
        if cut.whole_pages < plan.matched_pages {
            self.mark("a begin computes a cached page again");
        }
        let matched = self.refresh(ns, &tokens, plan.matched_pages);
        let copy = (cut.partial > 0).then_some(Copy { source, positions: cut.partial });
        let node = match copy {
            Some(_) if cut.whole_pages == plan.matched_pages => {
                Some(self.copy_node(ns, &tokens, cut, source, true)?)
            }
            _ => matched,
        };
        if let Some(node) = node {
            self.lock(node).expect("it is live");
        }
        self.allocate_slot(slot, true)?;
        let shared = self.whole_pages(ns, &tokens, cut.whole_pages);
        self.rows[slot as usize].as_mut().expect("just taken").pages = shared;
        require!(
            chosen.len() == plan.first_pages - cut.whole_pages,
            "{} pages were allocated, {} are needed",
            chosen.len(),
            plan.first_pages - cut.whole_pages
        );
        self.grow(slot, chosen)?;
        self.sequences.push(Some(Sequence {
            ns,
            began: self.lives.clears(),
            slot,
            prompt_positions: tokens.positions(),
            computed: cut.whole_pages * self.config.page_size + cut.partial,
            inherited: false,
            cached_positions: cut.whole_pages * self.config.page_size + cut.partial,
            cached_tokens: cut.tokens,
            shared: cut.whole_pages,
            base: plan.matched_pages,
            tokens,
            copy,
            node,
        }));
        Ok(())
    }

    fn edit(&mut self, index: usize) -> &mut Sequence {
        self.sequences[index].as_mut().expect("it was looked up")
    }

    pub fn confirm_copies(&mut self, index: usize) -> Result<(), Refusal> {
        let Some(copy) = self.sequence(index)?.copy else {
            return Err(Status::InvalidState.into());
        };
        self.edit(index).copy = None;
        self.copy_ended(copy.source);
        let Sequence { ns, base, ref tokens, node, .. } = *self.sequence(index)?;
        let keep = self.node_after(ns, tokens, base);
        self.move_lock(node, keep);
        self.edit(index).node = keep;
        Ok(())
    }

    pub fn move_lock(&mut self, from: Option<Label>, to: Option<Label>) {
        if from == to {
            return;
        }
        if let Some(to) = to {
            self.lock(to).expect("it is live");
        }
        if let Some(from) = from {
            self.unlock(from);
        }
    }

    /// Pages that the first positions of a sequence lack.
    pub fn allocate_plan(&self, index: usize, positions: usize) -> Result<usize, Refusal> {
        let sequence = self.sequence(index)?;
        if positions > sequence.tokens.positions() {
            return Err(Status::InvalidArgument.into());
        }
        let length = self.row(sequence.slot)?.pages.len();
        let lacking = self.pages_for(positions).saturating_sub(length);
        self.check_room(lacking, 0)?;
        if lacking > 0 {
            self.mark("a prompt gets pages for a further part");
        }
        Ok(lacking)
    }

    /// Pages that an append needs, those included that the positions before it lack.
    pub fn append_plan(&self, index: usize, more: &Tokens) -> Result<usize, Refusal> {
        let sequence = self.sequence(index)?;
        let length = self.row(sequence.slot)?.pages.len();
        let wanted = self.pages_for(sequence.tokens.positions() + more.positions());
        if more.bad || wanted > self.row_limit() {
            return Err(Status::InvalidArgument.into());
        }
        let lacking = wanted.saturating_sub(length);
        self.check_room(lacking, 0)?;
        Ok(lacking)
    }

    pub fn append(&mut self, index: usize, more: &Tokens, chosen: &[u32]) -> Result<(), Wrong> {
        let sequence = self.edit(index);
        sequence.tokens.append(more);
        let slot = sequence.slot;
        self.grow(slot, chosen)
    }

    pub fn truncate(&mut self, index: usize, keep: usize) -> Result<(), Refusal> {
        let sequence = self.sequence(index)?;
        let settled = sequence.prompt_positions.max(sequence.shared * self.config.page_size);
        let tokens = &sequence.tokens;
        if keep < settled || keep > tokens.positions() || !tokens.is_boundary(keep) {
            return Err(Status::InvalidArgument.into());
        }
        if self.lent_positions(sequence) > keep {
            self.mark("a truncate would take what a child is to copy");
            return Err(Status::InvalidState.into());
        }
        let sequence = self.edit(index);
        sequence.tokens.truncate(keep);
        sequence.computed = sequence.computed.min(keep);
        Ok(())
    }

    /// Publishes; when it is the first that is published, the library says whether nobody finds it.
    pub fn publish(
        &mut self,
        index: usize,
        computed: usize,
        hidden: bool,
    ) -> Result<Publishing, Refusal> {
        let sequence = self.sequence(index)?.clone();
        let Sequence { mut ns, slot, shared, base, node, mut tokens, .. } = sequence;
        if computed > tokens.positions() {
            return Err(Status::InvalidArgument.into());
        }
        if sequence.copy.is_some() {
            return Err(Status::InvalidState.into());
        }
        if computed > self.row(slot)?.pages.len() * self.config.page_size {
            self.mark("a publish of positions without pages");
            return Err(Status::InvalidArgument.into());
        }
        let known = &mut self.edit(index).computed;
        *known = computed.max(*known);
        let page_size = self.config.page_size;
        let row = self.row(slot)?.pages.clone();
        let whole = computed / page_size;
        let nothing = Publishing { claimed: 0, remapped: 0, first_remapped: row.len(), shared };
        if whole <= shared {
            return Ok(nothing);
        }
        if base == 0 && hidden {
            ns = self.hidden_space(ns.name);
            self.edit(index).ns = ns;
        }
        tokens.keys.truncate(whole * page_size);
        let mut done = Publishing { shared: whole, ..nothing };
        let mut claimed = Vec::new();
        for (index, &own) in row.iter().enumerate().take(whole).skip(shared) {
            match self.cache.find(ns, &tokens.keys[..(index + 1) * page_size]) {
                None => claimed.push(own),
                Some(there) => {
                    let there = self.cache.pages[there].page;
                    self.give_up(own);
                    self.rows[slot as usize].as_mut().expect("in use").pages[index] = there;
                    done.first_remapped = done.first_remapped.min(index);
                    done.remapped += 1;
                }
            }
        }
        if done.remapped > 0 {
            let all = claimed.is_empty();
            self.mark(if all { "a publish remaps all" } else { "a publish remaps and claims" });
        }
        done.claimed = claimed.len();
        self.counters.inserted += done.claimed;
        self.counters.duplicates += done.remapped;
        self.edit(index).shared = whole;
        if whole > base {
            let end = if claimed.is_empty() { self.prompt_goes_on(index, whole) } else { whole };
            tokens.keys = self.sequence(index)?.tokens.keys[..end * page_size].to_vec();
            let node = self.publish_and_move_lock(ns, &tokens, end, &claimed, node);
            let sequence = self.edit(index);
            (sequence.base, sequence.node) = (end, node);
            self.protect_sources(&claimed);
        }
        Ok(done)
    }

    /// Where somebody published more of the same prompt, the lock goes to the end of that: the
    /// pages up to which the prompt is cached.
    fn prompt_goes_on(&self, index: usize, whole: usize) -> usize {
        let Sequence { ns, prompt_positions, ref tokens, .. } =
            *self.sequence(index).expect("it was looked up");
        let known = &tokens.keys[..prompt_positions];
        let pages = known.len() / self.config.page_size;
        let is_cached =
            |end: &usize| self.cache.find(ns, &known[..end * self.config.page_size]).is_some();
        let further = (whole + 1..=pages).take_while(is_cached).last();
        if further.is_some() {
            self.mark("a publish locks what others published further on");
        }
        further.unwrap_or(whole)
    }

    fn publish_and_move_lock(
        &mut self,
        ns: Space,
        tokens: &Tokens,
        whole: usize,
        claimed: &[u32],
        from: Option<Label>,
    ) -> Option<Label> {
        if let Some(end) = from.and_then(|from| self.cache.by_label(from))
            && self.cache.locks_at(end) == 1
            && self.cache.children(end).next().is_none()
            && !self.cache.page_nodes
            && self.cache.segment(end).len() + claimed.len() <= self.cache.segment_limit
        {
            // The sequence alone holds its node, and nothing follows it: the node becomes longer.
            self.mark("a publish makes its node longer");
            let longer = self.cache.extend(end, &tokens.keys, claimed);
            claimed.iter().for_each(|&page| self.pages[page as usize] = Page::Cached);
            return Some(longer);
        }
        let node = self.publish_after(ns, tokens, whole, claimed);
        self.move_lock(from, node);
        node
    }

    pub fn release(&mut self, index: usize) -> Result<(), Refusal> {
        let Sequence { slot, node, copy, .. } = *self.sequence(index)?;
        self.sequences[index] = None;
        if let Some(copy) = copy {
            self.copy_ended(copy.source);
        }
        self.drop_row(slot);
        if let Some(node) = node.filter(|_| self.fault != Fault::LeaksLock) {
            self.unlock(node);
        }
        Ok(())
    }
}
