//! Append prefill: write, attend, and merge what was attended to in parts.
use super::call::AppendPrefill;
use super::element::{Bf16, E4m3, Element, F16, F32};
use super::kernel::padded;
use super::schedule::{Part, Schedule};
use super::scratch::{Desk, Kept, Scratch};
use super::simd::{Isa, Simd, Vectorized, dispatch};
use super::state::State;
use super::threads::Team;
use super::tile::Job;
use super::write::write;
use crate::attention::Dtype;
use crate::memory::OutOfMemory;

/// Rows of a tile that are merged by one task.
const MERGE_ROWS: usize = 16;

/// A call with a division of its own work; `begin` runs when nothing of the library's can fail any
/// more, and before anything is written.
///
/// # Safety
/// That of [`super::CpuBackend::append_prefill`], and the schedule is the call's.
pub(super) unsafe fn append_prefill<E: From<OutOfMemory>>(
    isa: Isa,
    team: &Team,
    desks: &Kept<Desk>,
    (call, schedule): (&AppendPrefill<'_>, &Schedule),
    begin: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    desks.with(|desk| {
        desk.reserve(schedule, team.count(), &call.geometry)?;
        begin()?;
        // From here on nothing fails.
        let part_numbers = State::numbers(schedule.tile_height, padded(call.geometry.v_head_dim));
        let parts = desk.parts.start(schedule.part_count * part_numbers);
        // SAFETY: the caller's contract.
        unsafe { write(isa, team, call) };
        let desk = &*desk;
        let work = Work { call, schedule, parts, part_numbers };
        team.share(schedule.parts.len(), &|thread, take| {
            let Some(mut scratch) = desk.scratch(thread) else { return };
            while let Some(index) = take() {
                let part = work.schedule().parts[index];
                dispatch(isa, Attend { work: &work, part, scratch: &mut scratch });
            }
        });
        let chunks = schedule.tile_height.div_ceil(MERGE_ROWS);
        team.share(schedule.parted.len() * chunks, &|thread, take| {
            let Some(mut scratch) = desk.scratch(thread) else { return };
            while let Some(index) = take() {
                let tile = work.schedule().parted[index / chunks];
                let first = index % chunks * MERGE_ROWS;
                dispatch(isa, Merge { work: &work, tile, first, scratch: &mut scratch });
            }
        });
        Ok(())
    })
}

/// A call in the hands of several threads.
struct Work<'a> {
    call: &'a AppendPrefill<'a>,
    schedule: &'a Schedule,
    /// States of parts, `part_numbers` apart.
    parts: *mut f32,
    part_numbers: usize,
}

// SAFETY: K and V are only read by now; each part has its own state, each tile its own results.
unsafe impl Sync for Work<'_> {}

impl Work<'_> {
    fn schedule(&self) -> &Schedule {
        self.schedule
    }

    fn part(&self, index: usize) -> *mut f32 {
        self.parts.wrapping_add(index * self.part_numbers)
    }
}

/// Attention of a part.
struct Attend<'a> {
    work: &'a Work<'a>,
    part: Part,
    scratch: &'a mut Scratch,
}

impl Attend<'_> {
    fn attend<S: Simd, E: Element>(self, simd: S) {
        let Work { call, schedule, .. } = *self.work;
        let tile = &schedule.tiles[self.part.tile];
        let job = Job { call, tile };
        let place = |part| part + tile.place_of(self.part.node);
        let own = tile.first_part.map(|part| self.work.part(place(part)));
        // SAFETY: the contract of append_prefill(), which alone makes a Work.
        unsafe {
            let state = job.attend::<S, E>(simd, self.part.node, own, self.scratch);
            if own.is_none() {
                job.write::<S, E>(simd, 0, state);
            }
        }
    }
}

impl Vectorized for Attend<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.work.call.layer.dtype {
            Dtype::F32 => self.attend::<S, F32>(simd),
            Dtype::F16 => self.attend::<S, F16>(simd),
            Dtype::Bf16 => self.attend::<S, Bf16>(simd),
            Dtype::Fp8E4m3 => self.attend::<S, E4m3>(simd),
        }
    }
}

/// Merging of the parts of a tile, for some of its rows.
struct Merge<'a> {
    work: &'a Work<'a>,
    tile: usize,
    first: usize,
    scratch: &'a mut Scratch,
}

impl Merge<'_> {
    fn merge<S: Simd, E: Element>(self, simd: S) {
        let Work { call, schedule, .. } = *self.work;
        let tile = &schedule.tiles[self.tile];
        let all = tile.height();
        let (rows, head_dim) =
            (self.first..(self.first + MERGE_ROWS).min(all), padded(call.geometry.v_head_dim));
        let Some(first_part) = tile.first_part.filter(|_| !rows.is_empty()) else { return };
        let tree = &mut self.scratch.tree;
        tree.clear();
        // SAFETY: the contract of append_prefill(); the parts' states are complete.
        unsafe {
            for (at, node) in tile.nodes().enumerate() {
                let state = State::at(self.work.part(first_part + at), all);
                tree.skip_to(simd, tile.level, node, head_dim);
                tree.push(simd, tile.level, node, state.part(rows.clone(), head_dim), head_dim);
            }
            let state = tree.finish(simd, head_dim);
            Job { call, tile }.write::<S, E>(simd, self.first, state);
        }
    }
}

impl Vectorized for Merge<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.work.call.layer.dtype {
            Dtype::Fp8E4m3 => self.merge::<S, E4m3>(simd),
            // The others need no factor.
            _ => self.merge::<S, F32>(simd),
        }
    }
}
