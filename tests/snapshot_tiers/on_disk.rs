//! The cache over a store on disk, whose writes take as long as the test says.
use super::folder::Folder;
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use radixkv::tier::{DiskConfig, DiskStore, Source};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const BYTES: u64 = 1 << 20;

/// Opens once.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }

    /// Waits until somebody waits.
    fn wait(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| state.0 == 0).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// A state that can be read when its gate is open; its length is known before.
struct Slow {
    bytes: Vec<u8>,
    gate: Arc<Gate>,
    asked: std::sync::atomic::AtomicBool,
}

impl Source for Slow {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, _: usize) -> &[u8] {
        // The first question is for the length.
        if self.asked.swap(true, std::sync::atomic::Ordering::Relaxed) {
            self.gate.pass();
        }
        &self.bytes
    }
}

/// T10, T08: what has to wait for the space of another, which goes while it is being written and so
/// without a commit, is written when that has ended, by a flush too.
#[test]
fn t10_what_waits_for_a_write_that_was_given_up_is_written() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("snapshot_tiers_on_disk");
    _ = fs::remove_dir_all(&directory);
    let limits = SnapshotLimits { entries: 8, bytes: u64::MAX };
    // Room for one of them and its note.
    let config = || DiskConfig::new(&directory, BYTES * 3 / 2, [0; 32]);
    let open = || {
        let cache = TieredSnapshots::<Slow>::new(limits).unwrap();
        let (store, records) = DiskStore::open(config()).unwrap();
        cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
        cache
    };
    let cache = open();
    let insert = |token: u32, gate: &Arc<Gate>| {
        let new = NewSnapshot {
            namespace: &Namespace::default(),
            tokens: &[token],
            bytes: BYTES,
            next_token: None,
            is_trimmable: false,
        };
        let state = || Slow {
            bytes: vec![token as u8; BYTES as usize],
            gate: gate.clone(),
            asked: false.into(),
        };
        cache.insert(new, Some(&[BYTES]), state, &mut FreedSnapshots::new()).unwrap();
    };
    let [first, second] = [(); 2].map(|()| Arc::new(Gate::default()));
    second.open();
    insert(1, &first);
    first.wait();
    insert(2, &second);
    let stats = || cache.tier_stats(&mut FreedSnapshots::new()).unwrap();
    assert_eq!((stats().counters.full, stats().writing), (1, 0), "the first still has the room");
    first.open();
    assert!(cache.flush(Duration::from_secs(60), &mut FreedSnapshots::new()));
    cache.detach(Duration::ZERO, &mut FreedSnapshots::new());

    let again = open();
    let fetchable = |token: u32| {
        let freed = &mut FreedSnapshots::new();
        again.find(&Namespace::default(), &[token], false, |_| (), freed).unwrap().fetchable
    };
    assert_eq!((fetchable(1), fetchable(2)), (0, 1));
    drop(again);
    fs::remove_dir_all(directory).unwrap();
}

/// T05: a detach without time waits for no write, but for a commit of what is written by then.
#[test]
fn t05_a_detach_commits_what_is_written() {
    let folder = Folder::new();
    let limits = SnapshotLimits { entries: 8, bytes: u64::MAX };
    let open = || {
        let cache = TieredSnapshots::<Slow>::new(limits).unwrap();
        let mut config = DiskConfig::new(folder.path(), 8 * BYTES, [0; 32]);
        config.commit_interval = Duration::from_secs(60);
        let (store, records) = DiskStore::open(config).unwrap();
        cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
        cache
    };
    let cache = open();
    let freed = &mut FreedSnapshots::new();
    let gate = Arc::new(Gate::default());
    gate.open();
    let new = NewSnapshot {
        namespace: &Namespace::default(),
        tokens: &[1],
        bytes: BYTES,
        next_token: None,
        is_trimmable: false,
    };
    let state = || Slow { bytes: vec![1; BYTES as usize], gate, asked: false.into() };
    cache.insert(new, Some(&[BYTES]), state, freed).unwrap();
    let written = loop {
        let stats = cache.tier_stats(freed).unwrap().store;
        if stats.waiting_bytes == 0 {
            break stats;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!((written.written_bytes, written.commits), (BYTES, 0));
    cache.detach(Duration::ZERO, freed);
    let again = open();
    let found = again.find(&Namespace::default(), &[1], false, |_| (), freed).unwrap();
    assert_eq!(found.fetchable, 1);
}
