//! A directory in memory that fails, stops and loses power when it is told to.
#![allow(dead_code)] // each test that includes this uses its own part of it
mod contents;

use contents::Contents;
use radixkv::tier::disk::{Disk, DiskFile, Lock, Open};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// What a call does instead of what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// EIO.
    Io,
    /// ENOSPC.
    NoSpace,
    /// The same, but only of what writes to the data file.
    DataFull,
    /// Reads or writes a part, and says so.
    Short,
    /// Writes a part, and says EIO.
    Torn,
    /// Takes its time.
    Slow,
    /// The same, but only what changes the disk, and that a second.
    SlowWrites,
    /// EROFS.
    ReadOnly,
    /// EFAULT of what reads: the disk does not write to such memory.
    NoPlace,
}

/// Which calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Once(u64),
    From(u64),
}

impl When {
    fn includes(self, call: u64) -> bool {
        match self {
            Self::Once(at) => at == call,
            Self::From(at) => at <= call,
        }
    }
}

/// Kinds of calls that can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Nothing,
    Writes,
    Everything,
}

struct World {
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    /// Names as they were at the last sync, and since then, one after the other.
    names_after: Vec<BTreeMap<String, usize>>,
    is_locked: bool,
    is_gone: bool,
    /// Writes of those who don't have the lock.
    without_lock: usize,
    calls: u64,
    /// Where what was read went, and how many bytes.
    reads: Vec<(usize, usize)>,
    fault: Option<(When, Fault)>,
    /// The power goes with that call.
    crash: Option<u64>,
    stop: Stop,
    /// Called by who syncs the data file next, which fails.
    on_data_sync: Option<Box<dyn FnOnce() + Send>>,
    /// What a ring writes to in place of the data file.
    ring: Option<Arc<File>>,
}

/// The disk; clones are the same one.
#[derive(Clone)]
pub struct SimDisk(Arc<(Mutex<World>, Condvar)>);

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

const EIO: i32 = 5;
const EFAULT: i32 = 14;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

impl SimDisk {
    pub fn new() -> Self {
        Self::with(Vec::new(), BTreeMap::new())
    }

    fn with(files: Vec<Contents>, names: BTreeMap<String, usize>) -> Self {
        let world = World {
            files,
            names_after: vec![names.clone()],
            names,
            is_locked: false,
            is_gone: false,
            without_lock: 0,
            calls: 0,
            reads: Vec::new(),
            fault: None,
            crash: None,
            stop: Stop::Nothing,
            on_data_sync: None,
            ring: None,
        };
        Self(Arc::new((Mutex::new(world), Condvar::new())))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.0.lock().unwrap()
    }

    /// From now on, counting from the next call as 0.
    pub fn fail(&self, fault: Option<(When, Fault)>) {
        let mut world = self.world();
        world.calls = 0;
        world.fault = fault;
    }

    /// The next sync of the data file calls this, and fails.
    pub fn fail_data_sync(&self, last: impl FnOnce() + Send + 'static) {
        self.world().on_data_sync = Some(Box::new(last));
    }

    /// Stores that are opened from now on write by a ring, to this file.
    pub fn write_to(&self, file: File) {
        self.world().ring = Some(Arc::new(file));
    }

    /// Where went what was read since the last call, and how many bytes.
    pub fn take_reads(&self) -> Vec<(usize, usize)> {
        std::mem::take(&mut self.world().reads)
    }

    pub fn writes_without_lock(&self) -> usize {
        self.world().without_lock
    }

    pub fn crash_at(&self, call: u64) {
        let mut world = self.world();
        world.calls = 0;
        world.crash = Some(call);
    }

    pub fn has_crashed(&self) -> bool {
        let world = self.world();
        world.crash.is_some_and(|at| world.calls > at)
    }

    pub fn stop(&self, stop: Stop) {
        self.world().stop = stop;
        self.0.1.notify_all();
    }

    /// The directory is removed; open files stay.
    pub fn vanish(&self) {
        let mut world = self.world();
        world.names.clear();
        world.is_gone = true;
    }

    /// Changes a byte in each sector of a file.
    pub fn scramble(&self, name: &str) {
        let mut world = self.world();
        let file = world.names[name];
        world.files[file].scramble();
    }

    /// What is there when the power is back: what was synced, and any of the rest.
    pub fn after_crash(&self, random: &mut fastrand::Rng) -> Self {
        let world = self.world();
        let names = world.names_after[random.usize(..world.names_after.len())].clone();
        Self::with(world.files.iter().map(|file| file.after_crash(random)).collect(), names)
    }

    /// Counts a call, waits while it is stopped, and says what it shall do.
    fn call(&self, writes: bool) -> Result<(MutexGuard<'_, World>, Option<Fault>), io::Error> {
        let mut world = self.world();
        while world.stop == Stop::Everything || (writes && world.stop == Stop::Writes) {
            world = self.0.1.wait(world).unwrap();
        }
        let number = world.calls;
        world.calls += 1;
        if world.crash.is_some_and(|at| number > at) {
            return Err(error(EIO));
        }
        // The last call may or may not have got through: it is part of what was not synced.
        let fault = world.fault.filter(|(when, _)| when.includes(number)).map(|(_, fault)| fault);
        match fault {
            Some(Fault::Io) => Err(error(EIO)),
            Some(Fault::NoSpace) if writes => Err(error(ENOSPC)),
            Some(Fault::ReadOnly) if writes => Err(error(EROFS)),
            Some(Fault::Slow | Fault::SlowWrites) if writes || fault == Some(Fault::Slow) => {
                drop(world);
                let time = if fault == Some(Fault::Slow) { 3 } else { 1000 };
                std::thread::sleep(Duration::from_millis(time));
                Ok((self.world(), None))
            }
            fault => Ok((world, fault)),
        }
    }

    fn renamed(&self, change: impl FnOnce(&mut World)) -> io::Result<()> {
        let (mut world, fault) = self.call(true)?;
        change(&mut world);
        let names = world.names.clone();
        world.names_after.push(names);
        if fault == Some(Fault::Torn) { Err(error(EIO)) } else { Ok(()) }
    }
}

impl Disk for SimDisk {
    fn name(&self) -> String {
        "/simulated".to_owned()
    }

    fn prepare(&self) -> io::Result<()> {
        self.call(true).map(|_| ())
    }

    fn lock(&self, _name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let (mut world, _) = self.call(true)?;
        let was_locked = std::mem::replace(&mut world.is_locked, true);
        Ok((!was_locked).then(|| Box::new(SimLock(self.clone())) as Box<dyn Lock>))
    }

    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let (mut world, fault) = self.call(how.create)?;
        if fault == Some(Fault::ReadOnly) {
            return Err(error(EROFS));
        }
        let file = match world.names.get(name) {
            Some(&file) => file,
            None if how.create => {
                let file = world.files.len();
                world.files.push(Contents::default());
                world.names.insert(name.to_owned(), file);
                let names = world.names.clone();
                world.names_after.push(names);
                file
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let ring = world.ring.clone().filter(|_| how.direct);
        let is_data = name == "data";
        Ok(Box::new(SimFile { disk: self.clone(), file, is_data, ring }))
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        Ok(self.call(false)?.0.names.contains_key(name))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.renamed(|world| {
            world.names.remove(name);
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.renamed(|world| {
            let file = world.names.remove(from).unwrap();
            world.names.insert(to.to_owned(), file);
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        let (mut world, _) = self.call(true)?;
        world.names_after = vec![world.names.clone()];
        Ok(())
    }
}

struct SimLock(SimDisk);

impl Lock for SimLock {
    fn is_there(&self) -> bool {
        !self.0.world().is_gone
    }

    fn identity(&self) -> Option<(u64, u64)> {
        Some((1, Arc::as_ptr(&self.0.0).addr() as u64))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.world().is_locked = false;
    }
}

struct SimFile {
    disk: SimDisk,
    file: usize,
    is_data: bool,
    ring: Option<Arc<File>>,
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file {}", self.file)
    }
}

impl SimFile {
    fn call_to_write(&self) -> Result<(MutexGuard<'_, World>, Option<Fault>), io::Error> {
        let (mut world, fault) = self.disk.call(true)?;
        world.without_lock += usize::from(!world.is_locked);
        Ok((world, fault))
    }
}

impl DiskFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.call(false)?.0.files[self.file].now.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let (mut world, fault) = self.disk.call(false)?;
        match fault {
            Some(Fault::Torn) => return Err(error(EIO)),
            Some(Fault::NoPlace) => return Err(error(EFAULT)),
            _ => world.reads.push((into.as_ptr().addr(), into.len())),
        }
        let now = &world.files[self.file].now;
        let from = &now[now.len().min(at as usize)..];
        let count = from.len().min(into.len());
        let count = if fault == Some(Fault::Short) { count.div_ceil(2) } else { count };
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize> {
        let (mut world, fault) = self.call_to_write()?;
        let count = match fault {
            Some(Fault::DataFull) if self.is_data => return Err(error(ENOSPC)),
            Some(Fault::Short | Fault::Torn) => from.len().div_ceil(2),
            _ => from.len(),
        };
        world.files[self.file].write(&from[..count], at as usize);
        if fault == Some(Fault::Torn) { Err(error(EIO)) } else { Ok(count) }
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        let (mut world, fault) = self.call_to_write()?;
        world.files[self.file].set_length(bytes as usize);
        if fault == Some(Fault::Torn) { Err(error(EIO)) } else { Ok(()) }
    }

    fn allocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        self.set_length(from + bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let (mut world, fault) = self.disk.call(true)?;
        let is_crash = world.crash.is_some_and(|at| at + 1 == world.calls);
        if fault == Some(Fault::Torn) || is_crash {
            return Err(error(EIO));
        }
        if let Some(last) = world.on_data_sync.take_if(|_| self.is_data) {
            drop(world);
            last();
            return Err(error(EIO));
        }
        world.files[self.file].sync();
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(|file| file.as_fd())
    }
}
