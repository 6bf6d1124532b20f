//! A child whose suffix has an image, of a parent that goes on while its rows are looked at: the
//! image is the child's or the call's, whenever somebody counts.
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::sequence::{Continuation, Room};
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::{Item, TokenKind, TokenList};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

thread_local! {
    static SHARED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// Yields until the parent goes on, and the parent.
    static NEXT: Cell<Option<(usize, SequenceId)>> = const { Cell::new(None) };
    static COUNTED: Cell<usize> = const { Cell::new(0) };
}

fn at_yield() {
    let Some(shared) = SHARED.with_borrow(Clone::clone) else { return };
    match NEXT.take() {
        Some((0, parent)) => _ = shared.turn().publish(parent, 44).unwrap(),
        Some((left, parent)) => NEXT.set(Some((left - 1, parent))),
        None => {}
    }
    COUNTED.set(COUNTED.get() + 1);
    if let Err(error) = shared.read().check() {
        assert!(!format!("{error:?}").contains("image_uses"), "{error:?}");
    }
}

fn world() -> Arc<Shared> {
    let window = GroupKind::Window { window: 25, sinks: 0 };
    let groups = [GroupConfig::default(), window.in_pool(1)];
    let config = PageTableConfig {
        page_size: 4,
        page_count: 64,
        slot_count: 4,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[64]).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    Arc::new(shared)
}

/// G11, M06.
#[test]
fn g11_m06_an_image_of_a_child_is_counted_once() {
    let (ids, space) = ((0..48).collect::<Vec<u32>>(), Namespace::default());
    let image = TokenKind::Image { digest: [7; 16], positions: 3 };
    let suffix = TokenList { ids: &[0, 5], items: &[Item { token_index: 0, kind: image }] };
    for at in 0..60 {
        let shared = world();
        let parent = shared.begin(&space, TokenList::text(&ids), 0).unwrap().id;
        shared.turn().publish(parent, 40).unwrap();
        SHARED.set(Some(Arc::clone(&shared)));
        NEXT.set(Some((at, parent)));
        let how = Continuation {
            parent,
            namespace: &space,
            suffix,
            all: None,
            room: Room::default(),
            running: true,
        };
        let child = shared.continue_from(&how).unwrap();
        SHARED.set(None);
        NEXT.set(None);
        shared.turn().release(child.id).unwrap();
        shared.turn().release(parent).unwrap();
        shared.read().audit().unwrap();
    }
    assert!(COUNTED.get() > 60);
}
