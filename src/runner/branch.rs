//! What becomes of a draft that branched: K and V of the branch that holds move to where the
//! sequence goes on.
use super::Runner;
use super::backend::Backend;
use crate::attention::{Batch, PositionMove};
use crate::error::Error;
use crate::error::text;
use crate::memory::{OutOfMemory, TryGrow};
use crate::plan::Plan;
use std::ffi::c_void;

/// The new positions of a row of a plan that hold.
#[derive(Debug, Clone, Copy)]
pub struct Branch<'a> {
    /// The row's number in the plan.
    pub row: usize,
    /// Ascending numbers of new positions, the row's first one being 0.
    pub positions: &'a [u32],
}

impl Runner {
    /// Moves K and V of the positions that hold, in every layer, to the first new positions of
    /// their rows.
    ///
    /// # Safety
    /// The step was computed in every layer; nobody computes its rows meanwhile, or releases them.
    pub unsafe fn keep_branches(
        &self,
        plan: &Plan,
        branches: &[Branch<'_>],
        stream: *mut c_void,
    ) -> Result<(), Error> {
        self.check_plan(plan)?;
        let stream = self.stream(stream)?;
        let current = plan.to_compute()?;
        let batch = current.step().batch_of(self.config.group)?;
        let (mut moves, mut next_row) = (Vec::new(), 0);
        for (at, branch) in branches.iter().enumerate() {
            let wrong = |what: &str| Error::argument(text!("branches[{at}].{what}"));
            if branch.row < next_row || branch.row >= batch.rows().len() {
                return Err(wrong("row: not one of the plan's, each once and in its order"));
            }
            next_row = branch.row + 1;
            check(batch, branch).map_err(wrong)?;
            push_moves(batch, branch, &mut moves)?;
        }
        // A list of moves that is carried out twice moves what was moved already.
        let layers = self.memory.layers_apart();
        match &self.backend {
            Backend::Cpu(cpu) => {
                // SAFETY: the places are the rows' own; the rest is the caller's contract.
                unsafe { cpu.move_positions(layers, &self.geometry, &moves) };
                Ok(())
            }
            Backend::Cuda(_) if moves.is_empty() => Ok(()),
            Backend::Cuda(cuda) => self.with_kept(plan, |kept| {
                kept.on_device(cuda, &current, |device| {
                    // A call of the plan as others are: behind the last one, on whatever stream.
                    cuda.follow(device, stream)?;
                    // SAFETY: as above, in the order of the stream.
                    let moved = unsafe { cuda.move_positions(layers, &moves, stream) };
                    cuda.finish(device, stream, moved)
                })
            }),
        }
    }
}

/// Refuses a branch of which some position is none of the row's new ones, and says why.
fn check(batch: &Batch, branch: &Branch<'_>) -> Result<(), &'static str> {
    let row = &batch.rows()[branch.row];
    if row.is_context {
        return Err("row: a context has no new positions");
    }
    let ascend = branch.positions.is_sorted_by(|before, after| before < after);
    match branch.positions.last() {
        Some(&last) if !ascend || last as usize >= row.count => {
            Err("positions: not ascending, or beyond the row's new ones")
        }
        _ => Ok(()),
    }
}

/// Adds the moves of a branch.
fn push_moves(
    batch: &Batch,
    branch: &Branch<'_>,
    moves: &mut Vec<PositionMove>,
) -> Result<(), OutOfMemory> {
    let row = &batch.rows()[branch.row];
    let page_size = batch.page_size();
    let place = |new: usize| {
        let slot = batch.slot_mapping()[row.first_query + new] as usize;
        ((slot / page_size) as u32, (slot % page_size) as u32)
    };
    for (target, &source) in branch.positions.iter().enumerate() {
        let source = source as usize;
        // No target lies behind its source, so that nothing is overwritten before it was moved.
        if source != target {
            moves.try_push(PositionMove { source: place(source), target: place(target) })?;
        }
    }
    Ok(())
}
