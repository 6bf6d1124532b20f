//! Positions and the parts among them that are not text, as the journal tells them, read as pieces.
use super::digest_chain::{Piece, Pieces};
use super::list::TokenKind;
use super::page_digest::PageItem;
use super::parts::Part;

/// The tokens of one page.
#[derive(Debug, Clone)]
pub struct PartPieces<'a> {
    tokens: &'a [u32],
    /// By ascending position.
    parts: &'a [Part],
    at: usize,
}

impl<'a> PartPieces<'a> {
    /// An id for each position, and what stands where an id says nothing.
    pub fn new(tokens: &'a [u32], parts: &'a [Part]) -> Self {
        Self { tokens, parts, at: 0 }
    }
}

impl Pieces for PartPieces<'_> {
    fn next(&mut self, limit: usize) -> Option<Piece<'_>> {
        let end = self.tokens.len().min(self.at + limit);
        let from = self.at;
        match self.parts.first() {
            Some(part) if part.start == from => {
                let count = part.positions.min(end - from);
                debug_assert_eq!(count, part.positions, "a part ends in its page");
                let item = match part.kind {
                    TokenKind::Coord { bin } => PageItem::coord(bin),
                    TokenKind::Size { width_bin, height_bin } => {
                        PageItem::size(width_bin, height_bin)
                    }
                    TokenKind::Image { digest, positions } => {
                        PageItem::image(digest, positions, part.offset)
                    }
                };
                self.parts = &self.parts[1..];
                self.at += count;
                (count > 0).then_some(Piece::Item(item, count))
            }
            part => {
                let end = part.map_or(end, |part| end.min(part.start));
                self.at = end;
                (end > from).then(|| Piece::Text(&self.tokens[from..end]))
            }
        }
    }

    fn is_text_next(&self) -> bool {
        self.parts.first().is_none_or(|part| part.start != self.at)
    }
}
