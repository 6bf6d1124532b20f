//! Rows of groups that come in with a long insert: hung on the pages of group 0, which are there by
//! then, in portions from the end up.
//!
//! What hangs at the places of such a row is in use until the call ends, but for states that others
//! saved: whoever gave a page would take it for his own, had the cache given it up meanwhile.
use super::group_cache::{Before, GroupCache};
use super::group_holds::Use;
use super::group_insert::{ComingPages, GroupRow, HangResult};
use super::group_limit::SavedAt;
use super::{Descent, InsertRequest, PrefixCache, Turn};
use crate::error::{Error, text};
use crate::group::{GROUP_LIMIT, GroupKind, HungPage};
use crate::index::Walk;
use crate::memory::{OutOfMemory, TryGrow, try_touched_room};
use crate::paging::{PageSet, PageTable};
use std::ops::Range;

/// Places of a row that are checked before others are let in, for each page of a slice.
const CHECKED: usize = 4;
/// Places before those of an insert among which the state before them is looked for.
const LINKED: usize = 4096;

/// Gets the number of a row, a place and the page of the cache there; 0 for none.
pub type TellRow<'a> = Option<&'a mut dyn FnMut(usize, usize, u32)>;

/// The pages of rows that a call uses.
#[derive(Debug, Default)]
pub(super) struct HeldRows {
    /// The hold.
    at: Option<u32>,
    /// Caches that were gone before theirs.
    gone: u64,
}

impl HeldRows {
    /// Whether pages of rows are used, or were going to be.
    pub(super) fn is_some(&self) -> bool {
        self.at.is_some()
    }
}

/// What was done of long rows.
#[derive(Default)]
struct Hung {
    done: HangResult,
    /// Groups of which pages came.
    came: [bool; GROUP_LIMIT],
    /// The first place at which one came.
    first: Option<usize>,
    /// Of STATE groups the deepest state, and the last one that was passed: its page of group 0.
    saved_at: SavedAt,
    passed: [Option<u32>; GROUP_LIMIT],
}

impl PrefixCache {
    /// Hangs the pages of rows at some places where there are none, and uses all that are there.
    /// These are the pages of group 0.
    fn hang_places(
        &mut self,
        table: &mut PageTable,
        (request, places): (&InsertRequest<'_>, Range<usize>),
        (spine, at): (&[u32], u32),
        (hung, tell): (&mut Hung, &mut TellRow<'_>),
    ) {
        let groups = self.groups.as_deref_mut().expect("rows were found good");
        let mut uses = std::mem::take(&mut groups.holds[at].uses);
        let first = uses.len();
        for (number, row) in request.groups.iter().enumerate() {
            let (group, from) = (row.group, uses.len());
            self.cut_links(group, &row.pages[places.clone()], &spine[places.clone()]);
            let mut hanging = self.begin_hanging().expect("there are several groups");
            let pool = table.pool_at_mut(hanging.hung.pool_of(group));
            for place in places.clone() {
                let given = row.pages[place];
                let mut page = hanging.hung.page(group, spine[place]);
                // Whoever gave it may have given it away meanwhile.
                let is_free = page == 0 && pool.may_claim(given);
                if is_free && pool.claim_all(&[given], "pages", place).is_ok() {
                    page = given;
                    hanging.hang(HungPage { group, page }, spine[place]);
                    hung.done.claimed += 1;
                    hung.came[group] = true;
                    let first = hung.first.unwrap_or(place);
                    hung.first = Some(first.min(place));
                } else if given != 0 && page != 0 && page != given {
                    hung.done.duplicates += 1;
                }
                if let Some(tell) = tell {
                    tell(number, place, page);
                }
                if page != 0 {
                    let page = HungPage { group, page };
                    hanging.hung.begin_use(page);
                    uses.push(Use { page, place });
                }
            }
            // They go in the order in which they came.
            uses[from..].reverse();
        }
        self.link_places(&uses[first..], spine, hung);
        self.leave_others_states(request, &mut uses, first);
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        groups.holds[at].uses = uses;
    }

    /// Has what hangs on some pages of group 0 go from the end up, as what was used does: what
    /// comes behind a page needs it. Of states the last one is of most use.
    fn renew_places(&mut self, request: &InsertRequest<'_>, spine: &[u32]) {
        let now = self.index.now();
        let GroupCache { groups, hung, .. } =
            self.groups.as_deref_mut().expect("there are several groups");
        let is_state = |group: usize| groups.list()[group].kind == GroupKind::State;
        for row in request.groups.iter().filter(|row| !is_state(row.group)) {
            for &spine in spine.iter().rev() {
                let page = hung.page(row.group, spine);
                if page != 0 {
                    hung.renew(HungPage { group: row.group, page }, now);
                }
            }
        }
    }

    /// Uses the states no longer that others saved, of the uses from one on: when all rows have
    /// come, some of them may be more than a path keeps. Whoever gave another page knows that it is
    /// still his.
    fn leave_others_states(
        &mut self,
        request: &InsertRequest<'_>,
        uses: &mut Vec<Use>,
        first: usize,
    ) {
        let now = self.index.now();
        let GroupCache { groups, hung, saved, .. } =
            self.groups.as_deref_mut().expect("there are several groups");
        if saved.limit() == 0 {
            return;
        }
        let mut kept = first;
        for at in first..uses.len() {
            let Use { page, place } = uses[at];
            let of_others =
                |row: &GroupRow<'_>| row.group == page.group && row.pages[place] != page.page;
            let is_state = groups.list()[page.group].kind == GroupKind::State;
            if is_state && request.groups.iter().any(of_others) {
                hung.end_use(page, None, now);
            } else {
                uses[kept] = uses[at];
                kept += 1;
            }
        }
        uses.truncate(kept);
    }

    /// Says that states are about to come to pages of group 0: what was saved there before is no
    /// matter to them.
    fn cut_links(&mut self, group: usize, given: &[u32], spine: &[u32]) {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        if groups.saved.limit() == 0 || groups.groups.list()[group].kind != GroupKind::State {
            return;
        }
        for (_, &spine) in given.iter().zip(spine).filter(|(given, _)| **given != 0) {
            if groups.hung.page(group, spine) == 0 {
                groups.saved.follow(group, spine, None);
            }
        }
    }

    /// Links the states among some pages, from the deepest up.
    fn link_places(&mut self, uses: &[Use], spine: &[u32], hung: &mut Hung) {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        if groups.saved.limit() == 0 {
            return;
        }
        for &Use { page: HungPage { group, .. }, place } in uses {
            if groups.groups.list()[group].kind != GroupKind::State {
                continue;
            }
            match hung.passed[group].replace(spine[place]) {
                Some(deeper) => groups.saved.follow(group, deeper, Some(place)),
                None => hung.saved_at[group] = Some(place),
            }
        }
    }

    /// Links the highest states that were passed with those before a place, and drops what is more
    /// than the limit on states.
    fn end_links(&mut self, table: &mut PageTable, descent: &Descent, (hung, from): (Hung, usize)) {
        let (spine, Some(end)) = (descent.pages(), descent.held()) else { return };
        let Hung { came, mut saved_at, passed, .. } = hung;
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        if groups.saved.limit() == 0 {
            return;
        }
        for group in 1..GROUP_LIMIT {
            if !came[group] {
                saved_at[group] = None;
            }
            if let Some(first) = passed[group]
                && groups.saved.before(group, first).is_none()
            {
                let mut above = (from.saturating_sub(LINKED)..from).rev();
                let before = above.find(|&place| groups.hung.page(group, spine[place]) != 0);
                groups.saved.follow(group, first, before);
            }
        }
        self.drop_surplus(table, end, (saved_at, &ComingPages::default()));
    }
}

impl Turn<'_> {
    /// Whether publishing these rows takes longer than others should wait for.
    pub(super) fn are_long_rows(&self, request: &InsertRequest<'_>, pages: usize) -> bool {
        let places = pages.saturating_sub(request.from_page);
        places.saturating_mul(request.groups.len()) > self.shared.slice
    }

    /// Places of so many rows at which pages are hung before others are let in.
    fn hung_portion(&self, rows: usize) -> usize {
        self.shared.slice.div_ceil(rows)
    }

    /// The pages of group 0 that a walk found beyond those that a descent knows: few.
    pub(super) fn known_beyond(
        &self,
        descent: &Descent,
        walk: Option<Walk>,
    ) -> Result<Vec<u32>, Error> {
        let (index, first) = (&self.cache()?.index, descent.end());
        let Some(walk) = walk.filter(|walk| walk.pages > first) else { return Ok(Vec::new()) };
        let mut pages = Vec::new();
        pages.try_reserve_exact(walk.pages - first).map_err(OutOfMemory::from)?;
        index.add_pages(walk.node, first..walk.pages, &mut pages);
        Ok(pages)
    }

    /// Refuses rows of which a page may not be claimed. The known pages of group 0 are given in two
    /// parts, and those that may not be claimed twice.
    pub(super) fn check_rows(
        &mut self,
        (request, pages): (&InsertRequest<'_>, usize),
        (known, rest): (&[u32], &[u32]),
        given: PageSet,
    ) -> Result<Vec<PageSet>, Error> {
        let portion = CHECKED * self.shared.slice;
        let spine = |place: usize| match place < known.len() {
            true => Some(&known[place]),
            false => rest.get(place - known.len()),
        };
        let mut given_of = sets_of_pools(&self.table, given)?;
        for at in 0..request.groups.len() {
            let name = |error: Error| error.within(&text!("args.groups[{at}]"));
            self.cache()?.check_row(request, at, pages).map_err(name)?;
            let row = &request.groups[at];
            let mut place = request.from_page;
            let number = self.table.groups().list()[row.group].pool as usize;
            if given_of[number].has_no_room() {
                given_of[number] = self.set_of_pool(number)?;
            }
            while place < pages {
                let (cache, table) = self.parts()?;
                let hung = &cache.groups.as_ref().expect("rows were found good").hung;
                let (pool, given) = (table.pool_at(number), &mut given_of[number]);
                for place in place..pages.min(place + portion) {
                    let page = row.pages[place];
                    let there = spine(place).map_or(0, |&spine| hung.page(row.group, spine));
                    // Of an external pool, what is not claimed must stay outside.
                    if page == there || page == 0 || (there != 0 && !pool.is_external()) {
                        continue;
                    }
                    if !pool.may_claim(page) || !given.set(page, true) {
                        return Err(name(pool.not_to_claim("pages", place, page)));
                    }
                }
                place += portion;
                self.let_in()?;
            }
        }
        Ok(given_of)
    }

    /// An empty set for the pages of a pool, made while others have the lock: there may be many.
    pub(super) fn set_of_pool(&mut self, pool: usize) -> Result<PageSet, Error> {
        let pages = self.table.pool_at(pool).total();
        Ok(self.unlocked_in_cache(|| PageSet::below(pages + 1))??)
    }

    /// Makes room for the use of all that hangs at the places of rows. Others are let in.
    pub(super) fn open_rows(
        &mut self,
        request: &InsertRequest<'_>,
        pages: usize,
    ) -> Result<HeldRows, Error> {
        let gone = self.caches_gone;
        if request.groups.is_empty() {
            return Ok(HeldRows { at: None, gone });
        }
        let no_room = |_| Error::memory("the rows of an insert");
        let count = (pages - request.from_page) * request.groups.len();
        // The system may take long to give that much.
        let uses = self.unlocked_in_cache(|| try_touched_room(count))?.map_err(no_room)?;
        let at = self.parts()?.0.open_hold(uses).map_err(no_room)?;
        Ok(HeldRows { at: Some(at), gone })
    }

    /// Lets go of what `open_rows` made room for, if its cache is still there.
    pub(super) fn end_rows(&mut self, held: HeldRows) {
        let (HeldRows { at, gone }, slice) = (held, self.shared.slice);
        let Some(at) = at else { return };
        while gone == self.caches_gone
            && let Ok((cache, _)) = self.parts()
        {
            if !cache.end_some_uses(at, slice) {
                // Nothing is left, but much memory, and that takes the system longer to take back
                // than others should wait for.
                let hold = cache.take_hold(at);
                return self.unlocked(|| drop(hold));
            }
            self.let_waiting_in();
        }
    }

    /// Has what hangs at the places of rows go in the order of what was used. These are the pages
    /// of group 0, which the caller holds.
    pub(super) fn renew_rows(&mut self, request: &InsertRequest<'_>, spine: &[u32]) {
        let (gone, first, mut to) = (self.caches_gone, request.from_page, spine.len());
        let step = self.hung_portion(request.groups.len());
        while to > first
            && gone == self.caches_gone
            && let Ok((cache, _)) = self.parts()
        {
            let from = to.saturating_sub(step).max(first);
            cache.renew_places(request, &spine[from..to]);
            to = from;
            self.let_waiting_in();
        }
    }

    /// Publishes the pages of rows of a prefix that ends at a node, which the descent holds, with
    /// so many pages.
    pub(super) fn hang_long(
        &mut self,
        request: &InsertRequest<'_>,
        (descent, held): (&Descent, &HeldRows),
        mut tell: TellRow<'_>,
    ) -> Result<HangResult, Error> {
        let (Some(at), spine, mut hung) = (held.at, descent.pages(), Hung::default()) else {
            return Ok(HangResult::default());
        };
        let (step, first) = (self.hung_portion(request.groups.len()), request.from_page);
        let mut to = spine.len();
        while to > first {
            let from = to.saturating_sub(step).max(first);
            let (cache, table) = self.parts()?;
            let places = (request, from..to);
            cache.hang_places(table, places, (spine, at), (&mut hung, &mut tell));
            to = from;
            self.let_in()?;
        }
        if let Some(tell) = &mut tell {
            while to > 0 {
                let from = to.saturating_sub(step);
                let hung = &self.cache()?.groups.as_ref().expect("there are several groups").hung;
                for (number, row) in request.groups.iter().enumerate() {
                    (from..to).for_each(|at| tell(number, at, hung.page(row.group, spine[at])));
                }
                to = from;
                self.let_in()?;
            }
        }
        hung.done.told = tell.is_some();
        if let Some(from) = hung.first {
            self.classify_long(descent, from)?;
            let (done, (cache, table)) = (hung.done, self.parts()?);
            cache.end_links(table, descent, (hung, first));
            return Ok(done);
        }
        Ok(hung.done)
    }

    /// Says of what class pages are on a path that a descent holds, from a place on.
    fn classify_long(&mut self, descent: &Descent, first: usize) -> Result<(), Error> {
        let (last, Some(mut node)) = (descent.end(), descent.held()) else {
            return Ok(());
        };
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let sliding = groups.hung().filter(|(_, config)| config.kind.slides());
        let Some(span) = sliding.map(|(_, config)| config.kind.span(page_size)).max() else {
            return Ok(());
        };
        // Each portion looks at the spans on both sides, too.
        let step = self.path_portion().max(span / 2);
        let (mut held, mut to) = (None, last);
        while to > first {
            let from = to.saturating_sub(step).max(first);
            let cache = self.parts()?.0;
            let above = cache.index.node_at_page(node, last.min(to + span) - 1);
            if above != node
                && let Some(at) = cache.hold(above)
            {
                node = above;
                if let Some(before) = held.replace(at) {
                    let before = cache.footholds.remove(before).node;
                    cache.index.unlock(before);
                }
            }
            cache.classify_below((node, last), from..to, Before::Unknown);
            to = from;
            self.let_in()?;
        }
        if let Some(at) = held {
            // What is held below holds it too.
            let cache = self.parts()?.0;
            let node = cache.footholds.remove(at).node;
            cache.index.unlock(node);
        }
        Ok(())
    }
}

/// Sets of pages, one for each pool. That of the first is there.
fn sets_of_pools(table: &PageTable, first: PageSet) -> Result<Vec<PageSet>, Error> {
    let mut sets = Vec::new();
    sets.try_push(first)?;
    for _ in 1..table.pool_count() {
        sets.try_push(PageSet::default())?;
    }
    Ok(sets)
}
