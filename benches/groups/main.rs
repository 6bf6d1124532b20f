//! What groups of layers cost a call: a prompt that is cached whole, looked up, locked and inserted
//! again, with one group and with several. `cargo bench --bench groups`.
use radixkv::api::{Cache, PageTable};
use radixkv::group::{GroupKind, Groups};
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, GroupRow};
use radixkv::token::TokenList;

/// Four and a half chunks, so that a chunk is needed in part.
const LEN: usize = 36_864;
const PAGE_SIZE: usize = 16;
const PAGES: usize = LEN / PAGE_SIZE;
const CALLS: usize = 1000;

/// Microseconds that this thread has worked.
fn worked() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
}

/// The quickest of many calls.
fn quickest(mut call: impl FnMut()) -> f64 {
    let one = |_| {
        let begin = worked();
        call();
        worked() - begin
    };
    (0..CALLS).map(one).fold(f64::MAX, f64::min)
}

/// A page table and a cache of a FULL group and these, each with a pool of its own.
fn open(more: &[GroupKind]) -> (PageTable, Cache) {
    let kinds = [GroupKind::Full].into_iter().chain(more.iter().copied());
    let groups: Vec<_> = kinds.zip(0..).map(|(kind, pool)| kind.in_pool(pool)).collect();
    let count = PAGES as u32 + 1;
    let table = PageTable::new(PageTableConfig {
        page_size: PAGE_SIZE as u32,
        page_count: count,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&vec![count; more.len()]).unwrap(),
        ..PageTableConfig::default()
    });
    let table = table.unwrap();
    let cache = table.cache(CacheConfig::default()).unwrap();
    (table, cache)
}

/// Measures a cache in which each group beside the first has the pages of the places that it
/// chooses.
fn measure(name: &str, more: &[GroupKind], has: impl Fn(GroupKind, usize) -> bool) {
    let (table, cache) = open(more);
    let (space, ids) = (Namespace::default(), Vec::from_iter(0..LEN as u32));
    let tokens = TokenList::text(&ids);
    let spine = table.allocate_pages(PAGES).unwrap();
    let rows: Vec<Vec<u32>> = more
        .iter()
        .zip(1..)
        .map(|(&kind, pool)| {
            let mut row = vec![0; PAGES];
            let places: Vec<usize> = (0..PAGES).filter(|&place| has(kind, place)).collect();
            let pages = table.allocate_pool_pages(pool, places.len()).unwrap();
            places.into_iter().zip(pages).for_each(|(place, page)| row[place] = page);
            row
        })
        .collect();
    let groups: Vec<_> =
        rows.iter().zip(1..).map(|(pages, group)| GroupRow { group, pages }).collect();
    drop(cache.insert_groups(&space, tokens, &spine, &groups).unwrap());
    let reused = cache.probe(&space, tokens).unwrap().1;
    let probe = quickest(|| {
        cache.probe(&space, tokens).unwrap();
    });
    let find = quickest(|| drop(cache.find(&space, tokens).unwrap()));
    let insert = quickest(|| drop(cache.insert_groups(&space, tokens, &spine, &groups).unwrap()));
    println!("| {name} | {reused} | {probe:.1} | {find:.1} | {insert:.1} |");
}

fn main() {
    const WINDOW: GroupKind = GroupKind::Window { window: 1024, sinks: 0 };
    const CHUNK: GroupKind = GroupKind::Chunk { chunk: 8192 };
    const STATE: GroupKind = GroupKind::State;
    println!("{LEN} tokens in {PAGES} pages, all of which are known; microseconds\n");
    println!("| groups | reused | probe | match, locked, and unlock | insert again |");
    println!("|---|--:|--:|--:|--:|");
    let at_the_end = |_, place| place + 1 == PAGES;
    measure("FULL", &[], |_, _| true);
    measure("FULL, WINDOW of 1024", &[WINDOW], |_, _| true);
    measure("FULL, CHUNK of 8192", &[CHUNK], |_, _| true);
    measure("FULL, STATE at the end", &[STATE], at_the_end);
    measure("FULL, WINDOW of 1024, STATE at the end", &[WINDOW, STATE], |kind, place| {
        kind == WINDOW || place + 1 == PAGES
    });
    measure("FULL, STATE after page 1 alone", &[STATE], |_, place| place == 0);
}
