//! How long the pieces are that the keys of tiles are cut into: short enough for the machine to be
//! busy and for blocks to end at about the same time, and no more of them than that takes.

/// Fewer keys are not worth a block.
pub(super) const PIECE_MIN: usize = 256;
/// From here on pieces are made smaller than needed, so that blocks end at about the same time.
pub(super) const PIECE_GOOD: usize = 1024;
pub(super) const ROUNDS: usize = 4;
/// Where the keys are cut when a row's result must not depend on others.
pub(super) const PIECE_FIXED: usize = 2048;
/// Pieces begin at multiples of this; a multiple of every kernel's tile of keys.
pub(super) const PIECE_UNIT: usize = 64;

/// What it takes to begin and to end a block, in keys. An estimate, as is the next.
const OVERHEAD: usize = 64;
/// What the launch that merges takes.
const MERGE: usize = 128;
/// Lengths that are compared.
const CANDIDATES: usize = 8;

/// Blocks that the machine holds at a time, and how many each piece becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slots {
    pub blocks: usize,
    pub kv_heads: usize,
}

/// The length for tiles of these numbers of keys.
pub(super) fn piece_of(spans: impl Iterator<Item = usize> + Clone, slots: Slots) -> usize {
    let (count, keys, longest) =
        spans.clone().fold((0, 0, 0), |(count, keys, longest): (usize, usize, usize), span| {
            (count + 1, keys + span, longest.max(span))
        });
    let ideal = keys * slots.kv_heads / slots.blocks.max(1);
    let least = match ideal / ROUNDS {
        piece if piece >= PIECE_GOOD => piece,
        _ => ideal.clamp(PIECE_MIN, PIECE_GOOD),
    };
    let most_pieces = longest.div_ceil(least).max(1);
    // With that many tiles few are cut, and the short ones fill what the long ones leave.
    let is_full = count * slots.kv_heads >= 2 * ROUNDS * slots.blocks;
    if is_full || most_pieces == 1 {
        return least;
    }
    // Longer ones, by which the longest tile is cut into fewer: `Bounds` holds for all of them.
    let fewest_pieces = if most_pieces <= CANDIDATES { 1 } else { most_pieces / 2 };
    let step = (most_pieces - fewest_pieces).div_ceil(CANDIDATES).max(1);
    let longer = (fewest_pieces..most_pieces).rev().step_by(step).map(|n| longest.div_ceil(n));
    std::iter::once(least)
        .chain(longer)
        .min_by_key(|&piece| time_of(spans.clone(), piece, slots))
        .expect("there is the least one")
}

/// An estimate of the time that the machine takes, in keys of one block.
fn time_of(spans: impl Iterator<Item = usize>, piece: usize, slots: Slots) -> usize {
    let (mut blocks, mut total, mut longest, mut shortest) = (0, 0, 0, usize::MAX);
    let mut is_cut = false;
    for span in spans {
        let pieces = span.div_ceil(piece).max(1);
        let length = length_of(span, piece) + OVERHEAD;
        blocks += pieces * slots.kv_heads;
        total += (span + pieces * OVERHEAD) * slots.kv_heads;
        longest = longest.max(length);
        shortest = shortest.min(length);
        is_cut |= pieces > 1;
    }
    // Rounds of blocks that are alike; or, as the short ones come last, they fill the gaps.
    let rounds = blocks.div_ceil(slots.blocks.max(1)) * longest;
    let filled = total / slots.blocks.max(1) + shortest;
    longest.max(rounds.min(filled)) + if is_cut { MERGE } else { 0 }
}

/// Of the pieces of a tile that are at most about `piece` long: about the same for all of them.
pub(super) fn length_of(span: usize, piece: usize) -> usize {
    let pieces = span.div_ceil(piece).max(1);
    span.div_ceil(pieces).next_multiple_of(PIECE_UNIT)
}
