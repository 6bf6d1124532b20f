//! A remote store in memory, shared by worlds, that fails as it is told to.
use radixkv::tier::remote::{Answer, Item, RemoteStore};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// It can't be reached.
    Dead,
    /// It panics.
    Panics,
    /// It answers that it has everything, and brings what the bytes were before.
    Lies,
    /// It says that it has read everything, of a wrong length.
    Cuts,
    /// It answers after so long.
    Slow(Duration),
    /// It removes nothing, though it answers.
    #[allow(dead_code, reason = "not all tests remove something")]
    Keeps,
}

pub struct Inside {
    pub values: HashMap<[u8; 32], Vec<u8>>,
    pub mood: Mood,
    /// Values that were asked for, read, written, and removed.
    pub counts: [usize; 4],
}

#[derive(Clone)]
pub struct MemoryRemote {
    pub inside: Arc<Mutex<Inside>>,
    pub fingerprint: [u8; 32],
    pub timeout: Duration,
}

impl MemoryRemote {
    pub fn new() -> Self {
        let inside = Inside { values: HashMap::new(), mood: Mood::Good, counts: [0; 4] };
        let timeout = Duration::from_secs(60);
        Self { inside: Arc::new(Mutex::new(inside)), fingerprint: [1; 32], timeout }
    }

    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(|error| error.into_inner())
    }

    pub fn set(&self, mood: Mood) {
        self.inside().mood = mood;
    }

    fn call(
        &self,
        which: usize,
        items: &mut [Item<'_>],
        act: impl Fn(&mut Inside, &mut Item<'_>) -> Answer,
    ) {
        let mut inside = self.inside();
        inside.counts[which] += items.len();
        match inside.mood {
            Mood::Dead => return,
            Mood::Panics => panic!("a store panics"),
            Mood::Slow(time) => {
                drop(inside);
                std::thread::sleep(time);
                inside = self.inside();
            }
            Mood::Lies | Mood::Cuts if which < 2 => {
                for item in items {
                    item.answer = Answer::Done;
                    let is_cut = inside.mood == Mood::Cuts;
                    item.length = if is_cut { item.bytes.len() / 2 } else { item.bytes.len() };
                }
                return;
            }
            Mood::Keeps if which == 3 => return,
            _ => {}
        }
        for item in items {
            item.answer = act(&mut inside, item);
        }
    }
}

impl RemoteStore for MemoryRemote {
    fn has(&self, items: &mut [Item<'_>], _: Duration) {
        assert!(items.iter().all(|item| item.bytes.is_empty()));
        self.call(0, items, |inside, item| match inside.values.contains_key(&item.key) {
            true => Answer::Done,
            false => Answer::Missing,
        });
    }

    fn get(&self, items: &mut [Item<'_>], _: Duration) {
        self.call(1, items, |inside, item| {
            let Some(value) = inside.values.get(&item.key) else { return Answer::Missing };
            item.length = value.len();
            let fits = value.len().min(item.bytes.len());
            item.bytes[..fits].copy_from_slice(&value[..fits]);
            Answer::Done
        });
    }

    fn put(&self, items: &mut [Item<'_>], _: Duration) {
        self.call(2, items, |inside, item| {
            inside.values.insert(item.key, item.bytes.to_vec());
            Answer::Done
        });
    }

    fn remove(&self, items: &mut [Item<'_>], _: Duration) {
        assert!(items.iter().all(|item| item.bytes.is_empty()));
        self.call(3, items, |inside, item| {
            inside.values.remove(&item.key);
            Answer::Done
        });
    }
}
