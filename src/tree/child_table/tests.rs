//! The table beside a map, and chains where they are worst.
use super::*;

/// Everything that an entry tells comes back, at the limits too; a length that has no room is
/// not told, and changes nothing else.
#[test]
fn an_entry_tells_what_was_written() {
    for hash in [0, 1, 0x0fff_ffff, u32::MAX] {
        for node in [0, 1, NODE_LIMIT - 1] {
            for length in [0, 1, 255, 256, 1 << 20] {
                let entry = entry(hash, node, length);
                assert!(entry > GONE);
                assert_eq!((entry_hash(entry), entry_node(entry)), (kept(hash), node));
                assert_eq!(entry_length(entry), if length < 256 { length } else { 0 });
            }
        }
    }
}

/// A table that was made before takes the place of a full one, if it is large enough, whether
/// or not all of it was made; it is wanted early enough, and each part counts as soon as it is
/// there.
#[test]
fn a_larger_table_is_made_before_it_is_needed() {
    for (too_small, parts) in [(1, 100), (2, 100), (1, 3), (1, 2), (1, 1)] {
        let mut table = ChildTable::new().unwrap();
        let (mut made, mut opened, mut left) = (0, 0, 0);
        for node in 0..5000_u32 {
            let slots = table.slots();
            while let Some(mut spare) = table.wanted_spare() {
                let bytes = table.bytes();
                assert!(table.wanted_spare().is_none(), "one makes it at a time");
                if spare.bytes() == 0 {
                    assert_eq!(spare.slots(), 2 * slots);
                    assert!(table.len() * 5 < slots * 4 - 5 * 32);
                    spare = SpareTable::of(2 * slots / too_small);
                    (made, left) = (made + 1, parts);
                }
                if left == 0 {
                    table.keep_spare(spare).unwrap();
                    break;
                }
                left -= 1;
                spare.make_some();
                table.keep_spare(spare).unwrap();
                assert!(table.bytes() > bytes);
            }
            let [place] = table.places([node.wrapping_mul(0x9e37_79b1)]).unwrap();
            table.put(place, node, 1);
            opened += usize::from(table.slots() != slots);
        }
        assert_eq!((made, opened), (3, 3));
        assert!(table.keep_spare(SpareTable::of(SMALLEST)).is_err());
        for node in 0..5000_u32 {
            let found = table.find(node.wrapping_mul(0x9e37_79b1), |found| found == node);
            assert_eq!(found, Some(node));
        }
    }
}

/// Entries whose slots are near each other come and go in every order, while the table grows
/// and is filled with what has gone: each is found as long as it is there.
#[test]
fn what_is_there_is_found_whatever_has_gone() {
    let (mut table, mut random) = (ChildTable::new().unwrap(), fastrand::Rng::with_seed(1));
    let hash = |node: u32| node % 300 * 7;
    let mut there = Vec::new();
    for node in 0..60_000_u32 {
        let [place] = table.places([hash(node)]).unwrap();
        table.put(place, node, 1);
        there.push(node);
        while there.len() > 700 || (!there.is_empty() && random.usize(..3) == 0) {
            let gone = there.swap_remove(random.usize(..there.len()));
            table.remove(hash(gone), gone);
            assert_eq!(table.find(hash(gone), |found| found == gone), None);
        }
        if node % 64 == 0 {
            for &node in &there {
                assert_eq!(table.find(hash(node), |found| found == node), Some(node));
            }
        }
    }
}

/// What is removed leaves nothing to probe past when all that lay behind it is gone too.
#[test]
fn chains_end_where_their_last_entry_is() {
    let mut table = ChildTable::new().unwrap();
    let hash = 2 * CHUNK as u32 - 3; // across the end of the table
    for node in 0..100 {
        let [place] = table.places([hash]).unwrap();
        table.put(place, node, 1);
    }
    for node in 0..99 {
        table.remove(hash, node);
    }
    assert_eq!((table.current.taken, table.find(hash, |_| true)), (100, Some(99)));
    table.remove(hash, 99);
    assert_eq!((table.current.taken, table.len()), (0, 0));
}

/// A chain that goes on at the beginning of the table is found there while its front is moved,
/// and taken away.
#[test]
fn a_chain_around_the_end_is_found_while_it_is_moved() {
    let mut table = ChildTable::new().unwrap();
    let hash = SMALLEST as u32 - 3;
    for node in 0..900_u32 {
        let [place] = table.places([hash]).unwrap();
        table.put(place, node, 1);
        if node % 8 == 0 {
            for known in 0..=node {
                assert_eq!(table.find(hash, |found| found == known), Some(known), "of {node}");
            }
        }
    }
    // The last of those that were there before it was opened anew are not moved yet.
    for node in (0..819).rev().chain(819..900) {
        table.remove(hash, node);
        assert_eq!(table.find(hash, |found| found == node), None);
    }
    assert_eq!(table.len(), 0);
}

/// Lengths stay with their entries while the table grows, which doubles when it is four fifths
/// full, and follow when those are replaced.
#[test]
fn lengths_move_with_their_entries() {
    let mut table = ChildTable::new().unwrap();
    let length = |node: u32| 1 + node as usize % 255;
    for node in 0..5000_u32 {
        let [place] = table.places([node.wrapping_mul(0x9e37_79b1)]).unwrap();
        table.put(place, node, length(node));
        assert!(table.len() * 5 <= table.slots() * 4);
    }
    assert_eq!(table.slots(), 1 << 13);
    for node in 0..5000_u32 {
        let hash = node.wrapping_mul(0x9e37_79b1);
        let Hint { node: found, length: told } = table.hint(hash).unwrap();
        assert_eq!((found, told.map(NonZero::get)), (node, Some(length(node))));
        table.replace(hash, node, node, 7);
        assert_eq!(table.hint(hash).unwrap().length.map(NonZero::get), Some(7));
    }
}

/// B09: what takes nothing out of anybody's sight waits for no reader: a larger table is made while
/// one reads.
#[test]
fn b09_a_larger_table_is_made_while_somebody_reads() {
    let Some(reader) = Reader::enter() else { return };
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut spare = SpareTable::of(SMALLEST);
        // The way to its chunks, the list of them, the chunks.
        (0..3).for_each(|_| spare.make_some());
        let _ = done.send(spare.is_done());
    });
    let made = is_done.recv_timeout(std::time::Duration::from_secs(10));
    drop(reader);
    assert_eq!(made, Ok(true), "it waited for a reader");
}
