//! redb on a [`DiskFile`].
use crate::memory::Arc;
use crate::tier::disk::{DiskFile, read_exactly, write_exactly};
use redb::StorageBackend;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(super) struct Backend {
    pub file: Arc<Box<dyn DiskFile>>,
    /// Nothing more is written: it may be another one's file by now.
    pub is_left: Arc<AtomicBool>,
}

impl Backend {
    fn check(&self) -> io::Result<()> {
        match self.is_left.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        }
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_exactly(&**self.file, out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.file.set_length(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        write_exactly(&**self.file, data, offset)
    }
}
