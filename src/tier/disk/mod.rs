//! The directory of a store: every call to the file system goes through here, so that tests can
//! make each one fail, stop it, or take back what was not synced.
mod files;

pub(crate) use files::Files;

use crate::store::Identity;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

/// What the requests of a direct file are multiples of: place, length, and address in memory.
pub(crate) const ALIGNMENT: usize = 4096;

/// One directory.
pub trait Disk: Send + Sync {
    /// Where it is, for messages.
    fn name(&self) -> String;

    /// Makes the directory if it isn't there.
    fn prepare(&self) -> io::Result<()>;

    /// Locks a file against all others, in this process too; `None` if another has it. It is
    /// released when what is returned is dropped.
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn DiskFile>>;

    /// Whether there is such a file.
    fn exists(&self, name: &str) -> io::Result<bool>;

    /// Removes a file, if it is there.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, in place of what had that.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// The names of files made, removed and renamed before are there after a crash.
    fn sync_names(&self) -> io::Result<()>;
}

/// Held by the one who owns a directory.
pub trait Lock: Send + Sync {
    /// Whether the directory still has the file that is locked.
    fn is_there(&self) -> bool;

    /// What the file is told from all others by, where there is such a thing.
    fn identity(&self) -> Option<Identity> {
        None
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// Makes it if it isn't there.
    pub create: bool,
    /// Past the system's cache, where the file system can.
    pub direct: bool,
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads; returns how many bytes, which may be fewer than asked for.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes; returns how many bytes, which may be fewer than asked for.
    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize>;

    /// Makes it longer, by zeros, or shorter.
    fn set_length(&self, bytes: u64) -> io::Result<()>;

    /// Makes it that long, and reserves the space of what is beyond its end so far.
    fn allocate(&self, from: u64, bytes: u64) -> io::Result<()>;

    /// What was written before, and the length, is there after a crash.
    fn sync(&self) -> io::Result<()>;

    /// All of it will be read soon. Waits until the disk was asked for it, or does nothing.
    fn read_ahead(&self) {}

    /// By what the system names it; `None` if all its calls are to go through here.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Reads all of it.
pub(crate) fn read_exactly(file: &dyn DiskFile, into: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], at + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of it.
pub(crate) fn write_exactly(file: &dyn DiskFile, from: &[u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < from.len() {
        match file.write_at(&from[done..], at + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The disk has no room, or its user may not have more.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
