//! What the tiers have of a prefix beyond what the device has.
use super::map::{Level, Name};
use super::rest::SLICE;
use super::table::Table;
use super::work::PageTiers;
use crate::error::Error;
use crate::index::Namespace;
use crate::memory::TryGrow;
use crate::token::PageDigest;

/// What the tiers have of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetchable {
    /// Positions beyond those that it reuses.
    pub positions: usize,
    /// Of those, from the first one on, how many are in host memory.
    pub host_positions: usize,
    /// Positions beyond those for which the remote store is asked.
    pub asked_positions: usize,
    /// A fetch of them was begun.
    pub is_begun: bool,
}

/// Where the pages begin that the device doesn't have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beyond {
    /// Pages that it has.
    pub first: usize,
    /// The last of them, and a record of the journal since which it has held the same.
    pub last: Option<(u32, u64)>,
    /// Pages from there on that may be brought, at most.
    pub most: usize,
    pub namespace: Namespace,
    /// The latest clear.
    pub clear: u64,
}

/// Pages of a prefix that the tiers have.
#[derive(Default)]
pub(super) struct Known {
    pub names: Vec<Name>,
    /// Of those the first are in host memory.
    pub in_host: usize,
    /// Of those the first are in host memory or on the disk; the remote store may have the others.
    pub here: usize,
    /// The page before the first.
    pub before: Option<PageDigest>,
    /// The last page that was looked for, when there are more behind it.
    pub last: Option<PageDigest>,
}

impl Known {
    /// The same in positions.
    pub fn fetchable(&self, page_size: usize) -> Fetchable {
        Fetchable {
            positions: self.here * page_size,
            host_positions: self.in_host * page_size,
            asked_positions: (self.names.len() - self.here) * page_size,
            is_begun: false,
        }
    }
}

impl PageTiers {
    /// The digest before the first page that could be fetched, if that is known.
    pub(super) fn parent(&self, table: &Table, beyond: &Beyond) -> Option<PageDigest> {
        match beyond.last {
            Some((page, since)) if table.knows(since) => {
                // Of a prompt that nobody has begun with it may hold something else by now.
                let digest = table.pages.get(page).map(|page| page.digest);
                digest.filter(|_| self.shared.read().held_since(page) == Some(since))
            }
            None if beyond.first == 0 => Some(beyond.namespace.digest()),
            _ => None,
        }
    }

    /// What is known of the pages beyond the device's. `digest` makes digests of those from a
    /// place on, after the one of a digest, and says how many there were. No more than `limit` are
    /// made.
    pub(super) fn known(
        &self,
        beyond: &Beyond,
        limit: usize,
        (host_only, asks): (bool, bool),
        mut digest: impl FnMut(usize, PageDigest, &mut [PageDigest]) -> Result<usize, Error>,
    ) -> Result<Known, Error> {
        let mut known = Known::default();
        let &Beyond { first, most, clear, .. } = beyond;
        if most == 0 {
            return Ok(known);
        }
        let table = self.table();
        let is_current = table.applied.is_some() && table.clear >= clear;
        let parent = self.parent(&table, beyond);
        drop(table);
        let Some(mut parent) = parent.filter(|_| is_current) else { return Ok(known) };
        known.before = (first > 0).then_some(parent);
        // A miss costs one digest, unless somebody else may have it.
        let (mut digests, mut room) = ([PageDigest::default(); SLICE], 1);
        while known.names.len() < most {
            if known.names.len() >= limit {
                known.last = Some(parent);
                break;
            }
            let count = room.min(most.min(limit) - known.names.len()).min(SLICE);
            let at = first + known.names.len();
            let made = digest(at, parent, &mut digests[..count])?;
            let table = self.table();
            for &digest in &digests[..made] {
                let name = Name { digest, group: 0 };
                match table.find(name) {
                    _ if known.here < known.names.len() => {}
                    Some((_, Level::Host)) => {
                        known.in_host += (known.in_host == known.here) as usize;
                        known.here += 1;
                    }
                    Some((_, Level::Disk)) if !host_only => known.here += 1,
                    _ if asks => {}
                    _ => return Ok(known),
                }
                known.names.try_push(name)?;
                parent = digest;
            }
            if made < count {
                break;
            }
            room = (2 * room).min(SLICE);
        }
        Ok(known)
    }
}
