//! The executable specification of the cache: match, insert, lock, and the end of a cache.
use super::naive::{Counters, Cut, Fault, Naive, Page, Refusal, Wrong, require};
use super::ops::Config;
use super::prompt::Tokens;
use super::published::{Label, PublishedPages};
use super::spaces::Space;
use radixkv::capi::rkv_status as Status;
use std::collections::BTreeSet;

/// What an insert comes to.
#[derive(Clone, Debug)]
pub struct InsertPlan {
    /// The cache's page at each index, and the caller's after the last whole page.
    pub published: Vec<u32>,
    /// Always the last whole pages.
    pub claimed: Vec<u32>,
    pub duplicates: usize,
}

impl Naive {
    /// What of a prompt's longest cached prefix may be reused, when `limit` positions at most may.
    pub fn cut(&self, tokens: &Tokens, raw: usize, limit: usize, whole_pages: bool) -> Cut {
        let page_size = self.config.page_size;
        let limit = raw.min(limit);
        let at = if whole_pages {
            let pages = (0..=limit / page_size).rev().map(|pages| pages * page_size);
            pages.into_iter().find(|&at| tokens.is_boundary(at)).expect("0 is a boundary")
        } else {
            tokens.boundary_within(limit)
        };
        let (whole_pages, partial) = (at / page_size, at % page_size);
        Cut { tokens: tokens.count_within(at), whole_pages, partial }
    }

    pub fn match_cut(&self, ns: Space, tokens: &Tokens) -> Cut {
        let longest = self.cache.longest(ns, &tokens.keys);
        let mut raw = longest.path.len() * self.config.page_size + longest.partial;
        if !tokens.is_boundary(raw) {
            self.mark("an image is cached in part");
        }
        if self.fault == Fault::LongerMatch && longest.partial > 0 && raw < tokens.positions() {
            raw += 1;
        }
        self.cut(tokens, raw, tokens.positions(), self.config.whole_pages)
    }

    /// The pages of the first whole pages of a prompt.
    pub fn whole_pages(&self, ns: Space, tokens: &Tokens, count: usize) -> Vec<u32> {
        let path = self.cache.longest(ns, &tokens.keys).path;
        path[..count].iter().map(|&page| self.cache.pages[page].page).collect()
    }

    /// A lookup reached the end of these whole pages: their node ends there, the path is refreshed.
    pub fn refresh(&mut self, ns: Space, tokens: &Tokens, whole_pages: usize) -> Option<Label> {
        let path = self.cache.longest(ns, &tokens.keys).path;
        let now = self.cache.now();
        let end = *path[..whole_pages].last()?;
        if self.cache.pages[end].mark.is_none() {
            self.mark("a match splits a node");
        }
        let forgotten = if self.fault == Fault::ForgetsPath { whole_pages - 1 } else { 0 };
        for &page in &path[forgotten..whole_pages] {
            self.cache.pages[page].used = now;
        }
        for &page in &path[..whole_pages] {
            self.cache.pages[page].hits += 1;
        }
        Some(self.cache.split_after(end))
    }

    pub fn count_lookup(&mut self, asked: usize, cut: Cut) {
        self.counters.lookups += 1;
        self.counters.lookup_positions += asked;
        self.counters.hit_positions += cut.whole_pages * self.config.page_size + cut.partial;
        self.counters.partial_hit_positions += cut.partial;
    }

    /// The node that owns the page that the library wants to copy from, if it may. When it is to be
    /// locked, it ends with that page.
    pub fn copy_node(
        &mut self,
        ns: Space,
        tokens: &Tokens,
        cut: Cut,
        source: u32,
        lock: bool,
    ) -> Result<Label, Wrong> {
        let whole = cut.whole_pages * self.config.page_size;
        let sources = self.cache.copy_sources(ns, &tokens.keys, whole, cut.partial);
        if sources.len() > 1 {
            self.mark("several pages to copy from");
        }
        require!(sources.contains(&source), "page {source} is copied, not one of {sources:?}");
        let page = self.cache.by_page(source).expect("it is published");
        if lock {
            if self.cache.pages[page].mark.is_none() {
                self.mark("a lock splits a node after the page to copy from");
            }
            // It was used with the pages before it.
            let used = self.cache.latest();
            let copied = &mut self.cache.pages[page];
            (copied.used, copied.hits) = (used, copied.hits + 1);
            return Ok(self.cache.split_after(page));
        }
        Ok(self.cache.label(self.cache.node_end(page)))
    }

    /// Carries out a match. Returns its node and the node of the partial page.
    pub fn lookup(
        &mut self,
        ns: Space,
        tokens: &Tokens,
        lock: bool,
        partial_page: u32,
    ) -> Result<(Option<Label>, Option<Label>), Wrong> {
        let cut = self.match_cut(ns, tokens);
        self.count_lookup(tokens.positions(), cut);
        let node = self.refresh(ns, tokens, cut.whole_pages);
        let partial = match cut.partial {
            0 => None,
            _ => Some(self.copy_node(ns, tokens, cut, partial_page, lock)?),
        };
        if let Some(node) = partial.or(node).filter(|_| lock) {
            self.cache.mark_mut(node).expect("it is live").locks += 1;
        }
        Ok((node, partial))
    }

    /// How each whole page of an insert fares.
    pub fn insert_plan(
        &self,
        ns: Space,
        tokens: &Tokens,
        pages: &[u32],
        from_page: usize,
    ) -> Result<InsertPlan, Refusal> {
        let page_size = self.config.page_size;
        let whole = tokens.positions() / page_size;
        if tokens.bad || pages.len() < whole || whole < from_page {
            return Err(Status::InvalidArgument.into());
        }
        let mut plan = InsertPlan { published: pages.to_vec(), claimed: vec![], duplicates: 0 };
        for (index, &given) in pages.iter().enumerate().take(whole) {
            match self.cache.find(ns, &tokens.keys[..(index + 1) * page_size]) {
                Some(there) => {
                    let there = self.cache.pages[there].page;
                    plan.duplicates += usize::from(index >= from_page && there != given);
                    plan.published[index] = there;
                }
                None => plan.claimed.push(given),
            }
        }
        let claimable = |&page: &u32| match self.pages.get(page as usize) {
            Some(Page::Loose) => true,
            Some(Page::InRow(slot)) => !self.rows[*slot as usize].as_ref().unwrap().owned,
            _ => false,
        };
        let different = plan.claimed.iter().collect::<BTreeSet<_>>().len() == plan.claimed.len();
        if !different || !plan.claimed.iter().all(claimable) {
            return Err(Status::InvalidArgument.into());
        }
        Ok(plan)
    }

    pub fn insert(&mut self, ns: Space, tokens: &Tokens, plan: &InsertPlan) -> Option<Label> {
        let whole = tokens.positions() / self.config.page_size;
        if plan.duplicates > 0 && !plan.claimed.is_empty() {
            self.mark("an insert finds a part there");
        }
        self.counters.duplicates += plan.duplicates;
        self.counters.inserted += plan.claimed.len();
        self.publish_after(ns, tokens, whole, &plan.claimed)
    }

    /// Adds pages to those that are published already, `whole` in all. Returns the node there.
    pub fn publish_after(
        &mut self,
        ns: Space,
        tokens: &Tokens,
        whole: usize,
        claimed: &[u32],
    ) -> Option<Label> {
        let there = whole - claimed.len();
        let path = self.cache.longest(ns, &tokens.keys).path;
        if let Some(&last) = path[..there].last() {
            if self.cache.pages[last].mark.is_none() {
                self.mark("an insert splits a node");
            }
            self.cache.split_after(last);
        }
        self.cache.add(ns, &tokens.keys, there, claimed);
        claimed.iter().for_each(|&page| self.pages[page as usize] = Page::Cached);
        self.node_after(ns, tokens, whole)
    }

    /// The node that ends after the first whole pages of a prompt.
    pub fn node_after(&self, ns: Space, tokens: &Tokens, whole: usize) -> Option<Label> {
        let end = self.cache.find(ns, &tokens.keys[..whole * self.config.page_size])?;
        Some(self.cache.label(end))
    }

    pub fn lock(&mut self, node: Label) -> Result<(), Refusal> {
        self.cache.mark_mut(node).ok_or(Status::StaleNode)?.locks += 1;
        Ok(())
    }

    pub fn unlock(&mut self, node: Label) {
        let nodes = self.cache.node_count();
        self.cache.unlock(node);
        if self.cache.node_count() < nodes {
            self.mark("an unlock merges nodes");
        }
        let cached = self.cache.pages.len();
        self.drop_cleared();
        if self.cache.pages.len() < cached {
            self.mark("cleared pages go when they are let go");
        }
    }

    /// The cache goes, and another one comes.
    pub fn recreate_cache(&mut self) {
        for index in 0..self.sequences.len() {
            if let Some(sequence) = self.sequences[index].take() {
                self.drop_row(sequence.slot);
            }
        }
        for slot in 0..self.rows.len() as u32 {
            let Some(row) = self.rows[slot as usize].as_mut() else { continue };
            let is_cached = |&page: &u32| self.pages[page as usize] == Page::Cached;
            let kept = row.pages.iter().position(is_cached).unwrap_or(row.pages.len());
            for page in row.pages.split_off(kept) {
                if self.pages[page as usize] == Page::InRow(slot) {
                    self.pages[page as usize] = Page::Free;
                }
            }
        }
        self.retained.clear();
        let left = |page| matches!(page, Page::Cached | Page::Kept | Page::Lent);
        for page in self.pages_in(left) {
            self.pages[page as usize] = Page::Free;
        }
        let Config { page_size, block_hash, .. } = self.config;
        self.cache = PublishedPages::new(page_size, block_hash, self.cache.next_label());
        self.counters = Counters::default();
    }
}
