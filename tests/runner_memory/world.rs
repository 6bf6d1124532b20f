//! A page table, a cache and a runner, the same each time they are made.
use crate::failing::{Failure, asked_by_librarys_threads, failing, suspended};
use radixkv::capi::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

pub const QUERY_HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const DIM: usize = 64;
pub const LAYERS: usize = 2;
pub const PAGE_SIZE: usize = 16;
const PAGES: u32 = 120;
/// Elements of a page of K or V.
const PAGE: usize = PAGE_SIZE * KV_HEADS * DIM;
/// Positions of the long row: several segments of keys, which threads share.
const LONG: usize = 1400;
/// New positions of each row of the step.
const COUNTS: [usize; 4] = [1, 3, 20, 2];
pub const POSITIONS: usize = 26;

/// Who computes, and where K and V lie.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub threads: u32,
    pub is_engines: bool,
    pub is_lent: bool,
    pub flags: u32,
}

pub const ALONE: Setup = Setup { threads: 1, is_engines: false, is_lent: false, flags: 0 };
pub const SETUPS: [Setup; 4] = [
    ALONE,
    Setup { threads: 3, is_lent: true, ..ALONE },
    Setup { threads: 3, is_engines: true, ..ALONE },
    Setup { threads: 3, flags: RKV_RUNNER_BATCH_INVARIANT, ..ALONE },
];

/// A struct of the ABI that is zero but for its size.
pub fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

#[track_caller]
pub fn ok(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok, "{}", message());
}

pub fn message() -> String {
    let mut text = [0u8; 200];
    // SAFETY: the buffer has the room that is stated.
    unsafe { rkv_last_error_message(text.as_mut_ptr().cast::<c_char>(), text.len()) };
    CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
}

/// Requests of tasks on threads of the engine.
static ASKED_BY_TASKS: AtomicU64 = AtomicU64::new(0);

/// A thread for each task. The engine has memory, a task has none.
unsafe extern "C-unwind" fn parallel_for(
    _: *mut c_void,
    count: usize,
    run: rkv_parallel_task,
    task: *mut c_void,
) {
    let task = task.expose_provenance();
    let run_one = |index| {
        let task = ptr::with_exposed_provenance_mut(task);
        // SAFETY: each task runs once, before this returns.
        let ((), failed) = failing(Failure::From(0), || unsafe { run.unwrap()(task, index) });
        ASKED_BY_TASKS.fetch_add(failed, Ordering::Relaxed);
    };
    suspended(|| {
        std::thread::scope(|scope| {
            (0..count).for_each(|index| drop(scope.spawn(move || run_one(index))));
        });
    });
}

/// Everything that a call could have changed, as numbers.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Image {
    out: Vec<u32>,
    answer: Vec<u64>,
    kv: Vec<u32>,
    plan: Vec<i64>,
    sequences: Vec<u64>,
    pages: Vec<u64>,
}

/// A step of four rows is about to be computed: one has one new position, two wait for copies, one
/// has a region, and one has keys for several threads.
pub struct World {
    pub table: *mut rkv_page_table,
    pub cache: *mut rkv_cache,
    pub runner: *mut rkv_runner,
    pub plan: *mut rkv_plan,
    /// What a call makes that the world didn't have.
    pub made: (*mut rkv_runner, *mut rkv_plan),
    pub config: rkv_runner_config,
    pub rows: Vec<rkv_plan_row>,
    pub q: Vec<f32>,
    pub kv: Vec<f32>,
    pub out: Vec<f32>,
    pub lse: Vec<f32>,
    /// Merged states.
    pub merged: Vec<f32>,
    pub merged_lse: Vec<f32>,
    /// Receives what other calls answer.
    pub answer: Vec<u64>,
    /// Pages of the long row.
    pub pages: Vec<u32>,
    pub layers: Vec<rkv_runner_kv_memory>,
    _regions: Vec<rkv_region>,
    _memory: Vec<f32>,
}

/// Numbers from -1 to 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.f32() * 2.0 - 1.0).collect()
}

impl World {
    /// With a runner and a plan that was not set, but whose K and V are there.
    pub fn new(setup: Setup) -> Self {
        let mut memory = numbers(PAGES as usize * PAGE * 2 * LAYERS, 1);
        let start = memory.as_mut_ptr();
        let part = |at: usize| start.wrapping_add(at * PAGES as usize * PAGE);
        let layer = |at: usize| rkv_runner_kv_memory {
            k: part(2 * at).cast(),
            v: part(2 * at + 1).cast(),
            page_stride: PAGE as u64,
            position_stride: (KV_HEADS * DIM) as u64,
            head_stride: DIM as u64,
            v_page_stride: 0,
            v_position_stride: 0,
            v_head_stride: 0,
        };
        let layers: Vec<_> = (0..LAYERS).map(layer).collect();
        let mut config = sized::<rkv_runner_config>();
        // SAFETY: the struct has the size that is stated.
        ok(unsafe { rkv_runner_config_init(&mut config, size_of_val(&config)) });
        config.layer_count = LAYERS as u32;
        config.query_head_count = QUERY_HEADS as u32;
        config.kv_head_count = KV_HEADS as u32;
        config.head_dim = DIM as u32;
        config.thread_count = setup.threads;
        config.flags = setup.flags;
        config.parallel_for = setup.is_engines.then_some(parallel_for as _);
        config.kv_layers = if setup.is_lent { layers.as_ptr() } else { ptr::null() };
        config.kv_layer_size = size_of::<rkv_runner_kv_memory>();
        let nan = f32::from_bits(0x7fc1_2345);
        let mut world = Self {
            table: ptr::null_mut(),
            cache: ptr::null_mut(),
            runner: ptr::null_mut(),
            plan: ptr::null_mut(),
            made: (ptr::null_mut(), ptr::null_mut()),
            config,
            rows: Vec::new(),
            q: numbers(POSITIONS * QUERY_HEADS * DIM, 2),
            kv: numbers(POSITIONS * KV_HEADS * DIM, 3),
            out: vec![nan; POSITIONS * QUERY_HEADS * DIM],
            lse: vec![nan; POSITIONS * QUERY_HEADS],
            merged: vec![nan; POSITIONS * QUERY_HEADS * DIM],
            merged_lse: vec![nan; POSITIONS * QUERY_HEADS],
            answer: vec![77; 200],
            pages: vec![0; LONG.div_ceil(PAGE_SIZE)],
            layers,
            _regions: Vec::new(),
            _memory: memory,
        };
        world.make_table();
        // SAFETY: all pointers lead to live values.
        unsafe {
            ok(rkv_runner_create(world.table, &world.config, &mut world.runner));
            ok(rkv_plan_create(world.table, &mut world.plan));
        }
        for layer in 0..LAYERS {
            let (mut own, given) = (world.layers[layer], &world.layers[layer]);
            // SAFETY: both have as many numbers, and nobody computes.
            unsafe {
                ok(rkv_runner_read_kv_memory(
                    world.runner,
                    layer as u32,
                    &mut own,
                    size_of::<rkv_runner_kv_memory>(),
                ));
                for (to, from) in [(own.k, given.k), (own.v, given.v)] {
                    let count = PAGES as usize * PAGE;
                    to.cast::<f32>().copy_from(from.cast::<f32>(), count);
                }
            }
        }
        world
    }

    fn make_table(&mut self) {
        let mut config = sized::<rkv_page_table_config>();
        // SAFETY: all pointers lead to live values.
        unsafe {
            ok(rkv_page_table_config_init(&mut config, size_of_val(&config)));
            config.page_size = PAGE_SIZE as u32;
            (config.page_count, config.slot_count) = (PAGES, 8);
            ok(rkv_page_table_create(&config, &mut self.table));
            let mut config = sized::<rkv_cache_config>();
            ok(rkv_cache_config_init(&mut config, size_of_val(&config)));
            ok(rkv_cache_create(self.table, &config, &mut self.cache));
        }
        let tokens: Vec<u32> = (0..60).collect();
        let first = self.begin(&tokens);
        let mut result = sized::<rkv_sequence_publish_result>();
        let mut slot = 0;
        // SAFETY: all pointers lead to live values.
        unsafe {
            ok(rkv_sequence_publish(self.cache, first.sequence, 60, &mut result));
            ok(rkv_page_table_allocate_slot(self.table, &mut slot));
            ok(rkv_page_table_reserve(self.table, slot, LONG));
            let (to, room, mut count) = (self.pages.as_mut_ptr(), self.pages.len(), 0);
            ok(rkv_page_table_read_row(self.table, slot, 0, to, room, &mut count));
        }
        let region = rkv_region { start: LONG as u64 - 19, end: LONG as u64 - 3 };
        self._regions.push(region);
        // They begin in the middle of a page, of which they wait for a copy.
        let others = [21, 42].map(|common| {
            let mut tokens = tokens[..common].to_vec();
            tokens.extend(1000..1000 + 10);
            let state = self.begin(&tokens);
            assert_eq!((state.cached_position_count, state.copy_count > 0), (common as u64, true));
            state
        });
        let long = self.begin(&(2000..2040).collect::<Vec<_>>());
        let row = |sequence, start, at: usize| rkv_plan_row {
            sequence,
            slot: 0,
            region_count: 0,
            regions: ptr::null(),
            start,
            count: COUNTS[at] as u64,
            tree_masks: ptr::null(),
            mask: 0,
            reserved: 0,
        };
        self.rows = vec![
            row(others[0].sequence, 21, 0),
            row(others[1].sequence, 42, 1),
            rkv_plan_row {
                slot,
                region_count: 1,
                regions: self._regions.as_ptr(),
                ..row(0, LONG as u64 - 20, 2)
            },
            row(long.sequence, 30, 3),
        ];
    }

    fn begin(&self, tokens: &[u32]) -> rkv_sequence_info {
        let tokens = rkv_tokens { ids: tokens.as_ptr(), count: tokens.len(), ..sized() };
        let namespace = sized::<rkv_namespace>();
        let args = rkv_sequence_begin_args { space: &namespace, tokens: &tokens, ..sized() };
        let mut state = sized();
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_sequence_begin(self.cache, &args, &mut state) });
        state
    }

    /// Sets the plan to the step.
    pub fn set(&mut self) -> rkv_status {
        let (rows, count) = (self.rows.as_ptr(), self.rows.len());
        // SAFETY: the rows and their regions are alive.
        unsafe { rkv_plan_set(self.plan, rows, count, size_of::<rkv_plan_row>()) }
    }

    /// What a call could have changed.
    pub fn image(&self) -> Image {
        let mut image = Image::default();
        let bits = |numbers: &Vec<f32>| -> Vec<u32> {
            numbers.iter().map(|number| number.to_bits()).collect()
        };
        image.out = [&self.out, &self.lse, &self.merged, &self.merged_lse].map(bits).concat();
        image.answer.clone_from(&self.answer);
        let mut arrays = sized::<rkv_plan_arrays>();
        let mut stats = sized::<rkv_page_table_stats>();
        // SAFETY: all pointers lead to live values, and nobody computes.
        unsafe {
            for layer in 0..LAYERS {
                let mut memory = self.layers[layer];
                ok(rkv_runner_read_kv_memory(
                    self.runner,
                    layer as u32,
                    &mut memory,
                    size_of::<rkv_runner_kv_memory>(),
                ));
                for part in [memory.k, memory.v] {
                    let count = PAGES as usize * PAGE;
                    image.kv.extend(std::slice::from_raw_parts(part.cast::<u32>(), count));
                }
            }
            ok(rkv_plan_view(self.plan, &mut arrays));
            let (rows, positions) = (arrays.row_count as usize, arrays.position_count as usize);
            let slice = |from: *const i32, count| std::slice::from_raw_parts(from, count);
            let indptr = slice(arrays.indptr, rows + 1);
            let indices = slice(arrays.indices, indptr[rows] as usize);
            let small = [slice(arrays.query_indptr, rows + 1), indptr, indices];
            image.plan.extend(small.concat().into_iter().map(i64::from));
            image.plan.extend(slice(arrays.last_page_len, rows).iter().map(|&len| i64::from(len)));
            image.plan.extend(std::slice::from_raw_parts(arrays.slot_mapping, positions));
            for row in self.rows.iter().filter(|row| row.sequence != 0) {
                let mut state = sized::<rkv_sequence_info>();
                ok(rkv_sequence_read_info(self.cache, row.sequence, &mut state));
                let is_locked = u64::from(state.node != 0);
                image.sequences.extend([state.copy_count, is_locked, state.page_count]);
            }
            ok(rkv_page_table_read_stats(self.table, &mut stats));
            image.pages = vec![
                stats.free_page_count,
                stats.cached_page_count,
                stats.private_page_count,
                stats.reclaimable_page_count,
                stats.free_slot_count,
            ];
            ok(rkv_cache_check(self.cache));
            ok(rkv_page_table_check(self.table));
        }
        image
    }
}

impl Drop for World {
    /// To destroy takes no memory.
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handles.
        failing(Failure::From(0), || unsafe {
            rkv_plan_destroy(self.made.1);
            rkv_runner_destroy(self.made.0);
            rkv_plan_destroy(self.plan);
            rkv_runner_destroy(self.runner);
            rkv_cache_destroy(self.cache);
            rkv_page_table_destroy(self.table);
        });
        assert_eq!(asked_by_librarys_threads(), 0, "the library's threads ask for memory");
        assert_eq!(ASKED_BY_TASKS.load(Ordering::Relaxed), 0, "tasks ask for memory");
    }
}
