//! The key of a KV position. Keys of different kinds lie in different ranges, so that comparing
//! keys compares tokens exactly:
//!
//! | range                     | token                                         |
//! |---------------------------|-----------------------------------------------|
//! | 0 .. 2^31                 | text, the id itself                           |
//! | 2^31 ..                   | coordinate, + bin                             |
//! | 2^31 + 2^20 ..            | size, + width bin * 1024 + height bin         |
//! | 2^31 + 2^21 ..            | image, + number of the interned image         |
//!
//! An image is a run of its key, as long as the image has positions. The number stands for digest
//! and length, so a run of keys can be read in one way only.

/// Text ids are smaller than this.
pub(crate) const TEXT_ID_LIMIT: u32 = 1 << 31;
const COORD: u32 = TEXT_ID_LIMIT;
const SIZE: u32 = TEXT_ID_LIMIT + (1 << 20);
const IMAGE: u32 = TEXT_ID_LIMIT + (1 << 21);
/// Different images that can be known at once.
pub(super) const IMAGE_LIMIT: u32 = u32::MAX - IMAGE;

/// Whether a key, or an id from a caller, is a text id.
pub fn is_text(key: u32) -> bool {
    key < TEXT_ID_LIMIT
}

/// Whether all keys are text ids. Folds without an early exit, so that it is vectorised, and so
/// many at a time that the loop costs little.
#[inline(always)]
pub fn all_text(keys: &[u32]) -> bool {
    let (blocks, rest) = keys.as_chunks::<32>();
    let mut lanes = [0; 8];
    for block in blocks {
        for (at, key) in block.iter().enumerate() {
            lanes[at % 8] |= key;
        }
    }
    is_text(lanes.iter().chain(rest).fold(0, |bits, key| bits | key))
}

pub(super) fn coord(bin: u32) -> u32 {
    COORD + bin
}

pub(super) fn size(width_bin: u32, height_bin: u32) -> u32 {
    SIZE + width_bin * super::bins::BIN_COUNT + height_bin
}

pub(super) fn image(number: u32) -> u32 {
    IMAGE + number
}

/// The number of the interned image that a key stands for.
pub fn image_number(key: u32) -> Option<u32> {
    key.checked_sub(IMAGE)
}

/// What a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Coord {
        bin: u32,
    },
    Size {
        width_bin: u32,
        height_bin: u32,
    },
    Image {
        number: u32,
    },
    /// No token has this key.
    Nothing,
}

pub(super) fn kind(key: u32) -> Kind {
    use super::bins::BIN_COUNT;
    match key {
        ..COORD => Kind::Text,
        COORD..SIZE if key - COORD < BIN_COUNT => Kind::Coord { bin: key - COORD },
        COORD..SIZE => Kind::Nothing,
        SIZE..IMAGE => {
            let (width_bin, height_bin) = ((key - SIZE) / BIN_COUNT, (key - SIZE) % BIN_COUNT);
            Kind::Size { width_bin, height_bin }
        }
        IMAGE.. => Kind::Image { number: key - IMAGE },
    }
}
