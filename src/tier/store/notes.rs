//! Notes of records that are read, side by side in blocks: a block of memory for each would take
//! time to find, and to give back.
use crate::memory::{OutOfMemory, SharedBytes, TryGrow};
use crate::tier::Record;

/// Bytes of a block. glibc has less than 128 KiB from what it has, and more from the system.
const BLOCK: usize = 64 << 10;

/// Those of the last records, until they are a block.
#[derive(Default)]
pub(super) struct Notes {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Notes {
    /// The note of a record that is the last one now.
    pub fn add(&mut self, note: &[u8], records: &mut [Record]) -> Result<(), OutOfMemory> {
        if self.bytes.capacity() == 0 {
            self.bytes.try_reserve_exact(BLOCK)?;
        }
        if self.bytes.len() + note.len() > self.bytes.capacity() && !self.ends.is_empty() {
            let (_, before) = records.split_last_mut().expect("the note is one of a record");
            self.give(before)?;
            return self.add(note, records);
        }
        self.bytes.try_extend_from_slice(note)?;
        self.ends.try_push(self.bytes.len())
    }

    /// The last records get theirs.
    pub fn give(&mut self, records: &mut [Record]) -> Result<(), OutOfMemory> {
        let block = SharedBytes::new(std::mem::take(&mut self.bytes))?;
        let first = records.len() - self.ends.len();
        let mut start = 0;
        for (record, end) in records[first..].iter_mut().zip(self.ends.drain(..)) {
            record.note = block.slice(start..end);
            start = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_gets_its_own_note() {
        let sizes = [3, 0, BLOCK - 3, 1, BLOCK + 1, 2 * BLOCK, 0, 7, BLOCK, BLOCK - 1, 2];
        let note_of = |number: usize| vec![number as u8; sizes[number]];
        let (mut records, mut notes) = (Vec::new(), Notes::default());
        for number in 0..sizes.len() {
            let (key, note) = ([number as u8; 32], SharedBytes::default());
            records.push(Record { key, bytes: 1, note });
            notes.add(&note_of(number), &mut records).unwrap();
        }
        notes.give(&mut records).unwrap();
        for (number, record) in records.iter().enumerate() {
            assert!(*record.note == *note_of(number), "{number}: {} bytes", record.note.len());
        }
        // Again, of the memory of none before.
        notes.add(&[9], &mut records).unwrap();
        notes.give(&mut records).unwrap();
        assert_eq!(*records[sizes.len() - 1].note, [9]);
        notes.give(&mut records).unwrap();
        assert_eq!(*records[sizes.len() - 1].note, [9]);
    }
}
