//! States that lie far apart on a path, of an engine with books of its own.
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::NodeId;
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, GroupRow, InsertRequest, InsertResult, Shared, State};
use radixkv::token::TokenList;

const PAGES: usize = 1500;

/// G08: who inserts page by page has a state at the end of each turn, however long that is.
#[test]
fn g08_a_limit_holds_for_long_turns_that_are_inserted_page_by_page() {
    let groups = [GroupConfig::default(), GroupKind::State.in_pool(1)];
    let config = PageTableConfig {
        page_size: 1,
        page_count: 2000,
        slot_count: 1,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[9]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 256, None).unwrap();
    shared.attach_cache(CacheConfig { checkpoint_limit: 1, ..CacheConfig::default() }).unwrap();
    let ids: Vec<u32> = (0..PAGES as u32).collect();
    let (mut node, mut lock, mut pages) = (None, None, Vec::new());
    for end in 1..=PAGES {
        pages.push(shared.allocate_pages(1).unwrap()[0]);
        let mut states = vec![0; end];
        if end % 500 == 0 {
            states[end - 1] = shared.allocate_pool_pages(1, 1).unwrap()[0];
        }
        let rows = [GroupRow { group: 1, pages: &states }];
        let request = InsertRequest {
            groups: &rows,
            namespace: &Namespace::default(),
            tokens: TokenList::text(&ids[..end]),
            pages: &pages,
            from: node,
            from_token: end - 1,
            from_page: end - 1,
            lock: true,
            moved: lock,
        };
        let then =
            |state: &mut State, done: InsertResult, _: usize| (state.node_id(done.node), done.lock);
        let ((id, taken), _) = shared.turn().insert(request, then).unwrap();
        (node, lock) = (Some(NodeId(id.unwrap())), taken);
        // The next step computes what follows.
        shared.turn().slide_lock(taken.unwrap(), end).unwrap();
    }
    assert_eq!(shared.read().pool_stats(1).unwrap().cached, 1);
    let state = shared.read();
    state.audit().unwrap();
    state.check().unwrap();
}
