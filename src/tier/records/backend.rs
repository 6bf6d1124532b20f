//! redb on a [`DiskFile`].
use crate::memory::Arc;
use crate::tier::disk::{DiskFile, read_exactly, write_exactly};
use redb::StorageBackend;
use std::io;

#[derive(Debug)]
pub(super) struct Backend(pub Arc<Box<dyn DiskFile>>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_exactly(&**self.0, out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_length(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        write_exactly(&**self.0, data, offset)
    }
}
