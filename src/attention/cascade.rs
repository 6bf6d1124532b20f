//! Rows of a batch that begin with the same pages, and whether it pays to attend to those once.
//!
//! Rows are put in the order of their pages; then rows with a common start are neighbours, and the
//! common starts of neighbours form a tree. Each node of it is either one group, or left to the
//! groups below it, whichever saves more.
use super::batch::Batch;
use super::work::{Costs, Tile, tile_for};
use crate::memory::{OutOfMemory, TryGrow};
use std::cmp::Ordering;
use std::ops::Range;

/// Tiles that a group may be cut into where a larger shape would take it at once.
pub(super) const SHARED_TILES_MOST: usize = 4;

/// Rows that share pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Rows, in [`Groups::order`].
    pub rows: Range<usize>,
    /// Keys of the shared pages.
    pub keys: usize,
}

/// The groups of a batch. Made once; its memory is reused.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    /// Rows, those of a group side by side.
    pub order: Vec<usize>,
    pub chosen: Vec<Group>,
    /// Pages that a row of `order` shares with the one before it.
    common: Vec<usize>,
    sorting: Sorting,
    /// Those that have begun and not ended yet, each within the one before it.
    open: Vec<Open>,
}

/// Neighbouring rows with a common start, as far as they were looked at.
#[derive(Debug, Clone)]
struct Open {
    /// The first one, in [`Groups::order`].
    start: usize,
    /// Pages that all of them share.
    pages: usize,
    queries: usize,
    /// What they cost for 64 keys, each by itself.
    flat: f64,
    /// What the groups within it save, and where these begin in [`Groups::chosen`].
    below: f64,
    first: usize,
}

/// Pages of a row that this call does not write, so that all of its queries see them.
fn settled(batch: &Batch, row: usize) -> &[u32] {
    let row = &batch.rows()[row];
    // At least one key is left to the row itself, also of a context that is settled as a whole.
    let settled = row.start.min(row.key_count() - 1);
    &batch.pages_of(row)[..settled / batch.page_size()]
}

/// Entries that both lists begin with. Their length may be that of a context, so most of them are
/// compared many at a time.
pub(crate) fn shared_start(left: &[u32], right: &[u32]) -> usize {
    const MANY: usize = 256;
    let (of_left, of_right) = (left.chunks_exact(MANY), right.chunks_exact(MANY));
    let begun = MANY * of_left.zip(of_right).take_while(|(left, right)| left == right).count();
    let rest = left[begun..].iter().zip(&right[begun..]);
    begun + rest.take_while(|(left, right)| left == right).count()
}

/// Puts rows in the order of their pages. Rows of a step share long starts, so a comparison of two
/// is expensive: what rows are known to share is not looked at again, and of a shared start each
/// row is read about once, however many rows there are.
#[derive(Debug, Clone, Default)]
struct Sorting {
    rows: Vec<Beside>,
    /// Neighbours that are still to be put in order, and the pages that all of them share.
    left: Vec<(Range<usize>, usize)>,
}

/// A row, and how it lies to one that it was compared with.
#[derive(Debug, Clone, Copy)]
struct Beside {
    row: usize,
    side: Ordering,
    shared: usize,
}

impl Beside {
    /// The order of rows: before the other one those that share more with it come later, behind it
    /// earlier. Of those that are equal to it the one that is named first.
    fn key(&self) -> (Ordering, usize, usize) {
        let shared = match self.side {
            Ordering::Greater => usize::MAX - self.shared,
            _ => self.shared,
        };
        (self.side, shared, self.row)
    }
}

impl Sorting {
    /// `common` becomes what each row shares with the one before it; `alike` counts the entries
    /// that two lists begin with.
    fn sort<'a>(
        &mut self,
        order: &mut [usize],
        common: &mut Vec<usize>,
        pages_of: impl Fn(usize) -> &'a [u32],
        mut alike: impl FnMut(&[u32], &[u32]) -> usize,
    ) -> Result<(), OutOfMemory> {
        common.clear();
        common.try_extend(order.iter().map(|_| 0))?;
        self.rows.clear();
        let beside = |&row: &usize| Beside { row, side: Ordering::Equal, shared: 0 };
        self.rows.try_extend(order.iter().map(beside))?;
        self.left.clear();
        self.left.try_push((0..order.len(), 0))?;
        while let Some((range, known)) = self.left.pop() {
            let (begin, rows) = (range.start, &mut self.rows[range]);
            if rows.len() < 2 {
                continue;
            }
            let middle = pages_of(rows[rows.len() / 2].row);
            for beside in rows.iter_mut() {
                let pages = pages_of(beside.row);
                let shared = known + alike(&pages[known..], &middle[known..]);
                beside.side = pages.get(shared).cmp(&middle.get(shared));
                beside.shared = shared;
            }
            rows.sort_unstable_by_key(Beside::key);
            let (mut at, mut before) = (begin, None::<usize>);
            for same in rows.chunk_by(|a, b| (a.side, a.shared) == (b.side, b.shared)) {
                let first = same[0];
                if let Some(before) = before.replace(first.shared) {
                    // Both lie beside the same one.
                    common[at] = first.shared.min(before);
                }
                match first.side {
                    Ordering::Equal => common[at + 1..at + same.len()].fill(first.shared),
                    _ => self.left.try_push((at..at + same.len(), first.shared))?,
                }
                at += same.len();
            }
        }
        for (row, beside) in order.iter_mut().zip(&self.rows) {
            *row = beside.row;
        }
        Ok(())
    }
}

impl Groups {
    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.chosen.clear();
        self.open.clear();
    }

    /// Finds the groups for which `costs` says that they pay.
    pub(super) fn find(&mut self, batch: &Batch, costs: &Costs<'_>) -> Result<(), OutOfMemory> {
        self.clear();
        let rows = batch.rows().len();
        self.order.try_reserve(rows)?;
        self.order.extend((0..rows).filter(|&row| !settled(batch, row).is_empty()));
        let pages_of = |row| settled(batch, row);
        self.sorting.sort(&mut self.order, &mut self.common, pages_of, shared_start)?;
        let mut saved = 0.0;
        for at in 0..self.order.len() {
            saved += self.add(batch, costs, at)?;
        }
        if saved < costs.worthwhile {
            self.chosen.clear();
        }
        Ok(())
    }

    /// Adds the next row, and chooses among the groups that end with it. Returns what is saved
    /// where the row behind it does not even share the first page. No call for each group: there
    /// may be as many, one within another, as rows.
    fn add(&mut self, batch: &Batch, costs: &Costs<'_>, at: usize) -> Result<f64, OutOfMemory> {
        let pages = self.common.get(at + 1).copied().unwrap_or(0);
        let queries = batch.rows()[self.order[at]].count;
        let (flat, first) = (costs.of(queries, 64), self.chosen.len());
        let mut last = Open { start: at, pages, queries, flat, below: 0.0, first };
        while self.open.last().is_some_and(|open| open.pages >= pages)
            && let Some(mut open) = self.open.pop()
        {
            open.queries += last.queries;
            open.flat += last.flat;
            open.below += last.below;
            last = open;
            if last.pages == pages {
                break; // the row behind it is in this one too
            }
            let keys = last.pages * batch.page_size();
            let saved = costs.saved_by_sharing(last.flat, last.queries, keys);
            if saved > last.below {
                self.chosen.truncate(last.first);
                self.chosen.try_push(Group { rows: last.start..at + 1, keys })?;
                last.below = saved;
            }
        }
        if pages == 0 {
            return Ok(last.below);
        }
        last.pages = pages;
        self.open.try_push(last)?;
        Ok(0.0)
    }
}

impl Costs<'_> {
    /// What it saves when rows that cost `flat` for 64 keys, each by itself, attend to `keys` keys
    /// together; negative when it costs.
    fn saved_by_sharing(&self, flat: f64, queries: usize, keys: usize) -> f64 {
        // An item of its own takes as long to begin and to end as two tiles of keys.
        let together = self.of(queries, keys + 128) + self.of_merging(2 * queries);
        flat * (keys as f64 / 64.0) - together
    }

    /// The shape for a group of so many queries. Each shape is a launch, so where rows of the batch
    /// `take` a smaller one anyway it may cost less that some blocks read the same keys.
    pub(super) fn shape_of_group(
        &self,
        queries: usize,
        keys: usize,
        take: impl Fn(usize) -> bool,
    ) -> usize {
        let best = tile_for(self.tiles, queries * self.group);
        if take(best) {
            return best;
        }
        let most = self.in_shape(&self.tiles[best], queries, keys) + self.worthwhile;
        let serves = |&shape: &usize| {
            let tile = &self.tiles[shape];
            take(shape)
                && queries <= SHARED_TILES_MOST * (tile.rows / self.group)
                && self.in_shape(tile, queries, keys) <= most
        };
        (0..best).rev().find(serves).unwrap_or(best)
    }

    /// Of `queries` queries that attend to `keys` keys.
    fn of(&self, queries: usize, keys: usize) -> f64 {
        let tile = &self.tiles[tile_for(self.tiles, queries * self.group)];
        self.in_shape(tile, queries, keys)
    }

    fn in_shape(&self, tile: &Tile, queries: usize, keys: usize) -> f64 {
        let tiles = queries.div_ceil(tile.queries(self.group)) as f64;
        tiles * (keys as f64 / 64.0) * tile.cost
    }

    /// Of writing and reading this many partial results.
    fn of_merging(&self, partials: usize) -> f64 {
        // A partial is 8 * head_dim bytes for each query head, 64 keys 256 * head_dim for each KV
        // head.
        partials as f64 * self.group as f64 / 32.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of lists, what neighbours share, and how many entries were compared for that.
    fn sorted(lists: &[Vec<u32>]) -> (Vec<usize>, Vec<usize>, usize) {
        let (mut order, mut common) = ((0..lists.len()).collect::<Vec<_>>(), Vec::new());
        let mut compared = 0;
        let alike = |left: &[u32], right: &[u32]| {
            let shared = shared_start(left, right);
            compared += shared + 1;
            shared
        };
        Sorting::default().sort(&mut order, &mut common, |at| &lists[at], alike).unwrap();
        (order, common, compared)
    }

    #[test]
    fn rows_are_in_the_order_of_their_pages() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..3000 {
            let stem: Vec<u32> = (0..random.usize(1..700)).map(|_| random.u32(1..3)).collect();
            let lists: Vec<Vec<u32>> = (0..random.usize(1..20))
                .map(|_| {
                    let mut list = stem[..random.usize(0..=stem.len())].to_vec();
                    list.extend((0..random.usize(1..4)).map(|_| random.u32(1..3)));
                    list
                })
                .collect();
            let (order, common, _) = sorted(&lists);
            let mut expected: Vec<usize> = (0..lists.len()).collect();
            expected.sort_by(|&left, &right| lists[left].cmp(&lists[right]));
            assert_eq!(order, expected);
            assert_eq!(common[0], 0);
            for (pair, &common) in order.windows(2).zip(&common[1..]) {
                let both = lists[pair[0]].iter().zip(&lists[pair[1]]);
                assert_eq!(common, both.take_while(|(left, right)| left == right).count());
            }
        }
    }

    /// Of a long shared start each row is read once, of two that share more with some not much
    /// more often: not once for each comparison.
    #[test]
    fn a_long_shared_start_is_read_once() {
        let (rows, pages) = (256, 8192);
        let mut random = fastrand::Rng::with_seed(6);
        let mut lists: Vec<Vec<u32>> = (0..rows)
            .map(|row| (1..=pages).chain([10_000 + row as u32 % 7, 20_000 + row as u32]).collect())
            .collect();
        random.shuffle(&mut lists);
        let (order, _, compared) = sorted(&lists);
        assert!(order.is_sorted_by_key(|&at| &lists[at]));
        let once = rows * (pages as usize + 2);
        assert!(compared < once + once / 10, "{compared} entries of {once}");
    }

    /// Each begins with all of the one before it: no row is read once for each of those.
    #[test]
    fn beginnings_of_beginnings_are_read_a_few_times() {
        let rows = 1000;
        let lists: Vec<Vec<u32>> = (0..rows).rev().map(|row| (1..row + 2).collect()).collect();
        let (order, common, compared) = sorted(&lists);
        assert!(order.iter().rev().copied().eq(0..lists.len()));
        assert!(common.iter().copied().eq(0..lists.len()));
        let all: usize = lists.iter().map(Vec::len).sum();
        assert!(compared < 2 * all, "{compared} entries of {all}");
    }
}
