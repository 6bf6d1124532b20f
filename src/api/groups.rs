//! Groups of layers beside the first, and pools by number.
use super::cache::copy_to;
use super::{Cache, Inserted, Lock, PageTable, call};
use crate::error::Error;
use crate::index::Namespace;
use crate::memory::{TryGrow, try_collect, try_filled, try_to_vec};
use crate::store::{
    EvictedPage, GroupRow, GroupStats, InsertRequest, InsertResult, PoolStats, State,
};
use crate::token::TokenList;
use std::cell::RefCell;

/// A page of a group that a lock protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedPage {
    /// Its place in the prefix; of a STATE group, it is the state after those of this place.
    pub place: usize,
    /// The page, in the group's pool.
    pub page: u32,
}

/// How far a token list is known, and how far it can be reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDepths {
    /// Positions that every group can reuse.
    pub positions: usize,
    /// Positions that are known.
    pub known: usize,
    /// Where states are to be saved, the smaller one first; 0 for none.
    pub checkpoint_at: [usize; 2],
    /// Positions that each group cost of the known ones.
    pub lost: Vec<usize>,
}

/// What an insert of several groups did.
#[derive(Debug)]
pub struct InsertedGroups {
    /// What became of the first group's pages, and the lock on all.
    pub inserted: Inserted,
    /// The cache's pages by row as they were given, 0 where there is none.
    pub pages: Vec<Vec<u32>>,
    /// Pages of the rows that went to the cache.
    pub claimed: usize,
    /// Pages of the rows that stay the caller's, for another one is published.
    pub duplicates: usize,
}

/// What an eviction took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evicted {
    /// Every page, of all pools, in order.
    pub pages: Vec<EvictedPage>,
    /// Those that the pool got.
    pub freed: usize,
}

impl Lock {
    /// The pages of a group, 1 and up, that this protects.
    pub fn group_pages(&self, group: usize) -> Result<Vec<LockedPage>, Error> {
        call(self.cache().shared(), |shared| {
            let locked = shared.locked_pages(self.id(), group)?;
            let pages = locked.iter();
            let pages = pages.map(|(place, page)| LockedPage { place: place as usize, page });
            Ok(try_collect(pages)?)
        })
    }
}

impl Cache {
    /// How far a list is known, how far it can be reused, and what each group costs of that.
    /// Changes nothing.
    pub fn probe_groups(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> Result<GroupDepths, Error> {
        call(self.shared(), |shared| {
            let (found, reached) = shared.costs(namespace, tokens)?;
            let (positions, depths) = (found.positions(), found.depths());
            Ok(GroupDepths {
                positions,
                known: positions.max(depths.known as usize),
                checkpoint_at: depths.checkpoint_at.map(|at| at as usize),
                lost: try_to_vec(&reached.lost[..shared.group_count()])?,
            })
        })
    }

    /// [`Cache::insert`] with the pages of other groups: a row for each that has any.
    pub fn insert_groups(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        pages: &[u32],
        groups: &[GroupRow<'_>],
    ) -> Result<InsertedGroups, Error> {
        let (inserted, node, spine, rows) = call(self.shared(), |shared| {
            let mut spine = try_to_vec(pages)?;
            let mut rows = Vec::new();
            for row in groups {
                rows.try_push(try_filled(0, row.pages.len())?)?;
            }
            let request = InsertRequest {
                groups,
                namespace,
                tokens,
                pages,
                from: None,
                from_token: 0,
                from_page: 0,
                lock: true,
                moved: None,
            };
            let rows = RefCell::new(rows);
            let mut tell = |row: usize, place, page| rows.borrow_mut()[row][place] = page;
            let then = |state: &mut State, inserted: InsertResult, first| {
                let into = |start: usize, part: &[u32]| copy_to(&mut spine, start, part);
                state.visit_path(inserted.node, first, into)?;
                for (row, published) in groups.iter().zip(&mut *rows.borrow_mut()) {
                    published.truncate(inserted.pages);
                    if !inserted.hung.told {
                        state.write_group_row(inserted.node, row.group, |place, page| {
                            published[place] = page;
                        })?;
                    }
                }
                Ok::<_, Error>((inserted, state.node_id(inserted.node)?))
            };
            let (told, known) = shared.turn().insert_telling(request, Some(&mut tell), then)?;
            let rows = rows.into_inner();
            let (inserted, node) = told?;
            copy_to(&mut spine, 0, &known);
            spine.truncate(inserted.pages);
            Ok((inserted, node, spine, rows))
        })?;
        Ok(InsertedGroups {
            inserted: Inserted::of(self, &inserted, node, spine),
            pages: rows,
            claimed: inserted.hung.claimed,
            duplicates: inserted.hung.duplicates,
        })
    }

    /// Each group in numbers.
    pub fn group_stats(&self) -> Result<Vec<GroupStats>, Error> {
        call(self.shared(), |shared| {
            let state = shared.read();
            let mut stats = Vec::new();
            for group in 0..state.group_count() {
                stats.try_push(state.group_stats(group)?)?;
            }
            Ok(stats)
        })
    }

    /// Evicts until a pool has got `count` pages, or there are no more to be had. A page of the
    /// first group takes those of others that hang on it, also of other pools.
    pub fn evict_from_pool(&self, pool: u32, count: usize) -> Result<Evicted, Error> {
        call(self.shared(), |shared| {
            let (mut pages, mut freed) = (Vec::new(), 0);
            loop {
                let (group_count, cached) = {
                    let state = shared.read();
                    let cached = state.pool_stats(pool)?.cached;
                    (state.group_count(), cached)
                };
                let (before, left) = (pages.len(), count.saturating_sub(freed));
                // Nothing is evicted that there is no room to tell of.
                let room = (left.min(cached) + 1) * group_count;
                match pages.try_reserve_exact(room) {
                    Err(_) if before == 0 => return Err(Error::memory("a list of pages")),
                    // What went is told.
                    Err(_) => return Ok(Evicted { pages, freed }),
                    Ok(()) => {}
                }
                freed += shared.evict_from_pool(pool, left, room, |page| pages.push(page))?;
                // What an external pool was cleared of takes room, and may be of other pools.
                if freed >= count || pages.len() == before {
                    return Ok(Evicted { pages, freed });
                }
            }
        })
    }
}

impl PageTable {
    /// Pages of a pool by state.
    pub fn pool_stats(&self, pool: u32) -> Result<PoolStats, Error> {
        call(&self.shared, |shared| shared.read().pool_stats(pool))
    }

    /// [`PageTable::allocate_pages`] from a pool of one's choice.
    pub fn allocate_pool_pages(&self, pool: u32, count: usize) -> Result<Vec<u32>, Error> {
        call(&self.shared, |shared| shared.allocate_pool_pages(pool, count))
    }

    /// [`PageTable::free_pages`] into a pool of one's choice.
    pub fn free_pool_pages(&self, pool: u32, pages: &[u32]) -> Result<(), Error> {
        call(&self.shared, |shared| shared.turn().free_pages(pool, pages))
    }
}
