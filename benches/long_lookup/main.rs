//! Looking up a long prompt in the block-hash index: how long the call works, and how much of that
//! with the lock. `cargo bench --bench long_lookup`.
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Found, Shared, State};
use radixkv::token::TokenList;
use std::cell::Cell;

const LEN: usize = 131_072;
const PAGE_SIZE: usize = 16;
const CALLS: usize = 200;

thread_local! {
    /// When others were let in last: digests are made after that, of 64 pages at most, and then
    /// the lock is held to the end.
    static LET_IN: Cell<f64> = const { Cell::new(0.0) };
}

/// Microseconds that this thread has worked.
fn worked() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
}

/// The quickest of many calls, and of what each did after it had let others in.
fn measure(name: &str, cached: usize, mut call: impl FnMut()) {
    let (mut whole, mut locked) = (f64::MAX, f64::MAX);
    for _ in 0..CALLS {
        let begin = worked();
        LET_IN.set(begin);
        call();
        let end = worked();
        (whole, locked) = (whole.min(end - begin), locked.min(end - LET_IN.get()));
    }
    println!("| {name} | {cached} | {whole:.1} | {locked:.1} |");
}

fn main() {
    let pages = LEN / PAGE_SIZE;
    let config = PageTableConfig {
        page_size: PAGE_SIZE as u32,
        page_count: 3 * pages as u32,
        slot_count: 2,
        ..PageTableConfig::default()
    };
    let at_yield = || LET_IN.set(worked());
    let shared = Shared::with_slices(config, 512, Some(Box::new(at_yield))).unwrap();
    let index = IndexKind::BlockHash;
    shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
    let (space, ids) = (Namespace::default(), Vec::from_iter(0..LEN as u32));
    let begun = shared.begin(&space, TokenList::text(&ids), 0).unwrap();
    shared.write().publish(begun.id, LEN).unwrap();
    shared.turn().release(begun.id).unwrap();
    let mut found_pages = vec![0; pages];
    println!("| call | pages cached | whole call, us | after others were let in last, us |");
    println!("|---|--:|--:|--:|");
    for cached in [0, 1, 64, 300, pages / 2, pages] {
        let mut ids = ids.clone();
        ids[cached * PAGE_SIZE..].iter_mut().for_each(|id| *id += LEN as u32);
        let list = TokenList::text(&ids);
        measure("hashed under the lock", cached, || {
            shared.read().find(&space, list).unwrap();
        });
        measure("probe", cached, || {
            shared.probe(&space, list).unwrap();
        });
        measure("match, with the pages", cached, || {
            let take = |state: &mut State, found: Found, known: usize| {
                let (matched, _) = state.take_match(found, false)?;
                state.visit_path(matched.node, known, |start, part| {
                    found_pages[start..start + part.len()].copy_from_slice(part);
                })
            };
            shared.turn().lookup(&space, list, take).unwrap();
        });
    }
}
