//! Full attention and a sliding window on the device beside the processor: two groups, a runner for
//! each, in memory that is NaN wherever nothing was written, with pages that go as the window
//! slides.
use super::device::{self, EngineStream, Graph, Memory};
use super::emulator::Driver;
use super::memory::poison;
use super::numbers::{encode, normal};
use super::runner::{check_near, numbers};
use fastrand::Rng;
use radixkv::attention::{Capacity, Dtype, KvLayout, KvStrides, Params, RowMask};
use radixkv::cpu::Threads;
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::Arc;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::plan::{Plan, PlanRow};
use radixkv::runner::{BackendConfig, KvPointers, LayerStep, Runner, RunnerConfig, Strides};
use radixkv::sequence::ComputedRow;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;
use std::ptr;

const PAGE_SIZE: usize = 16;
/// Pages of each pool, page 0 included.
const PAGES: [usize; 2] = [48, 32];
const WINDOW: u32 = 70;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 64;

fn config(group: usize) -> RunnerConfig {
    RunnerConfig {
        group,
        layers: 1,
        query_heads: HEADS,
        kv_heads: KV_HEADS,
        head_dim: DIM,
        v_head_dim: DIM,
        dtype: Dtype::Bf16,
        kv_dtype: Dtype::Bf16,
        kv_layout: KvLayout::Nhd,
        batch_invariant: false,
        latent: false,
    }
}

fn shared(kind: GroupKind) -> Arc<Shared> {
    let window = kind.in_pool(1);
    let config = PageTableConfig {
        page_size: PAGE_SIZE as u32,
        page_count: PAGES[0] as u32,
        slot_count: 8,
        groups: Groups::new(&[GroupConfig::default(), window]).unwrap(),
        more_pools: MorePools::new(&[PAGES[1] as u32]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::new(config).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    shared
}

/// K and V of a group's pages.
struct Lent {
    device: Option<[Memory; 2]>,
    host: [Vec<u8>; 2],
}

impl Lent {
    fn new(group: usize, on_device: bool) -> Self {
        let bytes = PAGES[group] * PAGE_SIZE * KV_HEADS * DIM * 2;
        let host = [poison(bytes), poison(bytes)];
        let device = on_device.then(|| host.each_ref().map(|bytes| Memory::of(bytes)));
        Self { device, host }
    }

    fn pointers(&mut self) -> KvPointers {
        let [k, v] = match &self.device {
            Some(device) => device.each_ref().map(Memory::address),
            None => self.host.each_mut().map(|bytes| bytes.as_mut_ptr()),
        };
        let position = KV_HEADS * DIM;
        let strides = KvStrides { page: PAGE_SIZE * position, position, head: DIM };
        KvPointers { k, v, strides, v_strides: strides }
    }
}

struct Engine {
    shared: Arc<Shared>,
    plan: Plan,
    runners: Vec<Arc<Runner>>,
    stream: Option<EngineStream>,
    _lent: Vec<Lent>,
    // The last to go.
    _entered: Option<device::Entered>,
}

/// A row of a step: its sequence, its tokens up to the last new one, the first new position.
type Rows<'a> = &'a [(SequenceId, &'a [u32], usize)];

/// q, k and v; the numbers of a position depend on its token, on where it is, and on the group.
fn inputs(group: usize, rows: Rows<'_>) -> [Vec<u8>; 3] {
    [(1, HEADS), (2, KV_HEADS), (3, KV_HEADS)].map(|(kind, heads)| {
        let mut bytes = Vec::new();
        for (_, ids, start) in rows {
            for position in *start..ids.len() {
                let seed = [kind, group as u64, u64::from(ids[position]), position as u64];
                let seed = seed.iter().fold(9u64, |seed, part| seed.wrapping_mul(1_000_003) ^ part);
                let mut random = Rng::with_seed(seed);
                (0..heads * DIM).for_each(|_| encode(normal(&mut random), Dtype::Bf16, &mut bytes));
            }
        }
        bytes
    })
}

impl Engine {
    fn new(backend: impl Fn() -> BackendConfig, on_device: bool) -> Self {
        let shared = shared(GroupKind::Window { window: WINDOW, sinks: 0 });
        let entered = on_device.then(device::enter);
        let mut lent: Vec<Lent> = (0..2).map(|group| Lent::new(group, on_device)).collect();
        let made = lent.iter_mut().enumerate().map(|(group, lent)| {
            let (shared, layers) = (shared.clone(), [lent.pointers()]);
            // SAFETY: the memory is as large as the group's pages, and goes after the runner.
            unsafe { Runner::over(shared, config(group), backend(), &layers) }.unwrap()
        });
        let runners = made.collect();
        let stream = on_device.then(EngineStream::new);
        let plan = Plan::new(shared.clone()).unwrap();
        Self { shared, plan, runners, stream, _lent: lent, _entered: entered }
    }

    fn raw_stream(&self) -> *mut std::ffi::c_void {
        self.stream.as_ref().map_or(ptr::null_mut(), |stream| stream.0.cast())
    }

    fn set(&self, rows: Rows<'_>) {
        let row = |&(id, ids, start): &(SequenceId, &[u32], usize)| {
            let count = ids.len() - start;
            PlanRow {
                row: ComputedRow::Sequence(id),
                start,
                count,
                mask: RowMask::Causal,
                regions: &[],
                tree_masks: &[],
            }
        };
        self.plan.set(&rows.iter().map(row).collect::<Vec<_>>()).unwrap();
        for (at, runner) in self.runners.iter().enumerate() {
            // SAFETY: nobody else computes the rows.
            unsafe { runner.prepare_plan(&self.plan, at == 0, self.raw_stream()) }.unwrap();
        }
    }

    fn append(&self, group: usize, [q, k, v]: [*mut u8; 3], out: *mut u8) -> Result<(), Error> {
        let dense = Strides::default();
        let step = LayerStep {
            k_scales: std::ptr::null(),
            v_scales: std::ptr::null(),
            layer: 0,
            q: (q, dense),
            k: Some((k, dense)),
            v: Some((v, dense)),
            out: (out, dense),
            lse: ptr::null_mut(),
            sinks: ptr::null(),
            params: Params::new(DIM),
            stream: self.raw_stream(),
        };
        // SAFETY: memory of the shapes that the plan says, on the runner's device.
        unsafe { self.runners[group].append_prefill(&self.plan, &step) }
    }

    fn layer(&self, group: usize, rows: Rows<'_>) -> Vec<f32> {
        let mut given = inputs(group, rows);
        let mut out = poison(given[0].len());
        let Some(stream) = &self.stream else {
            let given = given.each_mut().map(|bytes| bytes.as_mut_ptr());
            self.append(group, given, out.as_mut_ptr()).unwrap();
            return numbers(&out);
        };
        let there = given.map(|bytes| Memory::of(&bytes));
        let out = Memory::of(&out);
        self.append(group, there.each_ref().map(Memory::address), out.address()).unwrap();
        stream.synchronize();
        numbers(&out.read())
    }

    fn step(&self, rows: Rows<'_>) -> [Vec<f32>; 2] {
        self.set(rows);
        [0, 1].map(|group| self.layer(group, rows))
    }

    fn begin(&self, ids: &[u32]) -> (SequenceId, usize) {
        let begun = self.shared.begin(&Namespace::default(), TokenList::text(ids), 0).unwrap();
        (begun.id, begun.cached_positions)
    }

    /// Pages that the window's row still has.
    fn window_pages(&self, id: SequenceId) -> usize {
        let state = self.shared.read();
        state.group_row(id, 1, 0).unwrap().iter().filter(|&&page| page != 0).count()
    }
}

fn both(driver: &Driver) -> [Engine; 2] {
    let on_device = Engine::new(|| driver.config().into(), true);
    [Engine::new(|| Threads::Own(1).into(), false), on_device]
}

fn check_all(found: &[[Vec<f32>; 2]; 2]) {
    for (host, device) in found[0].iter().zip(&found[1]) {
        check_near(host, device);
        assert!(host.iter().all(|number| number.is_finite()));
    }
}

// G14
#[test]
fn g14_a_window_group_on_a_device() {
    let driver = Driver::get();
    let engines = both(&driver);
    let first: Vec<u32> = (0..230).collect();
    let second: Vec<u32> = first[..205].iter().copied().chain(900..925).collect();
    let mut begun = engines.each_ref().map(|engine| engine.begin(&first).0);
    for (start, end) in [(0, 90), (90, 97), (97, 201), (201, 225)] {
        let results = [0, 1].map(|at| engines[at].step(&[(begun[at], &first[..end], start)]));
        check_all(&results);
        for (engine, id) in engines.iter().zip(begun) {
            engine.shared.write().publish(id, end).unwrap();
        }
    }
    // 229 / 16 places, of which those before position 225 - 69 are gone.
    assert_eq!(engines[1].window_pages(begun[1]), 6);
    // Another one leaves it inside a page, which both groups copy; both decode in one batch.
    let others = engines.each_ref().map(|engine| engine.begin(&second));
    assert!(others.iter().all(|&(_, cached)| cached == 205), "{others:?}");
    let results = [0, 1].map(|at| {
        let rows = [(others[at].0, &second[..], 205), (begun[at], &first[..226], 225)];
        engines[at].step(&rows)
    });
    check_all(&results);
    for end in 227..230 {
        let results = [0, 1].map(|at| engines[at].step(&[(begun[at], &first[..end], end - 1)]));
        check_all(&results);
    }
    for (at, engine) in engines.iter().enumerate() {
        engine.shared.read().audit().unwrap();
        begun[at] = others[at].0;
    }
}

// G14
#[test]
fn g14_a_graph_of_a_window_group_serves_rows_that_slide() {
    let driver = Driver::get();
    let engines = both(&driver);
    let ids: Vec<u32> = (0..250).collect();
    let begun = engines.each_ref().map(|engine| engine.begin(&ids).0);
    for (engine, id) in engines.iter().zip(begun) {
        engine.step(&[(id, &ids[..200], 0)]);
        engine.shared.write().publish(id, 200).unwrap();
    }
    let (on_device, id) = (&engines[1], begun[1]);
    let stream = on_device.stream.as_ref().unwrap();
    let most = Capacity {
        rows: 2,
        positions: 2,
        row_positions: 1,
        pages: 40,
        regions: false,
        trees: false,
        cascade: true,
    };
    on_device.set(&[(id, &ids[..201], 200)]);
    on_device.plan.reserve(&most).unwrap();
    on_device.runners.iter().for_each(|runner| runner.reserve_plan(&on_device.plan).unwrap());
    on_device.set(&[(id, &ids[..201], 200)]);
    let tensors = [HEADS, KV_HEADS, KV_HEADS, HEADS]
        .map(|heads| Memory::of(&poison(most.positions * heads * DIM * 2)));
    let graph = Graph::capture(stream, || {
        let [q, k, v, out] = tensors.each_ref().map(Memory::address);
        on_device.append(1, [q, k, v], out)
    })
    .unwrap();
    for end in 201..240 {
        let rows = [0, 1].map(|at| [(begun[at], &ids[..end], end - 1)]);
        let expected = engines[0].step(&rows[0]);
        on_device.set(&rows[1]);
        let given = inputs(1, &rows[1]);
        tensors.iter().zip(given).for_each(|(memory, bytes)| memory.write(0, &bytes));
        graph.launch(stream);
        stream.synchronize();
        check_near(&expected[1], &numbers(&tensors[3].read())[..HEADS * DIM]);
        for (engine, id) in engines.iter().zip(begun) {
            engine.shared.turn().slide(id, end).unwrap();
        }
    }
    drop((graph, tensors));
}

// G14
#[test]
fn g14_what_kernels_cannot_do_is_refused_at_creation() {
    let driver = Driver::get();
    let refused = |kind: GroupKind, change: fn(&mut RunnerConfig), word: &str| {
        let mut config = config(1);
        change(&mut config);
        let error = Runner::new(shared(kind), config, driver.config()).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    let window = GroupKind::Window { window: WINDOW, sinks: 0 };
    refused(GroupKind::Window { window: WINDOW, sinks: 1 }, |_| {}, "sinks");
    refused(GroupKind::Chunk { chunk: 64 }, |_| {}, "CHUNK");
    refused(window, |config| config.v_head_dim = 128, "v_head_dim 128");
    refused(window, |config| (config.head_dim, config.v_head_dim) = (72, 72), "head_dim 72");
}
