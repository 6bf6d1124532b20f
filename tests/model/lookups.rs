//! The driver's matches and inserts.
use super::abi::many::Matched;
use super::abi::{InsertCall, Library, Status};
use super::compare::equal;
use super::driver::{Driver, Earlier, Lock, agree, pick};
use super::naive::{Page, Refusal, Wrong, require};
use super::ops::{Pick, Wrong as Fault};
use super::prompt::{Piece, Prompt, Tokens};
use super::published::Label;
use super::spaces::Space;
use super::tokens::TokenList;

impl Driver {
    /// A match. Returns its whole pages and the lock that it took.
    pub fn lookup(
        &mut self,
        ns: u8,
        prompt: &Prompt,
        lock: bool,
    ) -> Result<(Vec<u32>, Option<Lock>), Wrong> {
        let (pages, locked) = self.lookup_unowned(ns, prompt, lock)?;
        self.locks.extend(locked);
        Ok((pages, locked))
    }

    /// The same; who calls keeps the lock.
    pub fn lookup_unowned(
        &mut self,
        ns: u8,
        prompt: &Prompt,
        lock: bool,
    ) -> Result<(Vec<u32>, Option<Lock>), Wrong> {
        let room = prompt.positions() / self.model.config.page_size;
        let matched = self.library.lookup(ns, &TokenList::of(prompt), lock, room);
        self.matched("rkv_cache_match", matched, ns, prompt, lock)
    }

    /// What a match with room enough answered.
    pub fn matched(
        &mut self,
        what: &str,
        (status, seen, mut pages): Matched,
        ns: u8,
        prompt: &Prompt,
        lock: bool,
    ) -> Result<(Vec<u32>, Option<Lock>), Wrong> {
        let tokens = Tokens::of(prompt);
        let page_size = self.model.config.page_size;
        require!(status == Status::Ok, "{what}: {status:?}: {}", Library::last_message());
        let ns = self.model.space(ns);
        let cut = self.model.match_cut(ns, &tokens);
        equal!(what,
            whole_pages: cut.whole_pages, seen.page_count;
            partial: cut.partial, seen.partial_position_count;
            positions: cut.whole_pages * page_size + cut.partial, seen.position_count;
            tokens: cut.tokens, seen.token_count;
        );
        pages.truncate(cut.whole_pages);
        let ours = self.model.whole_pages(ns, &tokens, cut.whole_pages);
        require!(pages == ours, "pages {pages:?} match, in the model {ours:?}");
        require!((cut.partial > 0) == (seen.partial_page > 0), "the partial page is wrong");
        let (node, partial) = self.model.lookup(ns, &tokens, lock, seen.partial_page)?;
        self.names.bind_option(node, seen.node)?;
        self.names.bind_option(partial, seen.partial_node)?;
        let locked = partial.or(node).filter(|_| lock);
        require!(locked.is_some() == (seen.lock != 0), "the lock is {:#x}", seen.lock);
        let locked = locked.map(|node| Lock { id: seen.lock, node });
        if let Some(node) = node {
            let prompt = prompt.clone();
            self.remember(Earlier { ns, prompt, node, whole_pages: cut.whole_pages });
        }
        Ok((pages, locked))
    }

    pub fn match_too_small(&mut self, ns: u8, prompt: &Prompt) -> Result<(), Wrong> {
        let whole = self.model.match_cut(self.model.space(ns), &Tokens::of(prompt)).whole_pages;
        if whole < 2 {
            return Ok(());
        }
        let matched = self.library.lookup(ns, &TokenList::of(prompt), true, whole - 1);
        self.matched_too_small(matched, whole)
    }

    /// What a match answered that had less room than the pages that it found.
    pub fn matched_too_small(&self, (status, seen, _): Matched, whole: usize) -> Result<(), Wrong> {
        require!(status == Status::BufferTooSmall, "a match into too little room: {status:?}");
        equal!("rkv_cache_match with too little room",
            whole_pages: whole, seen.page_count;
            node: 0, seen.node;
            lock: 0, seen.lock;
            tokens: 0, seen.token_count;
        );
        Ok(())
    }

    pub fn probe(&mut self, ns: u8, prompt: &Prompt) -> Result<(), Wrong> {
        let probed = self.library.probe(ns, &TokenList::of(prompt));
        let found = probed.map_err(|status| format!("rkv_cache_probe: {status:?}"))?;
        self.probed("rkv_cache_probe", found, ns, prompt)
    }

    /// What a probe found: tokens and positions.
    pub fn probed(
        &mut self,
        what: &str,
        (count, positions): (usize, usize),
        ns: u8,
        prompt: &Prompt,
    ) -> Result<(), Wrong> {
        let tokens = Tokens::of(prompt);
        let cut = self.model.match_cut(self.model.space(ns), &tokens);
        equal!(what,
            tokens: cut.tokens, count;
            positions: cut.whole_pages * self.model.config.page_size + cut.partial, positions;
        );
        Ok(())
    }

    /// Allocates pages on both sides.
    pub fn allocate(&mut self, count: usize) -> Result<Option<Vec<u32>>, Wrong> {
        let allocated = self.library.allocate_pages(count);
        let can = self.model.can_allocate(count);
        let Some((pages, ())) = agree("rkv_page_table_allocate_pages", allocated, can)? else {
            return Ok(None);
        };
        self.model.allocate(&pages)?;
        Ok(Some(pages))
    }

    pub fn free(&mut self, pages: &[u32]) -> Result<(), Wrong> {
        let freed = self.library.free_pages(pages);
        agree("rkv_page_table_free_pages", freed, self.model.free_pages(pages))?;
        Ok(())
    }

    pub fn insert(&mut self, ns: u8, prompt: &Prompt, keep: bool) -> Result<(), Wrong> {
        let tokens = Tokens::of(prompt);
        let count = tokens.positions() / self.model.config.page_size;
        let Some(pages) = self.allocate(count)? else { return Ok(()) };
        let list = TokenList::of(prompt);
        let call = InsertCall {
            ns,
            tokens: &list,
            pages: &pages,
            from_node: 0,
            from_token_index: 0,
            from_page_index: 0,
        };
        self.insert_call(&call, self.model.space(ns), prompt)?;
        self.free_left_over(&pages, keep)
    }

    /// An earlier match or insert, at times a root and nothing yet after it.
    fn earlier_or_root(&self, at: Pick) -> Option<Earlier> {
        if !at.is_multiple_of(8) {
            return pick(&self.earlier, at / 8);
        }
        let roots: Vec<(Space, Label)> =
            self.model.cache.roots.iter().map(|(&ns, root)| (ns, root.label)).collect();
        let (ns, node) = pick(&roots, at / 8)?;
        Some(Earlier { ns, prompt: Prompt::default(), node, whole_pages: 0 })
    }

    pub fn insert_resumed(&mut self, which: Pick, more: &Prompt, keep: bool) -> Result<(), Wrong> {
        let Some(earlier) = self.earlier_or_root(which) else { return Ok(()) };
        let prompt = earlier.prompt.then(more);
        let tokens = Tokens::of(&prompt);
        let page_size = self.model.config.page_size;
        let from = earlier.whole_pages;
        let count = tokens.positions() / page_size - from;
        let Some(new) = self.allocate(count)? else { return Ok(()) };
        // Tokens up to the node's end, and those of the next page, which may have matched in part.
        let valid: Vec<usize> = (0..=tokens.ends.len())
            .filter(|&count| tokens.position_of(count) / page_size == from)
            .collect();
        let from_token_index = pick(&valid, which).unwrap_or(tokens.count_within(from * page_size));
        // The pages before are not read, nor is the namespace.
        let pages: Vec<u32> = std::iter::repeat_n(u32::MAX, from).chain(new.clone()).collect();
        let list = TokenList::of(&prompt);
        let call = InsertCall {
            ns: earlier.ns.name + 1,
            tokens: &list,
            pages: &pages,
            from_node: self.names.id(earlier.node),
            from_token_index,
            from_page_index: from,
        };
        if !self.model.cache.is_live(earlier.node) {
            let answer = self.library.insert(&call).map(|_| ());
            require!(answer == Err(Status::StaleNode), "insert from a stale node: {answer:?}");
        } else if !self.model.lives.is_found(earlier.ns) {
            let answer = self.library.insert(&call).map(|_| ());
            require!(answer == Err(Status::InvalidState), "insert after a clear: {answer:?}");
            self.model.mark("an insert after what was cleared");
        } else if valid.is_empty() {
            // The node ends inside an image that goes on for more than a page.
            let answer = self.library.insert(&call).map(|_| ());
            require!(answer == Err(Status::InvalidArgument), "insert inside an image: {answer:?}");
        } else {
            self.insert_call(&call, earlier.ns, &prompt)?;
        }
        self.free_left_over(&new, keep)
    }

    /// An insert on both sides. Returns the node, if it went well.
    pub fn insert_call(
        &mut self,
        call: &InsertCall,
        ns: Space,
        prompt: &Prompt,
    ) -> Result<Option<(Label, usize)>, Wrong> {
        let tokens = Tokens::of(prompt);
        let inserted = self.library.insert(call);
        let plan = self.model.insert_plan(ns, &tokens, call.pages, call.from_page_index);
        let Some(((seen, published), plan)) = agree("rkv_cache_insert", inserted, plan)? else {
            return Ok(None);
        };
        require!(
            published == plan.published,
            "published pages are {published:?}, in the model {:?}",
            plan.published
        );
        equal!("rkv_cache_insert",
            claimed: plan.claimed.len(), seen.claimed_page_count;
            duplicates: plan.duplicates, seen.duplicate_page_count;
        );
        let node = self.model.insert(ns, &tokens, &plan);
        self.names.bind_option(node, seen.node)?;
        let whole_pages = tokens.positions() / self.model.config.page_size;
        if let Some(node) = node {
            self.remember(Earlier { ns, prompt: prompt.clone(), node, whole_pages });
        }
        Ok(node.map(|node| (node, plan.claimed.len())))
    }

    /// Gives back what was allocated for an insert and not claimed.
    fn free_left_over(&mut self, pages: &[u32], keep: bool) -> Result<(), Wrong> {
        if keep {
            return Ok(());
        }
        let loose = self.loose();
        let left: Vec<u32> = pages.iter().copied().filter(|page| loose.contains(page)).collect();
        self.free(&left)
    }

    pub fn insert_row(&mut self, row: Pick, ns: u8, prompt: &Prompt) -> Result<(), Wrong> {
        let Some(slot) = pick(&self.own_slots(), row) else { return Ok(()) };
        let pages = self.model.row(slot).expect("it is in use").pages.clone();
        let prompt = prompt.cut(pages.len() * self.model.config.page_size);
        let list = TokenList::of(&prompt);
        let call = InsertCall {
            ns,
            tokens: &list,
            pages: &pages,
            from_node: 0,
            from_token_index: 0,
            from_page_index: 0,
        };
        if let Some((node, claimed)) = self.insert_call(&call, self.model.space(ns), &prompt)?
            && claimed > 0
        {
            // The row maps pages of the cache now, which must stay for as long.
            let lock = self.lock_node(node)?.expect("it was just found");
            self.row_locks.entry(slot).or_default().push(lock);
        }
        Ok(())
    }

    pub fn insert_wrong(
        &mut self,
        wrong: Fault,
        earlier: Pick,
        ns: u8,
        prompt: &Prompt,
    ) -> Result<(), Wrong> {
        let tokens = Tokens::of(prompt);
        if tokens.bad {
            return Ok(());
        }
        let whole = tokens.positions() / self.model.config.page_size;
        let Some(allocated) = self.allocate(whole)? else { return Ok(()) };
        self.try_wrong(wrong, earlier, ns, prompt, allocated.clone())?;
        self.free(&allocated)
    }

    fn try_wrong(
        &mut self,
        wrong: Fault,
        earlier: Pick,
        ns: u8,
        prompt: &Prompt,
        mut pages: Vec<u32>,
    ) -> Result<(), Wrong> {
        let page_size = self.model.config.page_size;
        let tokens = Tokens::of(prompt);
        let plan = self.model.insert_plan(self.model.space(ns), &tokens, &pages, 0);
        let claimed = plan.map_or(0, |plan| plan.claimed.len());
        let mut list = TokenList::of(prompt);
        let (mut from_node, mut from_token_index, mut from_page_index) = (0, 0, 0);
        let mut expected = Status::InvalidArgument;
        let model = &self.model;
        let of_sequence = |page: Page| match page {
            Page::InRow(slot) => model.row(slot).is_ok_and(|row| row.owned),
            Page::Kept | Page::Lent => true,
            _ => false,
        };
        let bad_page = match wrong {
            Fault::PageZero => Some(0),
            Fault::PageOutOfRange => Some(self.model.config.page_count as u32),
            Fault::PageFree => pick(&self.model.pages_in(|page| page == Page::Free), earlier),
            Fault::PageTwice if claimed > 1 => Some(pages[pages.len() - 2]),
            Fault::PageCachedElsewhere => {
                pick(&self.model.pages_in(|page| page == Page::Cached), earlier)
            }
            Fault::PageOfSequence => pick(&self.model.pages_in(of_sequence), earlier),
            _ => None,
        };
        match wrong {
            Fault::TooFewPages if !pages.is_empty() => {
                pages.pop();
            }
            Fault::IndexWithoutNode => from_page_index = 1,
            Fault::ForeignNode => {
                from_node = self.foreign.node;
                expected = Status::StaleNode;
            }
            Fault::TokenIndexTooSmall
            | Fault::TokenIndexTooLarge
            | Fault::PageIndexTooSmall
            | Fault::PageIndexTooLarge
            | Fault::OtherPrefix => {
                let Some(earlier) = pick(&self.earlier, earlier) else { return Ok(()) };
                let found = self.model.lives.is_found(earlier.ns);
                if !found || !self.model.cache.is_live(earlier.node) {
                    return Ok(());
                }
                // A page of text more, so that an index too large still lies in the tokens.
                let more = Prompt(vec![Piece::Text(9000, 2 * page_size as u32)]);
                let mut prompt = earlier.prompt.then(&more);
                if wrong == Fault::OtherPrefix {
                    prompt.0[0] = match prompt.0[0] {
                        Piece::Text(id, count) => Piece::Text(id + 1, count),
                        Piece::Coord(bin) => Piece::Text(bin, 1),
                        Piece::Size(width, height) => Piece::Size(width, height + 1),
                        Piece::Image(content, positions) => Piece::Image(content + 1, positions),
                    };
                }
                let tokens = Tokens::of(&prompt);
                list = TokenList::of(&prompt);
                pages = vec![u32::MAX; tokens.positions() / page_size];
                from_node = self.names.id(earlier.node);
                from_page_index = earlier.whole_pages;
                from_token_index = tokens.count_within(from_page_index * page_size);
                match wrong {
                    Fault::TokenIndexTooSmall if from_token_index == 0 => return Ok(()),
                    Fault::TokenIndexTooSmall => from_token_index -= 1,
                    Fault::TokenIndexTooLarge => from_token_index += page_size,
                    Fault::PageIndexTooSmall => from_page_index -= 1,
                    Fault::OtherPrefix => {}
                    _ => from_page_index += 1,
                }
            }
            _ => {
                // Only a page that would be claimed is looked at.
                let (Some(bad), true) = (bad_page, claimed > 0) else { return Ok(()) };
                *pages.last_mut().expect("one would be claimed") = bad;
            }
        }
        if wrong == Fault::TooFewPages && tokens.positions() / page_size == pages.len() {
            return Ok(());
        }
        let call = InsertCall {
            ns,
            tokens: &list,
            pages: &pages,
            from_node,
            from_token_index,
            from_page_index,
        };
        let inserted = self.library.insert(&call).map(|_| ());
        let refused: Result<(), Refusal> = Err(expected.into());
        agree(&format!("rkv_cache_insert with {wrong:?}"), inserted, refused)?;
        Ok(())
    }
}
