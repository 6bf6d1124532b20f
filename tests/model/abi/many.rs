//! Calls over many items at once.
use super::super::namespaces::namespace;
use super::super::tokens::TokenList;
use super::{Library, Status, done, sized};
use radixkv::capi::*;
use radixkv::sequence::Room;
use std::ptr::{null, null_mut};

/// A begin among others; one without tokens is refused.
pub type BeginItem<'a> = (u8, Option<&'a TokenList>, Room);

/// A match among others.
pub struct MatchItem<'a> {
    pub ns: u8,
    /// None is refused.
    pub tokens: Option<&'a TokenList>,
    pub lock: bool,
    /// Room for pages.
    pub room: usize,
}

/// What a match came to, and its pages.
pub type Matched = (Status, rkv_cache_match_result, Vec<u32>);

/// The only one.
pub fn only<T>(mut each: Vec<T>) -> T {
    assert_eq!(each.len(), 1, "there is one item");
    each.remove(0)
}

/// Where a list's tokens are; NULL for none.
fn place<T>(list: &Option<T>) -> *const T {
    list.as_ref().map_or(null(), std::ptr::from_ref)
}

/// What came of each item. Nothing may have been written for one that was refused.
fn each<T: Copy>(
    all: Status,
    statuses: &[Status],
    before: T,
    results: &[T],
) -> Vec<Result<T, Status>> {
    let bytes = |of: &T| {
        // SAFETY: results are structs of the header: plain integers without padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(of).cast::<u8>(), size_of::<T>()) }
            .to_vec()
    };
    let result = |(&status, result): (&Status, &T)| {
        let untouched = bytes(result) == bytes(&before);
        assert!(status == Status::Ok || untouched, "an item with {status:?} is written");
        done(status, *result)
    };
    assert_eq!(all, Status::Ok, "the arrays are good");
    statuses.iter().zip(results).map(result).collect()
}

// Every unsafe block has the reason that `mod.rs` gives; all arrays have `count` elements.
impl Library {
    /// Makes a call over many items, and returns the status of each.
    fn items(
        &self,
        name: &'static str,
        count: usize,
        made: &mut dyn FnMut(*mut Status) -> Status,
    ) -> (Status, Vec<Status>) {
        self.batches.set(self.batches.get() + 1);
        // None that a call would write by itself.
        let mut statuses = vec![Status::Poisoned; count];
        let into = &mut |statuses: &mut [Status]| made(statuses.as_mut_ptr());
        let all = crate::call_many(name, self, &mut statuses, into);
        (all, statuses)
    }

    pub fn begin_many(&self, items: &[BeginItem]) -> Vec<Result<rkv_sequence_info, Status>> {
        let spaces: Vec<_> = items.iter().map(|item| namespace(item.0)).collect();
        let lists: Vec<_> = items.iter().map(|item| item.1.map(TokenList::raw)).collect();
        let args =
            |((&(_, _, room), space), tokens): ((&BeginItem, &_), &_)| rkv_sequence_begin_args {
                space: place(space),
                tokens: place(tokens),
                reserve_position_count: room.reserve as u64,
                allocate_position_count: room.first as u64,
                ..sized()
            };
        let args: Vec<_> = items.iter().zip(&spaces).zip(&lists).map(args).collect();
        let before: rkv_sequence_info = sized();
        let mut states = vec![before; items.len()];
        let (count, sizes) = (args.len(), (size_of_val(&args[0]), size_of_val(&states[0])));
        let (from, into) = (args.as_ptr(), states.as_mut_ptr());
        // SAFETY: see above.
        let (all, statuses) = self.items("rkv_sequence_begin_many", count, &mut |to| unsafe {
            rkv_sequence_begin_many(self.cache, from, count, sizes.0, into, sizes.1, to)
        });
        each(all, &statuses, before, &states)
    }

    /// Text goes by its ids in every other item, else as a token list.
    pub fn append_many(&self, items: &[(u64, &TokenList)]) -> Vec<Result<(), Status>> {
        let lists: Vec<_> = items.iter().map(|item| item.1.raw()).collect();
        let args = |(at, (&(sequence, tokens), list)): (usize, (&(u64, &TokenList), &_))| {
            let by_ids = tokens.items.is_empty() && !tokens.ids.is_empty() && at % 2 == 0;
            rkv_sequence_append_item {
                sequence,
                ids: if by_ids { tokens.ids.as_ptr() } else { null() },
                id_count: if by_ids { tokens.ids.len() } else { 0 },
                tokens: if by_ids { null() } else { std::ptr::from_ref(list) },
            }
        };
        let args: Vec<_> = items.iter().zip(&lists).enumerate().map(args).collect();
        let (from, count, size) = (args.as_ptr(), args.len(), size_of_val(&args[0]));
        // SAFETY: see above.
        let (all, statuses) = self.items("rkv_sequence_append_many", count, &mut |to| unsafe {
            rkv_sequence_append_many(self.cache, from, count, size, to)
        });
        each(all, &statuses, (), &vec![(); count])
    }

    pub fn publish_many(
        &self,
        items: &[(u64, usize)],
    ) -> Vec<Result<rkv_sequence_publish_result, Status>> {
        let args = |&(sequence, computed)| rkv_sequence_publish_item {
            sequence,
            computed_position_count: computed as u64,
        };
        let args: Vec<_> = items.iter().map(args).collect();
        let before: rkv_sequence_publish_result = sized();
        let mut results = vec![before; items.len()];
        let (count, sizes) = (args.len(), (size_of_val(&args[0]), size_of_val(&results[0])));
        let (from, into) = (args.as_ptr(), results.as_mut_ptr());
        // SAFETY: see above.
        let (all, statuses) = self.items("rkv_sequence_publish_many", count, &mut |to| unsafe {
            rkv_sequence_publish_many(self.cache, from, count, sizes.0, into, sizes.1, to)
        });
        each(all, &statuses, before, &results)
    }

    pub fn release_many(&self, sequences: &[u64]) -> Vec<Result<(), Status>> {
        let (from, count) = (sequences.as_ptr(), sequences.len());
        let mut statuses = vec![Status::Poisoned; count];
        let to = statuses.as_mut_ptr();
        // SAFETY: see above.
        let all = crate::call_sure("rkv_sequence_release_many", Some(self), &mut || unsafe {
            rkv_sequence_release_many(self.cache, from, count, to)
        });
        assert!(!statuses.contains(&Status::OutOfMemory), "a release needs memory");
        each(all, &statuses, (), &vec![(); count])
    }

    pub fn match_many(&self, items: &[MatchItem]) -> Vec<Matched> {
        let spaces: Vec<_> = items.iter().map(|item| namespace(item.ns)).collect();
        let lists: Vec<_> = items.iter().map(|item| item.tokens.map(TokenList::raw)).collect();
        let mut pages: Vec<_> = items.iter().map(|item| vec![0; item.room]).collect();
        let places = pages.iter_mut().zip(items).map(|(pages, item)| match item.room {
            0 => null_mut(),
            _ => pages.as_mut_ptr(),
        });
        let item =
            |(((item, space), tokens), pages): (((&MatchItem, &_), &_), _)| rkv_cache_match_item {
                space: place(space),
                tokens: place(tokens),
                pages,
                page_capacity: item.room,
                flags: if item.lock { RKV_MATCH_LOCK } else { 0 },
                reserved: 0,
            };
        let args: Vec<_> = items.iter().zip(&spaces).zip(&lists).zip(places).map(item).collect();
        let mut found: Vec<rkv_cache_match_result> = vec![sized(); items.len()];
        let (count, sizes) = (args.len(), (size_of_val(&args[0]), size_of_val(&found[0])));
        let (from, into) = (args.as_ptr(), found.as_mut_ptr());
        // SAFETY: see above.
        let (all, statuses) = self.items("rkv_cache_match_many", count, &mut |to| unsafe {
            rkv_cache_match_many(self.cache, from, count, sizes.0, into, sizes.1, to)
        });
        assert_eq!(all, Status::Ok, "the arrays are good");
        statuses
            .into_iter()
            .zip(found)
            .zip(pages)
            .map(|((status, found), pages)| (status, found, pages))
            .collect()
    }

    pub fn probe_many(
        &self,
        items: &[(u8, Option<&TokenList>)],
    ) -> Vec<Result<(usize, usize), Status>> {
        let spaces: Vec<_> = items.iter().map(|item| namespace(item.0)).collect();
        let lists: Vec<_> = items.iter().map(|item| item.1.map(TokenList::raw)).collect();
        let item =
            |(space, tokens)| rkv_cache_probe_item { space: place(space), tokens: place(tokens) };
        let args: Vec<_> = spaces.iter().zip(&lists).map(item).collect();
        let before = rkv_cache_probe_result { token_count: 0, position_count: 0 };
        let mut results = vec![before; items.len()];
        let (count, sizes) = (args.len(), (size_of_val(&args[0]), size_of_val(&results[0])));
        let (from, into) = (args.as_ptr(), results.as_mut_ptr());
        // SAFETY: see above.
        let (all, statuses) = self.items("rkv_cache_probe_many", count, &mut |to| unsafe {
            rkv_cache_probe_many(self.cache, from, count, sizes.0, into, sizes.1, to)
        });
        let counts = |found: rkv_cache_probe_result| {
            (found.token_count as usize, found.position_count as usize)
        };
        each(all, &statuses, before, &results).into_iter().map(|found| found.map(counts)).collect()
    }
}
