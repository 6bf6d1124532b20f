//! Merging of states: no plan's, and in no order but the stream's.
use super::CudaBackend;
use super::arguments::{MERGE_STATES_MAX, MergeStatesArguments};
use super::call::{HELPER_THREADS, MERGE_SHARED, address};
use super::shapes::dtype_name;
use super::stream::Stream;
use crate::error::Error;
use std::fmt::Display;

/// Arguments of [`CudaBackend::merge_states`].
#[derive(Debug, Clone, Copy)]
pub struct MergeStates<'a> {
    /// `[position][query head][element]` for each state.
    pub outs: &'a [*const u8],
    /// `[position][query head]` for each.
    pub lses: &'a [*const f32],
    /// Positions of each.
    pub positions: usize,
    /// Receives the result.
    pub out: *mut u8,
    /// Receives its logarithms; may be null.
    pub lse: *mut f32,
}

/// Refuses elements that kernels cannot read two at a time.
fn check_pairs(start: *const u8, name: &dyn Display) -> Result<(), Error> {
    if start.addr().is_multiple_of(4) {
        return Ok(());
    }
    Err(Error::argument(format!("{name}: on CUDA it begins at a multiple of 4 bytes")))
}

impl CudaBackend {
    /// Makes one state of several that saw disjoint keys.
    ///
    /// # Safety
    /// The addresses lead to dense memory of the device of the shapes that the call says.
    pub unsafe fn merge_states(&self, call: &MergeStates<'_>, stream: Stream) -> Result<(), Error> {
        if call.outs.len() > MERGE_STATES_MAX {
            return Err(Error::unsupported(format!(
                "args.state_count {} is above {MERGE_STATES_MAX} on CUDA",
                call.outs.len()
            )));
        }
        let blocks = self.merge_blocks(call.positions.saturating_mul(self.geometry.query_heads));
        let mut arguments = MergeStatesArguments {
            out: address(call.out),
            lse: address(call.lse),
            position_count: call.positions as i64,
            query_heads: self.geometry.query_heads as i32,
            head_dim: self.geometry.v_head_dim as i32,
            state_count: call.outs.len() as i32,
            blocks: blocks as i32,
            outs: [0; MERGE_STATES_MAX],
            lses: [0; MERGE_STATES_MAX],
        };
        check_pairs(call.out, &"args.out")?;
        for (at, (&out, &lse)) in call.outs.iter().zip(call.lses).enumerate() {
            check_pairs(out, &format_args!("args.outs[{at}]"))?;
            (arguments.outs[at], arguments.lses[at]) = (address(out), address(lse));
        }
        let _entered = self.context.enter()?;
        // It may go into a graph: but not where that would harm another one.
        stream.is_captured()?;
        let kernel = self.kernels.get(&format!("rkv_merge_states_{}", dtype_name(self.dtype)));
        // SAFETY: the caller's contract.
        unsafe { kernel.launch([blocks, 1, 1], HELPER_THREADS, MERGE_SHARED, &arguments, stream) }
    }
}
