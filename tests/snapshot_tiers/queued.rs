//! Large states of a store that caches share, one behind the other.
use super::remote_store::MemoryRemote;
use super::remote_world::{PLAIN, prompt};
use radixkv::snapshot::tiered::{FreedSnapshots, Taken, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{NewSnapshot, SnapshotLimits};
use radixkv::tier::remote::{Item, RemoteConfig, RemoteStore};
use radixkv::tier::{Source, Wake};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Bytes of a state: three pieces.
const BYTES: usize = 9 << 20;
/// What a call about one of them takes at first, and what a call may take: less than all three.
const CALL: Duration = Duration::from_millis(150);
const TIMEOUT: Duration = Duration::from_millis(330);

struct Large(Vec<u8>);

impl Source for Large {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, _: usize) -> &[u8] {
        &self.0
    }
}

/// A store that takes its time for a piece, and is quick otherwise, from when it is told to begin.
struct Slow {
    remote: MemoryRemote,
    call: Duration,
    begins: Mutex<Option<Receiver<()>>>,
}

impl Slow {
    fn begin(&self) {
        if let Some(begins) = self.begins.lock().unwrap().take() {
            begins.recv().unwrap();
        }
    }
}

impl RemoteStore for Slow {
    fn has(&self, items: &mut [Item<'_>], time: Duration) {
        self.begin();
        self.remote.has(items, time);
    }

    fn get(&self, items: &mut [Item<'_>], time: Duration) {
        self.begin();
        if items.iter().any(|item| item.bytes.len() > 1 << 20) {
            std::thread::sleep(self.call);
        }
        self.remote.get(items, time);
    }

    fn put(&self, items: &mut [Item<'_>], time: Duration) {
        self.remote.put(items, time);
    }

    fn remove(&self, items: &mut [Item<'_>], time: Duration) {
        self.remote.remove(items, time);
    }
}

fn cache(store: Box<dyn RemoteStore>, timeout: Duration) -> TieredSnapshots<Large> {
    let limits = SnapshotLimits { entries: 8, bytes: u64::MAX };
    let cache = TieredSnapshots::new(limits).unwrap();
    let (fingerprint, waiting_bytes) = ([1; 32], 1 << 30);
    let config = RemoteConfig { store, fingerprint, timeout, workers: 1, waiting_bytes };
    let nothing: Wake = Box::new(|| {});
    cache.attach_both(None, Some((config, nothing)), TierPolicy::Through).unwrap();
    cache
}

/// T11, T13: a state that waits behind another one has the time of all its pieces, too.
#[test]
fn t11_a_large_state_waits_for_a_thread_as_long_as_its_pieces_may_take() {
    let remote = MemoryRemote::new();
    let freed = &mut FreedSnapshots::new();
    let one = cache(Box::new(remote.clone()), Duration::from_secs(60));
    for family in [1, 2] {
        let tokens = prompt(family, 100);
        let new = NewSnapshot {
            namespace: &PLAIN,
            tokens: &tokens,
            bytes: BYTES as u64,
            next_token: None,
            is_trimmable: false,
        };
        let state = || Large(vec![family as u8; BYTES]);
        one.insert(new, Some(&[BYTES as u64]), state, freed).unwrap();
    }
    assert!(one.flush(Duration::from_secs(60), freed));
    // On a busy machine one call alone may take too long.
    let both = [1, 4, 16].into_iter().any(|slower| fetch_both(&remote, slower) == [100, 100]);
    assert!(both, "the second one is given up while the first one is read");
}

/// Tokens of both states that come, 0 for none, where everything takes so many times as long.
fn fetch_both(remote: &MemoryRemote, slower: u32) -> [usize; 2] {
    let freed = &mut FreedSnapshots::new();
    let (begin, begins) = mpsc::channel();
    let (remote, begins) = (remote.clone(), Mutex::new(Some(begins)));
    let store = Slow { remote, call: CALL * slower, begins };
    let other = cache(Box::new(store), TIMEOUT * slower);
    let mut came = [None, None];
    let tickets = [1, 2].map(|family| {
        other.fetch(&PLAIN, &prompt(family, 150), false, freed).unwrap().unwrap().ticket
    });
    // So what is asked about the second one does not come behind the first one's pieces.
    begin.send(()).unwrap();
    while came.contains(&None) {
        for (ticket, came) in tickets.into_iter().zip(&mut came) {
            if came.is_some() {
                continue;
            }
            *came = match other.take(ticket, |_| (), freed).unwrap() {
                Taken::Pending => None,
                Taken::Missed => Some(0),
                Taken::Hit(hit) => {
                    other.release(hit.pin, freed).unwrap();
                    Some(hit.tokens)
                }
            };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    came.map(Option::unwrap)
}
