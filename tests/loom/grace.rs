//! Memory that a reader has found stays as it is until the reader leaves.
use super::{Extent, model};
use crate::grace::{Array, Arrays, Garbage, Junction, Lead, Link, One, Reader};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// An item of which loom watches every use: reading it while it is changed or dropped, or without
/// being ordered after what was done to it before, is an error.
struct Watched(UnsafeCell<u32>);

// SAFETY: loom checks that uses don't overlap.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    fn get(&self) -> u32 {
        // SAFETY: nobody changes it now, or loom says so.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&mut self, to: u32) {
        // SAFETY: nobody uses it now, or loom says so.
        self.0.with_mut(|value| unsafe { *value = to });
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.set(u32::MAX);
    }
}

/// What a reader finds.
fn read(link: &Link<Watched>) -> Option<Vec<u32>> {
    let reader = Reader::enter()?;
    Some(link.read(&reader).iter().map(Watched::get).collect())
}

/// Readers, while their writer replaces what a link leads to so many times.
fn replaced(readers: usize, replacements: u32, extent: Extent) {
    model(extent, move || {
        let (link, mut garbage) = (Arc::new(Link::default()), Garbage::default());
        link.set(Some(One::new(Watched::new(0)).unwrap().array()), &mut garbage);
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let link = Arc::clone(&link);
                thread::spawn(move || {
                    let found = read(&link).expect("there are places for both");
                    assert!(found.len() == 1 && found[0] <= replacements);
                })
            })
            .collect();
        for number in 1..=replacements {
            link.set(Some(One::new(Watched::new(number)).unwrap().array()), &mut garbage);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        drop(link);
    });
}

#[test]
fn b09_a_reader_never_meets_freed_memory() {
    replaced(1, 2, Extent::Preemptions(3));
}

#[test]
fn b09_two_readers_never_meet_freed_memory() {
    replaced(2, 1, Extent::Preemptions(2));
}

/// Garbage that goes waits for its last readers, as it does when its lists have no room.
#[test]
fn b09_garbage_that_goes_waits_for_readers() {
    model(Extent::Preemptions(3), || {
        let (link, mut garbage) = (Arc::new(Link::default()), Garbage::default());
        link.set(Some(One::new(Watched::new(0)).unwrap().array()), &mut garbage);
        let reads = Arc::clone(&link);
        let reader = thread::spawn(move || {
            let found = read(&reads).unwrap();
            assert!(found == [0] || found == [1]);
        });
        link.set(Some(One::new(Watched::new(1)).unwrap().array()), &mut garbage);
        drop(garbage);
        reader.join().unwrap();
        drop(link);
    });
}

/// A place is used again: who was seen in it and who came later are told apart.
#[test]
fn b09_a_reader_who_comes_again_never_meets_freed_memory() {
    model(Extent::Preemptions(3), || {
        let (link, mut garbage) = (Arc::new(Link::default()), Garbage::default());
        link.set(Some(One::new(Watched::new(0)).unwrap().array()), &mut garbage);
        let reads = Arc::clone(&link);
        let reader = thread::spawn(move || {
            let (first, second) = (read(&reads).unwrap(), read(&reads).unwrap());
            assert!(first <= second, "a link leads back");
        });
        for number in 1..=2 {
            link.set(Some(One::new(Watched::new(number)).unwrap().array()), &mut garbage);
        }
        reader.join().unwrap();
        drop(link);
    });
}

/// Whoever is last frees: after all that the other did, if that was another thread.
#[test]
fn b09_a_handle_and_a_link_end_in_different_threads() {
    model(Extent::Everything, || {
        let (link, mut garbage) = (Link::default(), Garbage::default());
        let mut array = Array::shown([Watched::new(7)].into_iter()).unwrap();
        link.set(Some(&mut array), &mut garbage);
        let owner = thread::spawn(move || assert_eq!(array[0].get(), 7));
        link.set(None, &mut garbage);
        owner.join().unwrap();
    });
}

/// Items that nobody reads are written again; with a reader in the way nothing changes.
#[test]
fn b09_what_a_reader_sees_is_not_written_again() {
    model(Extent::Preemptions(3), || {
        let (link, mut garbage) = (Arc::new(Link::default()), Garbage::default());
        let mut array = Array::with_capacity(3).unwrap();
        let add = |array: &mut Array<Watched>, number: u32| {
            array.extend(std::iter::once(Watched::new(number)));
            array.show(number as usize);
        };
        add(&mut array, 1);
        link.set(Some(&mut array), &mut garbage);
        let reads = Arc::clone(&link);
        let reader = thread::spawn(move || {
            let found = read(&reads).unwrap();
            let expected: [&[u32]; 4] = [&[1], &[1, 2], &[1, 2, 3], &[1, 2, 13]];
            assert!(expected.contains(&&found[..]), "{found:?}");
        });
        // A reader may meet the second item only when it is hidden, or shown again, with the third.
        add(&mut array, 2);
        add(&mut array, 3);
        if array.hide(2) {
            let (from, hidden) = array.hidden_mut();
            assert_eq!(from, 2);
            hidden[0].set(13);
            array.show(3);
        }
        reader.join().unwrap();
        drop(array);
        drop(link);
    });
}

/// A junction leads to each kind of thing in turn. What a reader finds is what it led to, whole.
#[test]
fn b09_a_junction_leads_to_nothing_that_is_freed() {
    model(Extent::Preemptions(2), || {
        let (junction, mut garbage) =
            (Arc::new(Junction::<Watched>::default()), Garbage::default());
        let reads = Arc::clone(&junction);
        let reader = thread::spawn(move || {
            let reader = Reader::enter().unwrap();
            match reads.read(&reader) {
                // There is a number too, and there was nothing.
                Arrays::One(items) => assert!(items.iter().all(|item| item.get() == 1)),
                Arrays::Many(links) => {
                    let found: Vec<_> = links.iter().flat_map(|link| link.read(&reader)).collect();
                    assert!(found.len() == 1 && found[0].get() == 2);
                }
            }
        });
        let mut one = One::new(Watched::new(1)).unwrap();
        junction.set(Lead::One(one.array()), &mut garbage);
        drop(one);
        let link = Link::default();
        link.set(Some(One::new(Watched::new(2)).unwrap().array()), &mut garbage);
        let mut many = Array::shown([link].into_iter()).unwrap();
        junction.set(Lead::Many(&mut many), &mut garbage);
        drop(many);
        junction.set(Lead::Number(3), &mut garbage);
        reader.join().unwrap();
        drop(junction);
    });
}

/// A link takes over where its neighbour leads, to what was there before or has just been made.
fn taken_over(is_there: bool) {
    model(Extent::Preemptions(3), move || {
        let (links, mut garbage) =
            (Arc::new([Link::<Watched>::default(), Link::default()]), Garbage::default());
        let lead = |garbage: &mut Garbage| {
            links[1].set(Some(One::new(Watched::new(1)).unwrap().array()), garbage);
        };
        if is_there {
            lead(&mut garbage);
        }
        let reads = Arc::clone(&links);
        let reader = thread::spawn(move || {
            let reader = Reader::enter().unwrap();
            let [after, before] =
                [1, 0].map(|at| reads[at].read(&reader).first().map(Watched::get));
            assert!([after, before].iter().flatten().all(|&value| value == 1));
            // It leaves the one when the other one has it.
            assert!(!is_there || after.or(before).is_some(), "it is in none");
        });
        if !is_there {
            lead(&mut garbage);
        }
        links[0].take(&links[1]);
        reader.join().unwrap();
        drop(links);
    });
}

#[test]
fn b09_what_a_link_takes_over_is_found() {
    taken_over(true);
}

#[test]
fn b09_what_a_link_takes_over_is_whole() {
    taken_over(false);
}
