//! T03: who shrinks the tiers lets others in after each page.
use super::memory_store::MemoryStore;
use super::world::{Setup, World};
use super::{PLAIN, prompt};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Prompts of ten pages.
const PROMPTS: u32 = 40;

/// A thread that asks for the lock of the tiers again and again.
#[derive(Default)]
struct Asking {
    thread: AtomicI32,
    /// How often it got in.
    looks: AtomicUsize,
    is_over: AtomicBool,
}

impl Asking {
    /// Whether it sleeps: it waits for the lock, and for nothing else.
    fn sleeps(&self) -> bool {
        let thread = self.thread.load(SeqCst);
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
    }

    /// The same after a while, if need be; the first time for as long as it takes.
    fn sleeps_soon(&self, is_first: bool) -> bool {
        let most = if is_first { Duration::from_secs(30) } else { Duration::from_micros(200) };
        let start = Instant::now();
        loop {
            if self.sleeps() {
                return true;
            }
            if start.elapsed() > most {
                return false;
            }
        }
    }
}

/// T03: a thread that waits while pages of the directory go gets in before the next one does.
#[test]
fn t03_others_get_in_after_each_page_that_goes() {
    let store = MemoryStore::new(1 << 20, 1 << 12);
    let pages = 10 * PROMPTS as usize;
    let mut world = World::new(Setup::new(pages as u32 + 20, pages, Some(store.clone())));
    for family in 1..=PROMPTS {
        world.run(&PLAIN, &prompt(family, 41));
        world.settle();
    }
    assert_eq!(world.tiers.stats().disk.pages, pages);
    let asking = Arc::new(Asking::default());
    // How often it had got in when it was seen to wait last, and pages that went meanwhile.
    let seen = Arc::new(Mutex::new((None, 0)));
    std::thread::scope(|scope| {
        let (own, tiers) = (&asking, &world.tiers);
        scope.spawn(move || {
            // SAFETY: it asks for a number alone.
            own.thread.store(unsafe { libc::gettid() }, SeqCst);
            while !own.is_over.load(SeqCst) {
                tiers.is_busy();
                own.looks.fetch_add(1, SeqCst);
            }
        });
        while asking.thread.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let (other, noted) = (asking.clone(), seen.clone());
        store.when_removed(move || {
            let (last, passed) = &mut *noted.lock().unwrap();
            if other.sleeps_soon(last.is_none()) {
                let looks = other.looks.load(SeqCst);
                *passed += usize::from(*last == Some(looks));
                *last = Some(looks);
            }
        });
        world.tiers.shrink_to(u64::MAX, 0);
        asking.is_over.store(true, SeqCst);
    });
    store.when_removed(|| {});
    let (last, passed) = *seen.lock().unwrap();
    assert!(last.is_some(), "nobody waited");
    assert_eq!(passed, 0, "of {pages} pages so many went past who waited");
    assert_eq!(world.tiers.stats().disk.pages, 0);
    world.end();
}
