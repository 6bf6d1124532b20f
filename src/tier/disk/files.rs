//! A directory of the file system.
use super::{Disk, DiskFile, Lock, Open};
use crate::store::Identity;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes that are asked for at once ahead: of more the system takes the first part alone.
const STEP: NonZero<u64> = NonZero::new(2 << 20).unwrap();

/// How often, and with what pauses, a lock is asked for that another one has.
const FORK_LOOKS: u32 = 20;
const FORK_PAUSE: Duration = Duration::from_millis(5);

/// How often space is asked for again when a signal came: file systems in memory begin anew.
const INTERRUPTED: usize = 8;

pub(crate) struct Files(pub PathBuf);

/// To read and write a file that nobody else reads: prompts are in it. A link is not followed: who
/// can write to the directory would choose what is overwritten.
fn options(create: bool, flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW | flags);
    options
}

/// That it exists already is not what is wrong with a file in the place of a directory.
fn no_directory(error: io::Error) -> io::Error {
    let is_file = error.kind() == io::ErrorKind::AlreadyExists;
    if is_file { io::ErrorKind::NotADirectory.into() } else { error }
}

impl Disk for Files {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn prepare(&self) -> io::Result<()> {
        self.0.parent().map_or(Ok(()), fs::create_dir_all).map_err(no_directory)?;
        // Its owner's alone, as are the files; what is there already stays as it was made.
        match fs::DirBuilder::new().mode(0o700).create(&self.0) {
            Err(_) if self.0.is_dir() => Ok(()),
            made => made.map_err(no_directory),
        }
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let path = self.0.join(name);
        let options = options(true, 0);
        // A child that another thread has just forked holds what its parent had locked, until it
        // executes its program.
        for _ in 0..FORK_LOOKS {
            let file = options.open(&path)?;
            match file.try_lock() {
                Ok(()) => {
                    let locked = Locked { file, path: path.clone() };
                    // Of a file that was removed meanwhile the lock says nothing.
                    if locked.is_there() {
                        return Ok(Some(Box::new(locked)));
                    }
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(FORK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let path = self.0.join(name);
        if how.direct
            && let Some(file) = open_direct(&path, how)?
        {
            return Ok(Box::new(file));
        }
        Ok(Box::new(options(how.create, 0).open(path)?))
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        self.0.join(name).try_exists()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

/// `None` where the file system has no such thing.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_direct(path: &Path, how: Open) -> io::Result<Option<File>> {
    match options(how.create, libc::O_DIRECT).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open_direct(_path: &Path, _how: Open) -> io::Result<Option<File>> {
    Ok(None)
}

struct Locked {
    /// Its lock goes with it.
    file: File,
    path: PathBuf,
}

impl Lock for Locked {
    fn is_there(&self) -> bool {
        let now = fs::metadata(&self.path).map(|data| (data.dev(), data.ino()));
        now.is_ok_and(|now| self.identity() == Some(now))
    }

    fn identity(&self) -> Option<Identity> {
        self.file.metadata().map(|data| (data.dev(), data.ino())).ok()
    }
}

impl Drop for Locked {
    /// A child that was forked has the same open file, and would keep the lock with it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, at)
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize> {
        FileExt::write_at(self, from, at)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn allocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        allocate(self, from, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn read_ahead(&self) {
        read_ahead(self);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// What is refused was only a hint.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn read_ahead(file: &File) {
    use rustix::fs::{Advice, fadvise};
    let bytes = file.metadata().map_or(0, |data| data.len());
    for at in (0..bytes).step_by(STEP.get() as usize) {
        if fadvise(file, at, Some(STEP), Advice::WillNeed).is_err() {
            return;
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn read_ahead(_file: &File) {}

/// File systems that cannot reserve grow the file: a full disk is then seen when it is written.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn allocate(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    let mut done = fallocate(file, FallocateFlags::empty(), from, bytes);
    for _ in 0..INTERRUPTED {
        if done == Err(rustix::io::Errno::INTR) {
            done = fallocate(file, FallocateFlags::empty(), from, bytes);
        }
    }
    match done {
        Ok(()) => Ok(()),
        // Signals that come more often than it takes.
        Err(rustix::io::Errno::INTR) => file.set_len(from + bytes),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(from + bytes),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn allocate(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    file.set_len(from + bytes)
}
