//! Publishing with the block-hash index: pages are hashed while others have the lock, who may
//! change what is to be published.
use crate::{NEXT, SHARED, YIELDS, at_yield, tokens};
use radixkv::ids::SequenceId;
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::sequence::Published;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::{Item, TokenKind, TokenList};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

const PROMPT: usize = 3;
const LEN: usize = 43;
const COUNT: usize = 4;
/// Positions of the image in the last sequence, and where it is.
const IMAGE: Item =
    Item { token_index: 31, kind: TokenKind::Image { digest: [5; 16], positions: 9 } };

/// Sequences that have computed much and published nothing.
struct World {
    shared: Arc<Shared>,
    ids: Vec<SequenceId>,
    /// What the tokens of each are.
    lists: Rc<RefCell<Vec<Vec<u32>>>>,
}

/// Of the last sequence one is an image.
fn list(at: usize, ids: &[u32]) -> TokenList<'_> {
    const ITEMS: [Item; 1] = [IMAGE];
    TokenList { ids, items: if at == COUNT - 1 { &ITEMS } else { &[] } }
}

impl World {
    fn new() -> Self {
        SHARED.set(None);
        NEXT.set(None);
        let config = PageTableConfig {
            page_size: 2,
            page_count: 400,
            slot_count: 8,
            ..PageTableConfig::default()
        };
        let shared = Arc::new(Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap());
        let config = CacheConfig { index: IndexKind::BlockHash, ..CacheConfig::default() };
        shared.attach_cache(config).unwrap();
        SHARED.set(Some(shared.clone()));
        // Two of them begin alike.
        let family = |at: usize| if at == 2 { 1 } else { at as u32 };
        let mut lists: Vec<_> = (0..COUNT).map(|at| tokens(family(at), LEN as u32)).collect();
        lists[2][30] += 500;
        let ids = lists.iter().map(|list| {
            let begun = shared.begin(&Namespace::default(), TokenList::text(&list[..PROMPT]), 0);
            begun.unwrap().id
        });
        let ids: Vec<_> = ids.collect();
        for (at, (&id, tokens)) in ids.iter().zip(&lists).enumerate() {
            let rest = list(at, &tokens[PROMPT..]);
            let items = rest.items.iter().map(|item| Item { token_index: 31 - PROMPT, ..*item });
            let items: Vec<_> = items.collect();
            shared.append(id, TokenList { items: &items, ..rest }).unwrap();
        }
        YIELDS.set(0);
        Self { shared, ids, lists: Rc::new(RefCell::new(lists)) }
    }

    fn positions(&self, at: usize) -> usize {
        self.shared.read().sequence_info(self.ids[at]).map_or(0, |info| info.positions)
    }

    /// At a yield the tokens of a sequence, behind what is published, become other ones.
    fn change_at(&self, number: usize, at: usize) {
        let (id, lists) = (self.ids[at], self.lists.clone());
        let step = move |shared: &Shared| {
            let info = shared.read().sequence_info(id).unwrap();
            let keep = (2 * info.shared_pages).max(PROMPT);
            shared.write().truncate(id, keep).unwrap();
            let other = tokens(60, LEN as u32);
            let held = NEXT.take();
            shared.append(id, TokenList::text(&other[keep..])).unwrap();
            NEXT.set(held);
            lists.borrow_mut()[at].splice(keep.., other[keep..].iter().copied());
        };
        NEXT.set(Some((number, Box::new(step))));
    }

    /// Each is found as far as it was published, by the tokens that it has.
    fn check(&self, published: &[Published], what: &str) {
        let state = self.shared.read();
        state.audit().unwrap_or_else(|error| panic!("{what}: {error}"));
        state.check().unwrap_or_else(|error| panic!("{what}: {error}"));
        for (at, (tokens, done)) in self.lists.borrow().iter().zip(published).enumerate() {
            let found = state.find(&Namespace::default(), list(at, tokens)).unwrap();
            assert_eq!(found.positions(), 2 * done.shared_pages, "{what}: sequence {at}");
            let row = state.row_from(self.ids[at].slot(), 0).unwrap();
            assert!(found.pages() == done.shared_pages && row.len() >= found.pages(), "{what}");
        }
    }
}

/// M06: what is published, by one call or by one for all, is what the sequence has then, whatever
/// it had when it was hashed.
#[test]
fn m06_what_is_published_changes_while_it_is_hashed() {
    for is_batch in [false, true] {
        for changed in 0..COUNT - 1 {
            for number in 0.. {
                let world = World::new();
                let computed: Vec<_> = (0..COUNT).map(|at| world.positions(at)).collect();
                world.change_at(number, changed);
                let mut done = Vec::new();
                let shared = world.shared.clone();
                if is_batch {
                    let items: Vec<_> =
                        world.ids.iter().copied().zip(computed.iter().copied()).collect();
                    shared.each(COUNT, |turn, at| {
                        if at == 0 {
                            turn.make_tails_ready(items.iter().copied());
                        }
                        done.push(turn.publish(items[at].0, items[at].1).unwrap());
                    });
                } else {
                    for (&id, &computed) in world.ids.iter().zip(&computed) {
                        done.push(shared.turn().publish(id, computed).unwrap());
                    }
                }
                let came = NEXT.take().is_none();
                let what = format!("{is_batch}, sequence {changed} changed at yield {number}");
                for (done, computed) in done.iter().zip(&computed) {
                    assert_eq!(done.shared_pages, computed / 2, "{what}");
                }
                world.check(&done, &what);
                if !came {
                    assert!(number > COUNT * LEN / 2, "{what}");
                    break;
                }
            }
        }
    }
}

/// M06: a sequence that was hashed ahead ends before its turn, and its slot is another one's.
#[test]
fn m06_what_was_hashed_for_one_is_not_published_by_another() {
    for number in 0..COUNT {
        let world = World::new();
        let gone = world.ids[COUNT - 2];
        let other = tokens(70, LEN as u32);
        let (next, ids) = (Rc::new(Cell::new(None)), other.clone());
        let begins = next.clone();
        let step = move |shared: &Shared| {
            shared.turn().release(gone).unwrap();
            let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap();
            assert_eq!(begun.slot, gone.slot());
            begins.set(Some(begun.id));
        };
        NEXT.set(Some((number, Box::new(step))));
        let computed: Vec<_> = (0..COUNT).map(|at| world.positions(at)).collect();
        let mut done = Vec::new();
        world.shared.each(COUNT, |turn, at| {
            if at == 0 {
                turn.make_tails_ready(world.ids.iter().copied().zip(computed.iter().copied()));
            }
            if at == COUNT - 2
                && let Some(next) = next.get()
            {
                // The one that has its slot, in its place.
                let next = turn.publish(next, LEN).unwrap();
                assert_eq!(next.shared_pages, LEN / 2);
            }
            done.push(turn.publish(world.ids[at], computed[at]));
        });
        assert!(NEXT.take().is_none());
        assert!(done[COUNT - 2].is_err(), "{number}");
        let state = world.shared.read();
        state.audit().unwrap();
        state.check().unwrap();
        let found = state.find(&Namespace::default(), TokenList::text(&other)).unwrap();
        assert_eq!(found.pages(), LEN / 2, "{number}");
        for at in (0..COUNT).filter(|&at| at != COUNT - 2) {
            let tokens = &world.lists.borrow()[at];
            let found = state.find(&Namespace::default(), list(at, tokens)).unwrap();
            assert_eq!(found.pages(), computed[at] / 2, "sequence {at}");
        }
    }
}

/// M06: digests of tokens that were taken back are of no use for all portions that follow, also
/// where one of those needed none.
#[test]
fn m06_digests_of_tokens_that_were_taken_back_stay_refused() {
    // Whole pages of the prompt, and some decoded ones behind: fewer than are hashed ahead alone.
    const KNOWN: usize = 64;
    const ALL: usize = 72;
    for number in 0.. {
        SHARED.set(None);
        NEXT.set(None);
        let config = PageTableConfig {
            page_size: 2,
            page_count: 400,
            slot_count: 8,
            ..PageTableConfig::default()
        };
        let shared = Arc::new(Shared::with_slices(config, 64, Some(Box::new(at_yield))).unwrap());
        let config = CacheConfig { index: IndexKind::BlockHash, ..CacheConfig::default() };
        shared.attach_cache(config).unwrap();
        SHARED.set(Some(shared.clone()));
        let begin =
            |ids: &[u32]| shared.begin(&Namespace::default(), TokenList::text(ids), 0).unwrap().id;
        let (list, beside) = (tokens(0, ALL as u32), tokens(1, ALL as u32));
        let ids = [begin(&list[..KNOWN]), begin(&beside)];
        shared.append(ids[0], TokenList::text(&list[KNOWN..])).unwrap();
        // Somebody else publishes the same prompt first.
        let first = begin(&list[..KNOWN]);
        shared.turn().publish(first, KNOWN).unwrap();

        let now = Rc::new(RefCell::new(list.clone()));
        let (id, changed) = (ids[0], now.clone());
        let step = move |shared: &Shared| {
            let info = shared.read().sequence_info(id).unwrap();
            let keep = (2 * info.shared_pages).max(KNOWN);
            let other = tokens(60, ALL as u32);
            shared.write().truncate(id, keep).unwrap();
            shared.append(id, TokenList::text(&other[keep..])).unwrap();
            changed.borrow_mut().splice(keep.., other[keep..].iter().copied());
        };
        NEXT.set(Some((number, Box::new(step))));
        let mut done = Vec::new();
        shared.each(ids.len(), |turn, at| {
            if at == 0 {
                turn.make_tails_ready(ids.iter().map(|&id| (id, ALL)));
            }
            done.push(turn.publish(ids[at], ALL).unwrap());
        });
        let came = NEXT.take().is_none();
        let what = format!("changed at yield {number}");
        assert!(done.iter().all(|done| done.shared_pages == ALL / 2), "{what}");
        let state = shared.read();
        state.check().unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = |ids: &[u32]| {
            state.find(&Namespace::default(), TokenList::text(ids)).unwrap().positions()
        };
        let now = now.borrow();
        assert_eq!(found(&now), ALL, "{what}: what it has is not found");
        let same = list.iter().zip(now.iter()).take_while(|(old, new)| old == new).count();
        assert_eq!(found(&list), same, "{what}: what was taken back is found");
        if !came {
            assert!(number > 4, "{what}");
            break;
        }
    }
}
