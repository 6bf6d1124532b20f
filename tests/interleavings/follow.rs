//! Reading the journal, interleaved with everything else.
use crate::{CLEARED, PAGE_SIZE, PAGES};
use radixkv::error::Error;
use radixkv::journal::{Record, What};
use radixkv::store::Shared;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Takes over all that is held, and then the records since, each in slices: the pages must be those
/// that the cache has.
pub fn follow(shared: &Shared) -> Result<(), Error> {
    let held = RefCell::new(BTreeMap::new());
    let mut apply = |record: &Record<'_>| {
        let mut held = held.borrow_mut();
        match record.what {
            What::Stored { mut parent, tokens, .. } => {
                for (&page, tokens) in record.pages.iter().zip(tokens.chunks(PAGE_SIZE as usize)) {
                    held.insert(page, (parent, tokens.to_vec()));
                    parent = page;
                }
            }
            What::Removed(_) => record.pages.iter().for_each(|page| drop(held.remove(page))),
            What::Cleared(_) => held.clear(),
        }
        true
    };
    let told = shared.read_contents(0, &mut apply)?;
    let mut number = told.number;
    loop {
        let read = shared.read_journal(number, &mut apply)?;
        assert_eq!(read.lost, 0);
        number = read.last;
        if number == read.newest {
            break;
        }
    }
    let (state, held) = (shared.read(), held.borrow());
    for page in 1..PAGES {
        let (told, there) = (held.contains_key(&page), state.contains_page(page));
        // What was cleared is there until it is let go.
        assert!(told == there || (there && CLEARED.get()), "page {page}");
    }
    for (page, (parent, _)) in held.iter() {
        assert!(*parent == 0 || held.contains_key(parent), "page {page} goes on from {parent}");
    }
    Ok(())
}
