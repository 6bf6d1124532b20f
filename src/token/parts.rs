//! The tokens among keys that are not text, as somebody reads them who knows no numbers of images.
use super::digest_chain::Keys;
use super::keys::{self, Kind, all_text};
use super::list::TokenKind;
use crate::memory::{OutOfMemory, TryGrow};

/// A token that is not text. Of an image perhaps a part: pages end inside images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// What it is. The positions of an image are those of the whole one.
    pub kind: TokenKind,
    /// Where it begins among the keys.
    pub start: usize,
    /// Keys that it takes.
    pub positions: usize,
    /// Positions of an image that stand before those.
    pub offset: u32,
}

/// What lies between two positions of parts by ascending position, counted from the first of them.
pub fn parts_within(
    parts: impl Iterator<Item = Part>,
    from: usize,
    end: usize,
) -> Result<Vec<Part>, OutOfMemory> {
    let mut inside = Vec::new();
    for part in parts {
        let [first, last] = [part.start.max(from), (part.start + part.positions).min(end)];
        if first < last {
            inside.try_push(Part {
                start: first - from,
                positions: last - first,
                offset: part.offset + (first - part.start) as u32,
                ..part
            })?;
        }
    }
    Ok(inside)
}

/// Calls `visit` with each part of keys, of which the first `open` positions of an image stand
/// before the first key. Returns how many of an image were read that goes on after the last key.
pub fn visit_parts(keys: Keys<'_>, mut open: u32, visit: &mut dyn FnMut(Part)) -> u32 {
    let Keys { keys, images } = keys;
    if all_text(keys) {
        return 0;
    }
    let mut at = 0;
    while let Some(&key) = keys.get(at) {
        let one = |kind| Part { kind, start: at, positions: 1, offset: 0 };
        let part = match keys::kind(key) {
            Kind::Text => {
                at += 1;
                continue;
            }
            Kind::Coord { bin } => one(TokenKind::Coord { bin }),
            Kind::Size { width_bin, height_bin } => one(TokenKind::Size { width_bin, height_bin }),
            Kind::Image { number } => {
                let (digest, length) = images.content(number).expect("its keys hold the image");
                let positions = ((length - open) as usize).min(keys.len() - at);
                let offset = open;
                open += positions as u32;
                if open == length {
                    open = 0;
                }
                Part {
                    kind: TokenKind::Image { digest, positions: length },
                    start: at,
                    positions,
                    offset,
                }
            }
            Kind::Nothing => unreachable!("no token has the key {key}"),
        };
        at += part.positions;
        visit(part);
    }
    open
}
