//! Token lists as callers write them: an id per token, and the tokens that are not text.
use super::bins::{BIN_COUNT, check_bin};
use super::keys::TEXT_ID_LIMIT;
use crate::error::text;
use crate::error::{Error, Message};
use crate::memory::{OutOfMemory, TryGrow};
use std::ops::Range;

/// A token that is not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A coordinate.
    Coord {
        /// Its bin.
        bin: u32,
    },
    /// A size.
    Size {
        /// Bin of the width.
        width_bin: u32,
        /// Bin of the height.
        height_bin: u32,
    },
    /// An image.
    Image {
        /// Digest of its content.
        digest: [u8; 16],
        /// KV positions that it takes.
        positions: u32,
    },
}

impl TokenKind {
    pub(super) fn positions(&self) -> usize {
        match self {
            Self::Image { positions, .. } => *positions as usize,
            _ => 1,
        }
    }
}

/// A token that is not text, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Index in the token list.
    pub token_index: usize,
    /// What it is.
    pub kind: TokenKind,
}

/// Tokens: `ids` has one entry for each, which counts unless an item has its index.
#[derive(Debug, Clone, Copy)]
pub struct TokenList<'a> {
    /// Text ids.
    pub ids: &'a [u32],
    /// Items, by ascending index.
    pub items: &'a [Item],
}

impl<'a> TokenList<'a> {
    /// A list of text tokens.
    pub fn text(ids: &'a [u32]) -> Self {
        Self { ids, items: &[] }
    }

    /// The text before the first item; nothing when that has no good place.
    pub fn leading_text(&self) -> &'a [u32] {
        let end = self.items.first().map_or(self.ids.len(), |item| item.token_index);
        self.ids.get(..end).unwrap_or_default()
    }

    /// Checks the items: their order, their place, their values.
    pub(super) fn check_items(&self) -> Result<(), Error> {
        let mut next = 0;
        for (at, item) in self.items.iter().enumerate() {
            if item.token_index < next || item.token_index >= self.ids.len() {
                return Err(Error::argument(text!(
                    "tokens.items[{at}].token_index {} is out of order or beyond the last token",
                    item.token_index
                )));
            }
            next = item.token_index + 1;
            item.kind.check(at)?;
        }
        Ok(())
    }
}

impl TokenKind {
    fn check(&self, at: usize) -> Result<(), Error> {
        let bin = |bin, field| {
            // The name is written only when it is needed.
            if bin < BIN_COUNT { Ok(()) } else { check_bin(bin, &name(at, field)) }
        };
        match *self {
            Self::Coord { bin: coord } => bin(coord, "bin"),
            Self::Size { width_bin, height_bin } => {
                bin(width_bin, "bin")?;
                bin(height_bin, "height_bin")
            }
            Self::Image { positions: 0, .. } => {
                Err(Error::argument(text!("{} is zero", name(at, "position_count"))))
            }
            Self::Image { .. } => Ok(()),
        }
    }
}

/// A field of an item, in words.
fn name(at: usize, field: &str) -> Message {
    text!("tokens.items[{at}].{field}")
}

pub(crate) fn bad_id(at: usize, id: u32) -> Error {
    Error::argument(text!("tokens.ids[{at}] {id} is not below {TEXT_ID_LIMIT}"))
}

/// KV positions of a list.
#[inline(always)]
pub fn position_count(tokens: TokenList<'_>) -> Result<usize, Error> {
    tokens.check_items()?;
    Ok(positions(tokens))
}

/// KV positions of a list whose items may be bad, or more.
pub fn positions_at_most(tokens: TokenList<'_>) -> usize {
    let positions = tokens.items.iter().map(|item| item.kind.positions());
    positions.fold(tokens.ids.len(), usize::saturating_add)
}

/// KV positions of a list whose items are checked.
pub(super) fn positions(tokens: TokenList<'_>) -> usize {
    let extra = tokens.items.iter().map(|item| item.kind.positions() - 1);
    extra.fold(tokens.ids.len(), usize::saturating_add)
}

/// The image regions of a list, in KV positions.
pub fn regions(tokens: TokenList<'_>) -> Result<Vec<Range<usize>>, Error> {
    tokens.check_items()?;
    let mut extra = 0;
    let mut found = Vec::new();
    for item in tokens.items {
        let (start, length) = (item.token_index + extra, item.kind.positions());
        extra += length - 1;
        if matches!(item.kind, TokenKind::Image { .. }) {
            found.try_push(start..start + length)?;
        }
    }
    Ok(found)
}

/// Puts each item before the id at its index.
pub fn build(prompt: TokenList<'_>) -> Result<(Vec<u32>, Vec<Item>), Error> {
    let (mut ids, mut items) = (Vec::new(), Vec::new());
    ids.try_reserve_exact(prompt.ids.len() + prompt.items.len()).map_err(OutOfMemory::from)?;
    items.try_reserve_exact(prompt.items.len()).map_err(OutOfMemory::from)?;
    let mut done = 0;
    for (at, item) in prompt.items.iter().enumerate() {
        if item.token_index < done || item.token_index > prompt.ids.len() {
            return Err(Error::argument(text!(
                "tokens.items[{at}].token_index {} is out of order or beyond the end",
                item.token_index
            )));
        }
        item.kind.check(at)?;
        ids.extend_from_slice(&prompt.ids[done..item.token_index]);
        done = item.token_index;
        items.push(Item { token_index: ids.len(), kind: item.kind });
        ids.push(0);
    }
    ids.extend_from_slice(&prompt.ids[done..]);
    if let Some(at) = prompt.ids.iter().position(|&id| id >= TEXT_ID_LIMIT) {
        return Err(bad_id(at, prompt.ids[at]));
    }
    Ok((ids, items))
}
