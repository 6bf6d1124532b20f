//! A node that has many children gets one more, and memory ends on the way.
use super::failing::{Failure, failing};
use radixkv::error::Error;
use radixkv::index::Namespace;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, InsertRequest, Shared};
use radixkv::token::TokenList;

fn insert(shared: &Shared, id: u32, page: u32) -> Result<(), Error> {
    let ids = [id];
    let request = InsertRequest {
        groups: &[],
        namespace: &Namespace::default(),
        tokens: TokenList::text(&ids),
        pages: &[page],
        from: None,
        from_token: 0,
        from_page: 0,
        lock: false,
        moved: None,
    };
    shared.turn().insert(request, |_, _, _| ()).map(drop)
}

/// M05: the memory of the children is counted whatever request fails, where a run is cut, and where
/// the list of the runs becomes longer.
#[test]
fn m05_a_child_more_is_counted_or_not_there() {
    for count in [1, 128, 256, 512] {
        let mut refused = 0;
        for at in 0.. {
            let config = PageTableConfig {
                page_size: 1,
                page_count: count + 2,
                slot_count: 1,
                ..PageTableConfig::default()
            };
            let shared = Shared::with_slices(config, 256, None).unwrap();
            shared.attach_cache(CacheConfig::default()).unwrap();
            let pages = shared.allocate_pages(count as usize + 1).unwrap();
            for id in 0..count {
                insert(&shared, id, pages[id as usize]).unwrap();
            }
            let last = pages[count as usize];
            let (done, failed) = failing(Failure::Once(at), || insert(&shared, count, last));
            // "segment_bytes: .. counted", when the run is refused for which the list has room.
            shared.read().check().unwrap_or_else(|error| panic!("{count} at {at}: {error}"));
            shared.read().audit().unwrap();
            refused += u32::from(done.is_err());
            if done.is_err() {
                insert(&shared, count, last).unwrap();
            }
            shared.evict(count as usize + 1, |_, _| {}).unwrap();
            shared.read().check().unwrap();
            if failed == 0 {
                break;
            }
        }
        assert!(refused > 0, "{count}: nothing was refused");
    }
}
