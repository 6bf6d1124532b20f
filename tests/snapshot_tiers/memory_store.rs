//! A store whose disk does what a test says, when it says so: nothing happens by itself.
use radixkv::memory::SharedBytes;
use radixkv::tier::{Dropped, Event, FoundRecords, Key, LoadError, LowerStore, Record, Refused};
use radixkv::tier::{Source, StoreStats, Target};
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is written of a record.
struct Written {
    note: Box<[u8]>,
    parts: Vec<Vec<u8>>,
    is_committed: bool,
    used_at: u64,
}

impl Written {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

struct Read {
    ticket: u64,
    key: Key,
    target: Box<dyn Target>,
    /// As they were when the read began.
    parts: Vec<Vec<u8>>,
}

/// Key, note and bytes.
type Write = (Key, Box<[u8]>, Box<dyn Source>);

#[derive(Default)]
struct Disk {
    capacity: u64,
    /// Writes that wait at most.
    queue: usize,
    writing: Vec<Write>,
    /// It is busy whenever it is given this.
    busy_for: Option<Vec<u8>>,
    /// The next refusal for want of room is followed by a commit.
    commits_when_full: bool,
    /// Called once, when it is asked what a record costs.
    on_cost: Option<Box<dyn FnOnce() + Send>>,
    /// Called once, when it is asked whether something has happened.
    on_look: Option<Box<dyn FnOnce() + Send>>,
    /// Is told of flushes, which write nothing then.
    on_flush: Option<Sender<()>>,
    /// Called each time that something is removed.
    on_remove: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Those that were stopped, and whose sources a thread of the store would drop.
    stopped: Vec<Write>,
    records: BTreeMap<Key, Written>,
    /// Removals that are not committed, and what they free.
    removed: Vec<u64>,
    reading: Vec<Read>,
    events: Vec<Event>,
    commits: u64,
    tickets: u64,
    clock: u64,
}

/// Shared by the cache, which has it as its store, and the test, which plays the disk.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Disk>>);

fn cost(bytes: u64) -> u64 {
    bytes.next_multiple_of(16)
}

impl Disk {
    fn used(&self) -> u64 {
        let waiting: u64 = self.writing.iter().map(|(.., source)| cost(bytes_of(&**source))).sum();
        let written: u64 = self.records.values().map(|written| cost(written.bytes())).sum();
        waiting + written + self.removed.iter().sum::<u64>()
    }
}

fn bytes_of(source: &dyn Source) -> u64 {
    (0..source.parts()).map(|at| source.part(at).len() as u64).sum()
}

impl MemoryStore {
    pub fn new(capacity: u64, queue: usize) -> Self {
        Self(Arc::new(Mutex::new(Disk { capacity, queue, ..Disk::default() })))
    }

    fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    /// Commits right after it says, the next time, that it is full.
    #[allow(dead_code, reason = "not all tests fill it")]
    pub fn commit_when_full(&self) {
        self.disk().commits_when_full = true;
    }

    /// Is busy from now on whenever a record that begins with this part is to be written.
    #[allow(dead_code, reason = "not all tests refuse")]
    pub fn be_busy_for(&self, part: Vec<u8>) {
        self.disk().busy_for = Some(part);
    }

    /// Does something when the cache next asks what a record costs.
    #[allow(dead_code, reason = "not all tests meddle")]
    pub fn when_asked(&self, meddle: impl FnOnce() + Send + 'static) {
        self.disk().on_cost = Some(Box::new(meddle));
    }

    /// Does something when the cache next asks whether something has happened.
    #[allow(dead_code, reason = "not all tests meddle")]
    pub fn when_looked_at(&self, meddle: impl FnOnce() + Send + 'static) {
        self.disk().on_look = Some(Box::new(meddle));
    }

    /// Writes nothing from now on when it is flushed, and tells of it.
    #[allow(dead_code, reason = "not all tests wait")]
    pub fn stop_when_flushed(&self, tell: Sender<()>) {
        self.disk().on_flush = Some(tell);
    }

    /// Does something each time that the cache removes a record, under the locks that it has then.
    #[allow(dead_code, reason = "not all tests meddle")]
    pub fn when_removed(&self, meddle: impl Fn() + Send + Sync + 'static) {
        self.disk().on_remove = Some(Arc::new(meddle));
    }

    /// Writes that have not begun, and reads that have not ended.
    #[allow(dead_code, reason = "not all tests look")]
    pub fn open(&self) -> (usize, usize) {
        let disk = self.disk();
        (disk.writing.len(), disk.reading.len())
    }

    /// Ends one write; false when there is none.
    pub fn write(&self, at: usize, failure: Option<Dropped>) -> bool {
        let stopped = std::mem::take(&mut self.disk().stopped);
        drop(stopped);
        let mut disk = self.disk();
        if disk.writing.is_empty() {
            return false;
        }
        let at = at % disk.writing.len();
        let (key, note, source) = disk.writing.swap_remove(at);
        match failure {
            Some(why) => disk.events.push(Event::Dropped { key, why }),
            None => {
                let parts = (0..source.parts()).map(|at| source.part(at).to_vec()).collect();
                disk.clock += 1;
                let used_at = disk.clock;
                disk.records.insert(key, Written { note, parts, is_committed: false, used_at });
            }
        }
        // The last owner may be this one, and what it does is the caller's.
        drop(disk);
        drop(source);
        true
    }

    /// Commits what is written and removed.
    pub fn commit(&self) {
        let mut disk = self.disk();
        let Disk { records, removed, events, commits, .. } = &mut *disk;
        for (key, written) in records.iter_mut().filter(|(_, written)| !written.is_committed) {
            written.is_committed = true;
            events.push(Event::Committed { key: *key });
        }
        removed.clear();
        *commits += 1;
    }

    /// Ends one read; false when there is none. `damage` puts other bytes there.
    pub fn read(&self, at: usize, failure: Option<LoadError>, damage: bool) -> bool {
        let mut disk = self.disk();
        if disk.reading.is_empty() {
            return false;
        }
        let at = at % disk.reading.len();
        let Read { ticket, key, mut target, parts } = disk.reading.swap_remove(at);
        for (at, part) in parts.iter().enumerate() {
            let into = target.part(at);
            into.copy_from_slice(part);
            if damage && !into.is_empty() {
                into[0] ^= 1;
            }
        }
        let result = failure.map_or(Ok(()), Err);
        disk.events.push(Event::Loaded { ticket, key, target, result });
        true
    }

    /// What an opening after a crash finds, least recently used first.
    pub fn records(&self) -> FoundRecords {
        let disk = self.disk();
        let mut found: Vec<_> =
            disk.records.iter().filter(|(_, written)| written.is_committed).collect();
        found.sort_by_key(|(_, written)| written.used_at);
        let record = |(key, written): (&Key, &Written)| Record {
            key: *key,
            bytes: written.bytes(),
            note: SharedBytes::new(written.note.to_vec()).unwrap(),
        };
        found.into_iter().map(record).collect::<Vec<_>>().into()
    }

    /// The same disk, after a crash: what was not committed is not there.
    pub fn restarted(&self) -> Self {
        let old = self.disk();
        let mut records = BTreeMap::new();
        for (key, written) in old.records.iter().filter(|(_, written)| written.is_committed) {
            let (note, parts) = (written.note.clone(), written.parts.clone());
            let used_at = written.used_at;
            records.insert(*key, Written { note, parts, is_committed: true, used_at });
        }
        let Disk { capacity, queue, clock, .. } = *old;
        Self(Arc::new(Mutex::new(Disk { capacity, queue, clock, records, ..Disk::default() })))
    }
}

impl LowerStore for MemoryStore {
    fn put(&self, key: Key, note: Box<[u8]>, source: Box<dyn Source>) -> Result<(), Refused> {
        let mut disk = self.disk();
        let bytes = bytes_of(&*source);
        let refused = if disk.records.contains_key(&key) {
            Some(Refused::Known)
        } else if bytes == 0 || cost(bytes) > disk.capacity {
            Some(Refused::Length)
        } else if disk.used() + cost(bytes) > disk.capacity {
            Some(Refused::Full)
        } else if disk.writing.len() == disk.queue
            || disk.busy_for.as_deref().is_some_and(|part| part == source.part(0))
        {
            Some(Refused::Busy)
        } else {
            None
        };
        match refused {
            Some(Refused::Full) if std::mem::take(&mut disk.commits_when_full) => {
                drop(disk);
                self.commit();
                Err(Refused::Full)
            }
            Some(refused) => Err(refused),
            None => {
                disk.writing.push((key, note, source));
                Ok(())
            }
        }
    }

    fn get(&self, key: Key, target: Box<dyn Target>) -> Result<u64, (Refused, Box<dyn Target>)> {
        let mut disk = self.disk();
        let Some(written) = disk.records.get(&key).filter(|written| written.is_committed) else {
            return Err((Refused::Missing, target));
        };
        let parts = written.parts.clone();
        assert_eq!(target.parts(), parts.len());
        disk.tickets += 1;
        let ticket = disk.tickets;
        disk.reading.push(Read { ticket, key, target, parts });
        Ok(ticket)
    }

    fn remove(&self, key: Key) {
        let meddle = self.disk().on_remove.clone();
        if let Some(meddle) = meddle {
            meddle();
        }
        let mut disk = self.disk();
        let waiting = disk.writing.iter().position(|(known, ..)| *known == key);
        if let Some(at) = waiting {
            let stopped = disk.writing.swap_remove(at);
            disk.stopped.push(stopped);
        }
        if let Some(written) = disk.records.remove(&key) {
            disk.removed.push(cost(written.bytes()));
        }
        let of_it = |event: &Event| matches!(event, Event::Committed { key: of } if *of == key);
        disk.events.retain(|event| !of_it(event));
    }

    fn touch(&self, key: Key) {
        let mut disk = self.disk();
        disk.clock += 1;
        let now = disk.clock;
        if let Some(written) = disk.records.get_mut(&key) {
            written.used_at = now;
        }
    }

    fn cost(&self, bytes: u64, _note: usize) -> u64 {
        let meddle = self.disk().on_cost.take();
        if let Some(meddle) = meddle {
            meddle();
        }
        cost(bytes)
    }

    fn has_events(&self) -> bool {
        let meddle = self.disk().on_look.take();
        if let Some(meddle) = meddle {
            meddle();
        }
        !self.disk().events.is_empty()
    }

    fn poll(&self, events: &mut Vec<Event>) {
        events.append(&mut self.disk().events);
    }

    fn flush(&self, timeout: Duration) -> bool {
        let told = self.disk().on_flush.as_ref().map(|tell| tell.send(()));
        if told.is_some() {
            std::thread::sleep(timeout);
            return false;
        }
        while self.write(0, None) {}
        self.commit();
        true
    }

    fn stats(&self) -> StoreStats {
        let disk = self.disk();
        StoreStats {
            records: disk.records.len() as u64,
            bytes: disk.used(),
            capacity: disk.capacity,
            commits: disk.commits,
            ..StoreStats::default()
        }
    }

    fn identity(&self) -> Option<(u64, u64)> {
        Some((0, Arc::as_ptr(&self.0).addr() as u64))
    }
}
