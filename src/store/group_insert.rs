//! Pages of the groups beside the spine that come in with an insert: checked and claimed before the
//! index changes, hung where they belong after it did.
use super::group_cache::{GroupCache, Path};
use super::insert::InsertRequest;
use super::{PrefixCache, State};
use crate::error::{Error, text};
use crate::group::{GroupKind, HungPage, Spine};
use crate::index::Node;
use crate::memory::{OutOfMemory, TryGrow};
use crate::paging::{Claimed, PageTable};

/// The pages of a group along a prefix.
#[derive(Debug, Clone, Copy)]
pub struct GroupRow<'a> {
    /// The group; not that of the spine.
    pub group: usize,
    /// A page for each whole page of the prefix, from its beginning; 0 for a hole.
    pub pages: &'a [u32],
}

/// What became of a group's pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HangResult {
    /// Pages claimed.
    pub claimed: usize,
    /// Pages for which another one is published.
    pub duplicates: usize,
    /// Whether the caller was told of each page while the call went on.
    pub told: bool,
}

/// A page that is to be hung, claimed already.
#[derive(Debug)]
struct Coming {
    page: HungPage,
    /// Its place in the prefix.
    place: usize,
    /// The page of group 0 there, once it is known.
    spine: u32,
    claimed: Claimed,
}

/// All that come with an insert.
#[derive(Debug, Default)]
pub(super) struct ComingPages {
    pages: Vec<Coming>,
    duplicates: usize,
}

impl ComingPages {
    /// Whether a group has any.
    pub(super) fn has(&self, group: usize) -> bool {
        self.pages.iter().any(|coming| coming.page.group == group)
    }

    /// Whether one of a group comes to a place.
    pub(super) fn comes(&self, group: usize, place: usize) -> bool {
        self.pages.iter().any(|coming| (coming.page.group, coming.place) == (group, place))
    }

    /// Gives what was claimed back.
    pub(super) fn take_back(self, table: &mut PageTable, groups: Option<&GroupCache>) {
        let Some(groups) = groups else { return };
        for coming in self.pages {
            let pool = table.pool_at_mut(groups.hung.pool_of(coming.page.group));
            pool.take_back(&[coming.page.page], coming.claimed);
        }
    }
}

/// The pages of the spine that are known already.
struct InsertPath<'a> {
    known: Option<Path<'a>>,
    known_pages: usize,
}

impl InsertPath<'_> {
    /// The one at a place; none where it is still to come.
    fn page(&mut self, place: usize) -> Option<u32> {
        let known = self.known.as_mut().filter(|_| place < self.known_pages);
        known.map(|path| path.page(place))
    }
}

impl PrefixCache {
    /// Checks the rows of groups, of which the first `known_pages` places lie on the way to a node,
    /// and claims the pages that fill holes. Changes nothing when it fails.
    pub(super) fn claim_rows(
        &mut self,
        table: &mut PageTable,
        request: &InsertRequest<'_>,
        (known, known_pages, pages): (Option<Node>, usize, usize),
    ) -> Result<ComingPages, Error> {
        let mut coming = ComingPages::default();
        let done = self.claim_each(table, request, (known, known_pages, pages), &mut coming);
        match done {
            Ok(()) => Ok(coming),
            Err(error) => {
                coming.take_back(table, self.groups.as_deref());
                Err(error)
            }
        }
    }

    /// Refuses a row of no group, of one that is given twice, or with fewer than so many pages.
    pub(super) fn check_row(
        &self,
        request: &InsertRequest<'_>,
        at: usize,
        pages: usize,
    ) -> Result<(), Error> {
        let row = &request.groups[at];
        let groups = self.groups.as_ref().map_or(1, |groups| groups.hung.group_count());
        if !(1..groups).contains(&row.group) {
            let group = row.group;
            return Err(Error::argument(text!(
                "group {group} is none beside the first of the {groups} there are"
            )));
        }
        if request.groups[..at].iter().any(|before| before.group == row.group) {
            return Err(Error::argument(text!("group {} is given twice", row.group)));
        }
        if row.pages.len() < pages {
            let (count, what) = (row.pages.len(), "whole pages of the tokens");
            return Err(Error::argument(text!(
                "page_count {count} is less than the {pages} {what}"
            )));
        }
        Ok(())
    }

    /// The same of each row.
    pub(super) fn check_each_row(
        &self,
        request: &InsertRequest<'_>,
        pages: usize,
    ) -> Result<(), Error> {
        (0..request.groups.len()).try_for_each(|at| {
            let name = |error: Error| error.within(&text!("args.groups[{at}]"));
            self.check_row(request, at, pages).map_err(name)
        })
    }

    fn claim_each(
        &self,
        table: &mut PageTable,
        request: &InsertRequest<'_>,
        (known, known_pages, pages): (Option<Node>, usize, usize),
        coming: &mut ComingPages,
    ) -> Result<(), Error> {
        for (at, row) in request.groups.iter().enumerate() {
            let name = |error: Error| error.within(&text!("args.groups[{at}]"));
            self.check_row(request, at, pages).map_err(name)?;
            let hung = &self.groups.as_ref().expect("the row is of one of several groups").hung;
            let path = known.map(|node| Path::new(self.index.as_ref(), Some(node), None));
            let mut path = InsertPath { known: path, known_pages };
            let pool = table.pool_at_mut(hung.pool_of(row.group));
            for place in (request.from_page..pages).rev() {
                let page = row.pages[place];
                let there = path.page(place).map_or(0, |spine| hung.page(row.group, spine));
                if page == 0 || page == there {
                    continue;
                }
                if there != 0 {
                    coming.duplicates += 1;
                    continue;
                }
                coming.pages.try_reserve(1).map_err(OutOfMemory::from)?;
                let claimed = pool.claim_all(&[page], "pages", place).map_err(name)?;
                let page = HungPage { group: row.group, page };
                coming.pages.try_push(Coming { page, place, spine: 0, claimed })?;
            }
        }
        Ok(())
    }

    /// Gives `visit` the pages of groups for which another one is published: the number of the row,
    /// the place and the page.
    pub(super) fn visit_duplicate_rows(
        &self,
        request: &InsertRequest<'_>,
        (known, known_pages): (Option<Node>, usize),
        mut visit: impl FnMut(usize, usize, u32),
    ) {
        let Some((groups, known)) = self.groups.as_ref().zip(known) else { return };
        for (at, row) in request.groups.iter().enumerate() {
            let mut path = Path::new(self.index.as_ref(), Some(known), None);
            for place in (request.from_page..known_pages).rev() {
                let (page, spine) = (row.pages[place], path.page(place));
                let there = groups.hung.page(row.group, spine);
                if page != 0 && there != 0 && page != there {
                    visit(at, place, page);
                }
            }
        }
    }

    /// Hangs the pages that come on the prefix that ends at a node, of which those from a place on
    /// are new, and says of what class all are.
    pub(super) fn hang_rows(
        &mut self,
        coming: &mut ComingPages,
        end: Node,
        first_new: usize,
    ) -> HangResult {
        let ComingPages { pages, duplicates } = coming;
        let done = HangResult { claimed: pages.len(), duplicates: *duplicates, told: false };
        let mut first = first_new;
        // A path is read from its end.
        let (mut group, mut path) = (0, None);
        for coming in &mut *pages {
            if coming.page.group != group {
                let of_group = Path::new(self.index.as_ref(), Some(end), None);
                (group, path) = (coming.page.group, Some(of_group));
            }
            coming.spine = path.as_mut().expect("it was just made").page(coming.place);
            first = first.min(coming.place);
        }
        let configs = self.groups.as_deref().map(|groups| groups.groups).unwrap_or_default();
        let Some(mut hanging) = self.begin_hanging() else { return done };
        pages.iter().rev().for_each(|coming| hanging.hang(coming.page, coming.spine));
        // They go from the end up, as those do that were used: what comes behind a page needs it.
        // Of states the last one is of most use.
        let is_state = |group: usize| configs.list()[group].kind == GroupKind::State;
        let others = pages.iter().filter(|coming| !is_state(coming.page.group));
        others.for_each(|coming| hanging.renew(coming.page));
        drop(hanging);
        self.classify(end, first, self.index.end_page(end));
        done
    }
}

impl State {
    /// Writes the page of a group at each whole page of a prefix; 0 for a hole.
    pub fn write_group_row(
        &self,
        end: Option<Node>,
        group: usize,
        mut write: impl FnMut(usize, u32),
    ) -> Result<(), Error> {
        let cache = self.cache()?;
        if let (Some(groups), Some(end)) = (&cache.groups, end) {
            cache.index.visit_path(end, &mut |start, pages| {
                for (at, &spine) in pages.iter().enumerate() {
                    write(start + at, groups.hung.page(group, spine));
                }
            });
        }
        Ok(())
    }
}
