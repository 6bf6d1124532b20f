//! Lookups of long prompts in the block-hash index: the digests of their pages are made before the
//! lock is taken, and nothing else is found for that.
mod failing;

use failing::{Failure, failing};
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Found, Shared, State};
use radixkv::token::{Item, TokenKind, TokenList};

const PAGE_SIZE: u32 = 4;
const LEN: usize = 600;

fn shared(page_size: u32, slice: usize) -> Shared {
    let config = PageTableConfig {
        page_size,
        page_count: 45000,
        slot_count: 4,
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, slice, None).unwrap();
    let index = IndexKind::BlockHash;
    shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
    shared
}

fn space(number: u64) -> Namespace {
    Namespace { lora: (number > 0).then_some(number), ..Namespace::default() }
}

fn publish(shared: &Shared, space: &Namespace, list: TokenList<'_>) {
    let begun = shared.begin(space, list, 0).unwrap();
    shared.write().publish(begun.id, begun.positions).unwrap();
    shared.turn().release(begun.id).unwrap();
}

fn image(token_index: usize, digest: u8) -> Item {
    Item { token_index, kind: TokenKind::Image { digest: [digest; 16], positions: 10 } }
}

fn coord(token_index: usize, bin: u32) -> Item {
    Item { token_index, kind: TokenKind::Coord { bin } }
}

/// What tokens and positions are found: by a probe and by a match, which make digests ahead, as by
/// a lookup that makes them as it goes.
fn compare(shared: &Shared, space: &Namespace, list: TokenList<'_>) -> (usize, usize) {
    let found = shared.read().find(space, list).unwrap();
    let plain = (found.tokens(), found.positions());
    assert_eq!(shared.probe(space, list).unwrap(), plain);
    {
        let take = |state: &mut State, found: Found, known: usize| {
            assert_eq!((found.tokens(), found.positions()), plain);
            let (matched, _) = state.take_match(found, false)?;
            assert_eq!((matched.tokens, matched.positions), plain);
            let (mut pages, mut path) = (0, vec![0; matched.pages]);
            state.visit_path(matched.node, known, |start, part| {
                path[start..start + part.len()].copy_from_slice(part);
                pages = pages.max(start + part.len());
            })?;
            assert!(known == matched.pages || pages * PAGE_SIZE as usize == plain.1);
            // Those before are what it returns.
            path[..known].fill(0);
            let mut all = vec![0; matched.pages];
            state.visit_path(matched.node, 0, |start, part| {
                all[start..start + part.len()].copy_from_slice(part);
            })?;
            assert_eq!(path[known..], all[known..]);
            Ok::<_, radixkv::error::Error>(all)
        };
        let (all, known) = shared.turn().lookup(space, list, take).unwrap();
        assert_eq!(known, all[..known.len()]);
    }
    plain
}

/// H03: prompts that differ at any token from what is cached, with and without items, ids that are
/// none, and all sizes of the pieces that are hashed ahead.
#[test]
fn h03_digests_made_ahead_find_the_same() {
    let ids: Vec<u32> = (0..LEN as u32).map(|at| at * 7).collect();
    for slice in [1, 16, 20, 128, 512] {
        let shared = shared(PAGE_SIZE, slice);
        let with_items = [coord(301, 5), image(400, 1), image(401, 2), coord(500, 9)];
        let lists = [
            TokenList::text(&ids),
            TokenList { ids: &ids, items: &with_items },
            TokenList { ids: &ids, items: &with_items[1..] },
            TokenList { ids: &ids, items: &[image(0, 3)] },
        ];
        for (number, list) in lists.iter().enumerate() {
            publish(&shared, &space(number as u64), *list);
        }
        for (number, list) in lists.iter().enumerate() {
            let space = space(number as u64);
            let (all, _) = compare(&shared, &space, *list);
            assert!(all > LEN - 10, "{all} of list {number}");
            for end in [0, 1, 3, 4, 5, 31, 32, 63, 64, 65, 127, 300, 302, 399, 401, 599] {
                let items: Vec<_> =
                    list.items.iter().filter(|item| item.token_index < end).copied().collect();
                let (found, _) =
                    compare(&shared, &space, TokenList { ids: &ids[..end], items: &items });
                assert!(found <= end && found + 20 > end, "{found} of {end}, list {number}");
                for wrong in [1_000_000, u32::MAX, 1 << 31] {
                    let mut other = ids.clone();
                    other[end] = wrong;
                    let is_item = list.items.iter().any(|item| item.token_index == end);
                    let (found, _) = compare(&shared, &space, TokenList { ids: &other, ..*list });
                    assert!(is_item || found <= end, "{found} of {end}, list {number}");
                }
            }
            // In another namespace the same tokens are others.
            let (found, _) = compare(&shared, &Namespace { epoch: 1, ..space }, *list);
            assert_eq!(found, 0);
        }
        shared.read().audit().unwrap();
        shared.read().check().unwrap();
    }
}

/// M05: without memory for the digests they are made under the lock, as ever.
#[test]
fn m05_a_long_lookup_needs_no_memory() {
    let ids: Vec<u32> = (0..40000).collect();
    let list = TokenList::text(&ids);
    let shared = shared(1, 512);
    publish(&shared, &Namespace::default(), list);
    for failure in [Failure::From(0), Failure::Once(0), Failure::Once(2)] {
        // More digests than are ever kept: some have to be asked for.
        let (found, failed) =
            failing(failure, || shared.probe(&Namespace::default(), list).unwrap());
        assert_eq!((found, failed > 0), ((40000, 40000), true), "{failure:?}");
    }
}
