//! A store that caches share and that answers, but has more to do than it brings in time.
use super::remote::{filled, world};
use super::remote_store::MemoryRemote;
use super::{PLAIN, prompt};
use radixkv::tier::Target;
use radixkv::tier::paged::Deadline;
use radixkv::tier::remote::{
    Answer, Item, LargeHead, Question, ReadEnd, Remote, RemoteConfig, RemoteEvent, RemoteStore,
};
use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A store that has nothing, and takes its time to say so, but not more than it is given, which it
/// notes.
struct Busy(Duration, Arc<Mutex<Vec<Duration>>>);

impl Busy {
    fn answer(&self, items: &mut [Item<'_>], time: Duration) {
        self.1.lock().unwrap().push(time);
        std::thread::sleep(self.0.min(time));
        if time >= self.0 {
            items.iter_mut().for_each(|item| item.answer = Answer::Missing);
        }
    }
}

impl RemoteStore for Busy {
    fn has(&self, items: &mut [Item<'_>], time: Duration) {
        self.answer(items, time);
    }

    fn get(&self, items: &mut [Item<'_>], time: Duration) {
        self.answer(items, time);
    }

    fn put(&self, items: &mut [Item<'_>], time: Duration) {
        self.answer(items, time);
    }

    fn remove(&self, items: &mut [Item<'_>], time: Duration) {
        self.answer(items, time);
    }
}

struct Place(Vec<u8>);

impl Target for Place {
    fn parts(&self) -> usize {
        1
    }

    fn part(&mut self, _: usize) -> &mut [u8] {
        &mut self.0
    }

    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8])) {
        to(&mut self.0);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// T11, T13: who waits behind others, for a store that answers all of them in time, is not late,
/// and gets a call like theirs.
#[test]
fn t13_a_store_that_answers_is_not_left_alone_for_what_waits() {
    // Each call has time enough on a busy machine, all of them together have not.
    let timeout = Duration::from_secs(2);
    let times = Arc::new(Mutex::new(Vec::new()));
    let config = RemoteConfig {
        store: Box::new(Busy(Duration::from_millis(400), times.clone())),
        fingerprint: [1; 32],
        timeout,
        workers: 0,
        waiting_bytes: 1 << 20,
    };
    let remote = Remote::start(config, Box::new(|| {})).unwrap();
    // Each is a call of its own.
    for key in 0..8 {
        remote.get([key; 32], Box::new(Place(vec![0; 2 << 20]))).unwrap();
    }
    while remote.work() {}
    let mut events = Vec::new();
    remote.poll(&mut events);
    let ends: Vec<ReadEnd> = events
        .iter()
        .filter_map(|event| match event {
            RemoteEvent::Read { end, .. } => Some(*end),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [ReadEnd::Gone; 8], "{:?}", remote.stats());
    assert_eq!((remote.stats().late, remote.stats().pauses), (0, 0));
    assert!(times.lock().unwrap().iter().all(|&time| time == timeout), "{times:?}");
}

/// T11, T13: who asked, or waits for a large state, goes on without the store when its time is
/// over: nothing is asked for it then, however well the store answers others.
#[test]
fn t13_nothing_is_asked_for_who_has_gone_on_without() {
    let timeout = Duration::from_millis(300);
    for large in [false, true] {
        let times = Arc::new(Mutex::new(Vec::new()));
        let config = RemoteConfig {
            store: Box::new(Busy(Duration::from_millis(110), times.clone())),
            fingerprint: [1; 32],
            timeout,
            workers: 0,
            waiting_bytes: 1 << 20,
        };
        let remote = Remote::start(config, Box::new(|| {})).unwrap();
        let last = Instant::now() + timeout;
        for number in 0..8 {
            let key = [number; 32];
            match large {
                true => {
                    let head = LargeHead { key, id: [0; 16] };
                    remote.get_pieces(head, Box::new(Place(vec![0; 1 << 20])), last).unwrap();
                }
                false => remote.ask(Question::First, number.into(), vec![key]).unwrap(),
            }
        }
        while remote.work() {}
        let mut events = Vec::new();
        remote.poll(&mut events);
        assert_eq!(events.len(), 8, "all are answered");
        let stats = remote.stats();
        assert!(stats.late > 0, "{large}: {stats:?}");
    }
}

/// T12, T13: who waits for pages that another fetch brings has not gone on without the store: what
/// it asked is asked, however late, as long as the store answers others.
#[test]
fn t13_who_waits_for_another_fetch_still_wants_an_answer() {
    let tokens = prompt(1, 41);
    let remote = MemoryRemote { timeout: Duration::from_secs(3), ..filled(&tokens) };
    let mut world = world(&remote);
    let first = world.begin(&PLAIN, &tokens).unwrap().id;
    world.work();
    assert!(world.fetch(first, Deadline::Never).is_begun);
    world.work();
    assert!(world.tiers.work_remote(), "its question");
    // Its pages are to be read.
    world.work();
    let second = world.begin(&PLAIN, &tokens).unwrap().id;
    world.work();
    assert!(world.fetch(second, Deadline::Never).is_begun);
    // Its question comes behind them.
    world.work();
    std::thread::sleep(Duration::from_millis(1800));
    assert!(world.tiers.work_remote(), "the pages");
    world.work();
    // The time of the question is over; the store has answered others not long ago.
    std::thread::sleep(Duration::from_millis(1500));
    world.settle();
    assert_eq!(world.requests[&first].computed, 40);
    assert_eq!(world.requests[&second].computed, 40);
    let stats = world.tiers.stats();
    assert_eq!((stats.remote.late, stats.remote.read), (0, 10), "{stats:?}");
    world.end();
}
