//! Prompts as data: pieces that print as Rust source, and what they mean position by position.
use std::fmt;

/// A part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// `.1` text tokens with ascending ids, the first is `.0`.
    Text(u32, u32),
    /// A coordinate.
    Coord(u32),
    /// A width and a height.
    Size(u32, u32),
    /// An image with content `.0` that takes `.1` positions.
    Image(u8, u32),
}

/// A token list.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Prompt(pub Vec<Piece>);

/// A prompt, in the words in which a prompt prints itself.
#[allow(dead_code)] // only tests with cases written by hand use it
pub fn prompt<const N: usize>(pieces: [Piece; N]) -> Prompt {
    Prompt(pieces.to_vec())
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "prompt({:?})", self.0)
    }
}

impl Piece {
    pub fn positions(self) -> usize {
        match self {
            Piece::Text(_, count) | Piece::Image(_, count) => count as usize,
            Piece::Coord(_) | Piece::Size(..) => 1,
        }
    }
}

impl Prompt {
    pub fn positions(&self) -> usize {
        self.0.iter().map(|piece| piece.positions()).sum()
    }

    /// The first pieces, the last one cut, if it is text, so that `positions` are not exceeded.
    pub fn cut(&self, positions: usize) -> Prompt {
        let mut left = positions;
        let mut kept = Vec::new();
        for &piece in &self.0 {
            match piece {
                piece if piece.positions() <= left => kept.push(piece),
                Piece::Text(id, _) if left > 0 => {
                    kept.push(Piece::Text(id, left as u32));
                    break;
                }
                _ => break,
            }
            left -= piece.positions();
        }
        Prompt(kept)
    }

    /// What follows the pieces that `cut` keeps.
    pub fn after(&self, positions: usize) -> Prompt {
        let mut skipped = self.cut(positions).positions();
        let mut rest = Vec::new();
        for &piece in &self.0 {
            match piece {
                piece if piece.positions() <= skipped => skipped -= piece.positions(),
                Piece::Text(id, count) => {
                    rest.push(Piece::Text(id + skipped as u32, count - skipped as u32));
                    skipped = 0;
                }
                piece => rest.push(piece),
            }
        }
        Prompt(rest)
    }

    /// Whether a text id is none.
    pub fn has_bad_ids(&self) -> bool {
        let limit = radixkv::capi::RKV_TEXT_ID_LIMIT;
        self.0.iter().any(|piece| matches!(*piece, Piece::Text(id, count) if id + count > limit))
    }

    pub fn then(&self, more: &Prompt) -> Prompt {
        Prompt(self.0.iter().chain(&more.0).copied().collect())
    }
}

/// What stands at one position. Equal keys mean equal KV, given equal keys before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Text(u32),
    Coord(u32),
    Size(u32, u32),
    Image { content: u8, length: u32, offset: u32 },
}

/// A prompt position by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// One key for each position.
    pub keys: Vec<Key>,
    /// For each token the position after its last.
    pub ends: Vec<usize>,
    /// A text id is none. Nothing ever matches it.
    pub bad: bool,
}

impl Tokens {
    pub fn of(prompt: &Prompt) -> Tokens {
        let mut tokens = Tokens { bad: prompt.has_bad_ids(), ..Tokens::default() };
        for &piece in &prompt.0 {
            match piece {
                Piece::Text(id, count) => {
                    (id..id + count).for_each(|id| tokens.push([Key::Text(id)]));
                }
                Piece::Coord(bin) => tokens.push([Key::Coord(bin)]),
                Piece::Size(width, height) => tokens.push([Key::Size(width, height)]),
                Piece::Image(content, length) => {
                    tokens.push((0..length).map(|offset| Key::Image { content, length, offset }));
                }
            }
        }
        tokens
    }

    fn push(&mut self, keys: impl IntoIterator<Item = Key>) {
        self.keys.extend(keys);
        self.ends.push(self.keys.len());
    }

    pub fn positions(&self) -> usize {
        self.keys.len()
    }

    /// Where a token begins.
    pub fn position_of(&self, token: usize) -> usize {
        token.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Tokens that end at or before a position.
    pub fn count_within(&self, position: usize) -> usize {
        self.ends.iter().filter(|&&end| end <= position).count()
    }

    /// The last token boundary at or before a position.
    pub fn boundary_within(&self, position: usize) -> usize {
        self.ends.iter().copied().filter(|&end| end <= position).max().unwrap_or(0)
    }

    /// Whether a position is a token boundary, that is not strictly inside an image.
    pub fn is_boundary(&self, position: usize) -> bool {
        self.boundary_within(position) == position
    }

    pub fn append(&mut self, more: &Tokens) {
        let before = self.keys.len();
        self.keys.extend(&more.keys);
        self.ends.extend(more.ends.iter().map(|end| before + end));
    }

    pub fn truncate(&mut self, positions: usize) {
        self.keys.truncate(positions);
        self.ends.retain(|&end| end <= positions);
    }

    /// The different images, by content and length.
    pub fn images(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        images(&self.keys)
    }
}

/// The images that have a position among these keys.
pub fn images(keys: &[Key]) -> impl Iterator<Item = (u8, u32)> + '_ {
    keys.iter().filter_map(|key| match *key {
        Key::Image { content, length, .. } => Some((content, length)),
        _ => None,
    })
}
