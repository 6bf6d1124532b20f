//! Where the arrays of a step lie in a plan's memory on the device.
//!
//! Each has room for some number of entries. Where a plan was reserved that is the most that any
//! step can need: then they lie at the same addresses in every step, as captured graphs want it.
use super::arguments::{self, Address, Query, StepCounts, TILES_MAX, TreeMask};
use super::memory::Blob;
use crate::attention::{Bounds, Capacity, Work};

/// Entries of each array.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extents {
    pub queries: usize,
    /// As many as queries, or none.
    pub trees: usize,
    pub order: usize,
    /// Of each shape.
    pub items: Vec<usize>,
    pub merged: usize,
    pub partials: usize,
}

impl Extents {
    /// Of a step.
    pub(super) fn of_work(&mut self, queries: usize, trees: usize, work: &Work) {
        self.queries = queries;
        self.trees = trees;
        self.order = work.order.len();
        self.items.clear();
        self.items.extend(work.of_tile.iter().map(|items| items.len()));
        self.merged = work.merged.len();
        self.partials = work.partial_count;
    }

    /// Of every step within a capacity.
    pub(super) fn of_bounds(capacity: &Capacity, bounds: &Bounds) -> Self {
        Self {
            queries: capacity.positions,
            trees: if capacity.trees { capacity.positions } else { 0 },
            order: bounds.order,
            items: bounds.items.clone(),
            merged: bounds.merged,
            partials: bounds.partials,
        }
    }

    /// What kernels are told.
    fn counts(&self) -> StepCounts {
        let mut items = [0; TILES_MAX];
        for (to, &count) in items.iter_mut().zip(&self.items) {
            *to = count as i32;
        }
        let (queries, merged) = (self.queries as i32, self.merged as i32);
        StepCounts { queries, merged, items, taken: 0, ended: 0 }
    }

    fn holds(&self, step: &Self) -> bool {
        let items = self.items.iter().zip(&step.items).all(|(room, count)| count <= room);
        items
            && step.queries <= self.queries
            && step.trees <= self.trees
            && step.order <= self.order
            && step.merged <= self.merged
            && step.partials <= self.partials
    }
}

/// Where the arrays begin, in bytes. The counts come first.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    queries: usize,
    /// None where no step has trees.
    trees: Option<usize>,
    order: usize,
    merged: usize,
    merge_indptr: usize,
    partials: usize,
    items: [usize; TILES_MAX],
    end: usize,
}

/// The arrays of a step, as they are sent.
#[derive(Debug)]
pub(super) struct Arrays<'a> {
    pub step: &'a Extents,
    pub queries: &'a [Query],
    pub trees: &'a [TreeMask],
    pub items: &'a [arguments::Item],
    pub work: &'a Work,
}

/// A step as kernels take it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub query_count: Address,
    pub merged_count: Address,
    pub queries: Address,
    pub order: Address,
    pub pages: Address,
    /// 0: there are none.
    pub trees: Address,
    pub merged: Address,
    pub merge_indptr: Address,
    pub partials: Address,
    pub partial_out: Address,
    pub partial_lse: Address,
    items: [Address; TILES_MAX],
    item_counts: Address,
    /// Counters of attn_sm90.
    pub taken: Address,
}

impl Sent {
    /// Items of a shape, and where their number lies.
    pub(super) fn items(&self, tile: usize) -> (Address, Address) {
        (self.items[tile], self.item_counts + (tile * size_of::<i32>()) as u64)
    }
}

impl Places {
    /// One behind another, with room for so many entries.
    pub(super) fn of(room: &Extents) -> Self {
        let mut end = size_of::<StepCounts>();
        let mut place = |count: usize, bytes: usize| {
            let at = Blob::aligned(end);
            end = at + count * bytes;
            at
        };
        let mut places = Self {
            queries: place(room.queries, size_of::<Query>()),
            trees: (room.trees > 0).then(|| place(room.trees, size_of::<TreeMask>())),
            order: place(room.order, size_of::<u32>()),
            merged: place(room.merged, size_of::<u32>()),
            merge_indptr: place(room.merged + 1, size_of::<u32>()),
            partials: place(room.partials, size_of::<u32>()),
            ..Self::default()
        };
        for (to, &count) in places.items.iter_mut().zip(&room.items) {
            *to = place(count, size_of::<arguments::Item>());
        }
        places.end = end;
        places
    }

    /// Behind the last one.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Puts the arrays of a step where they belong. There is room for them: what else lies on the
    /// device would be overwritten.
    pub(super) fn fill(&self, blob: &mut Blob, room: &Extents, arrays: &Arrays<'_>) {
        let Arrays { step, queries, trees, items, work } = *arrays;
        assert!(room.holds(step), "{step:?} is beyond what was reserved, {room:?}");
        blob.clear();
        blob.put(0, &[step.counts()]);
        blob.put(self.queries, queries);
        if let Some(place) = self.trees {
            blob.put(place, trees);
        }
        blob.put(self.order, &work.order);
        blob.put(self.merged, &work.merged);
        blob.put(self.merge_indptr, &work.merge_indptr);
        blob.put(self.partials, &work.partials);
        for (place, range) in self.items.iter().zip(&work.of_tile) {
            blob.put(*place, &items[range.clone()]);
        }
    }

    /// As addresses, from that of the first byte on; pages and partial results lie elsewhere.
    pub(super) fn sent(&self, arrays: Address, pages: Address, partial: [Address; 2]) -> Sent {
        let at = |place: usize| arrays + place as u64;
        let [partial_out, partial_lse] = partial;
        Sent {
            query_count: at(std::mem::offset_of!(StepCounts, queries)),
            merged_count: at(std::mem::offset_of!(StepCounts, merged)),
            queries: at(self.queries),
            order: at(self.order),
            pages,
            trees: self.trees.map_or(0, at),
            merged: at(self.merged),
            merge_indptr: at(self.merge_indptr),
            partials: at(self.partials),
            partial_out,
            partial_lse,
            items: self.items.map(at),
            item_counts: at(std::mem::offset_of!(StepCounts, items)),
            taken: at(std::mem::offset_of!(StepCounts, taken)),
        }
    }
}
