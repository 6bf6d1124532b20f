//! Makes a failing list of operations small: drops what the failure does not need, then makes the
//! rest simpler.
use super::ops::Op;
use super::prompt::{Piece, Prompt};

/// A list that still fails, in which no operation can be dropped.
pub fn shrink(mut ops: Vec<Op>, mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    loop {
        let before = format!("{ops:?}").len();
        ops = drop_operations(ops, &mut fails);
        ops = simplify(ops, &mut fails);
        if format!("{ops:?}").len() == before {
            return ops;
        }
    }
}

/// Drops chunks, from half of the list down to single operations.
fn drop_operations(mut ops: Vec<Op>, fails: &mut impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut chunk = ops.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        while start < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(start..(start + chunk).min(ops.len()));
            if fails(&fewer) {
                ops = fewer;
            } else {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    ops
}

fn simplify(mut ops: Vec<Op>, fails: &mut impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    for index in 0..ops.len() {
        while let Some(simpler) = simpler(&ops[index]).into_iter().find(|simpler| {
            let mut changed = ops.clone();
            changed[index] = simpler.clone();
            fails(&changed)
        }) {
            ops[index] = simpler;
        }
    }
    ops
}

/// Operations that do less than this one. Each has a shorter prompt or a smaller number.
fn simpler(op: &Op) -> Vec<Op> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Op) -> bool| {
        let mut changed = op.clone();
        if change(&mut changed) {
            found.push(changed);
        }
    };
    let pieces = parts(&mut op.clone()).0.map_or(0, |prompt| prompt.0.len());
    for piece in 0..pieces {
        with(&|op| parts(op).0.is_some_and(|prompt| drop_piece(prompt, piece)));
        for halve in [true, false] {
            with(&|op| parts(op).0.is_some_and(|prompt| shorten(prompt, piece, halve)));
        }
    }
    with(&|op| parts(op).1.is_some_and(|ns| std::mem::take(ns) > 0));
    for number in 0..3 {
        for change in [|_: u16| 0, |n: u16| n / 2, |n: u16| n.saturating_sub(1)] {
            with(&|op| {
                let numbers = parts(op).2;
                let Some(old) = numbers.into_iter().nth(number) else { return false };
                let new = change(*old);
                std::mem::replace(old, new) != new
            });
        }
    }
    found
}

fn drop_piece(prompt: &mut Prompt, piece: usize) -> bool {
    prompt.0.remove(piece);
    true
}

fn shorten(prompt: &mut Prompt, piece: usize, halve: bool) -> bool {
    let (Piece::Text(_, count) | Piece::Image(_, count)) = &mut prompt.0[piece] else {
        return false;
    };
    let less = if halve { *count / 2 } else { *count - 1 };
    less > 0 && std::mem::replace(count, less) != less
}

/// The prompt, the namespace and the numbers of an operation.
fn parts(op: &mut Op) -> (Option<&mut Prompt>, Option<&mut u8>, Vec<&mut u16>) {
    match op {
        Op::Match { ns, prompt, .. }
        | Op::MatchTooSmall { ns, prompt }
        | Op::Probe { ns, prompt }
        | Op::Insert { ns, prompt, .. } => (Some(prompt), Some(ns), vec![]),
        Op::ReadTokens { prompt } => (Some(prompt), None, vec![]),
        Op::InsertResumed { earlier, more, .. } => (Some(more), None, vec![earlier]),
        Op::InsertRow { row, ns, prompt } | Op::MapMatch { row, ns, prompt } => {
            (Some(prompt), Some(ns), vec![row])
        }
        Op::InsertWrong { earlier, ns, prompt, .. } => (Some(prompt), Some(ns), vec![earlier]),
        Op::Clear { ns, flags } => (None, Some(ns), vec![flags]),
        Op::Begin { ns, prompt, reserve, first } => (Some(prompt), Some(ns), vec![reserve, first]),
        Op::Continue { parent, ns, prompt, reserve, first, .. } => {
            (Some(prompt), Some(ns), vec![parent, reserve, first])
        }
        Op::Fork { parent, count, reserve } => (None, None, vec![parent, count, reserve]),
        Op::Append { sequence, prompt } => (Some(prompt), None, vec![sequence]),
        Op::Lock { node: number }
        | Op::Unlock { lock: number }
        | Op::UnlockStale { lock: number }
        | Op::Evict { count: number, .. }
        | Op::ConfirmCopies { sequence: number }
        | Op::Release { sequence: number }
        | Op::DeadSequence { sequence: number }
        | Op::Retain { sequence: number }
        | Op::Drop { sequence: number }
        | Op::DropRetained { pages: number }
        | Op::Erase { slot: number }
        | Op::AllocatePages { count: number } => (None, None, vec![number]),
        Op::EvictSmallBuffer { count: first, capacity: second }
        | Op::Allocate { sequence: first, back: second }
        | Op::AllocateBeyond { sequence: first, more: second }
        | Op::Truncate { sequence: first, back: second }
        | Op::TruncateBeyond { sequence: first, more: second }
        | Op::Publish { sequence: first, back: second }
        | Op::PublishBeyond { sequence: first, more: second }
        | Op::FreePages { first, count: second }
        | Op::FreeAny { pages: [first, second] }
        | Op::Reserve { slot: first, positions: second }
        | Op::CanReserve { slot: first, positions: second }
        | Op::Map { row: first, count: second, .. }
        | Op::MapAny { slot: first, page: second, .. }
        | Op::ReadRows { first, count: second, .. } => (None, None, vec![first, second]),
        Op::RecreateCache | Op::AllocateSlot => (None, None, vec![]),
    }
}
