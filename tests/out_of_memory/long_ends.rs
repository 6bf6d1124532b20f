//! Sequences with several groups whose rows are long: without memory for doing it in portions they
//! end, are retained, dropped and shortened all the same, or nothing changes.
use super::failing::{Failure, failing};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, PoolStats, Shared};
use radixkv::token::TokenList;

const PAGE_SIZE: u32 = 2;
const PAGES: u32 = 64;
/// Tokens of a prompt, and pages that are reserved for others.
const TOKENS: u32 = 24;
const RESERVED: usize = 20;

/// A cache with a second FULL group and a window whose slices are a page, and a sequence that has
/// published half of its prompt, of which a part was known.
fn world() -> (Shared, SequenceId) {
    let window = GroupKind::Window { window: 5, sinks: 1 }.in_pool(1);
    let groups = [GroupConfig::default(), GroupKind::Full.in_pool(1), window];
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: PAGES,
        slot_count: 2,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[2 * PAGES]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 1, None).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    let ids: Vec<u32> = (0..TOKENS).collect();
    for computed in [TOKENS as usize / 2, TOKENS as usize / 2 + 5] {
        let made = shared.begin(&Namespace::default(), TokenList::text(&ids), RESERVED).unwrap();
        // Not every one has copies to confirm.
        let _ = shared.write().confirm_copies(made.id);
        if computed > TOKENS as usize / 2 {
            return (shared, made.id);
        }
        shared.turn().publish(made.id, computed).unwrap();
        shared.turn().release(made.id).unwrap();
    }
    unreachable!("the second one is given back")
}

fn check(shared: &Shared) -> [PoolStats; 2] {
    let state = shared.read();
    state.audit().unwrap();
    state.check().unwrap();
    [0, 1].map(|pool| state.pool_stats(pool).unwrap())
}

type Call = fn(&Shared, SequenceId) -> Result<(), Error>;

fn publish(shared: &Shared, id: SequenceId) {
    shared.turn().publish(id, TOKENS as usize / 2 + 6).unwrap();
}

#[test]
fn m05_long_rows_end_without_memory() {
    let release: Call = |shared, id| shared.turn().release(id);
    let retain: Call = |shared, id| shared.turn().retain(id).map(|kept| assert!(kept));
    let drop: Call = |shared, id| shared.turn().drop_retained(id);
    let less: Call = |shared, id| shared.turn().share_less(id, 3).map(|left| assert!(left <= 3));
    let nothing: fn(&Shared, SequenceId) = |_, _| {};
    let keep: fn(&Shared, SequenceId) = |shared, id| {
        publish(shared, id);
        assert!(shared.turn().retain(id).unwrap());
    };
    for (name, before, call) in [
        ("release", publish as fn(&Shared, SequenceId), release),
        ("release what is computed by nobody", nothing, release),
        ("retain", publish, retain),
        ("drop", keep, drop),
        ("share less", nothing, less),
    ] {
        let mut failures = 0;
        for at in 0.. {
            let (shared, id) = world();
            before(&shared, id);
            let pools = check(&shared);
            let failure = if at % 2 == 0 { Failure::From(at / 2) } else { Failure::Once(at / 2) };
            let (done, failed) = failing(failure, || call(&shared, id));
            let now = check(&shared);
            if done.is_err() {
                assert!(failed > 0, "{name} at {at}: {done:?}");
                let counts = |pools: &[PoolStats; 2]| {
                    pools.each_ref().map(|pool| (pool.free, pool.cached, pool.private))
                };
                assert_eq!(counts(&now), counts(&pools), "{name} at {at}");
                call(&shared, id).unwrap();
            }
            // All pages are the cache's then, or free.
            let mut turn = shared.turn();
            let _ = turn.release(id).or_else(|_| turn.drop_retained(id));
            std::mem::drop(turn);
            let pools = check(&shared);
            assert!(pools.iter().all(|pool| pool.private == 0), "{name} at {at}: {pools:?}");
            failures += usize::from(failed > 0);
            if failed == 0 {
                break;
            }
        }
        // What a dropped sequence leaves goes to lists that have room here.
        assert!(failures > 1 || name == "drop", "{name}: {failures} requests failed");
    }
}
