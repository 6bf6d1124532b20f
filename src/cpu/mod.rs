//! Attention on the CPU.

mod append;
mod block;
mod call;
mod copy;
mod division;
mod element;
mod kernel;
mod memory;
mod merge;
mod offsets;
mod own_threads;
mod place;
mod processors;
mod schedule;
mod scratch;
mod simd;
mod state;
mod threads;
mod tile;
mod write;

pub use call::{AppendPrefill, MergeStates, PartialState};
pub use division::Divisions;
pub use memory::HostMemory;
pub use simd::Isa;
pub use threads::{ParallelFor, Threads};

use crate::error::{Message, text};
use schedule::Schedule;
use scratch::{Desk, Kept};
use threads::Team;

use crate::attention::{Dtype, Geometry, KvLayer, PackedPage, PageCopy, PositionMove};
use crate::error::Error;
use crate::memory::OutOfMemory;

/// Elements of a head: multiples of 16. Where they are none of what a register tile takes at a
/// time, [`kernel::padded`], heads are computed as if zeros came behind them.
const HEAD_DIMS: [usize; 9] = [64, 80, 96, 112, 128, 192, 256, 512, HEAD_DIM_MOST];
const HEAD_DIM_MOST: usize = 576;

/// The CPU backend: threads and scratch memory, no state between calls but what a plan keeps.
pub struct CpuBackend {
    isa: Isa,
    team: Team,
    desks: Kept<Desk>,
    /// Of calls that are no plan's.
    schedules: Kept<Schedule>,
}

impl std::fmt::Debug for CpuBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CpuBackend").field("threads", &self.threads()).finish()
    }
}

impl CpuBackend {
    /// A backend that computes on `threads` with the best instructions of the processor, or those
    /// that [`Isa::chosen`] says.
    pub fn new(threads: Threads) -> Result<Self, Error> {
        Self::with_isa(threads, Isa::chosen()?)
    }

    /// The same with a set of instructions, which tests choose; portable ones where it is not
    /// there.
    pub fn with_isa(threads: Threads, isa: Isa) -> Result<Self, Error> {
        let team = Team::new(threads)?;
        Ok(Self { isa, team, desks: Kept::default(), schedules: Kept::default() })
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.team.count()
    }

    /// Whether these shapes and formats can be computed; the error names what cannot.
    pub fn supports(geometry: &Geometry, dtype: Dtype, kv_dtype: Dtype) -> Result<(), Error> {
        let fail = |text: Message| Err(Error::unsupported(text));
        let Geometry { query_heads, kv_heads, head_dim, v_head_dim, page_size } = *geometry;
        for (name, dim) in [("head_dim", head_dim), ("v_head_dim", v_head_dim)] {
            if !HEAD_DIMS.contains(&dim) {
                return fail(text!(
                    "{name} {dim} is not 64, 80, 96, 112, 128, 192, 256, 512 or 576"
                ));
            }
        }
        if kv_heads == 0 || query_heads == 0 || query_heads % kv_heads != 0 {
            return fail(text!(
                "query_head_count {query_heads} is not a multiple of kv_head_count {kv_heads}"
            ));
        }
        if page_size == 0 || page_size > 256 {
            return fail(text!("page_size {page_size} is not in 1..=256"));
        }
        if dtype == Dtype::Fp8E4m3 {
            return fail("dtype is not F32, F16 or BF16".into());
        }
        if kv_dtype != dtype && kv_dtype != Dtype::Fp8E4m3 {
            return fail("kv_dtype is neither dtype nor FP8_E4M3".into());
        }
        Ok(())
    }

    /// Writes K and V of the new positions into their pages, then attends to all positions. When
    /// there is no memory for that nothing is written.
    ///
    /// # Safety
    /// The shapes are supported. Addresses are valid for what the batch, the geometry and the
    /// strides say, `sinks` has a logit for each query head, the batch has the geometry's page
    /// size and its pages lie in the layer's memory. Nobody writes to any of it meanwhile, and
    /// nobody reads what this writes; outputs overlap nothing else.
    pub unsafe fn append_prefill(&self, call: &AppendPrefill<'_>) -> Result<(), OutOfMemory> {
        self.schedules.with(|schedule| {
            schedule.plan(call, self.threads())?;
            // SAFETY: the caller's contract.
            unsafe { self.carry_out((call, schedule), || Ok(())) }
        })
    }

    /// The same in a layer of a plan's step, which is divided once and not in each layer. `begin`
    /// runs when all memory is there and before anything is written; when it fails nothing is.
    ///
    /// # Safety
    /// That of `append_prefill`, once `begin` has run; the divisions are of this backend and this
    /// plan, and all calls of a step have the same batch, geometry and dtypes.
    pub unsafe fn append_prefill_of_step<E: From<OutOfMemory>>(
        &self,
        call: &AppendPrefill<'_>,
        (step, divisions): (u64, &Divisions),
        begin: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        divisions.with(step, call, self.threads(), |schedule| {
            // SAFETY: the caller's contract.
            unsafe { self.carry_out((call, schedule), begin) }
        })
    }

    /// # Safety
    /// That of `append_prefill`, and the schedule is the call's.
    unsafe fn carry_out<E: From<OutOfMemory>>(
        &self,
        divided: (&AppendPrefill<'_>, &Schedule),
        begin: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        // SAFETY: the caller's contract.
        unsafe { append::append_prefill(self.isa, &self.team, &self.desks, divided, begin) }
    }

    /// Copies the first positions of pages to other pages, in every layer.
    ///
    /// # Safety
    /// The pages lie in the memory of every layer, and nobody uses the targets meanwhile; a copy
    /// has at most `page_size` positions, and no target is the source or target of another
    /// copy.
    pub unsafe fn copy_pages(
        &self,
        layers: &[KvLayer<*mut u8>],
        geometry: &Geometry,
        copies: &[PageCopy],
    ) {
        // SAFETY: the caller's contract.
        unsafe { copy::copy_pages(layers, geometry, copies) }
    }

    /// Moves positions to other places, in every layer, one after another.
    ///
    /// # Safety
    /// The places lie in the memory of every layer, and nobody uses them meanwhile; no move is from
    /// a place to itself.
    pub unsafe fn move_positions(
        &self,
        layers: &[KvLayer<*mut u8>],
        geometry: &Geometry,
        moves: &[PositionMove],
    ) {
        // SAFETY: the caller's contract.
        unsafe { copy::move_positions(layers, geometry, moves) }
    }

    /// Copies a page of every layer to packed memory, or from there.
    ///
    /// # Safety
    /// The page lies in the memory of every layer; the packed memory is as long as all its parts
    /// together, and overlaps none of them; nobody uses either meanwhile.
    pub unsafe fn copy_packed(
        &self,
        layers: &[KvLayer<*mut u8>],
        geometry: &Geometry,
        packed: &PackedPage<*mut u8>,
    ) {
        // SAFETY: the caller's contract.
        unsafe { copy::copy_packed(layers, geometry, packed) }
    }

    /// Makes one state of several that saw disjoint keys.
    ///
    /// # Safety
    /// Addresses are valid for the shapes that the call says; the result overlaps no input, or is
    /// exactly one of them with the same strides and dtype.
    pub unsafe fn merge_states(&self, call: &MergeStates<'_>) {
        // SAFETY: the caller's contract.
        unsafe { merge::merge_states(self.isa, &self.team, call) }
    }
}
