//! The tokens of a node's segment.
//!
//! A ring buffer, because segments grow and shrink at both ends: a split takes the front off, a
//! merge puts it back. Either moves the shorter part only. Room grows by an eighth and is given
//! back when a third of it is unused, so that each token pays for a bounded amount of copying and
//! memory follows what is stored.
use crate::error::Error;
use crate::error::text;
use crate::index::common_start;
use std::collections::VecDeque;

/// Unused room that is never worth a copy, in tokens.
const SLACK: usize = 8;

/// The tokens of a segment; none at a root.
#[derive(Debug, Default)]
pub(super) struct Label(VecDeque<u32>);

impl Label {
    /// A copy of tokens, or out of memory: these are as many as a caller likes.
    pub(super) fn try_new(tokens: &[u32]) -> Result<Self, Error> {
        let mut copy = Vec::new();
        let room = copy.try_reserve_exact(tokens.len());
        room.map_err(|_| Error::memory(text!("a list of {} tokens", tokens.len())))?;
        copy.extend_from_slice(tokens);
        Ok(Self(copy.into()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.0.front().copied()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }

    /// Whether `tokens` begin with the whole segment.
    #[inline]
    pub(super) fn begins(&self, tokens: &[u32]) -> bool {
        let (front, back) = self.0.as_slices();
        let Some(tokens) = tokens.get(..front.len() + back.len()) else {
            return false;
        };
        let (left, right) = tokens.split_at(front.len());
        left == front && right == back
    }

    /// Tokens that the segment and `tokens` have in common at the start.
    pub(super) fn common(&self, tokens: &[u32]) -> usize {
        let (front, back) = self.0.as_slices();
        let common = common_start(front, tokens);
        if common < front.len() {
            return common;
        }
        common + common_start(back, &tokens[common..])
    }

    /// Takes the first `count` tokens off.
    pub(super) fn split_front(&mut self, count: usize) -> Self {
        debug_assert!(0 < count && count < self.len());
        let front = if count <= self.len() / 2 {
            self.0.drain(..count).collect()
        } else {
            let rest = self.0.split_off(count);
            std::mem::replace(&mut self.0, rest)
        };
        let mut front = Self(front);
        front.give_back();
        self.give_back();
        front
    }

    /// Puts `front` before the segment.
    pub(super) fn prepend(&mut self, mut front: Self) {
        if front.len() > self.len() {
            front.make_room(self.len());
            front.0.extend(&self.0);
            *self = front;
        } else {
            self.make_room(front.len());
            front.0.iter().rev().for_each(|&token| self.0.push_front(token));
        }
        self.give_back();
    }

    fn make_room(&mut self, more: usize) {
        if self.0.capacity() - self.len() < more {
            self.0.reserve_exact(more + (self.len() + more) / 8);
        }
    }

    fn give_back(&mut self) {
        if self.0.capacity() > self.len() + self.len() / 2 + SLACK {
            self.0.shrink_to_fit();
        }
    }

    /// Whether room follows what is stored.
    pub(super) fn is_tight(&self) -> bool {
        self.0.capacity() <= self.len() + self.len() / 2 + SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment that is cut and put together anywhere, again and again, stays the same list.
    #[test]
    fn splits_and_merges_keep_the_tokens() {
        let tokens: Vec<u32> = (0..200).collect();
        let mut label = Label::try_new(&tokens).unwrap();
        for round in 0..2000 {
            let front = label.split_front(1 + round * 37 % 199);
            assert!(front.begins(&tokens) && label.first() == Some(tokens[front.len()]));
            assert_eq!(label.common(&tokens[front.len()..]), label.len());
            label.prepend(front);
            assert!(label.begins(&tokens) && label.len() == 200);
            assert!(label.is_tight());
        }
        assert_eq!(label.common(&[0, 1, 2, 9]), 3);
        assert!(!label.begins(&tokens[..199]));
    }
}
