//! The functions of runner and plan, which `functions` lists.
use super::arena::Arena;
use super::compute::{HEAD_DIM, KV_HEADS, LAYERS, QUERY_HEADS};
use super::values::{element_size, flags, float, init_room, number, size, zero};
use super::world::{World, vacant_table};
use super::{Call, Outcome};
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ffi::c_void;
use std::ptr;

// SAFETY, in all of them: each pointer is NULL, misaligned, or leads to what is stated.
pub const KV_MEMORY: Call = |w, i, a| {
    let layer = if i.flag() { i.below(LAYERS) as u32 } else { number(i) };
    let size = element_size::<rkv_runner_kv_memory>(i);
    unsafe { rkv_runner_read_kv_memory(w.runner(i), layer, a.out(i), size) }.into()
};

pub const COPY_PAGES: Call = |w, i, a| {
    let mut copies: Vec<rkv_page_copy> = Vec::new();
    for _ in 0..i.below(4) {
        let (source_page, target_page) = (w.page(i), w.page(i));
        // The contract: no target is another copy's source or target.
        let used = |page| copies.iter().any(|c| c.target_page == page || c.source_page == page);
        if used(target_page) || copies.iter().any(|c| c.target_page == source_page) {
            continue;
        }
        let position_count = if i.rarely(8) { number(i) } else { i.below(5) as u32 };
        let group = zero(i);
        copies.push(rkv_page_copy { source_page, target_page, position_count, group });
    }
    let (copies, count) = a.list(i, &copies);
    let (runner, size) = (w.runner(i), element_size::<rkv_page_copy>(i));
    unchanged_on_failure(w, || unsafe { rkv_runner_copy_pages(runner, copies, count, size) })
};

pub const CONFIG_INIT: Call = |_, i, a| {
    let (room, size) = init_room(i, size_of::<rkv_runner_config>());
    let config = a.room_for::<u64>(i, room).cast();
    unsafe { rkv_runner_config_init(config, size) }.into()
};

pub const SUPPORTS: Call = |_, i, a| {
    let config = config(i, a);
    let out_page_bytes = if i.flag() { ptr::null_mut() } else { a.out(i) };
    unsafe { rkv_runner_supports(a.read(i, &config), number(i), out_page_bytes) }.into()
};

pub const CREATE: Call = |w, i, a| {
    let vacant = i.flag().then(vacant_table);
    let config = config(i, a);
    let (config, into) = (a.read(i, &config), a.out::<*mut rkv_runner>(i));
    unsafe {
        let status = rkv_runner_create(vacant.unwrap_or(w.table(i)), config, into);
        if let Some(table) = vacant {
            rkv_page_table_destroy(table);
        }
        if status == rkv_status::Ok {
            rkv_runner_destroy(into.read());
        }
        status.into()
    }
};

pub const DESTROY: Call = |w, i, a| {
    if i.rarely(4) {
        unsafe { rkv_runner_destroy(ptr::null_mut()) };
        return Outcome::Done;
    }
    let ours = w.compute_mut();
    let runner = std::mem::replace(&mut ours.runner, ptr::null_mut());
    unsafe { rkv_runner_destroy(runner) };
    // The plan stands without it.
    Outcome::Last(unsafe { rkv_plan_view(ours.plan, a.write(i)) })
};

pub const STATS: Call = |w, i, a| unsafe { rkv_runner_read_stats(w.runner(i), a.write(i)) }.into();

pub const PLAN_CREATE: Call = |w, i, a| {
    let into = a.out::<*mut rkv_plan>(i);
    unsafe {
        let status = rkv_plan_create(w.table(i), into);
        if status == rkv_status::Ok {
            rkv_plan_destroy(into.read());
        }
        status.into()
    }
};

pub const PLAN_DESTROY: Call = |w, i, _| {
    let table = w.pairs[0].table;
    let ours = w.compute_mut();
    unsafe {
        if i.rarely(4) {
            rkv_plan_destroy(ptr::null_mut());
        } else {
            rkv_plan_destroy(ours.plan);
            crate::abi::ok(rkv_plan_create(table, &mut ours.plan));
        }
    }
    Outcome::Done
};

pub const PLAN_SET: Call = |w, i, a| {
    let rows: Vec<_> = (0..i.below(4)).map(|_| plan_row(w, i, a)).collect();
    let plan = w.plan(i);
    let (rows, count) = a.list(i, &rows);
    let size = element_size::<rkv_plan_row>(i);
    unchanged_on_failure(w, || unsafe { rkv_plan_set(plan, rows, count, size) })
};

/// What is absurd is refused; what is merely large would take as much memory.
pub const PLAN_RESERVE: Call = |w, i, a| {
    let mut size = |most| {
        match i.rarely(16) {
            true => Some(size(i) as u64).filter(|size| !(1 << 16..1 << 31).contains(size)),
            false => Some(1 + i.below(most) as u64),
        }
        .unwrap_or(0)
    };
    let (row_count, position_count, page_count) = (size(4), size(40), size(30));
    let row_position_count = if i.flag() { 0 } else { 1 + i.below(40) as u64 };
    let capacity = rkv_plan_capacity {
        flags: flags(i, RKV_PLAN_REGIONS | RKV_PLAN_SEPARATE),
        row_count,
        position_count,
        row_position_count,
        page_count,
        ..Sized32::sized()
    };
    let (plan, capacity) = (w.plan(i), a.read(i, &capacity));
    unchanged_on_failure(w, || unsafe { rkv_plan_reserve(plan, capacity) })
};

pub const PLAN_CHECK: Call = |w, i, _| {
    let plan = w.plan(i);
    unchanged_on_failure(w, || unsafe { rkv_plan_check(plan) })
};

pub const RESERVE_PLAN: Call = |w, i, _| {
    let (runner, plan) = (w.runner(i), any_plan(w, i));
    unchanged_on_failure(w, || unsafe { rkv_runner_reserve_plan(runner, plan) })
};

pub const PREPARE_PLAN: Call = |w, i, _| {
    let (runner, plan) = (w.runner(i), any_plan(w, i));
    let (flags, stream) = (flags(i, RKV_PREPARE_KEEP_COPIES_OPEN), stream(i));
    unchanged_on_failure(w, || unsafe { rkv_runner_prepare_plan(runner, plan, flags, stream) })
};

pub const KEEP_BRANCHES: Call = |w, i, a| {
    let positions: Vec<u32> = (0..i.below(5)).map(|_| i.below(12) as u32).collect();
    let branch = rkv_kept_branch {
        row: i.below(3) as u32,
        position_count: positions.len() as u32,
        positions: a.list(i, &positions).0,
    };
    let (list, count) = a.list(i, &[branch]);
    let (runner, plan, stream) = (w.runner(i), any_plan(w, i), stream(i));
    let size = size_of::<rkv_kept_branch>();
    unsafe { rkv_runner_keep_branches(runner, plan, list, count, size, stream) }.into()
};

pub const PLAN_VIEW: Call = |w, i, a| unsafe { rkv_plan_view(w.plan(i), a.write(i)) }.into();

pub const PLAN_VIEW_GROUP: Call = |w, i, a| {
    let (plan, group, flags) = (w.plan(i), few(i), flags(i, RKV_PLAN_COMPACT));
    unsafe { rkv_plan_view_group(plan, group, flags, a.write(i)) }.into()
};

pub const APPEND_PREFILL: Call = |w, i, a| {
    let positions = w.compute().arrays().position_count as usize;
    let (q, q_strides) = tensor(i, a, positions, QUERY_HEADS, Access::Read);
    let (out, out_strides) = tensor(i, a, positions, QUERY_HEADS, Access::Write);
    let (mut k, mut v) = ((ptr::null_mut(), [0; 2]), (ptr::null_mut(), [0; 2]));
    if !i.rarely(4) {
        k = tensor(i, a, positions, KV_HEADS, Access::Read);
        v = tensor(i, a, positions, KV_HEADS, Access::Read);
    }
    let logits = vec![0.5f32; QUERY_HEADS];
    let scales = values(i, QUERY_HEADS); // at least one for each KV head
    let args = rkv_runner_append_prefill_args {
        struct_size: size_of::<rkv_runner_append_prefill_args>() as u32,
        layer: if i.rarely(8) { number(i) } else { i.below(LAYERS) as u32 },
        q,
        k: k.0,
        v: v.0,
        out: if i.rarely(16) { q } else { out },
        lse: if i.flag() { a.room_for(i, positions * QUERY_HEADS) } else { ptr::null_mut() },
        q_position_stride: q_strides[0],
        q_head_stride: q_strides[1],
        k_position_stride: k.1[0],
        k_head_stride: k.1[1],
        v_position_stride: v.1[0],
        v_head_stride: v.1[1],
        out_position_stride: out_strides[0],
        out_head_stride: out_strides[1],
        sinks: if i.rarely(4) { a.list(i, &logits).0 } else { ptr::null() },
        scale: factor(i),
        soft_cap: factor(i),
        window: if i.flag() { number(i) } else { 0 },
        k_scale: factor(i),
        v_scale: factor(i),
        reserved: zero(i),
        stream: stream(i),
        k_scales: if i.rarely(4) { a.list(i, &scales).0 } else { ptr::null() },
        v_scales: if i.rarely(4) { a.list(i, &scales).0 } else { ptr::null() },
    };
    let args = a.read(i, &args);
    let (plan, runner) = (any_plan(w, i), w.runner(i));
    unchanged_on_failure(w, || unsafe { rkv_runner_append_prefill(runner, plan, args) })
};

pub const MERGE_STATES: Call = |w, i, a| {
    let positions = i.below(4);
    let elements = positions * QUERY_HEADS * HEAD_DIM;
    let out = a.room_for::<f32>(i, elements).cast::<c_void>();
    let into: *mut f32 =
        if i.flag() { a.room_for(i, positions * QUERY_HEADS) } else { ptr::null_mut() };
    let (mut outs, mut lses) = (Vec::new(), Vec::new());
    for _ in 0..i.below(4) {
        // The result may be one of those that are merged.
        let in_place = i.rarely(4) && !outs.contains(&out.cast_const());
        let values = values(i, elements);
        outs.push(if in_place { out.cast_const() } else { a.list(i, &values).0.cast() });
        let logarithms = self::values(i, positions * QUERY_HEADS);
        lses.push(if in_place { into.cast_const() } else { a.list(i, &logarithms).0 });
    }
    let args = rkv_runner_merge_states_args {
        state_count: outs.len() as u32,
        position_count: if i.rarely(16) { u64::MAX >> i.below(3) } else { positions as u64 },
        outs: a.list(i, &outs).0,
        lses: a.list(i, &lses).0,
        out,
        lse: into,
        stream: stream(i),
        ..Sized32::sized()
    };
    let args = a.read(i, &args);
    unsafe { rkv_runner_merge_states(w.runner(i), args) }.into()
};

pub const SPATIAL_DECODE: Call = |_, i, a| {
    let count = if i.rarely(8) { i.below(40) } else { RKV_BIN_COUNT as usize };
    let logits = values(i, count);
    let (logits, count) = a.list(i, &logits);
    let value = if i.flag() { ptr::null_mut() } else { a.out(i) };
    let kind = if i.flag() { 1 + i.below(2) as u32 } else { number(i) };
    unsafe { rkv_spatial_decode(kind, logits, count, a.out(i), value) }.into()
};

/// A plan of another table is refused, so it doesn't matter how many positions that has.
fn any_plan(world: &World, input: &mut Input<'_>) -> *mut rkv_plan {
    if input.rarely(16) { world.foreign_compute().plan } else { world.plan(input) }
}

/// A call that fails writes neither KV memory nor the plan.
fn unchanged_on_failure(world: &World, call: impl FnOnce() -> rkv_status) -> Outcome {
    let before = world.compute().held();
    let status = call();
    assert!(
        status == rkv_status::Ok || world.compute().held() == before,
        "{status:?}, and yet the plan or the memory changed"
    );
    status.into()
}

/// A count of layers or heads: small, or refused.
fn few(input: &mut Input<'_>) -> u32 {
    match number(input) {
        small if small <= 24 => small % 6,
        large => large.max((1 << 16) + 1),
    }
}

fn config(input: &mut Input<'_>, arena: &mut Arena) -> rkv_runner_config {
    unsafe extern "C-unwind" fn one_by_one(
        _: *mut c_void,
        count: usize,
        run: rkv_parallel_task,
        task: *mut c_void,
    ) {
        let run = run.expect("a task to run");
        // SAFETY: as the header says.
        (0..count).for_each(|index| unsafe { run(task, index) });
    }
    let head_dim = [64, 96, 128, 256, 0, 32][input.below(6)];
    let dtype = input.below(5) as u32;
    let layers = few(input);
    let kv_heads = few(input);
    let lent = input.rarely(3).then(|| {
        let memory: Vec<_> = (0..layers.min(24)).map(|_| kv_memory(input, arena)).collect();
        arena.list(input, &memory).0
    });
    rkv_runner_config {
        backend: if input.rarely(12) { number(input) } else { RKV_BACKEND_CPU },
        layer_count: layers,
        query_head_count: if input.flag() { few(input) } else { kv_heads.saturating_mul(2) },
        kv_head_count: kv_heads,
        head_dim: if input.rarely(12) { number(input) } else { head_dim },
        dtype,
        kv_dtype: if input.flag() { dtype } else { input.below(5) as u32 },
        kv_layout: if input.rarely(12) { number(input) } else { input.below(2) as u32 },
        thread_count: if input.rarely(8) { u32::MAX } else { 1 + input.below(2) as u32 },
        flags: flags(input, RKV_RUNNER_BATCH_INVARIANT | RKV_RUNNER_LATENT),
        device: zero(input),
        kv_layers: lent.unwrap_or(ptr::null()),
        kv_layer_size: element_size::<rkv_runner_kv_memory>(input),
        parallel_for: input.flag().then_some(one_by_one),
        group: if input.rarely(4) { few(input) } else { 0 },
        v_head_dim: if input.rarely(4) { [64, 96, 192, 512, 32][input.below(5)] } else { 0 },
        ..Sized32::sized()
    }
}

/// Memory that nothing is computed in: any strides.
fn kv_memory(input: &mut Input<'_>, arena: &mut Arena) -> rkv_runner_kv_memory {
    rkv_runner_kv_memory {
        k: arena.out::<u64>(input).cast(),
        v: arena.out::<u64>(input).cast(),
        page_stride: if input.flag() { size(input) as u64 } else { 1 << 20 },
        position_stride: if input.flag() { size(input) as u64 } else { 1 << 12 },
        head_stride: if input.flag() { size(input) as u64 } else { 256 },
        v_page_stride: if input.flag() { size(input) as u64 } else { 0 },
        v_position_stride: if input.flag() { size(input) as u64 } else { 0 },
        v_head_stride: if input.flag() { size(input) as u64 } else { 0 },
    }
}

fn plan_row(world: &World, input: &mut Input<'_>, arena: &mut Arena) -> rkv_plan_row {
    let mut regions = Vec::new();
    if input.below(3) == 0 {
        let mut at = 0;
        for _ in 0..input.below(4) {
            let start = at + input.below(6) as u64;
            at = start + input.below(6) as u64;
            let absurd = input.rarely(24);
            regions.push(rkv_region { start, end: if absurd { size(input) as u64 } else { at } });
        }
    }
    let by_slot = input.below(4) == 0;
    let count = if input.rarely(8) { size(input) as u64 } else { input.below(10) as u64 };
    // One for each new position, as far as there may be some; often of a tree.
    let masks: Vec<u64> = match input.below(4) {
        0 => (0..count.min(65)).map(|at| input.below(1 << at.min(15)) as u64).collect(),
        1 => (0..count.min(65)).map(|_| size(input) as u64).collect(),
        _ => Vec::new(),
    };
    rkv_plan_row {
        sequence: if by_slot { 0 } else { world.sequence(input) },
        slot: world.slot(input),
        region_count: regions.len() as u32,
        regions: if regions.is_empty() { ptr::null() } else { arena.list(input, &regions).0 },
        start: if input.rarely(8) { size(input) as u64 } else { input.below(14) as u64 },
        count,
        tree_masks: if masks.is_empty() { ptr::null() } else { arena.list(input, &masks).0 },
        mask: if input.rarely(4) { input.below(4) as u32 } else { 0 },
        reserved: zero(input),
    }
}

enum Access {
    Read,
    Write,
}

/// A tensor with strides, in memory of just the size that they span. What spans more than there is
/// memory is refused before anything is read.
fn tensor(
    input: &mut Input<'_>,
    arena: &mut Arena,
    positions: usize,
    heads: usize,
    access: Access,
) -> (*mut c_void, [u64; 2]) {
    let strides = [stride(input), stride(input)];
    let or = |stride, dense: usize| if stride == 0 { dense as u128 } else { u128::from(stride) };
    let span = (positions.max(1) as u128 - 1) * or(strides[0], heads * HEAD_DIM)
        + (heads as u128 - 1) * or(strides[1], HEAD_DIM)
        + HEAD_DIM as u128;
    let count = if span < 1 << 16 { span as usize } else { HEAD_DIM };
    let start = match access {
        Access::Write => arena.room_for::<f32>(input, count),
        Access::Read => {
            let values = values(input, count);
            arena.list(input, &values).0.cast_mut()
        }
    };
    (start.cast(), strides)
}

/// Dense, or a distance that two elements can have, or one that they cannot.
fn stride(input: &mut Input<'_>) -> u64 {
    match input.below(16) {
        14 => u64::MAX >> input.below(3),
        13 => (HEAD_DIM * (1 + input.below(8))) as u64,
        12 => input.byte() as u64 + 1,
        _ => 0,
    }
}

/// Numbers of all kinds, from one byte.
fn values(input: &mut Input<'_>, count: usize) -> Vec<f32> {
    let mut state = u32::from(input.byte()) * 2 + 1;
    let odd = state % 16 == 1;
    let next = |_| {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        match state >> 24 {
            0 if odd => f32::NAN,
            1 if odd => f32::NEG_INFINITY,
            2 if odd => f32::MAX,
            byte => byte as f32 / 128.0 - 1.0,
        }
    };
    (0..count).map(next).collect()
}

/// Most often the default.
fn factor(input: &mut Input<'_>) -> f32 {
    if input.rarely(6) { float(input) as f32 } else { 0.0 }
}

fn stream(input: &mut Input<'_>) -> *mut c_void {
    ptr::without_provenance_mut(usize::from(input.rarely(24)) * 8)
}

impl World {
    /// A runner: ours, none, or a handle of the wrong kind.
    pub(super) fn runner(&self, input: &mut Input<'_>) -> *mut rkv_runner {
        match input.below(32) {
            30 => ptr::null_mut(),
            31 => self.compute().plan.cast(),
            _ => self.compute().runner,
        }
    }

    fn plan(&self, input: &mut Input<'_>) -> *mut rkv_plan {
        match input.below(32) {
            30 => ptr::null_mut(),
            31 => self.pairs[0].table.cast(),
            _ => self.compute().plan,
        }
    }
}
