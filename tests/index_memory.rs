//! Memory of the indexes: what happens when there is none, and whether they count what they hold.
//!
//! Two indexes get the same operations. Of one, requests for memory fail, each one that an
//! operation makes, alone and with all that follow. Either the operation says so and has changed
//! nothing, or it is done as in the other one.
mod failing;

mod index_memory {
    pub mod world;
}

use failing::{Failure, bytes_in_use, failing, largest_grown};
use fastrand::Rng;
use index_memory::world::{Op, PAGES, World};
use radixkv::index::{IndexKind, Namespace, Portion, PrefixIndex};
use radixkv::token::{Images, Keys};
use std::sync::{Mutex, MutexGuard};

/// Bytes are those of the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

const KINDS: [IndexKind; 2] = [IndexKind::Radix, IndexKind::BlockHash];

/// Every request of every operation fails that may say so; the others get all that they want. So
/// the two indexes are the same to the last id.
fn refused_changes_nothing(kind: IndexKind, sizes: [usize; 2], seed: u64, steps: usize) {
    let mut rng = Rng::with_seed(seed);
    let [page_size, segment_pages] = sizes;
    let mut sound = World::with_segments(kind, page_size, segment_pages);
    let mut short = World::with_segments(kind, page_size, segment_pages);
    let mut refused = 0;
    for step in 0..steps {
        let op = Op::random(&mut rng, &sound);
        if op.can_fail() {
            let before = short.image();
            for at in 0.. {
                let failure =
                    if at % 2 == 0 { Failure::Once(at / 2) } else { Failure::From(at / 2) };
                let (done, failed) = failing(failure, || short.apply(&op));
                if done.is_ok() {
                    // What is only for the better may have been refused.
                    assert!(failed == 0 || kind == IndexKind::Radix, "{op:?}, {failure:?}");
                    break;
                }
                assert!(failed > 0, "step {step}: {op:?} failed without a reason");
                refused += 1;
                assert_eq!(short.image(), before, "step {step}: {op:?}, {failure:?}");
            }
        } else {
            short.apply(&op).expect("it can't fail");
        }
        sound.prune_roots(short.pruned.take());
        sound.apply(&op).expect("there is memory");
        assert_eq!(short.image(), sound.image(), "step {step}: {op:?}");
    }
    assert!(refused > steps / 4, "only {refused} requests were refused");
}

// M05
#[test]
fn m05_an_operation_without_memory_changes_nothing() {
    let _alone = alone();
    for kind in KINDS {
        for (page_size, seed) in [(1, 1), (2, 2), (4, 3), (16, 4)] {
            refused_changes_nothing(kind, [page_size, PAGES], seed, 1500);
        }
    }
}

/// Most inserts take several nodes in a row, of which each one may be refused.
// M05
#[test]
fn m05_a_row_of_nodes_comes_whole_or_not_at_all() {
    let _alone = alone();
    for (page_size, segment_pages, seed) in [(1, 1, 9), (1, 3, 10), (2, 2, 11), (4, 1, 12)] {
        refused_changes_nothing(KINDS[0], [page_size, segment_pages], seed, 1000);
        nothing_needs_memory(KINDS[0], [page_size, segment_pages], seed, 1500);
    }
}

/// Requests fail in every operation, of those too that can't: what goes and when stays the same.
fn nothing_needs_memory(kind: IndexKind, sizes: [usize; 2], seed: u64, steps: usize) {
    let mut rng = Rng::with_seed(seed);
    let [page_size, segment_pages] = sizes;
    let mut sound = World::with_segments(kind, page_size, segment_pages);
    let mut short = World::with_segments(kind, page_size, segment_pages);
    let mut failed_at_all = 0;
    for step in 0..steps {
        let op = Op::random(&mut rng, &sound);
        let mut at = rng.u64(..4);
        loop {
            let failure = if rng.bool() { Failure::Once(at) } else { Failure::From(at) };
            let (done, failed) = failing(failure, || short.apply(&op));
            failed_at_all += failed;
            match done {
                Ok(()) => break,
                Err(_) => assert!(op.can_fail() && failed > 0, "step {step}: {op:?}"),
            }
            at += 1;
        }
        sound.apply(&op).expect("there is memory");
        short.check();
        assert_eq!(short.pages_seen(), sound.pages_seen(), "step {step}: {op:?}");
        assert_eq!(short.evicted, sound.evicted, "step {step}: {op:?}");
    }
    assert!(failed_at_all > steps as u64 / 8, "only {failed_at_all} requests failed");
    short.unlock_all();
    sound.unlock_all();
    let ((), failed) = failing(Failure::From(0), || short.evict(usize::MAX));
    sound.evict(usize::MAX);
    assert_eq!(short.evicted, sound.evicted, "the order at the end; {failed} requests failed");
}

// M05
#[test]
fn m05_what_cannot_fail_needs_no_memory() {
    let _alone = alone();
    for kind in KINDS {
        for (page_size, seed) in [(1, 5), (2, 6), (4, 7), (16, 8)] {
            nothing_needs_memory(kind, [page_size, PAGES], seed, 2500);
        }
    }
}

#[test]
fn m05_an_index_is_opened_or_it_is_not() {
    let _alone = alone();
    for kind in KINDS {
        let before = bytes_in_use();
        for at in 0.. {
            let (opened, failed) = failing(Failure::Once(at), || kind.open(16, 1).map(drop));
            assert_eq!(opened.is_ok(), failed == 0);
            assert_eq!(bytes_in_use(), before, "a part of an index was left");
            if failed == 0 {
                break;
            }
        }
    }
}

/// What the threads of the test's own harness may take meanwhile.
const HARNESS: usize = 2048;

/// What an index says that it takes is what the heap says, but for 2 %.
fn agree(what: &str, kind: IndexKind, index: &dyn PrefixIndex, heap: usize) {
    let said = index.stats().bytes;
    let difference = said.abs_diff(heap);
    assert!(
        difference <= heap / 50 + HARNESS,
        "{what}, {kind:?}: {said} bytes counted, {heap} taken: {:.1} %",
        difference as f64 * 100.0 / heap as f64
    );
}

// M10
#[test]
fn m10_a_conversation_token_by_token_is_counted() {
    let _alone = alone();
    let images = Images::default();
    for (kind, page_size) in [(KINDS[0], 1), (KINDS[0], 4), (KINDS[1], 1), (KINDS[1], 4)] {
        let before = bytes_in_use();
        let mut index = kind.open(page_size, 1).unwrap();
        agree("empty", kind, index.as_ref(), bytes_in_use() - before);
        let root = index.make_root(&Namespace::default()).unwrap();
        index.lock(root);
        let mut node = root;
        for page in 1..20_000 {
            let keys = Keys { keys: &[page; 4][..page_size], images: &images };
            node = index.insert_moving_lock(node, keys, &[page]).unwrap().node;
            if page.is_power_of_two() {
                agree("token by token", kind, index.as_ref(), bytes_in_use() - before);
            }
        }
        agree("token by token", kind, index.as_ref(), bytes_in_use() - before);
        index.unlock(node);
        while index.evict(Portion::of(997), &mut |_, _| {}) > 0 {
            agree("evicted", kind, index.as_ref(), bytes_in_use() - before);
        }
    }
}

/// Where an index was told how many nodes may come, no list that grows with them is ever moved:
/// others would wait for that, the longer the more there are.
// M10
#[test]
fn m10_lists_of_an_index_that_is_told_its_size_stay_where_they_are() {
    const NODES: u32 = 80_000;
    let _alone = alone();
    let images = Images::default();
    for kind in KINDS {
        let before = bytes_in_use();
        let mut index = kind.open(1, 1).unwrap();
        index.expect(NODES as usize + 1000).unwrap(); // and the roots
        agree("expecting", kind, index.as_ref(), bytes_in_use() - before);
        let grown = largest_grown(|| {
            for page in 1..NODES {
                // A few on each of many paths.
                let root = Namespace { epoch: u64::from(page % 1000), ..Namespace::default() };
                let root = index.make_root(&root).unwrap();
                let keys = Keys { keys: &[page], images: &images };
                assert_eq!(index.insert(root, keys, &[page]).unwrap().existing, 0);
            }
        });
        assert!(grown <= 4096, "{kind:?}: a list of {grown} bytes was made larger");
        assert!(index.stats().nodes >= NODES as usize - 1);
        agree("expected", kind, index.as_ref(), bytes_in_use() - before);
    }
}

/// Conversations that are published token by token at page size 1, in turn: each position has a
/// time of its own, and takes 12 bytes at most, keys and pages included.
// M10
#[test]
fn m10_a_position_takes_12_bytes_token_by_token() {
    let _alone = alone();
    let images = Images::default();
    for (sequences, tokens) in [(1, 100_000), (64, 2000), (500, 400)] {
        let before = bytes_in_use();
        let mut index = KINDS[0].open(1, 1).unwrap();
        let root = index.make_root(&Namespace::default()).unwrap();
        let mut ends = vec![root; sequences];
        ends.iter().for_each(|&root| index.lock(root));
        let mut page = 0;
        for _ in 0..tokens {
            for end in &mut ends {
                page += 1;
                let keys = Keys { keys: &[page], images: &images };
                *end = index.insert_moving_lock(*end, keys, &[page]).unwrap().node;
            }
        }
        let heap = bytes_in_use() - before;
        agree("in turn", KINDS[0], index.as_ref(), heap);
        let each = heap as f64 / f64::from(page);
        println!("{sequences} sequences: {each:.2} bytes a position");
        assert!(each <= 12.0, "{sequences} sequences: {each} bytes a position");
        index.check().unwrap();
    }
}

// M10
#[test]
fn m10_many_prefixes_are_counted() {
    let _alone = alone();
    let images = Images::default();
    for kind in KINDS {
        let before = bytes_in_use();
        let mut index = kind.open(2, 1).unwrap();
        let mut page = 0;
        for at in 0..30_000_u32 {
            let name = Namespace { epoch: u64::from(at % 50), ..Namespace::default() };
            let root = index.make_root(&name).unwrap();
            let prompt = [at.wrapping_mul(0x9e37_79b9) >> 3, 0, at % 7, 1];
            let keys = Keys { keys: &prompt, images: &images };
            let inserted = index.insert(root, keys, &[page + 1, page + 2]).unwrap();
            page += 2;
            assert!(inserted.existing == 0);
            if at % 1500 == 0 {
                agree("filling", kind, index.as_ref(), bytes_in_use() - before);
            }
        }
        while index.evict(Portion::of(1500), &mut |_, _| {}) > 0 {
            agree("evicting", kind, index.as_ref(), bytes_in_use() - before);
        }
    }
}

// M10
#[test]
fn m10_whatever_is_done_is_counted() {
    let _alone = alone();
    for kind in KINDS {
        for page_size in [1, 16] {
            let mut rng = Rng::with_seed(9);
            let before = bytes_in_use();
            let mut world = World::new(kind, page_size);
            for step in 0..4000 {
                let op = Op::random(&mut rng, &world);
                world.apply(&op).unwrap();
                drop(op);
                if step % 100 == 0 {
                    let heap = bytes_in_use() - before - world.own_bytes();
                    agree("at random", kind, world.index.as_ref(), heap);
                }
            }
        }
    }
}
