//! A cache with a group of states in a pool of its own, for stories that look behind the header.
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, Shared};

pub const PAGE_SIZE: u32 = 2;

/// With so many pages and states, of which the first of each is nobody's, and so many pages in a
/// portion of a call.
pub fn with_states(pages: u32, states: u32, slice: usize) -> Shared {
    let groups = [GroupConfig::default(), GroupKind::State.in_pool(1)];
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: pages,
        slot_count: 4,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[states]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, slice, None).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    shared
}

pub fn check(shared: &Shared) {
    let state = shared.read();
    state.audit().unwrap();
    state.check().unwrap();
}
