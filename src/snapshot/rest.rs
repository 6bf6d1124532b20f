//! A copy of the end of a token list, in pieces that are no longer than a node may be.
use super::Label;
use crate::error::{Error, text};
use crate::memory::TryGrow;

/// The tokens of a list from one on.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) from: usize,
    pub(super) first: Label,
    /// Few lists have any.
    pub(super) more: Vec<Label>,
}

impl Rest {
    #[inline]
    pub(super) fn try_new(tokens: &[u32], from: usize, segment: usize) -> Result<Self, Error> {
        let tokens = &tokens[from..];
        // The one allocation that a caller can make absurd.
        let refused = |_| Error::memory(text!("a list of {} tokens", tokens.len()));
        let (first, rest) = tokens.split_at(tokens.len().min(segment));
        let mut copy =
            Self { from, first: Label::of_tokens(first).map_err(refused)?, more: vec![] };
        for piece in rest.chunks(segment) {
            let piece = Label::of_tokens(piece).map_err(refused)?;
            copy.more.try_push(piece).map_err(refused)?;
        }
        Ok(copy)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        !self.first.is_empty() as usize + self.more.len()
    }
}
