//! Records made of seeds, and waiting for events.
pub use crate::folder::Folder;
use radixkv::tier::{
    DiskConfig, DiskStore, Dropped, Event, Key, LoadError, LowerStore, Refused, Source, Target,
};
use std::any::Any;
use std::time::{Duration, Instant};

/// What nothing may take.
pub const LONG: Duration = Duration::from_secs(60);
pub const FINGERPRINT: [u8; 32] = [0xf1; 32];
pub const MIB: u64 = 1 << 20;

impl Folder {
    pub fn config(&self, bytes: u64) -> DiskConfig {
        let mut config = DiskConfig::new(self.path(), bytes, FINGERPRINT);
        config.workers = 3;
        config.commit_interval = Duration::from_millis(10);
        config
    }

    pub fn open(&self, bytes: u64) -> DiskStore {
        DiskStore::open(self.config(bytes)).unwrap().0
    }
}

pub fn key(number: u64) -> Key {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

/// The bytes of a record: no two have the same ones.
pub fn content(number: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number);
    let mut made = vec![0; bytes];
    random.fill(&mut made);
    made
}

/// Bytes in parts of some lengths.
pub struct Parts(pub Vec<Vec<u8>>);

impl Parts {
    /// Cuts by chance; some parts may be empty.
    pub fn of(bytes: &[u8], random: &mut fastrand::Rng) -> Self {
        let mut cuts: Vec<usize> =
            (0..random.usize(..5)).map(|_| random.usize(..=bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        Self(cuts.windows(2).map(|cut| bytes[cut[0]..cut[1]].to_vec()).collect())
    }

    /// The same cuts, without the bytes.
    pub fn empty(bytes: usize, random: &mut fastrand::Rng) -> Self {
        Self::of(&vec![0xee; bytes], random)
    }
}

impl Source for Parts {
    fn parts(&self) -> usize {
        self.0.len()
    }

    fn part(&self, index: usize) -> &[u8] {
        &self.0[index]
    }
}

impl Target for Parts {
    fn parts(&self) -> usize {
        self.0.len()
    }

    fn part(&mut self, index: usize) -> &mut [u8] {
        &mut self.0[index]
    }

    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8])) {
        self.0.iter_mut().for_each(|part| to(part));
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

pub fn put(store: &dyn LowerStore, number: u64, bytes: usize) -> Result<(), Refused> {
    let mut random = fastrand::Rng::with_seed(number + 1);
    let parts = Parts::of(&content(number, bytes), &mut random);
    store.put(key(number), note(number), Box::new(parts))
}

pub fn note(number: u64) -> Box<[u8]> {
    content(number, number as usize % 50).into()
}

/// What was polled, in words that can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Committed(Key),
    Dropped(Key, Dropped),
    Loaded(u64, Key, Result<Vec<u8>, LoadError>),
}

pub fn poll(store: &dyn LowerStore) -> Vec<Seen> {
    let mut events = Vec::new();
    while store.has_events() {
        store.poll(&mut events);
    }
    let seen = |event| match event {
        Event::Committed { key } => Seen::Committed(key),
        Event::Dropped { key, why } => Seen::Dropped(key, why),
        Event::Loaded { ticket, key, target, result } => {
            let parts = target.into_any().downcast::<Parts>().unwrap();
            Seen::Loaded(ticket, key, result.map(|()| parts.0.concat()))
        }
    };
    events.into_iter().map(seen).collect()
}

/// Polls until something is true of all that was polled.
pub fn poll_until(store: &dyn LowerStore, mut enough: impl FnMut(&[Seen]) -> bool) -> Vec<Seen> {
    let start = Instant::now();
    let mut all = Vec::new();
    while !enough(&all) {
        assert!(start.elapsed() < LONG, "only {all:?}");
        std::thread::sleep(Duration::from_micros(200));
        all.extend(poll(store));
    }
    all
}

pub fn get(store: &dyn LowerStore, number: u64, bytes: usize) -> Result<u64, Refused> {
    let mut random = fastrand::Rng::with_seed(number + 2);
    let target = Parts::empty(bytes, &mut random);
    store.get(key(number), Box::new(target)).map_err(|(why, _)| why)
}

/// Reads a record, and waits; other events must not come.
pub fn load(store: &dyn LowerStore, number: u64, bytes: usize) -> Result<Vec<u8>, LoadError> {
    let ticket = get(store, number, bytes).unwrap();
    let is_loaded = |seen: &Seen| matches!(seen, Seen::Loaded(of, ..) if *of == ticket);
    let seen = poll_until(store, |seen| seen.iter().any(is_loaded));
    match seen.into_iter().find(is_loaded) {
        Some(Seen::Loaded(_, of, result)) if of == key(number) => result,
        other => panic!("{other:?}"),
    }
}

/// Puts a record and waits until it is committed.
pub fn keep(store: &dyn LowerStore, number: u64, bytes: usize) {
    put(store, number, bytes).unwrap();
    assert!(store.flush(LONG));
    assert_eq!(poll(store), [Seen::Committed(key(number))]);
}
