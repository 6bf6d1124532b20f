//! The child table: what is in it all the time is found, or entries were moved meanwhile.
use super::{Extent, model};
use crate::grace::Reader;
use crate::memory::Arc;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::tree::ChildTable;
use loom::thread;

/// Is there all the time. In the smallest table it comes to the second slot, as 5, 9 and 13 do.
const STAYS: (u32, u32) = (1, 1);

fn insert(table: &mut ChildTable, hash: u32, node: u32) {
    let [place] = table.places([hash]).unwrap();
    table.put(place, node, node as usize);
}

/// Looks for that entry in a table that has others, too, while they change.
fn found<O>(others: O, change: fn(&mut ChildTable))
where
    O: IntoIterator<Item = (u32, u32)> + Clone + Send + Sync + 'static,
{
    model(Extent::Preemptions(2), move || {
        let mut table = ChildTable::new().unwrap();
        others
            .clone()
            .into_iter()
            .chain([STAYS])
            .for_each(|(hash, node)| insert(&mut table, hash, node));
        let view = Arc::clone(table.view());
        let reader = thread::spawn(move || {
            let reader = Reader::enter().unwrap();
            let moves = view.moves.peek();
            let (hash, node) = STAYS;
            let found = view.find(hash, &reader, |found| Ok(found == node)).unwrap();
            if found.is_none() {
                assert!(view.moves.expect(moves).is_err(), "an entry is overlooked");
            } else {
                assert_eq!(found, Some(node));
            }
        });
        change(&mut table);
        reader.join().unwrap();
        assert_eq!(table.find(STAYS.0, |node| node == STAYS.1), Some(STAYS.1));
    });
}

/// Entries before it in its chain come and go.
#[test]
fn b09_an_entry_is_found_while_others_of_its_chain_go() {
    found([(5, 2), (9, 3)], |table| {
        table.remove(5, 2);
        insert(table, 13, 4);
        table.remove(9, 3);
    });
}

#[test]
fn b09_an_entry_is_found_while_the_table_grows() {
    found([(5, 2), (9, 3)], |table| {
        insert(table, 13, 4);
        insert(table, 17, 5);
    });
}

/// How far the table before was moved says nothing of the next one.
#[test]
fn b09_an_entry_is_found_when_the_table_grows_again() {
    let others = (2..=12).map(|number| (number, number));
    found(others, |table| insert(table, 13, 13));
}

/// Who finds an entry sees what it leads to: what was written before it was put in, or moved.
#[test]
fn b09_an_entry_is_seen_after_what_it_leads_to() {
    model(Extent::Preemptions(2), || {
        let mut table = ChildTable::new().unwrap();
        (1..=2).for_each(|node| insert(&mut table, node, node));
        let data = Arc::new(AtomicU64::new(0)).unwrap();
        let (view, read) = (Arc::clone(table.view()), Arc::clone(&data));
        let reader = thread::spawn(move || {
            let reader = Reader::enter().unwrap();
            let is_it = |node| {
                assert!(node != 3 || read.load(Relaxed) == 7);
                Ok(node == 3)
            };
            let _ = view.find(5, &reader, is_it);
        });
        data.store(7, Relaxed);
        insert(&mut table, 5, 3);
        insert(&mut table, 9, 4);
        reader.join().unwrap();
    });
}
