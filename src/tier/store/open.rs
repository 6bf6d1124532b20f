//! Opening: what is there is checked before anything is changed.
use super::commit::Committer;
use super::data::{self, Buffer, Data};
use super::entries::Entries;
use super::epochs::Epochs;
use super::error::{Cause, OpenError};
use super::news::{News, Telling};
use super::read::Reading;
use super::relocate::relocate;
use super::rows::{Part, Rows};
use super::state::State;
use super::write::Writing;
use super::{DiskConfig, DiskStore, Io, Shared, format};
use crate::memory::{OrderedMap, Queue, try_std_arc};
use crate::ring::Ring;
use crate::tier::disk::{Disk, Files};
use crate::tier::records::{self, Changes, PIECE, Records};
use crate::tier::space::{Space, UNIT};
use crate::tier::{FoundRecords, StoreStats};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

const LOCK: &str = "lock";

impl DiskStore {
    /// Opens the store in a directory, or makes one there. Records that the bound has no room for
    /// go, least recently used first; of pages, ends of prefixes before beginnings.
    pub fn open(config: DiskConfig) -> Result<(Self, FoundRecords), OpenError> {
        // It stays the same one when the process goes elsewhere.
        let absolute = std::path::absolute(&config.directory);
        let disk = Box::new(Files(absolute.unwrap_or_else(|_| config.directory.clone())));
        Self::open_on(disk, config)
    }

    /// The same on a disk of the caller's; the directory that the configuration names is not used.
    pub fn open_on(
        disk: Box<dyn Disk>,
        config: DiskConfig,
    ) -> Result<(Self, FoundRecords), OpenError> {
        let name = disk.name();
        open(disk, config).map_err(|cause| cause.of(name))
    }
}

fn open(disk: Box<dyn Disk>, config: DiskConfig) -> Result<(DiskStore, FoundRecords), Cause> {
    disk.prepare()?;
    check_owner(&*disk)?;
    let lock = disk.lock(LOCK)?.ok_or(Cause::InUse)?;
    let whose = (config.contents, &config.fingerprint);
    if !format::check(&*disk, whose)? {
        if Records::exist(&*disk)? || data::exists(&*disk)? {
            return Err(Cause::Damaged("the file `format` is missing".to_owned()));
        }
        format::write(&*disk, whose)?;
    }
    let records = Records::open(&*disk)?;
    let mut gone = Vec::new();
    let mut rows = Rows::new(records.load(&mut gone, Part::add)?)?;
    if let Some(sizes) = config.page_sizes {
        rows.iter().try_for_each(|(_, record)| sizes.check(record)).map_err(Cause::Pages)?;
    }
    let mut damaged = gone.len() as u64;
    let data = Data::open(&*disk, config.bytes / UNIT * UNIT)?;
    damaged += rows.take_out_wrong(data.length() / UNIT, &mut gone)?;
    let others = gone.len();
    rows.take_out_old(config.bytes, config.contents, &mut gone)?;
    let trimmed = (gone.len() - others) as u64;
    let removed = gone;
    if !removed.is_empty() {
        records.commit(&Changes { removed, ..Changes::default() })?;
    }
    let units = config.bytes / UNIT;
    // Mostly all that is there stays where it is.
    let stays = rows.extents().next_back().is_none_or(|last| last.end() <= units);
    let space = match stays {
        true => Space::beside(rows.extents(), units)?,
        false => relocate(&mut rows, &records, &data, units)?,
    };
    let (mut state, found) = state_of(rows, space, damaged)?;
    state.stats.trimmed = trimmed;
    // Who made these files may have been killed before this.
    disk.sync_names()?;
    data.cut((config.bytes / UNIT).min(state.space.used_end()))?;
    start(disk, lock, config, records, data, state).map(|store| (store, found))
}

/// Refuses a directory in which somebody else's files have the names of a store's, before there are
/// any of ours: who is told that a store is damaged empties it. Other files may be there.
fn check_owner(disk: &dyn Disk) -> Result<(), Cause> {
    let file = match format::is_ours(disk)? {
        Some(true) => return Ok(()),
        Some(false) => format::NAME,
        None if Records::exist(disk)? => records::NAME,
        None if data::exists(disk)? => data::NAME,
        None => return Ok(()),
    };
    // A store makes it before all others, so it is looked for last.
    if disk.exists(LOCK)? { Ok(()) } else { Err(Cause::Foreign(file)) }
}

/// What is known of rows, and what the caller is told.
fn state_of(mut rows: Rows, space: Space, damaged: u64) -> Result<(State, FoundRecords), Cause> {
    let (found, clock) = rows.records_by_use()?;
    let (cost, count) = (rows.cost, found.len());
    let entries = Entries::new(rows.entries)?;
    let state = State {
        entries,
        space,
        cost,
        reads: VecDeque::new(),
        writes: OrderedMap::default(),
        stopped: Queue::default(),
        reads_listen: false,
        writes_listen: false,
        news: News::default(),
        events: Queue::default(),
        dropped: 0,
        promised: 0,
        written: Queue::default(),
        written_bytes: 0,
        uncommitted: 0,
        removals: Queue::default(),
        unlisted: 0,
        late: 0,
        touched: Queue::default(),
        first_change: None,
        clock,
        tickets: 0,
        epochs: Epochs::new()?,
        flushing: 0,
        is_urgent: false,
        failed_syncs: 0,
        is_closing: false,
        is_last: false,
        stats: StoreStats { records: count as u64, damaged, ..StoreStats::default() },
    };
    Ok((state, found))
}

/// One to read with and one to write with, where they are wanted and the system lets us.
fn rings(config: &DiskConfig, data: &Data) -> [Option<Ring>; 2] {
    let [reads, writes] = match config.io {
        Io::Auto => [false, true],
        Io::Ring => [true; 2],
        Io::Threads => [false; 2],
    };
    [reads, writes].map(|wanted| {
        let file = data.file.descriptor().filter(|_| wanted)?;
        Ring::new(file, config.workers.max(1), PIECE as usize).ok()
    })
}

fn start(
    disk: Box<dyn Disk>,
    lock: Box<dyn crate::tier::disk::Lock>,
    config: DiskConfig,
    records: Records,
    data: Data,
    mut state: State,
) -> Result<DiskStore, Cause> {
    let [reading, writing] = rings(&config, &data);
    state.stats.is_ring = writing.is_some();
    let wakers = [&reading, &writing].map(|ring| ring.as_ref().map(Ring::waker));
    let shared = try_std_arc(Shared {
        wakers,
        state: Mutex::new(state),
        has_reads: Condvar::new(),
        has_writes: Condvar::new(),
        wants_commit: Condvar::new(),
        flushed: Condvar::new(),
        has_events: AtomicBool::new(false),
        telling: Telling::default(),
        data,
        disk,
        lock,
        capacity: config.bytes,
        commit_interval: config.commit_interval,
        commit_bytes: config.commit_bytes,
        waiting_bytes: config.waiting_bytes,
        wake: config.wake,
    })
    // The lock is gone with it, and the file may be another one's.
    .inspect_err(|_| records.leave())?;
    // Dropping it ends the threads that were started, whatever comes.
    let mut store = DiskStore { shared, workers: Vec::new(), committer: None };
    // It goes before that, which has the lock: the file of records is written to when it goes.
    let committer = Committer { records: Some(records), failures: 0 };
    // One that the system refuses is memory.
    fn thread(
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<std::thread::JoinHandle<()>, Cause> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder.spawn(run).map_err(|_| Cause::OutOfMemory)
    }
    let workers = config.workers.max(1);
    let [readers, writers] =
        [&reading, &writing].map(|ring| if ring.is_some() { 0 } else { workers });
    // When the system refuses a ring later, its thread goes on without.
    if let Some(ring) = reading {
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        let run = move || {
            if !shared.carry::<Reading>(ring, workers) {
                shared.read_pieces(buffer);
            }
        };
        store.workers.push(thread("rkv-read", run)?);
    }
    if let Some(ring) = writing {
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        let run = move || {
            if !shared.carry::<Writing>(ring, workers) {
                shared.state.lock().stats.is_ring = false;
                shared.write_pieces(buffer);
            }
        };
        store.workers.push(thread("rkv-write", run)?);
    }
    for _ in 0..readers {
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        store.workers.push(thread("rkv-read", move || shared.read_pieces(buffer))?);
    }
    for _ in 0..writers {
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        store.workers.push(thread("rkv-write", move || shared.write_pieces(buffer))?);
    }
    let shared = store.shared.clone();
    let run = move || shared.commit_batches(committer);
    store.committer = Some(thread("rkv-commit", run)?);
    Ok(store)
}
