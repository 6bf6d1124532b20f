//! Makes a failing list of operations small: drops what the failure does not need, then makes the
//! rest simpler.
use super::ops::{Items, Op};
use super::prompt::{Piece, Prompt};

/// A list that still fails, in which no operation can be dropped.
pub fn shrink(mut ops: Vec<Op>, mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    loop {
        let before = format!("{ops:?}").len();
        ops = drop_operations(ops, &mut fails);
        ops = drop_pairs(ops, &mut fails);
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

/// Drops two at a time from a short list: where one is gone, the other may mean something else.
fn drop_pairs(mut ops: Vec<Op>, fails: &mut impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    const SHORT: usize = 16;
    let without = |ops: &[Op], pair: [usize; 2]| -> Vec<Op> {
        let kept = ops.iter().enumerate().filter(|(at, _)| !pair.contains(at));
        kept.map(|(_, op)| op.clone()).collect()
    };
    while ops.len() <= SHORT {
        let pairs = (0..ops.len()).flat_map(|later| (0..later).map(move |first| [first, later]));
        let fewer = pairs.map(|pair| without(&ops, pair)).find(|fewer| fails(fewer));
        let Some(fewer) = fewer else { break };
        ops = fewer;
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
    if let Some(items) = items_of(&mut op.clone()) {
        return simpler_items(op, &items.0);
    }
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

/// One item less, one item alone by the single verb, or a simpler item.
fn simpler_items(op: &Op, items: &[Option<Op>]) -> Vec<Op> {
    let with = |items: Vec<Option<Op>>| {
        let mut changed = op.clone();
        items_of(&mut changed).expect("it has items").0 = items;
        changed
    };
    let mut found = Vec::new();
    for (at, item) in items.iter().enumerate() {
        found.extend(item.clone());
        let mut fewer = items.to_vec();
        fewer.remove(at);
        found.extend(Some(fewer).filter(|fewer| !fewer.is_empty()).map(with));
    }
    for (at, item) in items.iter().enumerate() {
        for simpler in item.iter().flat_map(simpler) {
            let mut changed = items.to_vec();
            changed[at] = Some(simpler);
            found.push(with(changed));
        }
    }
    found
}

fn items_of(op: &mut Op) -> Option<&mut Items> {
    match op {
        Op::BeginMany(items)
        | Op::AppendMany(items)
        | Op::PublishMany(items)
        | Op::ReleaseMany(items)
        | Op::MatchMany(items)
        | Op::ProbeMany(items) => Some(items),
        _ => None,
    }
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
        Op::RecreateCache
        | Op::AllocateSlot
        | Op::BeginMany(_)
        | Op::AppendMany(_)
        | Op::PublishMany(_)
        | Op::ReleaseMany(_)
        | Op::MatchMany(_)
        | Op::ProbeMany(_) => (None, None, vec![]),
    }
}
