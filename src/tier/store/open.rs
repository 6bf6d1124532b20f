//! Opening: what is there is checked before anything is changed.
use super::commit::Committer;
use super::data::{self, Buffer, Data};
use super::entries::{Entries, Entry};
use super::epochs::Epochs;
use super::error::{Cause, OpenError};
use super::read::Reading;
use super::relocate::relocate;
use super::sorted::Sorted;
use super::state::State;
use super::write::Writing;
use super::{DiskConfig, DiskStore, Io, Shared, format};
use crate::memory::{OrderedMap, OutOfMemory, Queue, TryGrow};
use crate::ring::Ring;
use crate::tier::disk::{Disk, Files};
use crate::tier::processors::{processors, side_by_side};
use crate::tier::records::{Changes, FoundRow, PIECE, Records};
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
    let mut seen = Seen::of(&rows)?;
    if !seen.is_in_order {
        // What a damaged file says.
        rows.sort_unstable_by_key(|row| row.key);
        rows.dedup_by_key(|row| row.key);
        seen = Seen::of(&rows)?;
    }
    let mut damaged = gone.len() as u64;
    let data = Data::open(&*disk, config.bytes / UNIT * UNIT)?;
    let (wrong, taken) = take_out_wrong(&mut rows, &mut gone, &mut seen, data.length() / UNIT)?;
    damaged += wrong;
    take_out_old(&mut rows, &mut gone, (seen.cost, config.bytes))?;
    drop(seen);
    let removed = gone;
    let gone = removed.len();
    if gone > 0 {
        records.commit(&Changes { removed, ..Changes::default() })?;
    }
    let units = config.bytes / UNIT;
    // Mostly all that is there stays where it is.
    let stays = gone == 0 && taken.last().is_none_or(|extent| extent.end() <= units);
    let space = match stays {
        true => Space::beside(&taken, units)?,
        false => relocate(&mut rows, &records, &data, units)?,
    };
    drop(taken);
    let (state, found) = state_of(rows, space, damaged)?;
    data.cut((config.bytes / UNIT).min(state.space.used_end()))?;
    start(disk, lock, config, records, data, state).map(|store| (store, found))
}

/// What rows come to.
#[derive(Default)]
struct Seen {
    /// With the number of the row.
    extents: Vec<(Extent, u32)>,
    /// What they cost, wrapped around.
    cost: u64,
    /// Keys are, each another one.
    is_in_order: bool,
}

impl Seen {
    fn of(rows: &[FoundRow]) -> Result<Self, Cause> {
        let size = rows.len().div_ceil(processors(rows.len())).max(1);
        let parts = side_by_side(rows.chunks(size).enumerate(), |(part, rows)| {
            let is_in_order = rows.is_sorted_by(|one, other| one.key < other.key);
            let cost = sum_of(rows.iter());
            extents_of(rows, (part * size) as u32).map(|extents| Self {
                extents,
                cost,
                is_in_order,
            })
        })?;
        let mut bounds = rows.chunks(size).zip(rows.chunks(size).skip(1));
        let is_in_order = bounds.all(|(one, other)| one[one.len() - 1].key < other[0].key);
        let mut seen = Self { is_in_order, ..Self::default() };
        for part in parts {
            let Self { mut extents, cost, is_in_order } = part?;
            seen.extents.try_reserve(extents.len()).map_err(|_| Cause::OutOfMemory)?;
            seen.extents.append(&mut extents);
            seen.cost = seen.cost.wrapping_add(cost);
            seen.is_in_order &= is_in_order;
        }
        Ok(seen)
    }
}

/// Rows that name what is not there, or what another one names as well. Returns how many, and the
/// extents of all that there were, in order.
fn take_out_wrong(
    rows: &mut Vec<FoundRow>,
    gone: &mut Vec<Key>,
    seen: &mut Seen,
    units: u64,
) -> Result<(u64, Vec<Extent>), Cause> {
    let mut wrong = in_order(&mut seen.extents, units)?;
    wrong.sort_unstable();
    wrong.dedup();
    let cost = sum_of(wrong.iter().map(|&number| &rows[number as usize]));
    seen.cost = seen.cost.wrapping_sub(cost);
    take_out(rows, gone, &wrong)?;
    let mut taken = Vec::new();
    taken.try_extend(seen.extents.iter().map(|&(extent, _)| extent))?;
    Ok((wrong.len() as u64, taken))
}

/// Extents of rows, of which the first has that number.
pub(super) fn extents_of(rows: &[FoundRow], first: u32) -> Result<Vec<(Extent, u32)>, OutOfMemory> {
    let count = rows.iter().map(|row| row.place.extents.len()).sum();
    let mut extents = Vec::new();
    extents.try_reserve_exact(count)?;
    for (number, row) in (first..).zip(rows) {
        extents.extend(row.place.extents.iter().map(|&extent| (extent, number)));
    }
    Ok(extents)
}

fn cost_of(row: &FoundRow) -> u64 {
    DiskStore::cost_of(row.place.bytes, row.note.len())
}

/// What rows cost. Of wrong ones that may be anything, and is taken off again: without them the sum
/// is right, whatever it wrapped around.
fn sum_of<'a>(rows: impl Iterator<Item = &'a FoundRow>) -> u64 {
    rows.map(cost_of).fold(0, u64::wrapping_add)
}

/// Rows of these numbers, which are in order.
fn take_out(rows: &mut Vec<FoundRow>, gone: &mut Vec<Key>, numbers: &[u32]) -> Result<(), Cause> {
    gone.try_extend(numbers.iter().map(|&number| rows[number as usize].key))?;
    let (mut numbers, mut at) = (numbers.iter().peekable(), 0..);
    rows.retain(|_| {
        let number = at.next();
        numbers.next_if(|&&next| number == Some(next)).is_none()
    });
    Ok(())
}

/// Rows that a smaller bound has no room for, least recently used first.
fn take_out_old(
    rows: &mut Vec<FoundRow>,
    gone: &mut Vec<Key>,
    (mut cost, bytes): (u64, u64),
) -> Result<(), Cause> {
    if cost <= bytes {
        return Ok(());
    }
    let mut numbers = Vec::new();
    for (_, number) in uses_of(rows, 0)? {
        if cost <= bytes {
            break;
        }
        cost -= cost_of(&rows[number as usize]);
        numbers.try_push(number)?;
    }
    numbers.sort_unstable();
    take_out(rows, gone, &numbers)
}

/// When rows were used, in that order, with their numbers from a first one on.
fn uses_of(rows: &[FoundRow], first: u32) -> Result<Vec<(u64, u32)>, OutOfMemory> {
    let mut uses = Vec::new();
    uses.try_reserve_exact(rows.len())?;
    uses.extend((first..).zip(rows).map(|(number, row)| (row.used, number)));
    uses.sort_unstable();
    Ok(uses)
}

/// What is made of rows.
#[derive(Default)]
struct Made {
    cost: u64,
    uses: Vec<(u64, u32)>,
    found: Vec<Record>,
    entries: Sorted,
}

impl Made {
    fn of(rows: Vec<FoundRow>, first: u32) -> Result<Self, OutOfMemory> {
        let mut made = Self { uses: uses_of(&rows, first)?, ..Self::default() };
        made.found.try_reserve_exact(rows.len())?;
        made.entries = Sorted::new(rows.into_iter().map(|row| {
            let cost = cost_of(&row);
            let FoundRow { key, place, note, used } = row;
            made.cost += cost;
            made.found.push(Record { key, bytes: place.bytes, note });
            (key, Entry::found(place, cost, used))
        }))?;
        Ok(made)
    }

    fn append(&mut self, mut other: Self) -> Result<(), OutOfMemory> {
        self.uses.try_reserve(other.uses.len())?;
        self.found.try_reserve(other.found.len())?;
        self.uses.append(&mut other.uses);
        self.found.append(&mut other.found);
        self.cost += other.cost;
        self.entries.append(other.entries)
    }

    /// Records, least recently used first.
    fn by_use(&mut self) -> Result<Vec<Record>, OutOfMemory> {
        let Self { uses, found, .. } = self;
        uses.sort_unstable();
        // Mostly they were written in that order.
        let right = (0..).zip(&*uses).take_while(|(place, (_, number))| place == number).count();
        let mut rest = Vec::new();
        rest.try_reserve_exact(found.len() - right)?;
        rest.extend(uses[right..].iter().map(|&(_, number)| {
            let Record { key, bytes, note } = &mut found[number as usize];
            Record { key: *key, bytes: *bytes, note: std::mem::take(note) }
        }));
        found.truncate(right);
        found.append(&mut rest);
        Ok(std::mem::take(found))
    }
}

/// What is known of rows, which are in the order of their keys, and what the caller is told.
fn state_of(
    mut rows: Vec<FoundRow>,
    space: Space,
    damaged: u64,
) -> Result<(State, Vec<Record>), Cause> {
    let (count, processors) = (rows.len(), processors(rows.len()));
    let mut parts = Vec::new();
    for part in (1..processors).rev() {
        let from = count / processors * part;
        let mut rest = Vec::new();
        rest.try_reserve_exact(rows.len() - from).map_err(OutOfMemory::from)?;
        rest.extend(rows.drain(from..));
        parts.try_push((rest, from as u32))?;
    }
    parts.try_push((rows, 0))?;
    let mut made = Made::default();
    for part in side_by_side(parts.into_iter().rev(), |(rows, first)| Made::of(rows, first))? {
        made.append(part?)?;
    }
    let found = made.by_use()?;
    let clock = made.uses.last().map_or(0, |last| last.0);
    let (cost, entries) = (made.cost, Entries::new(made.entries)?);
    let state = State {
        entries,
        space,
        cost,
        reads: VecDeque::new(),
        writes: OrderedMap::default(),
        reads_listen: false,
        writes_listen: false,
        events: Queue::default(),
        dropped: 0,
        promised: 0,
        written: Queue::default(),
        written_bytes: 0,
        uncommitted: 0,
        removals: Queue::default(),
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
    state: State,
) -> Result<DiskStore, Cause> {
    let [reading, writing] = rings(&config, &data);
    let wakers = [&reading, &writing].map(|ring| ring.as_ref().map(Ring::waker));
    let shared = Arc::new(Shared {
        wakers,
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
        store.workers.push(thread("rkv-read").spawn(run)?);
    }
    if let Some(ring) = writing {
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        let run = move || {
            if !shared.carry::<Writing>(ring, workers) {
                shared.write_pieces(buffer);
            }
        };
        store.workers.push(thread("rkv-write").spawn(run)?);
    }
    for _ in 0..readers {
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        store.workers.push(thread("rkv-read").spawn(move || shared.read_pieces(buffer))?);
    }
    for _ in 0..writers {
        let (shared, buffer) = (store.shared.clone(), Buffer::new()?);
        store.workers.push(thread("rkv-write").spawn(move || shared.write_pieces(buffer))?);
    }
    let (shared, committer) =
        (store.shared.clone(), Committer { records: Some(records), failures: 0 });
    let run = move || shared.commit_batches(committer);
    store.committer = Some(thread("rkv-commit").spawn(run)?);
    Ok(store)
}
