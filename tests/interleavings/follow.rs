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
                    held.insert((record.group, page), (parent, tokens.to_vec()));
                    parent = if record.group == 0 { page } else { parent };
                }
            }
            What::Removed(_) => {
                record.pages.iter().for_each(|&page| drop(held.remove(&(record.group, page))));
            }
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
    // What was cleared is there until it is let go.
    let groups = state.groups();
    for pool in 0.. {
        let Ok(stats) = state.pool_stats(pool) else { break };
        let is_in = |(group, _): &&(usize, u32)| groups.list()[*group].pool == pool;
        let (told, there) = (held.keys().filter(is_in).count(), stats.cached);
        assert!(told == there || (told < there && CLEARED.get()), "{told} of {there}, pool {pool}");
    }
    for page in 1..PAGES {
        let told = held.contains_key(&(0, page));
        assert!(!told || state.contains_page(page), "page {page}");
    }
    for ((group, page), (parent, _)) in held.iter().filter(|((group, _), _)| *group == 0) {
        let is_there = *parent == 0 || held.contains_key(&(*group, *parent));
        assert!(is_there, "page {page} goes on from {parent}");
    }
    Ok(())
}
