//! What groups mean, written down naively: a prefix has a page of group 0, and perhaps one of each
//! other group; how far it can be reused is tried from the longest one down, position by position.
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Full,
    /// Positions of the window, and sinks.
    Window(usize, usize),
    Chunk(usize),
    State,
}

#[derive(Debug, Clone, Copy)]
pub struct Group {
    pub kind: Kind,
    pub pool: usize,
    /// Of a STATE group, states after draft tokens.
    pub drafts: usize,
}

/// A tenant, and the tokens up to the end of a page.
pub type Prefix = (u32, Vec<u32>);

/// The page of each group; 0 for none.
pub type Pages = Vec<u32>;

#[derive(Debug, Default)]
pub struct Model {
    pub page_size: usize,
    pub groups: Vec<Group>,
    pub whole_pages: bool,
    pub entries: BTreeMap<Prefix, Pages>,
}

impl Kind {
    /// The same, reaching so many times as far.
    #[allow(dead_code)] // of the fuzz targets and the simulation
    pub fn times(self, reach: usize) -> Self {
        match self {
            Self::Window(window, sinks) => Self::Window(window * reach, sinks * reach),
            Self::Chunk(chunk) => Self::Chunk(chunk * reach),
            kind => kind,
        }
    }

    /// Whether the position after `positions` attends to one of those.
    pub fn attends(self, position: usize, positions: usize) -> bool {
        match self {
            Self::Full => true,
            Self::Window(window, sinks) => positions - position < window || position < sinks,
            Self::Chunk(chunk) => position / chunk == positions / chunk,
            Self::State => position + 1 == positions,
        }
    }

    /// The places of the pages that a prefix needs; None when it can't end there.
    pub fn needs(self, positions: usize, page_size: usize) -> Option<Vec<usize>> {
        if self == Self::State && !positions.is_multiple_of(page_size) {
            return None;
        }
        let attended = (0..positions).filter(|&at| self.attends(at, positions));
        let mut places: Vec<usize> = attended.map(|at| at / page_size).collect();
        if !positions.is_multiple_of(page_size) {
            // It is copied, and others may need all of the copy.
            places.push(positions / page_size);
        }
        places.dedup();
        Some(places)
    }
}

impl Model {
    pub fn has_states(&self) -> bool {
        self.groups.iter().any(|group| group.kind == Kind::State)
    }

    fn shares_parts(&self) -> bool {
        !self.whole_pages && !self.has_states()
    }

    pub fn entry(&self, tenant: u32, ids: &[u32], place: usize) -> Option<&Pages> {
        let end = (place + 1) * self.page_size;
        self.entries.get(&(tenant, ids.get(..end)?.to_vec()))
    }

    /// Whole pages that are known.
    pub fn known_pages(&self, tenant: u32, ids: &[u32]) -> usize {
        (0..).take_while(|&place| self.entry(tenant, ids, place).is_some()).count()
    }

    /// The pages of which the first positions match as well, the longest start, and how long.
    fn parts(&self, tenant: u32, ids: &[u32], pages: usize) -> (usize, Vec<&Pages>) {
        let (start, rest) = ids.split_at(pages * self.page_size);
        let common = |other: &[u32]| other.iter().zip(rest).take_while(|(a, b)| a == b).count();
        let children = self.entries.iter().filter(|((of, prefix), _)| {
            *of == tenant
                && prefix.len() == start.len() + self.page_size
                && prefix.starts_with(start)
        });
        let mut best = (0, Vec::new());
        for ((_, prefix), pages) in children {
            let length = common(&prefix[start.len()..]);
            if length > best.0 {
                best = (length, Vec::new());
            }
            if length == best.0 && length > 0 {
                best.1.push(pages);
            }
        }
        best
    }

    fn accepts(
        &self,
        (tenant, ids): (u32, &[u32]),
        positions: usize,
        (known_pages, part): (usize, Option<&Pages>),
    ) -> bool {
        let has = |group: usize, place: usize| {
            let entry = if place < known_pages { self.entry(tenant, ids, place) } else { part };
            entry.is_some_and(|pages| pages[group] != 0)
        };
        self.groups.iter().enumerate().all(|(group, of)| {
            let places = of.kind.needs(positions, self.page_size);
            places.is_some_and(|places| places.into_iter().all(|place| has(group, place)))
        })
    }

    /// Whether several prompts go on after the page at a place.
    fn forks(&self, tenant: u32, ids: &[u32], place: usize) -> bool {
        let start = &ids[..(place + 1) * self.page_size];
        let goes_on = |(of, prefix): &&Prefix| {
            *of == tenant
                && prefix.len() == start.len() + self.page_size
                && prefix.starts_with(start)
        };
        self.entries.keys().filter(goes_on).count() > 1
    }

    /// The states of a group on a path that are more than a limit, the deepest first: of those that
    /// are no longer the last, that no fork needs, and that `stays` doesn't name.
    pub fn surplus(
        &self,
        group: usize,
        (tenant, ids): (u32, &[u32]),
        limit: usize,
        stays: impl Fn(usize, u32) -> bool,
    ) -> Vec<usize> {
        let (mut kept, mut surplus) = (0, Vec::new());
        for place in (0..ids.len() / self.page_size).rev() {
            let page = self.entry(tenant, ids, place).map_or(0, |pages| pages[group]);
            let is_last = kept == 0;
            if page == 0 || (!is_last && self.forks(tenant, ids, place)) {
                continue;
            }
            if is_last || kept < limit {
                kept += 1;
            } else if !stays(place, page) {
                surplus.push(place);
            }
        }
        surplus
    }

    /// How far a prompt is known, and how far it can be reused: the longest prefix that every group
    /// accepts. Where several pages share the same start, one answer for each.
    pub fn depths(&self, tenant: u32, ids: &[u32]) -> (usize, Vec<usize>) {
        let pages = self.known_pages(tenant, ids);
        let whole = pages * self.page_size;
        let (part, candidates) = match self.shares_parts() {
            true => self.parts(tenant, ids, pages),
            false => (0, Vec::new()),
        };
        let step = if self.shares_parts() { 1 } else { self.page_size };
        let longest = |part: Option<&Pages>, known: usize| {
            let tried = (0..=known).rev().filter(|positions| positions % step == 0);
            let accepts = |&at: &usize| self.accepts((tenant, ids), at, (pages, part));
            tried.into_iter().find(accepts).expect("nothing is always there")
        };
        match candidates.is_empty() {
            true => (whole, vec![longest(None, whole)]),
            false => {
                let usable = |page: &&Pages| longest(Some(*page), whole + part);
                (whole + part, candidates.iter().map(usable).collect())
            }
        }
    }

    /// Where to save states: see `rkv_cache_match_result.checkpoint_at`.
    pub fn checkpoint_at(&self, prompt: usize, known: usize, usable: usize) -> Vec<usize> {
        if !self.has_states() {
            return Vec::new();
        }
        let boundary = |positions: usize| positions - positions % self.page_size;
        let mut places = vec![boundary(known), boundary(prompt.saturating_sub(1))];
        places.retain(|&at| at > usable);
        places.sort_unstable();
        places.dedup();
        places
    }
}
