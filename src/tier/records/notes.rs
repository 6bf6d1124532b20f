//! Notes of rows that are read, side by side in blocks: a block of memory for each would take time
//! to find, and to give back.
use super::FoundRow;
use crate::memory::{OutOfMemory, SharedBytes, TryGrow};

/// Bytes of a block. glibc has less than 128 KiB from what it has, and more from the system.
const BLOCK: usize = 64 << 10;

/// Those of the last rows, until they are a block.
#[derive(Default)]
pub(super) struct Notes {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Notes {
    /// The note of a row that is the last one now.
    pub fn add(&mut self, note: &[u8], rows: &mut [FoundRow]) -> Result<(), OutOfMemory> {
        if self.bytes.capacity() == 0 {
            self.bytes.try_reserve_exact(BLOCK)?;
        }
        if self.bytes.len() + note.len() > self.bytes.capacity() && !self.ends.is_empty() {
            let (_, before) = rows.split_last_mut().expect("the note is one of a row");
            self.give(before)?;
            return self.add(note, rows);
        }
        self.bytes.try_extend_from_slice(note)?;
        self.ends.try_push(self.bytes.len())
    }

    /// The last rows get theirs.
    pub fn give(&mut self, rows: &mut [FoundRow]) -> Result<(), OutOfMemory> {
        let block = SharedBytes::new(std::mem::take(&mut self.bytes))?;
        let first = rows.len() - self.ends.len();
        let mut start = 0;
        for (row, end) in rows[first..].iter_mut().zip(self.ends.drain(..)) {
            row.note = block.slice(start..end);
            start = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Arc, SharedBytes};
    use crate::tier::records::Place;
    use crate::tier::space::Extents;

    #[test]
    fn each_row_gets_its_own_note() {
        let sizes = [3, 0, BLOCK - 3, 1, BLOCK + 1, 2 * BLOCK, 0, 7, BLOCK, BLOCK - 1, 2];
        let note_of = |number: usize| vec![number as u8; sizes[number]];
        let (mut rows, mut notes) = (Vec::new(), Notes::default());
        for number in 0..sizes.len() {
            let place = Arc::new(Place::new(1, Extents::new()).unwrap()).unwrap();
            rows.push(FoundRow {
                key: [number as u8; 32],
                place,
                note: SharedBytes::default(),
                used: 0,
            });
            notes.add(&note_of(number), &mut rows).unwrap();
        }
        notes.give(&mut rows).unwrap();
        for (number, row) in rows.iter().enumerate() {
            assert!(*row.note == *note_of(number), "{number}: {} bytes", row.note.len());
        }
        // Again, of the memory of none before.
        notes.add(&[9], &mut rows).unwrap();
        notes.give(&mut rows).unwrap();
        assert_eq!(*rows[sizes.len() - 1].note, [9]);
        notes.give(&mut rows).unwrap();
        assert_eq!(*rows[sizes.len() - 1].note, [9]);
    }
}
