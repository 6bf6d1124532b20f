//! The end of sequences with many images: they go in portions, and others may know them meanwhile.
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::{Item, TokenKind, TokenList};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

const IMAGES: usize = 12;

thread_local! {
    static SHARED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    static YIELDS: Cell<usize> = const { Cell::new(0) };
    /// At this yield somebody else asks for the same images.
    static BEGINS_AT: Cell<usize> = const { Cell::new(0) };
}

fn items() -> Vec<Item> {
    let image = |at: usize| Item {
        token_index: at,
        kind: TokenKind::Image { digest: [at as u8; 16], positions: 1 },
    };
    (0..IMAGES).map(image).collect()
}

/// Begins a prompt of images.
fn begin(shared: &Shared) -> Result<SequenceId, Error> {
    let (ids, items) = ([0; IMAGES], items());
    let begun = shared.begin(&Namespace::default(), TokenList { ids: &ids, items: &items }, 0)?;
    Ok(begun.id)
}

fn at_yield() {
    YIELDS.set(YIELDS.get() + 1);
    let Some(shared) = SHARED.with_borrow(Clone::clone) else { return };
    shared.read().audit().unwrap();
    shared.read().check().unwrap();
    if YIELDS.get() == BEGINS_AT.get() {
        BEGINS_AT.set(0);
        begin(&shared).unwrap();
    }
}

/// Makes a call, in the middle of which somebody begins with the same images; how often it let
/// others in.
fn yields_of(shared: &Shared, begins_at: usize, call: impl FnOnce(&Shared)) -> usize {
    YIELDS.set(0);
    BEGINS_AT.set(begins_at);
    call(shared);
    assert_eq!(BEGINS_AT.get(), 0, "there was such a yield");
    shared.read().audit().unwrap();
    YIELDS.get()
}

/// The end of a sequence with many images lets others in between them, when it is released and when
/// it was retained and is dropped; each image is counted for who has it still.
#[test]
fn m06_images_go_in_portions() {
    let config =
        PageTableConfig { page_size: 1, page_count: 200, slot_count: 8, ..Default::default() };
    let shared = Arc::new(Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap());
    shared.attach_cache(CacheConfig::default()).unwrap();
    SHARED.set(Some(shared.clone()));

    // Without pages of its own, each of which lets others in, too.
    let first = begin(&shared).unwrap();
    shared.turn().publish(first, IMAGES).unwrap();
    let yields = yields_of(&shared, 5, |shared| shared.turn().release(first).unwrap());
    assert!(yields >= IMAGES - 1, "{yields} yields of a release");

    let second = begin(&shared).unwrap();
    shared.turn().publish(second, IMAGES).unwrap();
    assert!(shared.turn().retain(second).unwrap(), "it is retained");
    let yields = yields_of(&shared, 5, |shared| shared.turn().drop_retained(second).unwrap());
    assert!(yields >= IMAGES - 1, "{yields} yields of a drop");
    SHARED.set(None);
}
