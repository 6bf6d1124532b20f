//! Long windows: what an end needs of groups that slide is looked for, and used, in portions,
//! before the step that takes what was found.
//!
//! The search for that end goes in portions, and then each page that it needs is used, in a hold.
//! So the step need not look at them: it gives the hold's uses to a lock, or leaves them to the
//! rows that are written afterwards. Where a page was taken away before it could be used, the
//! search begins anew. An end other than the one that was looked for is taken in the step, page by
//! page.
use super::group_ahead::SpinePages;
use super::group_cache::GroupCache;
use super::group_holds::Use;
use super::{Descent, LongQuery, PrefixCache, Turn};
use crate::error::Error;
use crate::group::{Class, HungPage, Reached, Search, Seen, Spine};
use std::ops::Range;

/// Pages of a window from which on it is long, for each page of a slice: 768.
const LONG: usize = 3;
/// Pages that are looked at in a portion, for each page of a slice: 1024, some 5 microseconds.
const LOOKED_AT: usize = 4;
/// Times that a search begins anew.
const TRIES: usize = 4;

/// What a call knows of groups, and uses, ahead of its step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ahead {
    pub(super) seen: Seen,
    /// The hold that uses what was seen of windows.
    pub(super) windows: Option<u32>,
}

/// What a search ahead of a step found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Searched {
    /// Positions that were known in group 0.
    pub(super) known: usize,
    /// What all groups can reuse of those.
    pub(super) reached: Reached,
    /// What of that a sequence that begins with the query can, which leaves a token to compute.
    pub(super) begin: Option<usize>,
}

/// What a descent knows of a query.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known<'a> {
    /// The first pages of group 0.
    pub(super) pages: &'a [u32],
    pub(super) ahead: Ahead,
    /// None where nobody searched.
    pub(super) searched: Option<&'a Searched>,
}

impl Descent {
    /// All that it knows.
    #[inline(always)]
    pub(super) fn known(&self, cache: &PrefixCache) -> Known<'_> {
        let searched = self.groups.as_ref().and_then(|groups| groups.searched(cache));
        Known { pages: self.pages(), ahead: self.ahead(cache), searched }
    }

    /// Positions that a sequence can begin with, as far as that is known.
    pub(crate) fn reused(&self, cache: &PrefixCache) -> usize {
        let begin = self.known(cache).searched.and_then(|searched| searched.begin);
        begin.unwrap_or(self.known_end() * cache.page_size())
    }
}

impl Ahead {
    /// What is in use already of what an end at so many positions needs.
    pub(super) fn used(&self) -> Seen {
        if self.windows.is_some() { self.seen } else { Seen::default() }
    }

    /// Whether a hold uses all that such an end needs of windows.
    pub(super) fn is_for(&self, positions: usize) -> bool {
        self.windows.is_some() && self.seen.windows == positions
    }
}

impl Spine for SpinePages<'_> {
    fn page(&mut self, place: usize) -> u32 {
        self.at(place)
    }
}

impl GroupCache {
    /// Takes the uses of the hold that has what an end at so many positions needs of windows.
    pub(super) fn take_windows(&mut self, ahead: Ahead, positions: usize) -> Option<Vec<Use>> {
        let at = ahead.windows.filter(|_| ahead.is_for(positions))?;
        self.hold_bytes -= self.holds[at].bytes();
        Some(std::mem::take(&mut self.holds[at].uses))
    }
}

impl PrefixCache {
    /// Whether a group has windows that may be longer than others should wait for.
    pub(super) fn has_long_windows(&self, slice: usize) -> bool {
        let (page_size, most) = (self.page_size(), LONG.saturating_mul(slice));
        self.groups.as_deref().is_some_and(|groups| {
            let mut sliding = groups.groups.hung().filter(|(_, config)| config.kind.slides());
            sliding.any(|(_, config)| config.kind.most(page_size) > most)
        })
    }

    /// What a prefix of so many pages at most needs of windows, and what a lock uses beside that.
    pub(super) fn most_uses(&self, pages: usize) -> usize {
        let page_size = self.page_size();
        let groups = self.groups.as_deref().expect("there are several groups");
        let most = groups.groups.hung().map(|(_, config)| match config.kind.slides() {
            true => config.kind.most(page_size).min(pages),
            false => 1,
        });
        most.sum()
    }

    /// Lets a hold use the pages of a group at some places, all of them, or those that are there.
    /// False when it was to be all, and one is missing.
    fn use_window(
        &mut self,
        at: u32,
        (group, spine): (usize, SpinePages<'_>),
        (places, is_whole): (Range<usize>, bool),
    ) -> bool {
        let now = self.index.now();
        let GroupCache { hung, holds, .. } =
            self.groups.as_deref_mut().expect("there are several groups");
        for place in places {
            let page = HungPage { group, page: hung.page(group, spine.at(place)) };
            if page.page == 0 && is_whole {
                return false;
            } else if page.page == 0 {
                continue;
            }
            hung.begin_use(page);
            // The end of something, from now on.
            hung.touch(page, Class::Tail, now);
            holds[at].add(page, place);
        }
        true
    }
}

impl Turn<'_> {
    /// Looks for the end of a query that all groups can reuse, of which so much is known in group
    /// 0, or with `begins` for that of a sequence that begins with it. Uses what that needs of
    /// windows, in a hold. None where others took that away each time.
    pub(super) fn search_ahead(
        &mut self,
        query: &LongQuery<'_>,
        spine: SpinePages<'_>,
        (known, begins): (usize, bool),
        (seen, hold): (Seen, Option<u32>),
    ) -> Result<Option<(Seen, Searched)>, Error> {
        let keys = query.keys();
        for _ in 0..TRIES {
            let mut reached = self.search(query, spine, (Reached::all(known), seen))?;
            let (mut end, mut begin) = (reached.positions, None);
            if begins {
                let most = end.min(keys.positions - 1);
                if most < end {
                    let most = self.cache()?.reusable(keys.boundary(most), keys);
                    let again = self.search(query, spine, (Reached::all(most), seen))?;
                    // All of it could be reused, but not so that a token is left to compute.
                    if reached.costliest() == 0 {
                        reached.lost = again.lost;
                    }
                    end = again.positions;
                }
                begin = Some(end);
            }
            let found = Seen { windows: end, end: end / self.table.page_size(), ..seen };
            let searched = Searched { known, reached, begin };
            let Some(at) = hold else { return Ok(Some((found, searched))) };
            if self.use_windows(at, spine, found, true)? {
                return Ok(Some((found, searched)));
            }
            self.empty_hold(at)?;
        }
        Ok(None)
    }

    /// What all groups can reuse of a query, of what was reached before.
    fn search(
        &mut self,
        query: &LongQuery<'_>,
        spine: SpinePages<'_>,
        (before, seen): (Reached, Seen),
    ) -> Result<Reached, Error> {
        let keys = query.keys();
        let mut search = Search::new(before, self.table.page_size(), seen);
        loop {
            let most = LOOKED_AT.saturating_mul(self.shared.slice);
            let cache = self.cache()?;
            let groups = cache.groups.as_deref().expect("there are several groups");
            let fit = |positions| cache.reusable(keys.boundary(positions), keys);
            if search.go_on(&groups.groups, &groups.hung, (fit, || spine), most) {
                return Ok(search.reached());
            }
            self.let_in()?;
        }
    }

    /// Uses what an end needs of windows, in portions, but for a page in which it is. False when
    /// some of that is missing, unless holes are no matter.
    fn use_windows(
        &mut self,
        at: u32,
        spine: SpinePages<'_>,
        end: Seen,
        is_whole: bool,
    ) -> Result<bool, Error> {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        for (group, config) in groups.hung().filter(|(_, config)| config.kind.slides()) {
            let needs = end.of(config.kind, page_size);
            for places in [needs.sinks, needs.last] {
                let mut start = places.start;
                while start < places.end {
                    let to = places.end.min(start.saturating_add(self.shared.slice));
                    let cache = self.parts()?.0;
                    if !cache.use_window(at, (group, spine), (start..to, is_whole)) {
                        return Ok(false);
                    }
                    start = to;
                    self.let_in()?;
                }
            }
        }
        Ok(true)
    }

    /// Ends what a call uses of windows, in portions, so that those pages can be had. Whether it
    /// used any.
    pub(crate) fn leave_windows(&mut self, descent: &mut Descent) -> Result<bool, Error> {
        let Some(at) = descent.forget_windows() else { return Ok(false) };
        let groups = self.cache()?.groups.as_deref().expect("there are several groups");
        if groups.holds[at].uses.is_empty() {
            return Ok(false);
        }
        self.empty_hold(at)?;
        descent.forget_walk();
        // Others were let in.
        self.leave_cleared(descent)?;
        Ok(true)
    }

    /// Ends what a hold uses, in portions.
    fn empty_hold(&mut self, at: u32) -> Result<(), Error> {
        let slice = self.shared.slice;
        while self.parts()?.0.end_some_uses(at, slice) {
            self.let_in()?;
        }
        Ok(())
    }

    /// Uses what windows have for the end of a path of whole pages, whose lock is to follow.
    pub(super) fn windows_to(&mut self, at: u32, spine: SpinePages<'_>) -> Result<Seen, Error> {
        let (end, page_size) = (spine.whole(), self.table.page_size());
        let seen = Seen { windows: end * page_size, end, ..Seen::default() };
        self.use_windows(at, spine, seen, false)?;
        Ok(seen)
    }
}
