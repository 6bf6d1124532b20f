//! What a group is, and which pages a prefix of some length needs of it.
use super::GROUP_LIMIT;
use crate::error::{Error, text};
use std::ops::Range;

/// Draft states of a row at most.
const DRAFT_STATES_MAX: u32 = 255;

/// Which pages of a group let a prefix be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupKind {
    /// All.
    #[default]
    Full,
    /// Those of the last `window` - 1 positions, and of the first `sinks`.
    Window {
        /// Positions that a query attends to, its own included.
        window: u32,
        /// Positions at the beginning that are always attended to.
        sinks: u32,
    },
    /// Those from the beginning of the chunk that the next position is in.
    Chunk {
        /// Positions of a chunk.
        chunk: u32,
    },
    /// One: the state after exactly the prefix.
    State,
}

/// The pages that a prefix needs, by their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Those at the beginning.
    pub sinks: Range<usize>,
    /// Those at the end.
    pub last: Range<usize>,
}

impl Needs {
    /// Whether a page is one of them.
    pub fn contain(&self, page: usize) -> bool {
        self.sinks.contains(&page) || self.last.contains(&page)
    }

    /// The same but for places that are known already.
    pub fn without(&self, known: &Self) -> [Range<usize>; 4] {
        let split = |all: &Range<usize>, known: &Range<usize>| match known.is_empty() {
            true => [all.clone(), all.end..all.end],
            false => [all.start..all.end.min(known.start), all.start.max(known.end)..all.end],
        };
        let ([first, second], [third, fourth]) =
            (split(&self.sinks, &known.sinks), split(&self.last, &known.last));
        [first, second, third, fourth]
    }

    /// Their places, in order.
    pub fn places(&self) -> impl Iterator<Item = usize> + use<> {
        self.sinks.clone().chain(self.last.clone())
    }
}

impl GroupKind {
    /// What a prefix of so many positions needs. None when it can't end there, whatever there is. A
    /// page inside which it ends is needed whatever the next position attends to: it is copied, and
    /// others may need all of the copy.
    pub fn needs(self, positions: usize, page_size: usize) -> Option<Needs> {
        let end = positions.div_ceil(page_size);
        let from = |first: usize| Needs { sinks: 0..0, last: first.min(end)..end };
        Some(match self {
            Self::Full => from(0),
            Self::Window { window, sinks } => {
                let first = positions.saturating_add(1).saturating_sub(window as usize) / page_size;
                let sinks = (sinks as usize).min(positions).div_ceil(page_size);
                Needs { sinks: 0..sinks.min(first), ..from(first) }
            }
            Self::Chunk { chunk } => from((positions - positions % chunk as usize) / page_size),
            Self::State if !positions.is_multiple_of(page_size) => return None,
            Self::State => from(end.saturating_sub(1)),
        })
    }

    /// What a prefix needs behind the sinks: when what slides has passed some of it, then its first
    /// place, while sinks stay.
    pub fn behind_sinks(self, needs: &Needs, page_size: usize) -> Range<usize> {
        needs.last.start.max(self.sinks(page_size)).min(needs.last.end)..needs.last.end
    }

    /// Places before its end that a prefix may need, but for sinks.
    pub fn span(self, page_size: usize) -> usize {
        match self {
            Self::Full => usize::MAX / 2,
            Self::Window { window, .. } => (window as usize).div_ceil(page_size) + 1,
            Self::Chunk { chunk } => (chunk as usize).div_ceil(page_size) + 1,
            Self::State => 1,
        }
    }

    /// Places at the beginning that a prefix needs, however long it is.
    pub fn sinks(self, page_size: usize) -> usize {
        match self {
            Self::Window { sinks, .. } => (sinks as usize).div_ceil(page_size),
            _ => 0,
        }
    }

    /// Places that a prefix of whole pages needs at most.
    pub fn most(self, page_size: usize) -> usize {
        self.span(page_size) + self.sinks(page_size)
    }

    /// Whether a prefix of whole pages needs the last of them, wherever it ends.
    pub fn needs_last(self) -> bool {
        matches!(self, Self::Window { window: 2.., .. } | Self::Full | Self::State)
    }

    /// A group of this kind, with pages of a pool.
    pub fn in_pool(self, pool: u32) -> GroupConfig {
        GroupConfig { kind: self, pool, draft_states: 0 }
    }

    /// Pages of one place that hold what was attended to before it, and those after it do not need.
    pub fn slides(self) -> bool {
        matches!(self, Self::Window { .. } | Self::Chunk { .. })
    }
}

/// A group of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupConfig {
    /// Which pages a prefix needs.
    pub kind: GroupKind,
    /// The pool that its pages come from.
    pub pool: u32,
    /// Of a STATE group: states of a row beside the one, for tokens that may be taken back.
    pub draft_states: u32,
}

impl GroupConfig {
    /// Pages of a row of so many places.
    pub fn row_pages(&self, places: usize) -> usize {
        match self.kind {
            GroupKind::State => 1 + self.draft_states as usize,
            _ => places,
        }
    }
}

/// The groups of a page table. Group 0 is FULL: the spine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    groups: [GroupConfig; GROUP_LIMIT],
    count: u8,
}

impl Default for Groups {
    fn default() -> Self {
        Self { groups: [GroupConfig::default(); GROUP_LIMIT], count: 1 }
    }
}

/// Refuses more groups, or pools, than there can be.
pub fn check_count(count: usize, name: &str) -> Result<(), Error> {
    if count <= GROUP_LIMIT {
        return Ok(());
    }
    Err(Error::argument(text!("{name} {count} is more than {GROUP_LIMIT}")))
}

impl Groups {
    /// A list of groups; an empty one is one FULL group.
    pub fn new(list: &[GroupConfig]) -> Result<Self, Error> {
        let mut groups = Self::default();
        check_count(list.len(), "config.group_count")?;
        if !list.is_empty() {
            groups.groups[..list.len()].copy_from_slice(list);
            groups.count = list.len() as u8;
        }
        Ok(groups)
    }

    /// All of them.
    pub fn list(&self) -> &[GroupConfig] {
        &self.groups[..self.count as usize]
    }

    /// Whether there is more than the spine.
    #[inline]
    pub fn are_several(&self) -> bool {
        self.count > 1
    }

    /// Those that are not the spine, with their numbers.
    pub fn hung(&self) -> impl Iterator<Item = (usize, GroupConfig)> + '_ {
        self.list().iter().copied().enumerate().skip(1)
    }

    /// The fewest draft states that a STATE group has; None without such a group.
    pub fn draft_states(&self) -> Option<usize> {
        let states = self.list().iter().filter(|group| group.kind == GroupKind::State);
        states.map(|group| group.draft_states as usize).min()
    }

    /// Whether each group draws from a pool.
    pub fn in_pool(&self, pool: u32) -> [bool; GROUP_LIMIT] {
        let of =
            |(at, group): (usize, &GroupConfig)| at < self.count as usize && group.pool == pool;
        let mut found = [false; GROUP_LIMIT];
        found.iter_mut().zip(self.groups.iter().enumerate()).for_each(|(is, at)| *is = of(at));
        found
    }

    /// Whether a prefix can end at the ends of pages alone.
    pub fn end_with_pages(&self) -> bool {
        self.list().iter().any(|group| group.kind == GroupKind::State)
    }

    /// Refuses what makes no sense.
    pub fn check(&self, pool_count: usize) -> Result<(), Error> {
        for (at, group) in self.list().iter().enumerate() {
            let fail = |what: &str| Err(Error::argument(text!("config.groups[{at}].{what}")));
            match group.kind {
                GroupKind::Full => {}
                _ if at == 0 => return fail("kind: group 0 is FULL"),
                GroupKind::Window { window: 0, .. } => return fail("window is 0"),
                GroupKind::Chunk { chunk: 0 } => return fail("chunk is 0"),
                _ => {}
            }
            if group.draft_states > 0 && group.kind != GroupKind::State {
                return fail("draft_state_count: only STATE groups have draft states");
            }
            if group.draft_states > DRAFT_STATES_MAX {
                return fail("draft_state_count is more than 255");
            }
            if group.pool as usize >= pool_count {
                return fail("pool is not the number of a pool");
            }
            if at == 0 && group.pool != 0 {
                return fail("pool: group 0 takes pool 0");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G01: what a query attends to, counted position by position.
    fn needed(kind: GroupKind, positions: usize, page_size: usize) -> Vec<usize> {
        let next = positions;
        let attended = |position: usize| match kind {
            GroupKind::Full => true,
            GroupKind::Window { window, sinks } => {
                next - position < window as usize || position < sinks as usize
            }
            GroupKind::Chunk { chunk } => position / chunk as usize == next / chunk as usize,
            GroupKind::State => position + 1 == positions,
        };
        let mut pages: Vec<usize> =
            (0..positions).filter(|&at| attended(at)).map(|at| at / page_size).collect();
        if !positions.is_multiple_of(page_size) {
            pages.push(positions / page_size);
        }
        pages.dedup();
        pages
    }

    #[test]
    fn g01_pages_that_the_next_position_attends_to() {
        let kinds = [
            GroupKind::Full,
            GroupKind::Window { window: 1, sinks: 0 },
            GroupKind::Window { window: 2, sinks: 0 },
            GroupKind::Window { window: 5, sinks: 0 },
            GroupKind::Window { window: 8, sinks: 3 },
            GroupKind::Window { window: 9, sinks: 9 },
            GroupKind::Chunk { chunk: 1 },
            GroupKind::Chunk { chunk: 6 },
            GroupKind::Chunk { chunk: 8 },
            GroupKind::State,
        ];
        for kind in kinds {
            for page_size in [1, 2, 3, 4, 16] {
                for positions in 0..50 {
                    let Some(needs) = kind.needs(positions, page_size) else {
                        assert!(kind == GroupKind::State && !positions.is_multiple_of(page_size));
                        continue;
                    };
                    let places: Vec<usize> = needs.places().collect();
                    let wanted = needed(kind, positions, page_size);
                    assert_eq!(places, wanted, "{kind:?}, {positions} of {page_size}");
                    assert!((0..60).all(|at| needs.contain(at) == wanted.contains(&at)));
                    let last = positions.div_ceil(page_size).checked_sub(1);
                    assert!(!kind.needs_last() || last.is_none_or(|last| needs.contain(last)));
                }
            }
        }
    }

    #[test]
    fn g01_groups_that_make_no_sense_are_refused() {
        let full = GroupConfig::default();
        let window = |window, pool| GroupConfig {
            kind: GroupKind::Window { window, sinks: 0 },
            pool,
            ..full
        };
        let chunk = GroupConfig { kind: GroupKind::Chunk { chunk: 0 }, ..full };
        let state = GroupConfig { kind: GroupKind::State, draft_states: 256, ..full };
        let check = |list: &[GroupConfig]| Groups::new(list).and_then(|groups| groups.check(2));
        assert!(check(&[]).is_ok());
        assert!(check(&[full, window(1, 1), window(4, 0)]).is_ok());
        let refused = [
            (vec![window(4, 0)], "config.groups[0].kind"),
            (vec![full, window(0, 0)], "config.groups[1].window"),
            (vec![full, chunk], "config.groups[1].chunk"),
            (vec![full, state], "config.groups[1].draft_state_count"),
            (vec![full, window(4, 2)], "config.groups[1].pool"),
            (vec![GroupConfig { pool: 1, ..full }], "config.groups[0].pool"),
            (vec![full; GROUP_LIMIT + 1], "config.group_count"),
        ];
        for (list, name) in refused {
            let error = check(&list).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
