//! A consumer of the journal: what it knows from records alone must be what the cache holds.
use super::abi::{Library, Read, Status};
use super::naive::{Naive, Wrong, require};
use super::namespaces::{NAMESPACE_COUNT, namespace, namespace_of};
use super::prompt::Key;
use radixkv::capi::*;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a page that is held, or was until its namespace was cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    ns: u8,
    parent: u32,
    first_position: u64,
    keys: Vec<Key>,
    cleared: bool,
}

/// Follows a cache by its journal.
#[derive(Default)]
pub struct Replica {
    held: BTreeMap<u32, Held>,
    /// Pages that had been cleared when it began to follow: they may have been stored before that.
    cleared_before: BTreeSet<u32>,
    /// Records up to this one are applied.
    number: u64,
    follows: u64,
}

/// The namespace of a record, by its number here.
fn namespace_in(record: &rkv_journal_record) -> Result<u8, Wrong> {
    let is_it = |number: &u8| match namespace(*number) {
        None => {
            record.namespace_flags == 0
                && (record.lora_id, record.epoch) == (0, 0)
                && record.salt == [0; 32]
        }
        Some(known) => {
            (known.flags, known.lora_id, known.epoch, known.image_digest, known.salt)
                == (
                    record.namespace_flags,
                    record.lora_id,
                    record.epoch,
                    record.image_digest,
                    record.salt,
                )
        }
    };
    let found = (0..NAMESPACE_COUNT).find(is_it);
    found.map(namespace_of).ok_or(format!("a record is of an unknown namespace: {record:?}"))
}

/// What a stored record says, position by position.
fn keys_of(read: &Read, record: &rkv_journal_record) -> Result<Vec<Key>, Wrong> {
    let tokens = read.tokens_of(record);
    let mut keys: Vec<Option<Key>> =
        tokens.iter().map(|&id| (id < RKV_TEXT_ID_LIMIT).then_some(Key::Text(id))).collect();
    for item in read.items_of(record) {
        for at in 0..item.position_count {
            let key = match item.kind {
                RKV_TOKEN_COORD => Key::Coord(item.bin),
                RKV_TOKEN_SIZE => Key::Size(item.bin, item.height_bin),
                _ => Key::Image {
                    content: item.digest[0],
                    length: item.image_position_count,
                    offset: item.image_offset + at,
                },
            };
            let before = keys[(item.position + at) as usize].replace(key);
            require!(before.is_none(), "an item {item:?} stands where another token is");
        }
    }
    keys.into_iter().collect::<Option<_>>().ok_or("nothing says what a position is".into())
}

impl Replica {
    /// Takes a record over. `Err` when it can't come now: only for records that follow each other
    /// without a gap and from a whole state. Pages are removed for this reason, but for those that
    /// were cleared.
    fn apply(
        &mut self,
        read: &Read,
        record: &rkv_journal_record,
        whole: bool,
        reason: u32,
    ) -> Result<(), Wrong> {
        let pages = read.pages_of(record);
        require!(record.group == 0, "a record is of group {}", record.group);
        match record.kind {
            RKV_JOURNAL_STORED => {
                let ns = namespace_in(record)?;
                require!(record.reason == 0, "pages are stored for {}", record.reason);
                let keys = keys_of(read, record)?;
                let page_size = keys.len() / pages.len();
                let mut parent = record.parent_page;
                let mut first_position = record.first_position;
                for (&page, keys) in pages.iter().zip(keys.chunks_exact(page_size)) {
                    let keys = keys.to_vec();
                    if whole {
                        let end = |held: &Held| held.first_position + page_size as u64;
                        let parents = self.held.get(&parent).filter(|held| !held.cleared);
                        let expected = parents.map_or(0, end);
                        require!(parent == 0 || expected > 0, "a parent {parent} is not held");
                        require!(first_position == expected, "page {page} follows no page");
                    }
                    let held = Held { ns, parent, first_position, keys, cleared: false };
                    let known = self.held.insert(page, held);
                    require!(!whole || known.is_none(), "page {page} is stored twice");
                    self.cleared_before.remove(&page);
                    (parent, first_position) = (page, first_position + page_size as u64);
                }
            }
            RKV_JOURNAL_REMOVED => {
                for &page in pages {
                    let known = self.held.remove(&page);
                    let cleared = match &known {
                        Some(held) => held.cleared,
                        None => self.cleared_before.remove(&page),
                    };
                    let known = known.is_some() || cleared;
                    require!(!whole || known, "page {page} is removed, but not held");
                    let reason = if cleared { RKV_REASON_INVALIDATED } else { reason };
                    let theirs = record.reason;
                    require!(theirs == reason, "page {page} is removed for {theirs}, not {reason}");
                    let child = self.held.values().any(|held| held.parent == page);
                    require!(!whole || !child, "page {page} goes before the one after it");
                }
            }
            RKV_JOURNAL_CLEARED => {
                let ns = namespace_in(record)?;
                require!(pages.is_empty(), "a cleared namespace has the pages {pages:?}");
                require!(record.reason == RKV_REASON_INVALIDATED, "a clear is {}", record.reason);
                let there = self.held.values_mut().filter(|held| held.ns == ns);
                there.for_each(|held| held.cleared = true);
            }
            kind => return Err(format!("a record has the kind {kind}")),
        }
        Ok(())
    }

    /// Reads on. Pages are removed for this reason, but for those that were cleared.
    pub fn follow(&mut self, library: &Library, model: &Naive, reason: u32) -> Result<(), Wrong> {
        let failed = |status: Status| format!("journal: {status:?}: {}", Library::last_message());
        self.follows += 1;
        loop {
            let mut read = Read::new([4, 8, 24, 4]);
            let done = library.read_journal(self.number, &mut read).map_err(failed)?;
            if done.lost_count > 0 {
                model.mark("records are lost");
                require!(
                    done.oldest_number == self.number + done.lost_count + 1,
                    "the gap is not what is lost: {done:?}"
                );
                self.start_again(library, model)?;
                break;
            }
            for record in &read.records {
                self.number += 1;
                require!(record.number == self.number, "record {} is skipped", self.number);
                self.apply(&read, record, true, reason)?;
                let cut = |item: &rkv_journal_item| {
                    item.kind == RKV_TOKEN_IMAGE && item.position_count < item.image_position_count
                };
                if read.items_of(record).iter().any(cut) {
                    model.mark("a part of an image is stored");
                }
            }
            require!(done.last_number == self.number, "last_number is {}", done.last_number);
            if self.number == done.newest_number {
                break;
            }
        }
        self.compare(model)?;
        if self.follows.is_multiple_of(5) {
            self.start_again(library, model)?;
            self.compare(model)?;
        }
        Ok(())
    }

    /// Forgets everything, and takes over what is held.
    fn start_again(&mut self, library: &Library, model: &Naive) -> Result<(), Wrong> {
        let failed = |status: Status| format!("contents: {status:?}: {}", Library::last_message());
        self.held.clear();
        self.cleared_before = model.cleared_pages().into_iter().collect();
        let mut next = 0;
        loop {
            let mut read = Read::new([2, 8, 24, 4]);
            let done = library.read_contents(next, &mut read).map_err(failed)?;
            for record in &read.records {
                self.apply(&read, record, false, 0)?;
            }
            (self.number, next) = (done.number, done.next_page);
            if next == 0 {
                return Ok(());
            }
        }
    }

    /// What is known is what the specification has.
    fn compare(&self, model: &Naive) -> Result<(), Wrong> {
        let mut ours = BTreeSet::new();
        for page in model.cache.pages.iter().filter(|page| model.lives.is_found(page.ns)) {
            let mut prefix = Vec::new();
            let mut at = page.page;
            while at != 0 {
                let Some(held) = self.held.get(&at) else {
                    return Err(format!("the journal doesn't know page {at}"));
                };
                require!(held.ns == page.ns.name, "page {at} is in namespace {}", held.ns);
                require!(!held.cleared, "page {at} is said to be cleared");
                prefix.push(&held.keys[..]);
                at = held.parent;
            }
            prefix.reverse();
            require!(prefix.concat() == page.prefix, "page {} holds other tokens", page.page);
            ours.insert(page.page);
        }
        let cleared = model.cleared_pages();
        let is_there = |(page, held): &(&u32, &Held)| {
            if held.cleared { cleared.contains(page) } else { ours.contains(page) }
        };
        let more: Vec<_> = self.held.iter().filter(|held| !is_there(held)).collect();
        require!(more.is_empty(), "the journal has the pages {more:?} left");
        Ok(())
    }
}
