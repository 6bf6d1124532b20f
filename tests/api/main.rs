//! What a Rust engine sees: what it holds ends by itself, and nothing is left behind.
use radixkv::api::{Cache, PageTable, Scope};
use radixkv::attention::{Dtype, KvLayout, KvStrides, Params, RowMask, View};
use radixkv::cpu::Threads;
use radixkv::error::Error;
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::plan::{Plan, PlanRow};
use radixkv::runner::{KvPointers, LayerStep, Runner, RunnerConfig, Strides};
use radixkv::sequence::{ComputedRow, Continuation, Room};
use radixkv::store::CacheConfig;
use radixkv::tier::paged::{Deadline, HostMemory, PagePolicy, PageTiers, TierConfig, TierPool};
use radixkv::token::TokenList;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

mod groups;

const PAGES: u32 = 24;

fn table() -> PageTable {
    let config = PageTableConfig {
        page_size: 4,
        page_count: PAGES + 1,
        slot_count: 8,
        ..PageTableConfig::default()
    };
    PageTable::new(config).unwrap()
}

fn cache(table: &PageTable, index: IndexKind) -> Cache {
    table.cache(CacheConfig { index, ..CacheConfig::default() }).unwrap()
}

fn check(table: &PageTable, cache: &Cache) {
    table.check().unwrap();
    cache.check().unwrap();
}

fn ids(first: u32, count: u32) -> Vec<u32> {
    (first..first + count).collect()
}

const SPACE: fn() -> Namespace = Namespace::default;

/// B05, B06: a sequence that is dropped is released, also in the middle of what its owner did.
#[test]
fn b06_sequences_end_with_their_owner() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let table = table();
        let cache = cache(&table, index);
        let prompt = ids(1, 14);
        let interrupted = catch_unwind(AssertUnwindSafe(|| {
            let mut sequence = cache.begin(&SPACE(), TokenList::text(&prompt), 0).unwrap();
            sequence.publish(14).unwrap();
            sequence.append(TokenList::text(&[50])).unwrap();
            let _children = sequence.fork(2, 4).unwrap();
            panic!("the engine's own fault");
        }));
        assert!(interrupted.is_err());
        assert_eq!(cache.stats().unwrap().sequences, 0);
        assert_eq!(table.stats().unwrap().private, 0);
        check(&table, &cache);
        // A refused begin leaves nothing either.
        let held = table.allocate_pages(10).unwrap();
        let long = ids(1000, 60);
        let refused = cache.begin(&SPACE(), TokenList::text(&long), 0);
        assert!(matches!(refused, Err(Error::OutOfPages(_))));
        table.free_pages(&held).unwrap();
        assert_eq!(cache.evict(usize::MAX).unwrap().len(), 3);
        assert_eq!(table.stats().unwrap().free, PAGES as usize);
    }
}

/// K08: what was found or inserted stays for as long as it is held.
#[test]
fn k08_locks_end_with_their_owner() {
    let table = table();
    let cache = cache(&table, IndexKind::Radix);
    let prompt = ids(1, 18);
    let pages = table.allocate_pages(4).unwrap();
    let inserted = cache.insert(&SPACE(), TokenList::text(&prompt), &pages).unwrap();
    assert_eq!((&inserted.pages, inserted.claimed, inserted.duplicates), (&pages, 4, 0));
    let found = cache.find(&SPACE(), TokenList::text(&prompt[..10])).unwrap();
    assert_eq!((&found.pages[..], found.tokens), (&pages[..2], 10));
    assert_eq!(found.partial.map(|part| (part.page, part.positions)), Some((pages[2], 2)));
    assert_eq!(cache.stats().unwrap().locks, 2);
    assert_eq!(cache.evict(usize::MAX).unwrap(), []);
    drop(inserted);
    assert_eq!(cache.evict(usize::MAX).unwrap(), [pages[3]]);
    let lock = cache.lock(found.node.unwrap()).unwrap();
    drop(found);
    assert_eq!(cache.evict(usize::MAX).unwrap(), [pages[2]]);
    // Another thread may end it.
    thread::spawn(move || drop(lock)).join().unwrap();
    assert_eq!(cache.stats().unwrap().locks, 0);
    assert_eq!(cache.evict(usize::MAX).unwrap(), [pages[1], pages[0]]);
    // A page that somebody published first is told, and the caller's stays the caller's.
    let mine = table.allocate_pages(4).unwrap();
    let first = cache.insert(&SPACE(), TokenList::text(&prompt), &mine[..4]).unwrap();
    let others = table.allocate_pages(4).unwrap();
    let second = cache.insert(&SPACE(), TokenList::text(&prompt), &others).unwrap();
    assert_eq!((&second.pages, second.duplicates), (&first.pages, 4));
    table.free_pages(&others).unwrap();
    assert!(matches!(table.free_pages(&mine), Err(Error::Argument(_))));
    check(&table, &cache);
}

/// C01: a retained sequence is gone on from by its id.
#[test]
fn c01_retained_sequences_outlive_their_owner() {
    let table = table();
    let cache = cache(&table, IndexKind::Radix);
    let prompt = ids(1, 10);
    let mut parent = cache.begin(&SPACE(), TokenList::text(&prompt), 0).unwrap();
    parent.publish(10).unwrap();
    let id = parent.retain().unwrap().unwrap();
    assert_eq!(cache.stats().unwrap().retained_sequences, 1);
    let mut how = Continuation {
        parent: id,
        namespace: &SPACE(),
        suffix: TokenList::text(&[70, 71]),
        all: None,
        room: Room::default(),
        running: false,
    };
    let mut child = cache.continue_from(&how).unwrap();
    assert_eq!(child.info().unwrap().inherited_positions, 10);
    assert_eq!(child.copy().unwrap().map(|copy| copy.positions), Some(2));
    assert!(matches!(child.publish(12), Err(Error::State(_))));
    child.confirm_copies().unwrap();
    child.publish(12).unwrap();
    cache.drop_retained(id).unwrap();
    assert_eq!(cache.drop_retained(id), Err(Error::StaleSequence(id.0)));
    how.parent = child.id();
    drop(child);
    assert!(matches!(cache.continue_from(&how), Err(Error::StaleSequence(_))));
    check(&table, &cache);
}

/// M03: the cache lives as long as anything that came from it, and its pages are free then.
#[test]
fn m03_the_cache_goes_with_the_last_that_came_from_it() {
    let table = table();
    let first = cache(&table, IndexKind::Radix);
    let prompt = ids(1, 14);
    let mut sequence = first.begin(&SPACE(), TokenList::text(&prompt), 0).unwrap();
    sequence.publish(14).unwrap();
    let found = first.find(&SPACE(), TokenList::text(&prompt)).unwrap();
    drop(first);
    assert!(matches!(table.cache(CacheConfig::default()), Err(Error::Busy)));
    drop(sequence);
    assert!(matches!(table.cache(CacheConfig::default()), Err(Error::Busy)));
    drop(found);
    assert_eq!(table.stats().unwrap().free, PAGES as usize);
    let second = cache(&table, IndexKind::BlockHash);
    assert_eq!(second.probe(&SPACE(), TokenList::text(&prompt)).unwrap(), (0, 0));
    check(&table, &second);
}

/// J08: a prompt gets its pages chunk by chunk.
#[test]
fn j08_a_sequence_takes_its_pages_later() {
    let table = table();
    let cache = cache(&table, IndexKind::Radix);
    let prompt = ids(1, 40);
    let part = Room { reserve: 0, first: 8 };
    let mut sequence = cache.begin(&SPACE(), TokenList::text(&prompt), part).unwrap();
    assert_eq!(table.row(sequence.slot()).unwrap().len(), 2);
    assert!(matches!(sequence.publish(12), Err(Error::Argument(_))));
    sequence.allocate(12).unwrap();
    assert_eq!(sequence.publish(12).unwrap().claimed, 3);
    sequence.allocate(40).unwrap();
    assert_eq!(table.row(sequence.slot()).unwrap().len(), 10);
    sequence.truncate(40).unwrap();
    assert!(sequence.truncate(39).is_err(), "the prompt stays");
    check(&table, &cache);
}

/// A runner over an engine's memory has as many layers of it as it computes: copies of pages go by
/// both.
#[test]
fn a_runner_is_over_as_many_layers_as_it_has() {
    let table = table();
    let config = RunnerConfig {
        group: 0,
        layers: 2,
        query_heads: 1,
        kv_heads: 1,
        head_dim: 64,
        v_head_dim: 64,
        dtype: Dtype::F32,
        kv_dtype: Dtype::F32,
        kv_layout: KvLayout::Nhd,
        batch_invariant: false,
        latent: false,
    };
    let strides = KvStrides::dense(config.kv_layout, &config.geometry(4), 64).unwrap();
    let part = (PAGES as usize + 1) * strides.page;
    let mut memory = vec![0_f32; 2 * part];
    let k = memory.as_mut_ptr().cast::<u8>();
    let v = k.wrapping_add(part * size_of::<f32>());
    let layer = KvPointers { k, v, strides, v_strides: strides };
    for count in [0, 1, 3] {
        let layers = vec![layer; count];
        // SAFETY: memory of every page, which nobody uses.
        let made = unsafe { Runner::over(table.shared(), config, Threads::Own(1), &layers) };
        assert!(matches!(made, Err(Error::Argument(_))), "{count} layers in the place of 2");
    }
    // SAFETY: as above.
    unsafe { Runner::over(table.shared(), config, Threads::Own(1), &[layer; 2]) }.unwrap();
}

/// M02: plans and tiers of a page table refuse after a panic too: who was woken by it is told.
#[test]
fn m02_what_stands_beside_a_poisoned_cache_refuses_too() {
    let table = table();
    let config = CacheConfig { journal_bytes: 1 << 16, ..CacheConfig::default() };
    let cache = table.cache(config).unwrap();
    let sequence = cache.begin(&SPACE(), TokenList::text(&[1, 2, 3]), 0).unwrap();
    let id = sequence.id();
    let row = PlanRow {
        row: ComputedRow::Sequence(id),
        start: 0,
        count: 3,
        mask: RowMask::Causal,
        regions: &[],
        tree_masks: &[],
    };
    let plan = Plan::new(table.shared()).unwrap();
    plan.set(&[row]).unwrap();
    let config = TierConfig {
        pools: vec![TierPool { page_bytes: 64, host: HostMemory::Own(640) }],
        disk: None,
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        wake: None,
    };
    let wake = PageTiers::disk_wake().0;
    let tiers = PageTiers::attach_without_thread(&table.shared(), config, wake).unwrap();
    // As a panic does.
    table.shared().poison();
    assert_eq!(plan.set(&[row]), Err(Error::Poisoned));
    assert!(matches!(plan.to_compute(), Err(Error::Poisoned)));
    assert_eq!(tiers.poll((8, 8), &mut |_| {}, &mut |_| {}), Err(Error::Poisoned));
    assert_eq!(tiers.fetch(id, Deadline::Never, false), Err(Error::Poisoned));
    assert_eq!(tiers.agree(id, 3), Err(Error::Poisoned));
    assert_eq!(tiers.complete(&[], true), Err(Error::Poisoned));
    drop((sequence, cache));
}

/// K20: what a call cannot have of its own is refused, and not left out.
#[test]
fn k20_a_call_has_no_chunks_and_no_sinks_of_its_own() {
    let table = table();
    let cache = cache(&table, IndexKind::Radix);
    let config = RunnerConfig {
        group: 0,
        layers: 1,
        query_heads: 1,
        kv_heads: 1,
        head_dim: 64,
        v_head_dim: 64,
        dtype: Dtype::F32,
        kv_dtype: Dtype::F32,
        kv_layout: KvLayout::Nhd,
        batch_invariant: false,
        latent: false,
    };
    let runner = Runner::new(table.shared(), config, Threads::Own(1)).unwrap();
    let prompt = ids(1, 4);
    let sequence = cache.begin(&SPACE(), TokenList::text(&prompt), 0).unwrap();
    let row = PlanRow {
        row: ComputedRow::Sequence(sequence.id()),
        start: 0,
        count: 4,
        mask: RowMask::Causal,
        regions: &[],
        tree_masks: &[],
    };
    let plan = Plan::new(table.shared()).unwrap();
    plan.set(&[row]).unwrap();
    let (numbers, mut out) = (vec![1_f32; 4 * 64], vec![0_f32; 4 * 64]);
    let mut append = |view: View| {
        let given = (numbers.as_ptr().cast::<u8>(), Strides::default());
        let step = LayerStep {
            layer: 0,
            q: given,
            k: Some(given),
            v: Some(given),
            out: (out.as_mut_ptr().cast::<u8>(), Strides::default()),
            lse: std::ptr::null_mut(),
            sinks: std::ptr::null(),
            k_scales: std::ptr::null(),
            v_scales: std::ptr::null(),
            params: Params { view, ..Params::new(64) },
            stream: std::ptr::null_mut(),
        };
        // SAFETY: dense tensors of the plan's positions; nobody else computes the row.
        unsafe { runner.append_prefill(&plan, &step) }
    };
    let view = View { window: Some(2), ..View::default() };
    append(view).unwrap();
    for view in [View { chunk: Some(2), ..view }, View { sinks: 1, ..view }] {
        assert!(matches!(append(view), Err(Error::Argument(_))), "{view:?}");
    }
}

/// K11: what a namespace has is found no more, and goes when nobody holds it.
#[test]
fn k11_a_namespace_is_cleared() {
    let table = table();
    let cache = cache(&table, IndexKind::Radix);
    let prompt = ids(1, 12);
    let tokens = TokenList::text(&prompt);
    let tenant = Namespace { salt: [1; 32], ..SPACE() };
    for space in [SPACE(), tenant] {
        cache.begin(&space, tokens, 0).unwrap().publish(12).unwrap();
    }
    let found = cache.find(&tenant, TokenList::text(&prompt[..4])).unwrap();
    let done = cache.clear(Scope::exactly(tenant)).unwrap();
    assert_eq!((done.namespaces, done.freed, done.held), (1, 2, 1));
    assert_eq!(cache.probe(&tenant, tokens).unwrap(), (0, 0));
    assert_eq!(cache.probe(&SPACE(), tokens).unwrap(), (12, 12));
    drop(found);
    assert_eq!(table.stats().unwrap().cached, 3);
    check(&table, &cache);
    table.shared().poison();
    assert_eq!(cache.clear(Scope::default()).err(), Some(Error::Poisoned));
}

/// M02: what the engine's own code panics of is no panic of the library's.
#[test]
fn m02_a_panic_of_the_engine_poisons_nothing() {
    struct Wrong;
    impl From<Wrong> for Room {
        fn from(_: Wrong) -> Self {
            panic!("the engine's own fault")
        }
    }
    let table = table();
    let cache = cache(&table, IndexKind::Radix);
    let begun = catch_unwind(AssertUnwindSafe(|| {
        cache.begin(&SPACE(), TokenList::text(&[1, 2, 3]), Wrong).map(drop)
    }));
    assert!(begun.is_err());
    check(&table, &cache);
    cache.begin(&SPACE(), TokenList::text(&[1, 2, 3]), 0).unwrap();
}
