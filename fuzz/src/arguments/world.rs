//! Two page tables with caches in which something goes on, and a runner over each.
use super::compute::Compute;
use super::events::Encoder;
use super::shelf::Shelf;
use crate::abi::{Pair, Sized32, ok};
use crate::snapshot::Snapshot;
use radixkv::capi::*;
use std::cell::OnceCell;
use std::ptr;

/// What the calls work on. The first pair is ours, the second one must never change.
pub struct World {
    /// Events of the first pair, once somebody wants some.
    pub encoder: Encoder,
    pub pairs: [Pair; 2],
    /// Runners over them, once they are needed.
    computes: [OnceCell<Compute>; 2],
    /// Pages of the first pair that are private and in no row.
    pub loose: Vec<u32>,
    /// Nodes of the first pair, the last one stale.
    pub nodes: Vec<rkv_node_id>,
    /// Sequences of the first pair, the last one released.
    pub sequences: Vec<rkv_sequence_id>,
    /// Our locks on nodes of the first pair.
    pub locks: Vec<rkv_lock_id>,
    /// Copies of the first pair that were given and not yet completed.
    pub jobs: Vec<rkv_copy_job>,
    /// Prefetches that were started, ended ones too.
    pub prefetches: Vec<rkv_prefetch_id>,
    /// Nodes, locks and sequences of the second pair.
    pub foreign: Vec<u64>,
    /// A snapshot cache.
    pub shelf: Shelf,
}

fn begin(pair: &Pair, ids: &[u32]) -> rkv_sequence_info {
    let tokens = rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..Sized32::sized() };
    let args = rkv_sequence_begin_args { tokens: &tokens, ..Sized32::sized() };
    let mut state = rkv_sequence_info::sized();
    // SAFETY: all pointers lead to live values.
    ok(unsafe { rkv_sequence_begin(pair.cache, &args, &mut state) });
    state
}

/// Publishes all that can be, and gives the node where that ends.
fn publish(pair: &Pair, state: &rkv_sequence_info) -> rkv_node_id {
    let mut result = rkv_sequence_publish_result::sized();
    let mut now = rkv_sequence_info::sized();
    // SAFETY: all pointers lead to live values.
    unsafe {
        if state.copy_count > 0 {
            ok(rkv_sequence_confirm_copies(pair.cache, state.sequence));
        }
        ok(rkv_sequence_publish(pair.cache, state.sequence, state.position_count, &mut result));
        ok(rkv_sequence_read_info(pair.cache, state.sequence, &mut now));
    }
    now.node
}

impl World {
    pub const PAGES: u32 = 40;
    pub const SLOTS: u32 = 8;
    pub const PAGE_SIZE: u32 = 4;

    pub fn new(index: u32) -> Self {
        let config = rkv_page_table_config {
            page_size: Self::PAGE_SIZE,
            page_count: Self::PAGES,
            slot_count: Self::SLOTS,
            row_page_limit: 16,
            ..Sized32::sized()
        };
        let pairs = [Pair::new(&config, 0, index), Pair::new(&config, 0, index)];
        let [ours, other] = &pairs;
        let mut nodes = Vec::new();
        let mut sequences = Vec::new();

        let released = begin(ours, &[0, 1, 1, 0, 1, 1, 1, 1, 0]);
        nodes.push(publish(ours, &released));
        // SAFETY: the handle is alive.
        ok(unsafe { rkv_sequence_release(ours.cache, released.sequence) });
        let longer = begin(ours, &[0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]);
        nodes.push(publish(ours, &longer));
        let copying = begin(ours, &[0, 1, 1, 0, 0, 0, 1]);
        // One that is retained, and a child of it that has yet to copy.
        let kept = begin(ours, &[3, 3, 3, 3, 3, 3]);
        nodes.push(publish(ours, &kept));
        let args = rkv_sequence_continue_args { parent: kept.sequence, ..Sized32::sized() };
        let (mut child, mut retained) = (rkv_sequence_info::sized(), false);
        // SAFETY: all pointers lead to live values.
        unsafe {
            ok(rkv_sequence_retain(ours.cache, kept.sequence, &mut retained));
            ok(rkv_sequence_continue(ours.cache, &args, &mut child));
        }
        assert!(retained && child.copy_count > 0);
        sequences.extend([longer.sequence, copying.sequence, child.sequence]);
        sequences.extend([kept.sequence, released.sequence]);

        // A node that was evicted.
        let brief = begin(ours, &[2, 2, 2, 2, 2]);
        let stale = publish(ours, &brief);
        // SAFETY: the handle is alive, all pointers lead to live values.
        unsafe {
            ok(rkv_sequence_release(ours.cache, brief.sequence));
            let mut count = 0;
            ok(rkv_cache_evict(ours.cache, 3, ptr::null_mut(), 0, &mut count));
        }
        nodes.push(stale);

        let mut slot = 0;
        let mut loose = vec![0; 8];
        // SAFETY: the handle is alive, the buffer has the room that is stated.
        unsafe {
            ok(rkv_page_table_allocate_slot(ours.table, &mut slot));
            ok(rkv_page_table_reserve(ours.table, slot, 9));
            ok(rkv_page_table_allocate_pages(ours.table, loose.len(), loose.as_mut_ptr()));
        }
        let mut own_lock = 0;
        // SAFETY: the handle is alive, and so is the output.
        ok(unsafe { rkv_cache_lock(ours.cache, nodes[1], &mut own_lock) });
        let theirs = begin(other, &[0, 1, 1, 0, 1]);
        let (node, mut lock) = (publish(other, &theirs), 0);
        // SAFETY: the handle is alive, and so is the output.
        ok(unsafe { rkv_cache_lock(other.cache, node, &mut lock) });
        let foreign = vec![node, lock, theirs.sequence];
        Self {
            encoder: Encoder(ptr::null_mut()),
            jobs: Vec::new(),
            prefetches: Vec::new(),
            pairs,
            computes: Default::default(),
            loose,
            nodes,
            locks: vec![own_lock],
            sequences,
            foreign,
            shelf: Shelf::new(),
        }
    }

    pub fn snapshots(&self) -> [Snapshot; 2] {
        [Snapshot::of(&self.pairs[0]), Snapshot::of(&self.pairs[1])]
    }

    #[track_caller]
    pub fn check(&self) {
        self.pairs.iter().for_each(Pair::check);
        self.shelf.check();
    }

    pub fn compute(&self) -> &Compute {
        self.compute_over(0)
    }

    /// One over the page table that must never change.
    pub fn foreign_compute(&self) -> &Compute {
        self.compute_over(1)
    }

    fn compute_over(&self, at: usize) -> &Compute {
        let make = || Compute::new(self.pairs[at].table, Self::PAGES, Self::PAGE_SIZE);
        self.computes[at].get_or_init(make)
    }

    pub fn compute_mut(&mut self) -> &mut Compute {
        self.compute();
        self.computes[0].get_mut().expect("just made")
    }

    pub fn note_node(&mut self, node: rkv_node_id) {
        if node != 0 && self.nodes.len() < 24 {
            self.nodes.push(node);
        }
    }

    /// Notes pages that are private now and in no row; the oldest are forgotten.
    pub fn note_pages(&mut self, pages: &[u32]) {
        self.loose.extend_from_slice(pages);
        self.loose.drain(..self.loose.len().saturating_sub(48));
    }

    /// Notes a lock, unless it is none or one that moved.
    pub fn note_lock(&mut self, lock: rkv_lock_id) {
        if lock != 0 && !self.locks.contains(&lock) {
            self.locks.push(lock);
        }
    }
}

/// A page table of its own, without a cache.
pub fn vacant_table() -> *mut rkv_page_table {
    let config =
        rkv_page_table_config { page_size: 2, page_count: 4, slot_count: 1, ..Sized32::sized() };
    let mut table = ptr::null_mut();
    // SAFETY: all pointers lead to live values.
    ok(unsafe { rkv_page_table_create(&config, &mut table) });
    table
}
