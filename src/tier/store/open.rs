//! Opening: what is there is checked before anything is changed.
use super::commit::Committer;
use super::data::{self, Buffer, Data};
use super::entries::{Entries, Entry, Phase};
use super::epochs::Epochs;
use super::error::{Cause, OpenError};
use super::relocate::relocate;
use super::state::State;
use super::{DiskConfig, DiskStore, Shared, format};
use crate::memory::TryGrow;
use crate::tier::disk::{Disk, Files};
use crate::tier::records::{Changes, Kept, Records};
use crate::tier::space::{Extent, Space, UNIT, in_order};
use crate::tier::{Key, Record, StoreStats};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl DiskStore {
    /// Opens the store in a directory, or makes one there. Records that the bound has no room for
    /// go, least recently used first.
    pub fn open(config: DiskConfig) -> Result<(Self, Vec<Record>), OpenError> {
        let disk = Box::new(Files(config.directory.clone()));
        Self::open_on(disk, config)
    }

    /// The same on a disk of the caller's; the directory that the configuration names is not used.
    pub fn open_on(
        disk: Box<dyn Disk>,
        config: DiskConfig,
    ) -> Result<(Self, Vec<Record>), OpenError> {
        let name = disk.name();
        open(disk, config).map_err(|cause| cause.of(name))
    }
}

fn open(disk: Box<dyn Disk>, config: DiskConfig) -> Result<(DiskStore, Vec<Record>), Cause> {
    disk.prepare()?;
    let lock = disk.lock("lock")?.ok_or(Cause::InUse)?;
    if !format::check(&*disk, &config.fingerprint)? {
        if Records::exist(&*disk)? || data::exists(&*disk)? {
            return Err(Cause::Damaged("the file `format` is missing".to_owned()));
        }
        format::write(&*disk, &config.fingerprint)?;
    }
    let records = Records::open(&*disk)?;
    let mut gone = Vec::new();
    let mut rows = records.load(&mut gone)?;
    let mut damaged = gone.len() as u64;
    let data = Data::open(&*disk, config.bytes / UNIT * UNIT)?;
    damaged += take_out_wrong(&mut rows, &mut gone, data.length() / UNIT)?;
    rows.sort_unstable_by_key(|row| row.used);
    take_out_old(&mut rows, &mut gone, config.bytes)?;
    if !gone.is_empty() {
        records.commit(&Changes { removed: gone, ..Changes::default() })?;
    }
    let space = relocate(&mut rows, &records, &data, config.bytes / UNIT)?;
    let (state, found) = state_of(rows, space, damaged)?;
    data.cut((config.bytes / UNIT).min(state.space.used_end()))?;
    start(disk, lock, config, records, data, state).map(|store| (store, found))
}

/// Rows that name what is not there, or what another one names as well. Returns how many.
fn take_out_wrong(rows: &mut Vec<Kept>, gone: &mut Vec<Key>, units: u64) -> Result<u64, Cause> {
    let mut extents = extents_of(rows)?;
    let mut wrong = in_order(&mut extents, units)?;
    wrong.sort_unstable();
    wrong.dedup();
    for &number in wrong.iter().rev() {
        gone.try_push(rows[number as usize].key)?;
        rows.swap_remove(number as usize);
    }
    Ok(wrong.len() as u64)
}

pub(super) fn extents_of(rows: &[Kept]) -> Result<Vec<(Extent, u32)>, Cause> {
    let count = rows.iter().map(|row| row.place.extents.len()).sum();
    let mut extents = Vec::new();
    extents.try_reserve_exact(count).map_err(|_| Cause::OutOfMemory)?;
    for (number, row) in rows.iter().enumerate() {
        extents.extend(row.place.extents.iter().map(|&extent| (extent, number as u32)));
    }
    Ok(extents)
}

fn cost_of(row: &Kept) -> u64 {
    DiskStore::cost_of(row.place.bytes, row.note.len())
}

/// Rows, in the order of their use, that a smaller bound has no room for.
fn take_out_old(rows: &mut Vec<Kept>, gone: &mut Vec<Key>, bytes: u64) -> Result<(), Cause> {
    let mut cost: u64 = rows.iter().map(cost_of).sum();
    let mut count = 0;
    while cost > bytes {
        gone.try_push(rows[count].key)?;
        cost -= cost_of(&rows[count]);
        count += 1;
    }
    rows.drain(..count);
    Ok(())
}

fn state_of(rows: Vec<Kept>, space: Space, damaged: u64) -> Result<(State, Vec<Record>), Cause> {
    let mut found = Vec::new();
    found.try_reserve_exact(rows.len()).map_err(|_| Cause::OutOfMemory)?;
    let mut state = State {
        entries: Entries::new(rows.len())?,
        space,
        cost: 0,
        reads: VecDeque::new(),
        writes: VecDeque::new(),
        events: Vec::new(),
        promised: 0,
        written: Vec::new(),
        written_bytes: 0,
        uncommitted: 0,
        removals: Vec::new(),
        touched: Vec::new(),
        first_change: None,
        clock: rows.last().map_or(0, |row| row.used),
        tickets: 0,
        epochs: Epochs::new()?,
        flushing: 0,
        is_space_wanted: false,
        failed_syncs: 0,
        is_closing: false,
        is_last: false,
        stats: StoreStats { records: rows.len() as u64, damaged, ..StoreStats::default() },
    };
    for row in rows {
        let cost = cost_of(&row);
        let Kept { key, place, note, used } = row;
        state.entries.try_reserve(&key)?;
        found.push(Record { key, bytes: place.bytes, note });
        let entry = Entry {
            phase: Phase::Committed,
            place,
            note: Box::default(),
            cost,
            used,
            readers: 0,
            is_touched: false,
            epoch: 0,
            failed_syncs: 0,
        };
        state.entries.insert(key, entry);
        state.cost += cost;
    }
    Ok((state, found))
}

fn start(
    disk: Box<dyn Disk>,
    lock: Box<dyn crate::tier::disk::Lock>,
    config: DiskConfig,
    records: Records,
    data: Data,
    state: State,
) -> Result<DiskStore, Cause> {
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        has_reads: Condvar::new(),
        has_writes: Condvar::new(),
        wants_commit: Condvar::new(),
        flushed: Condvar::new(),
        has_events: AtomicBool::new(false),
        data,
        disk,
        lock,
        capacity: config.bytes,
        commit_interval: config.commit_interval,
        commit_bytes: config.commit_bytes,
        waiting_bytes: config.waiting_bytes,
        wake: config.wake,
    });
    // Dropping it ends the threads that were started, whatever comes.
    let mut store = DiskStore { shared, workers: Vec::new(), committer: None };
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    for _ in 0..config.workers.max(1) {
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        store.workers.push(thread("rkv-read").spawn(move || shared.read_pieces(buffer))?);
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        store.workers.push(thread("rkv-write").spawn(move || shared.write_pieces(buffer))?);
    }
    let (shared, committer) =
        (store.shared.clone(), Committer { records: Some(records), failures: 0 });
    let run = move || shared.commit_batches(committer);
    store.committer = Some(thread("rkv-commit").spawn(run)?);
    Ok(store)
}
