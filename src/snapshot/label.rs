//! The tokens of a node's segment.
//!
//! They lie in one piece, with room before or behind them, because segments grow and shrink at both
//! ends: a split takes the front off, a join puts it back. Either copies the shorter part only.
//! Room grows by an eighth and is given back when a third of it is unused, so that each token pays
//! for a bounded amount of copying and memory follows what is stored.
use crate::memory::{OutOfMemory, TryGrow};
use crate::tree::common_start;

/// Unused room that is never worth a copy, in tokens.
const SLACK: usize = 8;

/// The tokens of a segment; none at a root.
#[derive(Debug, Default)]
pub(super) struct Label {
    room: Box<[u32]>,
    start: u32,
    len: u32,
}

/// What a cut needs, made before anything changes. A part that has no memory here keeps what the
/// label has.
#[derive(Debug)]
pub(super) struct Cut {
    front: Option<Label>,
    rest: Option<Label>,
}

fn is_tight(capacity: usize, len: usize) -> bool {
    capacity <= len + len / 2 + SLACK
}

impl Label {
    /// A copy of tokens, in memory for exactly these.
    pub(super) fn try_new(tokens: &[u32]) -> Result<Self, OutOfMemory> {
        Self::with_slack([tokens, &[]], 0, 0)
    }

    /// The tokens of two lists, with room before and behind them.
    fn with_slack(parts: [&[u32]; 2], before: usize, behind: usize) -> Result<Self, OutOfMemory> {
        let len = parts[0].len() + parts[1].len();
        let capacity = before + len + behind;
        // Numbers of 32 bits suffice for every list that has room in memory.
        u32::try_from(capacity).map_err(|_| OutOfMemory)?;
        let mut room = Vec::new();
        room.try_reserve_exact(capacity)?;
        room.resize(before, 0);
        parts.into_iter().try_for_each(|part| room.try_extend_from_slice(part))?;
        room.resize(capacity, 0);
        Ok(Self { room: room.into_boxed_slice(), start: before as u32, len: len as u32 })
    }

    #[inline]
    fn tokens(&self) -> &[u32] {
        &self.room[self.start as usize..][..self.len as usize]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it is that of a root.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.tokens().first().copied()
    }

    pub(super) fn bytes(&self) -> usize {
        self.room.len() * size_of::<u32>()
    }

    /// Whether `tokens` begin with the whole segment.
    #[inline]
    pub(super) fn begins(&self, tokens: &[u32]) -> bool {
        tokens.starts_with(self.tokens())
    }

    /// Tokens that the segment and `tokens` have in common at the start.
    pub(super) fn common(&self, tokens: &[u32]) -> usize {
        common_start(self.tokens(), tokens)
    }

    /// Whether room follows what is stored.
    pub(super) fn is_tight(&self) -> bool {
        is_tight(self.room.len(), self.len())
    }

    /// Makes what taking the first `count` tokens off needs. The shorter part gets memory of its
    /// own, the longer one does if it would have too much.
    pub(super) fn prepare_cut(&self, count: usize) -> Result<Cut, OutOfMemory> {
        debug_assert!(0 < count && count < self.len());
        let (front, rest) = self.tokens().split_at(count);
        let keeps_front = front.len() > rest.len();
        let keeps = |keeps: bool, part: &[u32]| keeps && is_tight(self.room.len(), part.len());
        let part = |keeps: bool, part| {
            if keeps { Ok(None) } else { Self::try_new(part).map(Some) }
        };
        Ok(Cut {
            front: part(keeps(keeps_front, front), front)?,
            rest: part(keeps(!keeps_front, rest), rest)?,
        })
    }

    /// Takes the first `count` tokens off, for which a cut was prepared.
    pub(super) fn cut(&mut self, count: usize, cut: Cut) -> Self {
        match cut {
            Cut { front: Some(front), rest: Some(rest) } => {
                *self = rest;
                front
            }
            Cut { front: None, rest: Some(rest) } => {
                let mut front = std::mem::replace(self, rest);
                front.len = count as u32;
                front
            }
            Cut { front: Some(front), rest: None } => {
                self.start += count as u32;
                self.len -= count as u32;
                front
            }
            Cut { front: None, rest: None } => unreachable!("one part is the shorter one"),
        }
    }

    /// Puts `front` before the segment, and leaves nothing in it. Nothing changes when there is no
    /// memory, which is needed if neither of the two has room for the other.
    pub(super) fn try_prepend(&mut self, front: &mut Self) -> Result<(), OutOfMemory> {
        let end = (front.start + front.len) as usize;
        if self.start >= front.len {
            self.start -= front.len;
            self.len += front.len;
            self.room[self.start as usize..][..front.len()].copy_from_slice(front.tokens());
        } else if front.room.len() - end >= self.len() {
            front.room[end..][..self.len()].copy_from_slice(self.tokens());
            front.len += self.len;
            std::mem::swap(self, front);
        } else {
            // What grew at one end is likely to do so again.
            let slack = (front.len() + self.len()) / 8;
            let (before, behind) = if front.len > self.len { (0, slack) } else { (slack, 0) };
            *self = Self::with_slack([front.tokens(), self.tokens()], before, behind)?;
        }
        *front = Self::default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment that is cut and put together anywhere, again and again, stays the same list.
    #[test]
    fn cuts_and_joins_keep_the_tokens() {
        let tokens: Vec<u32> = (0..200).collect();
        let mut label = Label::try_new(&tokens).unwrap();
        for round in 0..2000 {
            let count = 1 + round * 37 % 199;
            let cut = label.prepare_cut(count).unwrap();
            let mut front = label.cut(count, cut);
            assert!(front.begins(&tokens) && label.first() == Some(tokens[front.len()]));
            assert_eq!(label.common(&tokens[front.len()..]), label.len());
            assert!(label.is_tight() && front.is_tight());
            label.try_prepend(&mut front).unwrap();
            assert!(label.begins(&tokens) && label.len() == 200 && front.bytes() == 0);
            assert!(label.is_tight());
        }
        assert_eq!(label.common(&[0, 1, 2, 9]), 3);
        assert!(!label.begins(&tokens[..199]));
    }

    /// A list that grows token by token, at either end, is copied now and then only.
    #[test]
    fn growing_at_an_end_copies_little() {
        for at_end in [false, true] {
            let (mut label, mut moved) = (Label::try_new(&[0]).unwrap(), 0);
            for token in 1..4000 {
                let mut other = Label::try_new(&[token]).unwrap();
                if at_end {
                    std::mem::swap(&mut label, &mut other);
                }
                let before = label.room.as_ptr();
                let kept = [before, other.room.as_ptr()];
                label.try_prepend(&mut other).unwrap();
                moved += usize::from(!kept.contains(&label.room.as_ptr())) * label.len();
            }
            assert!(moved < 4000 * 20, "{moved} tokens were copied");
        }
    }
}
