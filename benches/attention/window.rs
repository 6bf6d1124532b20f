//! A decode far behind the beginning of a row: full attention reads all of it, a window group its
//! window, and that takes as long as a row of no more than the window.
use radixkv::attention::{Dtype, KvLayout, Params, RowMask};
use radixkv::cpu::Threads;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::Arc;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::plan::{Plan, PlanRow};
use radixkv::runner::{LayerStep, Runner, RunnerConfig};
use radixkv::sequence::{ComputedRow, Room};
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;
use std::ptr;
use std::time::Instant;

const PAGE_SIZE: usize = 16;
const POSITION: usize = 100_000;
const WINDOW: usize = 1024;
const QUERY_HEADS: usize = 16;
const KV_HEADS: usize = 4;
const HEAD_DIM: usize = 128;
/// Positions that get pages at a time, as a prompt comes in.
const CHUNK: usize = 4096;

struct Model {
    shared: Arc<Shared>,
    plan: Plan,
    runners: Vec<Arc<Runner>>,
}

impl Model {
    /// Of one FULL group, or of a WINDOW group beside it.
    fn new(threads: usize, has_window: bool) -> Self {
        let window = GroupKind::Window { window: WINDOW as u32, sinks: 0 };
        let groups = [GroupConfig::default(), window.in_pool(1)];
        let count = 1 + usize::from(has_window);
        let window_pages = [((2 * (WINDOW + CHUNK)) / PAGE_SIZE + 8) as u32];
        let shared = Shared::new(PageTableConfig {
            page_size: PAGE_SIZE as u32,
            page_count: ((POSITION + 2 * WINDOW) / PAGE_SIZE + 8) as u32,
            slot_count: 2,
            groups: Groups::new(&groups[..count]).expect("groups"),
            more_pools: MorePools::new(&window_pages[..count - 1]).expect("a pool"),
            ..PageTableConfig::default()
        })
        .expect("a page table");
        shared.attach_cache(CacheConfig::default()).expect("a cache");
        let runner = |group| {
            let config = RunnerConfig {
                group,
                layers: 1,
                query_heads: QUERY_HEADS,
                kv_heads: KV_HEADS,
                head_dim: HEAD_DIM,
                v_head_dim: HEAD_DIM,
                dtype: Dtype::Bf16,
                kv_dtype: Dtype::Bf16,
                kv_layout: KvLayout::Nhd,
                batch_invariant: false,
                latent: false,
            };
            Runner::new(shared.clone(), config, Threads::Own(threads)).expect("a runner")
        };
        let runners = (0..count).map(runner).collect();
        Self { plan: Plan::new(shared.clone()).expect("a plan"), shared, runners }
    }

    /// A sequence whose last position is the next to compute.
    fn begin(&self, positions: usize, first: u32) -> SequenceId {
        let ids: Vec<u32> = (0..positions as u32).map(|at| first + at).collect();
        let room = Room { reserve: 0, first: CHUNK };
        let begun = self.shared.begin(&Namespace::default(), TokenList::text(&ids), room);
        let id = begun.expect("pages").id;
        for end in (CHUNK..positions + CHUNK).step_by(CHUNK) {
            self.shared.allocate(id, end.min(positions)).expect("pages");
            self.shared.turn().slide(id, end.min(positions - 1)).expect("it slides");
        }
        id
    }

    fn set(&self, id: SequenceId, position: usize) {
        let row = ComputedRow::Sequence(id);
        let row = PlanRow {
            row,
            start: position,
            count: 1,
            mask: RowMask::Causal,
            regions: &[],
            tree_masks: &[],
        };
        self.plan.set(&[row]).expect("it can be computed");
    }

    fn attend(&self, group: usize, q: &[u8], kv: &[u8], out: &mut [u8]) {
        let step = LayerStep {
            k_scales: std::ptr::null(),
            v_scales: std::ptr::null(),
            layer: 0,
            q: (q.as_ptr(), Default::default()),
            k: Some((kv.as_ptr(), Default::default())),
            v: Some((kv.as_ptr(), Default::default())),
            out: (out.as_mut_ptr(), Default::default()),
            lse: ptr::null_mut(),
            sinks: ptr::null(),
            params: Params::new(HEAD_DIM),
            stream: ptr::null_mut(),
        };
        // SAFETY: one position of the runner's shapes; nobody else computes it.
        unsafe { self.runners[group].append_prefill(&self.plan, &step) }.expect("it computes");
    }
}

/// Microseconds of the quickest of many calls.
fn quickest(mut call: impl FnMut()) -> f64 {
    let (begin, mut quickest, mut calls) = (Instant::now(), f64::MAX, 0);
    while calls < 20 || begin.elapsed().as_secs_f64() < 1.0 {
        let start = Instant::now();
        call();
        quickest = quickest.min(start.elapsed().as_secs_f64() * 1e6);
        calls += 1;
    }
    quickest
}

/// Prints the table.
pub fn measure(threads: usize) {
    let one = Model::new(threads, false);
    let two = Model::new(threads, true);
    let q = vec![0x3c; QUERY_HEADS * HEAD_DIM * 2];
    let kv = vec![0x3c; KV_HEADS * HEAD_DIM * 2];
    let mut out = vec![0; q.len()];
    println!("{threads} threads, {QUERY_HEADS} query and {KV_HEADS} KV heads of {HEAD_DIM}, bf16");
    println!("| groups | computed | position | reads | plan set, us | layer, us |");
    println!("|---|---|--:|--:|--:|--:|");
    for (model, name, group) in
        [(&one, "FULL", 0), (&two, "FULL, WINDOW", 0), (&two, "FULL, WINDOW", 1)]
    {
        for position in [WINDOW - 1, POSITION] {
            let id = model.begin(position + 1, 1);
            let set = quickest(|| model.set(id, position));
            let layer = quickest(|| model.attend(group, &q, &kv, &mut out));
            let reads = if group == 1 { position.min(WINDOW - 1) } else { position } + 1;
            let kind = ["FULL", "WINDOW"][group];
            println!("| {name} | {kind} | {position} | {reads} | {set:.2} | {layer:.1} |");
            model.shared.write().release(id).expect("it ends");
        }
    }
}
