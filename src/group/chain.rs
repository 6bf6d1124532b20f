//! Chains of uses: whoever uses a page of a FULL group uses the one before it on its path, and so
//! all up to the first.
//!
//! Each page in use counts as one user of the page before it, however many users it has itself: so
//! a prefix that somebody uses already costs the next user one page, and a long one can be taken
//! page by page from its beginning, and let go of from its end. A page may also be used without a
//! chain, as those of other groups are: a copy reads one, an insert brings one before those that
//! come ahead of it.
use super::hung::Entry;
use super::queue::NONE;
use super::{Class, Hung, HungPage, Spine};

impl Entry {
    /// The page before it in a chain; NONE without one.
    fn before(&self) -> u32 {
        if self.users > 0 { self.older } else { NONE }
    }
}

impl Hung {
    /// The page before one in a chain.
    pub fn before(&self, HungPage { group, page }: HungPage) -> Option<HungPage> {
        let before = self.pools[self.pool_of(group)].entries[page as usize].before();
        (before != NONE).then_some(HungPage { group, page: before })
    }

    /// How many pages a FULL group has at the beginning of a path, of `count` at most, with none
    /// missing. What is in use in a chain is not looked at page by page, nor are the first `seen`
    /// pages: they were seen to be there.
    pub fn unbroken(
        &self,
        group: usize,
        path: &mut impl Spine,
        (count, seen): (usize, usize),
    ) -> usize {
        let mut end = count;
        for place in (seen..count).rev() {
            match self.page(group, path.page(place)) {
                NONE => end = place,
                page if self.before(HungPage { group, page }).is_some() => break,
                _ => {}
            }
        }
        end
    }

    /// Begins to use the page of a FULL group at a place, and all before it: none is missing.
    pub fn begin_chain(&mut self, group: usize, path: &mut impl Spine, last: usize) -> HungPage {
        let end = HungPage { group, page: self.page(group, path.page(last)) };
        self.begin_use(end);
        let (mut at, mut place) = (end, last);
        while place > 0 && self.before(at).is_none() {
            place -= 1;
            let before = HungPage { group, page: self.page(group, path.page(place)) };
            self.begin_use(before);
            self.entry(at).older = before.page;
            at = before;
        }
        end
    }

    /// How many of the first `count` pages of a FULL group, none of which is missing, nobody uses.
    pub fn unused_in_chain(&self, group: usize, path: &mut impl Spine, count: usize) -> usize {
        let mut unused = 0;
        for place in (0..count).rev() {
            let page = HungPage { group, page: self.page(group, path.page(place)) };
            if self.before(page).is_some() {
                break;
            }
            unused += usize::from(self.users(page) == 0);
        }
        unused
    }

    /// Moves a use from the page before one, if there is one, to that one, which has a use of its
    /// own already.
    pub fn follow(&mut self, next: HungPage, before: Option<u32>) {
        let Some(before) = before else { return };
        let entry = self.entry(next);
        debug_assert!(entry.users > 0, "page {} is not in use", next.page);
        match entry.before() {
            // The use of the one before is that of this one from now on.
            NONE => entry.older = before,
            there => {
                debug_assert_eq!(there, before, "a page has one place on a path");
                let entry = self.entry(HungPage { page: before, ..next });
                assert!(entry.users > 1, "a chain uses page {before}");
                entry.users -= 1;
            }
        }
    }

    /// Undoes one `begin_use`. The last one says of what class the page is now, and undoes those
    /// of the chain before it.
    pub fn end_use(&mut self, hung: HungPage, class: Option<Class>, now: u64) {
        let mut next = self.end_one_use(hung, class, now);
        while let Some(before) = next {
            next = self.end_one_use(before, None, now);
        }
    }

    /// The same but for the page before it in a chain, whose use is left to undo then.
    pub fn end_one_use(
        &mut self,
        hung: HungPage,
        class: Option<Class>,
        now: u64,
    ) -> Option<HungPage> {
        let entry = self.entry(hung);
        assert!(entry.users > 0, "page {} is not in use", hung.page);
        let before = entry.before();
        entry.users -= 1;
        entry.class = class.unwrap_or(entry.class);
        if entry.users > 0 {
            return None;
        }
        self.pool(hung.group).enqueue(hung.page, now);
        (before != NONE).then_some(HungPage { page: before, ..hung })
    }

    /// Counts a retained sequence, which uses a page, among the users of it and of its chain.
    pub fn retain(&mut self, hung: HungPage) {
        let mut next = Some(hung);
        while let Some(at) = next {
            let entry = self.entry(at);
            entry.retained += 1;
            next = if entry.retained == 1 { self.before(at) } else { return };
            self.pool(at.group).retained += 1;
        }
    }

    /// Undoes one `retain`.
    pub fn retain_no_more(&mut self, hung: HungPage) {
        let mut next = Some(hung);
        while let Some(at) = next {
            let entry = self.entry(at);
            entry.retained -= 1;
            next = if entry.retained == 0 { self.before(at) } else { return };
            self.pool(at.group).retained -= 1;
        }
    }

    /// How many retained sequences keep a page, with those pages behind it in a chain that one
    /// keeps.
    pub fn keepers(&self, HungPage { group, page }: HungPage) -> u32 {
        self.pools[self.pool_of(group)].entries[page as usize].retained
    }

    /// Begins to keep a page as a retained sequence does, and to use it, instead of the one before
    /// it in its chain, which is kept so; of the first unkept page of a chain, beside it.
    pub fn keep_next(&mut self, next: HungPage, before: Option<HungPage>) {
        self.begin_use(next);
        self.follow(next, before.map(|before| before.page));
        let entry = self.entry(next);
        entry.retained += 1;
        if entry.retained == 1 {
            // The one before is kept on behalf of this one from now on.
            self.pool(next.group).retained += 1;
        } else if let Some(before) = before {
            let entry = self.entry(before);
            assert!(entry.retained > 1, "a chain keeps page {}", before.page);
            entry.retained -= 1;
        }
    }

    /// Undoes one `keep_next`, but for the page before it in the chain, if that was kept for this
    /// one alone: it is kept, and used, instead.
    pub fn end_one_keep(&mut self, hung: HungPage, now: u64) -> Option<HungPage> {
        let entry = self.entry(hung);
        entry.retained -= 1;
        let (is_last, is_used) = (entry.retained == 0, entry.users > 1);
        let before = self.before(hung).filter(|_| is_last);
        if is_last {
            self.pool(hung.group).retained -= 1;
        }
        if is_used && let Some(before) = before {
            // Who uses this one uses that one too.
            self.begin_use(before);
        }
        let left = self.end_one_use(hung, None, now);
        debug_assert!(is_used || left == before, "what nobody uses leaves its chain");
        before
    }
}
