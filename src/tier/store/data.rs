//! The data file: it grows before it is written to, and shrinks when its end is free.
use crate::memory::{OutOfMemory, try_zeros};
use crate::tier::disk::{ALIGNMENT, Disk, DiskFile, Open, is_no_space};
use crate::tier::records::PIECE;
use crate::tier::space::UNIT;
use parking_lot::Mutex;
use std::io;

pub(super) const NAME: &str = "data";
/// It grows and shrinks by these steps, so that little of it is in pieces.
const STEP: u64 = 64 << 20;

pub(super) struct Data {
    pub file: Box<dyn DiskFile>,
    /// Its length. Never held together with the state, but for taking that.
    length: Mutex<u64>,
    capacity: u64,
}

/// Whether there is a file with something in it.
pub(super) fn exists(disk: &dyn Disk) -> io::Result<bool> {
    Ok(disk.exists(NAME)? && disk.open(NAME, Open::default())?.length()? > 0)
}

impl Data {
    /// Opens it, or makes it.
    pub fn open(disk: &dyn Disk, capacity: u64) -> io::Result<Self> {
        let is_new = !disk.exists(NAME)?;
        let mut file = disk.open(NAME, Open { create: true, direct: true })?;
        if is_new {
            disk.sync_names()?;
        }
        let length = file.length()?;
        // Some file systems refuse only when it is used.
        let mut buffer = Buffer::new().map_err(|_| io::ErrorKind::OutOfMemory)?;
        match file.read_at(buffer.bytes(ALIGNMENT), 0) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                file = disk.open(NAME, Open::default())?;
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        Ok(Self { file, length: Mutex::new(length), capacity })
    }

    pub fn length(&self) -> u64 {
        *self.length.lock()
    }

    /// Makes it long enough.
    pub fn grow(&self, end: u64) -> io::Result<()> {
        let mut length = self.length.lock();
        if end <= *length {
            return Ok(());
        }
        let ample = end.next_multiple_of(STEP).min(self.capacity).max(end);
        let reached = match self.file.allocate(*length, ample - *length) {
            Ok(()) => ample,
            Err(error) if is_no_space(&error) && ample > end => {
                self.file.allocate(*length, end - *length)?;
                end
            }
            Err(error) => return Err(error),
        };
        *length = reached;
        Ok(())
    }

    /// Gives back what lies behind the last unit that is taken, when that is much. `used_units`
    /// says where that is: whoever takes space after it was asked waits in `grow`.
    pub fn shrink(&self, used_units: impl FnOnce() -> u64) -> io::Result<()> {
        let mut length = self.length.lock();
        let wanted = (used_units() * UNIT).next_multiple_of(STEP);
        if wanted < *length {
            self.file.set_length(wanted)?;
            *length = wanted;
        }
        Ok(())
    }

    /// The same, to the byte.
    pub fn cut(&self, units: u64) -> io::Result<()> {
        let mut length = self.length.lock();
        if units * UNIT < *length {
            self.file.set_length(units * UNIT)?;
            *length = units * UNIT;
        }
        Ok(())
    }
}

/// Memory of a worker's requests, where the disk may write by itself.
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub fn new() -> Result<Self, OutOfMemory> {
        let memory = try_zeros::<u8>(PIECE as usize + ALIGNMENT)?;
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Ok(Self { memory, start })
    }

    pub fn bytes(&mut self, count: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + count]
    }
}
