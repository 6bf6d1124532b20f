//! A random life of a store, and what may be found afterwards.
use crate::sim::SimDisk;
use crate::support::*;
use radixkv::tier::{DiskConfig, DiskStore, Dropped, FoundRecords, LowerStore, OpenError, Refused};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const BYTES: u64 = 200 << 10;

/// What became of a record, as the caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Put,
    Committed,
    Dropped,
    /// Removed; whether it was committed then.
    Removed {
        was_committed: bool,
    },
    /// Removed, and flushed since.
    Gone,
}

/// What the caller knows.
#[derive(Default)]
pub struct Story {
    pub fates: BTreeMap<u64, Fate>,
    reads: BTreeSet<u64>,
    pub dropped: u64,
    /// Records that were removed when something had been dropped since the last poll: if it was
    /// them, nobody is told.
    pub withdrawn: u64,
    pub refused: u64,
    pub unread: u64,
}

/// Records that a store counted as dropped.
pub fn dropped_by(store: &DiskStore) -> u64 {
    let stats = store.stats();
    stats.failed_writes + stats.no_space + stats.damaged
}

pub fn open(disk: &SimDisk) -> Result<(DiskStore, FoundRecords), OpenError> {
    let mut config = DiskConfig::new("", BYTES, FINGERPRINT);
    config.workers = 2;
    config.commit_interval = Duration::from_micros(300);
    DiskStore::open_on(Box::new(disk.clone()), config)
}

pub fn bytes_of(number: u64) -> usize {
    1 + (number as usize * 7919) % 20_000
}

pub fn number_of(key: &[u8; 32]) -> u64 {
    u64::from_le_bytes(key[..8].try_into().unwrap())
}

impl Story {
    /// So many random calls; the numbers of new records begin after those of earlier ones.
    pub fn go_on(&mut self, store: &DiskStore, steps: usize, random: &mut fastrand::Rng) {
        for _ in 0..steps {
            let next = self.fates.last_key_value().map_or(0, |(number, _)| number + 1);
            let any = random.u64(..next.max(1));
            match random.u32(..12) {
                0..5 => match put(store, next, bytes_of(next)) {
                    Ok(()) => {
                        self.fates.insert(next, Fate::Put);
                    }
                    Err(Refused::Full) => self.remove(store, any),
                    Err(Refused::Closed) => self.refused += 1,
                    Err(why) => panic!("{why:?}"),
                },
                5..7 => {
                    if let Ok(ticket) = get(store, any, bytes_of(any)) {
                        assert!(self.fates.contains_key(&any), "{any} was never put");
                        self.reads.insert(ticket);
                    }
                }
                7 => store.touch(key(any)),
                8..10 => self.remove(store, any),
                10 => self.flush(store),
                _ => std::thread::sleep(Duration::from_micros(random.u64(..500))),
            }
            self.poll(store);
        }
    }

    fn remove(&mut self, store: &DiskStore, number: u64) {
        let before = dropped_by(store);
        self.poll(store);
        store.remove(key(number));
        self.withdrawn += u64::from(dropped_by(store) > before);
        if let Some(fate) = self.fates.get_mut(&number) {
            match *fate {
                Fate::Put => *fate = Fate::Removed { was_committed: false },
                Fate::Committed => *fate = Fate::Removed { was_committed: true },
                _ => {}
            }
        }
    }

    pub fn flush(&mut self, store: &DiskStore) {
        assert!(store.flush(LONG), "flush ends, whatever the disk does");
        // Of a store that has given up nothing is removed.
        if !store.stats().is_read_only && store.stats().failed_commits == 0 {
            for fate in self.fates.values_mut() {
                if matches!(fate, Fate::Removed { .. }) {
                    *fate = Fate::Gone;
                }
            }
        }
        self.poll(store);
        if !store.stats().is_read_only {
            let open = self.fates.iter().find(|(_, fate)| **fate == Fate::Put);
            assert_eq!(open, None, "a flush leaves nothing open");
        }
    }

    pub fn poll(&mut self, store: &DiskStore) {
        for seen in poll(store) {
            match seen {
                Seen::Committed(key) => {
                    let was = self.fates.insert(number_of(&key), Fate::Committed);
                    assert_eq!(was, Some(Fate::Put), "an event for what was removed");
                }
                Seen::Dropped(key, why) => {
                    let was = self.fates.insert(number_of(&key), Fate::Dropped);
                    let was_due = match why {
                        Dropped::Damaged => was == Some(Fate::Committed),
                        _ => was == Some(Fate::Put),
                    };
                    assert!(was_due, "{was:?} became {why:?}");
                    self.dropped += 1;
                }
                Seen::Loaded(ticket, key, result) => {
                    assert!(self.reads.remove(&ticket), "a read ends twice");
                    let number = number_of(&key);
                    match result {
                        Ok(bytes) => assert!(bytes == content(number, bytes_of(number))),
                        Err(_) => self.unread += 1,
                    }
                }
            }
        }
    }

    /// Waits for all reads, and for what a store that has given up was writing: a flush of it ends
    /// before.
    pub fn end(&mut self, store: &DiskStore) {
        let start = std::time::Instant::now();
        while !self.reads.is_empty() || store.stats().waiting_bytes > 0 {
            assert!(start.elapsed() < LONG, "what never ends: reads {:?}", self.reads);
            std::thread::sleep(Duration::from_micros(100));
            self.poll(store);
        }
        self.poll(store);
    }

    /// What a store that was opened again must have, and may have, with its bytes. Reading it may
    /// not fail. Afterwards, that is what the story knows.
    pub fn check(&mut self, store: &DiskStore, found: &FoundRecords) {
        let mut there = BTreeSet::new();
        for record in found {
            let number = number_of(&record.key);
            let fate = self.fates.get(&number);
            assert!(!matches!(fate, None | Some(Fate::Gone)), "{number} is there: {fate:?}");
            assert_eq!(record.bytes, bytes_of(number) as u64);
            assert_eq!(*record.note, *note(number));
            let bytes = load(store, number, bytes_of(number));
            assert!(bytes == Ok(content(number, bytes_of(number))), "{number}: {:?}", bytes.err());
            assert!(there.insert(number), "{number} is there twice");
        }
        for (number, fate) in &mut self.fates {
            if there.contains(number) {
                *fate = Fate::Committed;
                continue;
            }
            assert_ne!(*fate, Fate::Committed, "{number} is lost");
            *fate = Fate::Gone;
        }
        self.reads.clear();
    }
}
