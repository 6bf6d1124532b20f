//! Where a record lies, what its bytes add up to, and how that is written down.
use crate::memory::OutOfMemory;
use crate::tier::Key;
use crate::tier::space::{EXTENTS_MAX, Extent, Extents, UNIT};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes of a request, and of what has a checksum of its own.
pub(crate) const PIECE: u64 = 2 << 20;

/// Of a committed record nothing changes.
#[derive(Debug)]
pub(crate) struct Place {
    pub bytes: u64,
    pub extents: Extents,
    /// One for each piece; written by whoever writes the piece.
    sums: SmallVec<[AtomicU64; 1]>,
}

impl Place {
    pub fn new(bytes: u64, extents: Extents) -> Result<Self, OutOfMemory> {
        let count = bytes.div_ceil(PIECE) as usize;
        let mut sums = SmallVec::new();
        sums.try_reserve(count).map_err(|_| OutOfMemory)?;
        sums.extend((0..count).map(|_| AtomicU64::new(0)));
        Ok(Self { bytes, extents, sums })
    }

    pub fn pieces(&self) -> usize {
        self.sums.len()
    }

    /// Bytes of a piece.
    pub fn piece_bytes(&self, piece: usize) -> usize {
        (self.bytes - piece as u64 * PIECE).min(PIECE) as usize
    }

    /// Stretches of the data file, in bytes, in which a piece lies; the last one ends with a unit.
    pub fn stretches(&self, piece: usize) -> impl Iterator<Item = (u64, usize)> {
        let mut skip = piece as u64 * PIECE;
        let mut left = (self.piece_bytes(piece) as u64).next_multiple_of(UNIT);
        self.extents.iter().filter_map(move |extent| {
            let bytes = extent.units * UNIT;
            let skipped = skip.min(bytes);
            skip -= skipped;
            let taken = left.min(bytes - skipped);
            left -= taken;
            (taken > 0).then_some((extent.start * UNIT + skipped, taken as usize))
        })
    }

    pub fn sum(&self, piece: usize) -> u64 {
        self.sums[piece].load(Ordering::Relaxed)
    }

    pub fn set_sum(&self, piece: usize, sum: u64) {
        self.sums[piece].store(sum, Ordering::Relaxed);
    }
}

/// Where the note lies within a row.
fn fixed_bytes(extents: usize, sums: usize) -> usize {
    8 + 8 + extents * 16 + sums * 8
}

/// length, number of extents, extents, checksums, note, checksum of all that and of the key.
pub(super) fn encode(
    row: &mut Vec<u8>,
    key: &Key,
    place: &Place,
    note: &[u8],
) -> Result<(), OutOfMemory> {
    row.clear();
    row.try_reserve(fixed_bytes(place.extents.len(), place.sums.len()) + note.len() + 8)?;
    row.extend_from_slice(&place.bytes.to_le_bytes());
    row.extend_from_slice(&(place.extents.len() as u64).to_le_bytes());
    for extent in &place.extents {
        row.extend_from_slice(&extent.start.to_le_bytes());
        row.extend_from_slice(&extent.units.to_le_bytes());
    }
    for piece in 0..place.sums.len() {
        row.extend_from_slice(&place.sum(piece).to_le_bytes());
    }
    row.extend_from_slice(note);
    let sum = row_sum(key, row);
    row.extend_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// Bytes of a row and its key that are put side by side: adding up in one go is quicker.
const TOGETHER: usize = 1024;

fn row_sum(key: &Key, row: &[u8]) -> u64 {
    let mut together = [0; TOGETHER];
    if let Some(both) = together.get_mut(..key.len() + row.len()) {
        both[..key.len()].copy_from_slice(key);
        both[key.len()..].copy_from_slice(row);
        return xxh3_64(both);
    }
    let mut sum = Xxh3::new();
    sum.update(key);
    sum.update(row);
    sum.digest()
}

/// The checksum of a piece.
pub(crate) fn piece_sum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }
}

/// What a row says, and the note; `None` when it is not what was written.
pub(super) fn decode<'a>(
    key: &Key,
    row: &'a [u8],
) -> Result<Option<(Place, &'a [u8])>, OutOfMemory> {
    let Some((row, sum)) = row.split_last_chunk::<8>() else { return Ok(None) };
    if row_sum(key, row) != u64::from_le_bytes(*sum) {
        return Ok(None);
    }
    let mut words = Words(row);
    let (Some(bytes), Some(count)) = (words.next(), words.next()) else { return Ok(None) };
    if bytes == 0 || count as usize > EXTENTS_MAX || bytes.div_ceil(PIECE) > row.len() as u64 {
        return Ok(None);
    }
    let mut extents = Extents::new();
    extents.try_reserve(count as usize).map_err(|_| OutOfMemory)?;
    for _ in 0..count {
        let (Some(start), Some(units)) = (words.next(), words.next()) else { return Ok(None) };
        extents.push(Extent { start, units });
    }
    let units = extents.iter().try_fold(0_u64, |sum, extent| sum.checked_add(extent.units));
    if units != Some(bytes.div_ceil(UNIT)) {
        return Ok(None);
    }
    let place = Place::new(bytes, extents)?;
    for piece in 0..place.pieces() {
        let Some(sum) = words.next() else { return Ok(None) };
        place.set_sum(piece, sum);
    }
    Ok(Some((place, words.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn a_piece_lies_where_its_extents_are() {
        let extents = smallvec![
            Extent { start: 10, units: 500 },
            Extent { start: 0, units: 3 },
            Extent { start: 1000, units: 10 },
        ];
        let place = Place::new(512 * UNIT + 1, extents).unwrap();
        assert_eq!(place.pieces(), 2);
        let first: Vec<_> = place.stretches(0).collect();
        let unit = UNIT as usize;
        assert_eq!(first, [(10 * UNIT, 500 * unit), (0, 3 * unit), (1000 * UNIT, 9 * unit)]);
        assert_eq!(place.stretches(1).collect::<Vec<_>>(), [(1009 * UNIT, unit)]);
        assert_eq!(place.piece_bytes(1), 1);
    }

    /// Files have sums of rows that were added up piece by piece.
    #[test]
    fn a_row_has_one_sum_however_it_is_added_up() {
        for bytes in [0, 1, 100, TOGETHER - 33, TOGETHER - 32, TOGETHER - 31, 5000] {
            let row: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
            let mut sum = Xxh3::new();
            sum.update(&[5; 32]);
            sum.update(&row);
            assert_eq!(row_sum(&[5; 32], &row), sum.digest(), "{bytes} bytes");
        }
    }

    #[test]
    fn any_changed_byte_of_a_row_is_seen() {
        let place = Place::new(PIECE + 7, smallvec![Extent { start: 3, units: 513 }]).unwrap();
        place.set_sum(1, 77);
        let mut row = Vec::new();
        encode(&mut row, &[9; 32], &place, b"note").unwrap();
        let (read, note) = decode(&[9; 32], &row).unwrap().unwrap();
        assert_eq!((read.bytes, &read.extents, note), (place.bytes, &place.extents, &b"note"[..]));
        assert_eq!((read.sum(0), read.sum(1)), (0, 77));
        assert!(decode(&[8; 32], &row).unwrap().is_none());
        for at in 0..row.len() {
            row[at] ^= 1;
            assert!(decode(&[9; 32], &row).unwrap().is_none(), "byte {at}");
            assert!(decode(&[9; 32], &row[..at]).unwrap().is_none(), "{at} bytes");
            row[at] ^= 1;
        }
    }
}
