//! Long texts: ids of the caller are looked at without the lock, and a bad one is refused wherever
//! it is, with nothing changed.
use radixkv::error::Error;
use radixkv::group::{GroupKind, Groups};
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::sequence::Continuation;
use radixkv::store::{CacheConfig, InsertRequest, Shared};
use radixkv::token::{Item, TokenKind, TokenList};

const PAGE_SIZE: usize = 16;
const PAGES: usize = LEN / PAGE_SIZE;
/// More ids than are looked at while others wait.
const LEN: usize = 3 << 15;
/// The first of the ids that stand for images among keys.
const BAD: u32 = 1 << 31;
const SLICE: usize = 256;

fn worlds() -> impl Iterator<Item = Shared> {
    let window = GroupKind::Window { window: 256, sinks: 0 };
    let groups = Groups::new(&[GroupKind::Full.in_pool(0), window.in_pool(0)]).unwrap();
    let settings = [
        (IndexKind::Radix, Groups::default()),
        (IndexKind::BlockHash, Groups::default()),
        (IndexKind::Radix, groups),
    ];
    settings.into_iter().map(|(index, groups)| {
        let config = PageTableConfig {
            page_size: PAGE_SIZE as u32,
            page_count: 6 * PAGES as u32,
            slot_count: 4,
            groups,
            ..PageTableConfig::default()
        };
        let shared = Shared::with_slices(config, SLICE, None).unwrap();
        shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
        shared
    })
}

/// A text whose id at a place is a bad one.
fn with_bad(ids: &[u32], at: usize) -> Vec<u32> {
    let mut ids = ids.to_vec();
    ids[at] = BAD;
    ids
}

/// A call was refused because of the id at a place, and nothing is different.
fn refused<T>(shared: &Shared, at: usize, call: impl FnOnce() -> Result<T, Error>) {
    let stats = || {
        let state = shared.read();
        let (mut table, mut cache) = (state.page_table_stats(), state.cache_stats().unwrap());
        // Room that was made stays.
        (table.memory_bytes, cache.index_bytes) = (0, 0);
        format!("{table:?} {cache:?}")
    };
    let before = stats();
    let error = call().err().expect("a bad id").to_string();
    assert!(error.contains(&at.to_string()), "{error}");
    assert_eq!(stats(), before);
    shared.read().check().unwrap();
}

/// M01: every call that takes a prompt names the id, also when all before it is cached.
#[test]
fn m01_a_bad_id_far_behind_is_refused() {
    let (space, ids) = (Namespace::default(), (0..LEN as u32).collect::<Vec<_>>());
    for shared in worlds() {
        // What stands for an image in the index is no id of a text.
        let image =
            [Item { token_index: 0, kind: TokenKind::Image { digest: [3; 16], positions: 40 } }];
        let seen = TokenList { ids: &ids[..2 * PAGE_SIZE], items: &image };
        let begun = shared.begin(&space, seen, 0).unwrap();
        shared.turn().publish(begun.id, begun.positions).unwrap();
        let alike: Vec<u32> = (0..LEN).map(|at| if at < 40 { BAD } else { at as u32 }).collect();
        assert_eq!(shared.probe(&space, TokenList::text(&alike)).unwrap(), (0, 0));
        refused(&shared, 0, || shared.begin(&space, TokenList::text(&alike), 0));

        let places = [0, PAGE_SIZE, LEN / 2, LEN - 1];
        for at in places {
            let bad = with_bad(&ids, at);
            refused(&shared, at, || shared.begin(&space, TokenList::text(&bad), 0));
            refused(&shared, at, || shared.turn().append(begun.id, TokenList::text(&bad)));
            let how = Continuation {
                parent: begun.id,
                namespace: &space,
                suffix: TokenList::text(&bad),
                all: None,
                room: 0.into(),
                running: true,
            };
            refused(&shared, at, || shared.continue_from(&how));
        }
        let whole = shared.begin(&space, TokenList::text(&ids), 0).unwrap();
        shared.turn().publish(whole.id, LEN).unwrap();
        shared.turn().release(whole.id).unwrap();
        for at in places {
            let bad = with_bad(&ids, at);
            let found = shared.probe(&space, TokenList::text(&bad)).unwrap().1;
            assert!(found <= at, "{found} positions of a text whose id {at} is bad");
            refused(&shared, at, || shared.begin(&space, TokenList::text(&bad), 0));
        }
        let again = shared.begin(&space, TokenList::text(&ids), 0).unwrap();
        assert!(again.cached_positions >= LEN - PAGE_SIZE);
    }
}

/// M01: the same of an insert, whose pages stay the caller's.
#[test]
fn m01_an_insert_with_a_bad_id_far_behind_is_refused() {
    let (space, ids) = (Namespace::default(), (0..LEN as u32).collect::<Vec<_>>());
    for shared in worlds() {
        let pages = shared.allocate_pages(PAGES).unwrap();
        let insert = |ids: &[u32]| {
            let request = InsertRequest {
                namespace: &space,
                tokens: TokenList::text(ids),
                pages: &pages,
                from: None,
                from_token: 0,
                from_page: 0,
                lock: false,
                moved: None,
                groups: &[],
            };
            shared.turn().insert_telling(request, None, |_, done, _| done.claimed)
        };
        for at in [0, LEN / 2, LEN - 1] {
            refused(&shared, at, || insert(&with_bad(&ids, at)));
        }
        assert_eq!(insert(&ids).unwrap().0, PAGES);
        shared.read().check().unwrap();
    }
}
