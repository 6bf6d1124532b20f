//! Carries out operations on the library and on the model, and compares the answers.
use super::abi::{Library, Status};
use super::compare::{Names, compare, equal};
use super::journal::Replica;
use super::naive::{Fault, Naive, Page, Refusal, Shortage, Wrong, require};
use super::namespaces::covers;
use super::ops::{Config, Op, Pick};
use super::prompt::{Piece, Prompt};
use super::published::Label;
use super::spaces::Space;
use super::tokens::TokenList;
use radixkv::capi::rkv_page_copy;
use radixkv::capi::{RKV_CLEAR_EVERYTHING, RKV_REASON_CALLER, RKV_REASON_CAPACITY};
use radixkv::sequence::Room;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// A node to go on from, and the prompt that its prefix begins.
#[derive(Clone)]
pub struct Earlier {
    pub ns: Space,
    pub prompt: Prompt,
    pub node: Label,
    pub whole_pages: usize,
}

pub struct Driver {
    pub library: Library,
    pub model: Naive,
    pub names: Names,
    /// Ids by the model's index.
    pub sequences: Vec<u64>,
    /// Locks that operations took and may undo.
    pub locks: Vec<Lock>,
    /// Locks that protect the cached pages of rows which the caller mapped.
    pub row_locks: BTreeMap<u32, Vec<Lock>>,
    /// Ids of locks that were undone lately, or went with their cache.
    undone: Vec<u64>,
    pub earlier: Vec<Earlier>,
    pub foreign: Foreign,
    /// Follows the cache by its journal, if it has one.
    replica: Option<Replica>,
}

/// A lock, and the node that it is on.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    pub id: u64,
    pub node: Label,
}

/// Another cache, whose ids mean nothing here.
pub struct Foreign {
    _library: Library,
    pub node: u64,
    pub sequence: u64,
    lock: u64,
}

impl Foreign {
    fn new() -> Result<Foreign, Status> {
        let config = Config {
            page_size: 1,
            page_count: 4,
            slot_count: 1,
            row_page_limit: 0,
            whole_pages: false,
            block_hash: false,
            retained_sequences: 0,
            retained_pages: 0,
            journal_bytes: 0,
        };
        let library = Library::new(&config)?;
        let tokens = TokenList::of(&Prompt(vec![Piece::Text(1, 2)]));
        let sequence = library.begin(0, &tokens, 0.into())?.sequence;
        library.publish(sequence, 2)?;
        let node = library.query(sequence)?.node;
        let lock = library.lock(node)?;
        Ok(Foreign { _library: library, node, sequence, lock })
    }
}

/// Why the library refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: Status,
    /// Of a batch, a later item was refused too: what the thread knows of a refusal is about that.
    pub is_past: bool,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Refused { status, is_past: false }
    }
}

/// Both answers, when the call succeeded; nothing when both refused it for the same reason.
pub fn agree<T, U: Debug>(
    what: &str,
    library: Result<T, impl Into<Refused>>,
    model: Result<U, Refusal>,
) -> Result<Option<(T, U)>, Wrong> {
    let library = library.map_err(|refused| {
        let Refused { status, is_past } = refused.into();
        (status, is_past)
    });
    match (library, model) {
        (Ok(library), Ok(model)) => Ok(Some((library, model))),
        (Err((Status::OutOfPages, true)), Err(Refusal::Pages(_))) => Ok(None),
        (Err((Status::OutOfPages, false)), Err(Refusal::Pages(ours))) => {
            let theirs = Library::last_shortage().map_err(|status| format!("{status:?}"))?;
            let theirs = Shortage {
                needed: theirs.needed_page_count as usize,
                free: theirs.free_page_count as usize,
                reclaimable: theirs.reclaimable_page_count as usize,
                locked: theirs.locked_page_count as usize,
                private: theirs.private_page_count as usize,
                retained: theirs.retained_page_count as usize,
            };
            require!(ours == theirs, "{what}: {theirs:?}, in the model {ours:?}");
            Ok(None)
        }
        (Err((theirs, _)), Err(Refusal::Status(ours))) if theirs == ours => Ok(None),
        (Err((theirs, _)), model) => Err(format!(
            "{what} returned {theirs:?} ({}), in the model {model:?}",
            Library::last_message()
        )),
        (Ok(_), Err(ours)) => Err(format!("{what} succeeded, in the model {ours:?}")),
    }
}

fn read_tokens(prompt: &Prompt) -> Result<(), Wrong> {
    let list = TokenList::of(prompt);
    let mut at = 0;
    let mut regions = Vec::new();
    for piece in &prompt.0 {
        let end = at + piece.positions() as u64;
        if matches!(piece, Piece::Image(..)) {
            regions.push((at, end));
        }
        at = end;
    }
    let measured = list.measure();
    require!(measured == Ok((at as usize, regions)), "a token list is measured {measured:?}");
    let built = list.is_what_the_library_builds();
    let expected = if prompt.has_bad_ids() { Err(Status::InvalidArgument) } else { Ok(true) };
    require!(built == expected, "rkv_tokens_build: {built:?}: {}", Library::last_message());
    Ok(())
}

pub fn room_of(reserve: u16, first: u16) -> Room {
    Room { reserve: reserve.into(), first: first.into() }
}

/// An element by an index that may be too large.
pub fn pick<T: Clone>(from: &[T], at: Pick) -> Option<T> {
    from.get(at as usize % from.len().max(1)).cloned()
}

impl Driver {
    pub fn new(config: &Config, fault: Fault) -> Result<Driver, Wrong> {
        let library = Library::new(config).map_err(|status| format!("create: {status:?}"))?;
        let foreign = Foreign::new().map_err(|status| format!("foreign cache: {status:?}"))?;
        Ok(Driver {
            library,
            model: Naive::new(*config, fault),
            names: Names::default(),
            sequences: Vec::new(),
            locks: Vec::new(),
            row_locks: BTreeMap::new(),
            undone: Vec::new(),
            earlier: Vec::new(),
            foreign,
            replica: (config.journal_bytes > 0).then(Replica::default),
        })
    }

    /// One operation, and whether everything is as it should be after it.
    pub fn step(&mut self, op: &Op) -> Result<(), Wrong> {
        self.apply(op)?;
        if let Some(replica) = &mut self.replica {
            let by_caller = matches!(op, Op::Evict { .. } | Op::EvictSmallBuffer { .. });
            let reason = if by_caller { RKV_REASON_CALLER } else { RKV_REASON_CAPACITY };
            replica.follow(&self.library, &self.model, reason)?;
        }
        self.compare_all()
    }

    pub fn compare_all(&mut self) -> Result<(), Wrong> {
        compare(&self.library, &self.model, &mut self.names, &self.sequences)?;
        self.compare_retained()
    }

    pub fn apply(&mut self, op: &Op) -> Result<(), Wrong> {
        match op {
            Op::Match { ns, prompt, lock } => {
                self.lookup(*ns, prompt, *lock)?;
                Ok(())
            }
            Op::MatchTooSmall { ns, prompt } => self.match_too_small(*ns, prompt),
            Op::Probe { ns, prompt } => self.probe(*ns, prompt),
            Op::ReadTokens { prompt } => read_tokens(prompt),
            Op::Insert { ns, prompt, keep } => self.insert(*ns, prompt, *keep),
            Op::InsertResumed { earlier, more, keep } => self.insert_resumed(*earlier, more, *keep),
            Op::InsertRow { row, ns, prompt } => self.insert_row(*row, *ns, prompt),
            Op::InsertWrong { wrong, earlier, ns, prompt } => {
                self.insert_wrong(*wrong, *earlier, *ns, prompt)
            }
            Op::Lock { node } => self.lock(*node),
            Op::Unlock { lock } => self.unlock_one(*lock),
            Op::UnlockStale { lock } => self.unlock_stale(*lock),
            Op::Evict { count, reported } => self.evict(*count as usize, *reported),
            Op::EvictSmallBuffer { count, capacity } => {
                self.evict_into(*count as usize, *capacity as usize)
            }
            Op::Clear { ns, flags } => self.clear(*ns, (*flags).into()),
            Op::RecreateCache => self.recreate_cache(),
            Op::Begin { ns, prompt, reserve, first } => {
                self.begin(*ns, prompt, room_of(*reserve, *first))
            }
            Op::Allocate { sequence, back } => self.lengthen(*sequence, -i64::from(*back)),
            Op::AllocateBeyond { sequence, more } => self.lengthen(*sequence, i64::from(*more) + 1),
            Op::ConfirmCopies { sequence } => self.confirm_copies(*sequence),
            Op::Append { sequence, prompt } => self.append(*sequence, prompt),
            Op::Truncate { sequence, back } => self.truncate(*sequence, -i64::from(*back)),
            Op::TruncateBeyond { sequence, more } => self.truncate(*sequence, i64::from(*more) + 1),
            Op::Publish { sequence, back } => self.publish(*sequence, -i64::from(*back)),
            Op::PublishBeyond { sequence, more } => self.publish(*sequence, i64::from(*more) + 1),
            Op::Release { sequence } => self.release(*sequence),
            Op::DeadSequence { sequence } => self.dead_sequence(*sequence),
            Op::BeginMany(items) => self.begin_many(&items.0),
            Op::AppendMany(items) => self.append_many(&items.0),
            Op::PublishMany(items) => self.publish_many(&items.0),
            Op::ReleaseMany(items) => self.release_many(&items.0),
            Op::MatchMany(items) => self.match_many(&items.0),
            Op::ProbeMany(items) => self.probe_many(&items.0),
            _ => self.apply_to_children(op),
        }
    }

    /// Any node that was ever seen, live ones preferred.
    fn any_node(&self, at: Pick) -> Option<Label> {
        let known = &self.names.known;
        if at.is_multiple_of(4) {
            return pick(known, at / 4);
        }
        let live = known.iter().copied().filter(|&label| self.model.cache.is_live(label));
        pick(&live.collect::<Vec<_>>(), at / 4)
    }

    /// The page copy that a sequence waits for.
    pub fn copy_of(&self, sequence: u64) -> Result<rkv_page_copy, Wrong> {
        let copy = self.library.copy_of(sequence);
        copy.map_err(|status| format!("rkv_sequence_read_copies: {status:?}"))
    }

    fn lock(&mut self, at: Pick) -> Result<(), Wrong> {
        if at.is_multiple_of(32) {
            let answer = self.library.lock(self.foreign.node);
            require!(answer == Err(Status::StaleNode), "a foreign node is locked: {answer:?}");
        }
        let Some(node) = self.any_node(at) else { return Ok(()) };
        let locked = self.lock_node(node)?;
        self.locks.extend(locked);
        Ok(())
    }

    /// The lock on a node, unless the node is gone.
    pub fn lock_node(&mut self, node: Label) -> Result<Option<Lock>, Wrong> {
        let locked = self.library.lock(self.names.id(node));
        let locked = agree("rkv_cache_lock", locked, self.model.lock(node))?;
        Ok(locked.map(|(id, ())| Lock { id, node }))
    }

    fn unlock_one(&mut self, at: Pick) -> Result<(), Wrong> {
        if self.locks.is_empty() {
            return Ok(());
        }
        let lock = self.locks.swap_remove(at as usize % self.locks.len());
        self.unlock(lock)
    }

    pub fn unlock(&mut self, lock: Lock) -> Result<(), Wrong> {
        let unlocked = self.library.unlock(lock.id);
        unlocked.map_err(|status| format!("rkv_cache_unlock: {status:?}"))?;
        self.model.unlock(lock.node);
        self.forget_lock(lock);
        Ok(())
    }

    /// Keeps the ids of the last few locks that are gone.
    fn forget_lock(&mut self, lock: Lock) {
        if self.undone.len() == 64 {
            self.undone.remove(0);
        }
        self.undone.push(lock.id);
    }

    fn unlock_stale(&mut self, at: Pick) -> Result<(), Wrong> {
        let ids = [self.foreign.lock, 0, u64::MAX].into_iter();
        let ids: Vec<u64> = ids.chain(self.undone.iter().copied()).collect();
        let id = pick(&ids, at).expect("there is one at least");
        let answer = self.library.unlock(id);
        require!(answer == Err(Status::StaleLock), "{id:#x} is unlocked: {answer:?}");
        self.model.mark("a stale lock");
        Ok(())
    }

    fn evict(&mut self, count: usize, reported: bool) -> Result<(), Wrong> {
        let evicted = self.library.evict(count, reported.then_some(count));
        let (number, pages) = evicted.map_err(|status| format!("rkv_cache_evict: {status:?}"))?;
        let ours = self.model.evict(count);
        require!(number == ours.len(), "{number} pages are evicted, in the model {ours:?}");
        require!(!reported || pages == ours, "pages {pages:?} are evicted, in the model {ours:?}");
        Ok(())
    }

    fn evict_into(&mut self, count: usize, capacity: usize) -> Result<(), Wrong> {
        let evicted = self.library.evict(count, Some(capacity));
        let (_, pages) = evicted.map_err(|status| format!("rkv_cache_evict: {status:?}"))?;
        let ours = self.model.evict(count.min(capacity));
        require!(pages == ours, "pages {pages:?} are evicted, in the model {ours:?}");
        Ok(())
    }

    fn clear(&mut self, ns: u8, flags: u32) -> Result<(), Wrong> {
        let cleared = self.library.clear(ns, flags);
        if !(1..=RKV_CLEAR_EVERYTHING).contains(&flags) {
            let refused = cleared.is_err_and(|status| status == Status::InvalidArgument);
            require!(refused, "rkv_cache_clear takes the flags {flags}");
            return Ok(());
        }
        let seen = cleared.map_err(|status| format!("rkv_cache_clear: {status:?}"))?;
        let retained = self.library.retained(self.model.retained.len());
        let retained = retained.map_err(|status| format!("rkv_cache_read_retained: {status:?}"))?;
        let stays = |index| retained.contains(&self.sequences[index]);
        let ours = self.model.clear(|other| covers(flags, ns, other), stays)?;
        equal!("rkv_cache_clear",
            namespaces: ours.namespaces, seen.namespace_count;
            freed: ours.freed, seen.freed_page_count;
            held: ours.held, seen.held_page_count;
            waiting: 0, seen.waiting_page_count;
            dropped: ours.dropped, seen.dropped_sequence_count;
        );
        Ok(())
    }

    fn recreate_cache(&mut self) -> Result<(), Wrong> {
        let old = self.names.known.last().map(|&label| self.names.id(label));
        let created = self.library.recreate_cache();
        created.map_err(|status| format!("rkv_cache_create: {status:?}"))?;
        self.model.recreate_cache();
        if let Some(old) = old {
            let answer = self.library.lock(old);
            let stale = answer == Err(Status::StaleNode);
            require!(stale, "a node of the destroyed cache is locked: {answer:?}");
        }
        self.names = Names::default();
        let rows = std::mem::take(&mut self.row_locks).into_values().flatten();
        let locks: Vec<Lock> = self.locks.drain(..).chain(rows).collect();
        locks.into_iter().for_each(|lock| self.forget_lock(lock));
        self.earlier.clear();
        Ok(())
    }

    /// Pages that are private and in no row.
    pub fn loose(&self) -> Vec<u32> {
        self.model.pages_in(|page| page == Page::Loose)
    }

    pub fn remember(&mut self, earlier: Earlier) {
        if earlier.prompt.has_bad_ids() {
            return;
        }
        if self.earlier.len() == 16 {
            self.earlier.remove(0);
        }
        self.earlier.push(earlier);
    }
}
