//! A directory that carries out no removal any more.
use super::memory_store::MemoryStore;
use super::world::{PAGE_BYTES, Setup, World};
use super::{PLAIN, prompt};
use radixkv::store::Scope;
use radixkv::tier::paged::{HostMemory, PagePolicy, PageTiers, TierConfig, TierPool};
use radixkv::tier::{Event, Key, LowerStore, Refused, Source, StoreStats, Target};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A directory that removes nothing any more once it is told so.
struct Refusing {
    inner: MemoryStore,
    refuses: std::sync::Arc<AtomicBool>,
}

impl LowerStore for Refusing {
    fn put(&self, key: Key, note: Box<[u8]>, source: Box<dyn Source>) -> Result<(), Refused> {
        self.inner.put(key, note, source)
    }

    fn get(&self, key: Key, target: Box<dyn Target>) -> Result<u64, (Refused, Box<dyn Target>)> {
        self.inner.get(key, target)
    }

    fn remove(&self, key: Key) {
        if !self.refuses.load(Relaxed) {
            self.inner.remove(key);
        }
    }

    fn touch(&self, key: Key) {
        self.inner.touch(key);
    }

    fn cost(&self, bytes: u64, note: usize) -> u64 {
        self.inner.cost(bytes, note)
    }

    fn has_events(&self) -> bool {
        self.inner.has_events()
    }

    fn poll(&self, events: &mut Vec<Event>) {
        self.inner.poll(events);
    }

    fn flush(&self, timeout: Duration) -> bool {
        self.inner.flush(timeout)
    }

    fn stats(&self) -> StoreStats {
        StoreStats { is_read_only: self.refuses.load(Relaxed), ..self.inner.stats() }
    }

    fn identity(&self) -> Option<(u64, u64)> {
        self.inner.identity()
    }
}

/// What says whether a directory refuses.
pub fn refusing() -> std::sync::Arc<AtomicBool> {
    std::sync::Arc::new(AtomicBool::new(false))
}

/// Puts a directory that may refuse below the cache of a world, which plays its disk.
pub fn attach_refusing(
    world: &mut World,
    store: &MemoryStore,
    refuses: &std::sync::Arc<AtomicBool>,
) {
    let below = Refusing { inner: store.clone(), refuses: refuses.clone() };
    let host = HostMemory::Own(64 * PAGE_BYTES as u64);
    let config = TierConfig {
        pools: vec![TierPool { page_bytes: PAGE_BYTES, host }],
        disk: Some((Box::new(below) as _, store.records())),
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        wake: None,
    };
    let wake = PageTiers::disk_wake().0;
    world.tiers = PageTiers::attach_without_thread(&world.shared, config, wake).unwrap();
    world.setup.store = Some(store.clone());
}

/// T17: what a directory refused to remove when it was cleared is not found in it when it is
/// attached again, also if it was the first one.
#[test]
fn t17_what_the_first_directory_refused_to_clear_is_gone() {
    let tokens = prompt(1, 41);
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let refuses = refusing();
    let mut world = World::new(Setup::new(30, 64, None));
    world.shared.detach_lower();
    attach_refusing(&mut world, &store, &refuses);
    world.run(&PLAIN, &tokens);
    world.settle();
    refuses.store(true, Relaxed);
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    world.work();
    world.shared.detach_lower();
    assert_eq!(store.records().len(), 10, "the disk refuses");
    world.tiers = world.try_attach().unwrap();
    world.work();
    assert_eq!(world.run(&PLAIN, &tokens), (0, 0), "it was cleared");
    world.end();
}
