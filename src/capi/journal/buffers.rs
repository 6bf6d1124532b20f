//! The buffers of a caller that records of the journal are read into.
use crate::capi::ffi::{Fail, WantedElements, check_flags, out_slice};
use crate::capi::journal::*;
use crate::capi::token::{namespace_of, rkv_namespace, rkv_token_item};
use crate::index::Namespace;
use crate::journal::{Reason, Record, What};
use crate::token::{Item, Part};
use std::mem::MaybeUninit;

/// How much of each kind.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub records: usize,
    pub pages: usize,
    pub tokens: usize,
    pub items: usize,
}

/// Room for records and for what belongs to them.
pub(crate) struct Buffers<'a> {
    records: WantedElements<rkv_journal_record>,
    pages: &'a mut [MaybeUninit<u32>],
    tokens: &'a mut [MaybeUninit<u32>],
    items: WantedElements<rkv_journal_item>,
    /// What was written, or would be.
    counts: Counts,
    /// What the first record needs, when it doesn't fit.
    needed: Option<Counts>,
    /// Nothing is to be written: the room for all is asked for.
    asks: bool,
}

impl Buffers<'_> {
    /// # Safety
    /// The buffers are writable for as many elements as is said.
    pub(crate) unsafe fn new(given: &rkv_journal_buffers) -> Result<Self, Fail> {
        let rkv_journal_buffers { page_capacity, token_capacity, .. } = *given;
        check_flags(given.flags, 0, "buffers.flags")?;
        let record_names = ["buffers.records", "buffers.record_size"];
        let item_names = ["buffers.items", "buffers.item_size"];
        let (record_size, item_size) = (given.record_size, given.item_size);
        let (record_room, item_room) = (given.record_capacity, given.item_capacity);
        // SAFETY: the caller's contract.
        let (records, items) = unsafe {
            (
                WantedElements::new(given.records, record_size, record_room, record_names)?,
                WantedElements::new(given.items, item_size, item_room, item_names)?,
            )
        };
        let rooms = [records.capacity(), page_capacity, token_capacity, items.capacity()];
        let is_none = given.records.is_null() && given.items.is_null();
        let is_none = is_none && given.pages.is_null() && given.tokens.is_null();
        let asks = rooms == [0; 4] && is_none;
        // SAFETY: the caller's contract.
        let (pages, tokens) = unsafe {
            (
                out_slice(given.pages, page_capacity, page_capacity, "buffers.pages")?,
                out_slice(given.tokens, token_capacity, token_capacity, "buffers.tokens")?,
            )
        };
        let counts = Counts::default();
        Ok(Self { records, pages, tokens, items, counts, needed: None, asks })
    }

    /// Takes a record, if there is room for all of it.
    pub fn take(&mut self, record: &Record<'_>) -> bool {
        let (spine, tokens, items) = match record.what {
            What::Stored { spine, tokens, parts, .. } => (spine, tokens, parts.count()),
            What::Removed(_) | What::Cleared(_) => (&[][..], &[][..], 0),
        };
        let before = self.counts;
        let spine_at = before.pages + record.pages.len();
        let after = Counts {
            records: before.records + 1,
            pages: spine_at + spine.len(),
            tokens: before.tokens + tokens.len(),
            items: before.items + items,
        };
        if self.asks {
            self.counts = after;
            return true;
        }
        let fits = after.records <= self.records.capacity()
            && after.pages <= self.pages.len()
            && after.tokens <= self.tokens.len()
            && after.items <= self.items.capacity();
        if !fits {
            self.needed = (before.records == 0).then_some(after);
            return false;
        }
        self.pages[before.pages..spine_at].write_copy_of_slice(record.pages);
        self.pages[spine_at..after.pages].write_copy_of_slice(spine);
        self.tokens[before.tokens..after.tokens].write_copy_of_slice(tokens);
        if let What::Stored { parts, .. } = record.what {
            for (at, part) in (before.items..).zip(parts.iter()) {
                self.items.put(at, &item(&part));
            }
        }
        let mut made = described(record);
        (made.page_index, made.page_count) = (before.pages as u64, record.pages.len() as u64);
        let spine_at = if spine.is_empty() { before.pages } else { spine_at };
        made.group_0_page_index = spine_at as u64;
        (made.token_index, made.token_count) = (before.tokens as u64, tokens.len() as u64);
        (made.item_index, made.item_count) = (before.items as u64, items as u64);
        self.records.put(before.records, &made);
        self.counts = after;
        true
    }

    /// Whether what was taken is in the buffers.
    pub fn are_written(&self) -> bool {
        !self.asks && self.needed.is_none()
    }

    /// What was taken; or what the first record needs, with the failure that says so.
    pub fn counts(&self) -> (Counts, Option<Fail>) {
        let Some(needed) = self.needed else {
            return (self.counts, None);
        };
        let Counts { pages, tokens, items, .. } = needed;
        let short = [
            (1, self.records.capacity(), "buffers.records"),
            (pages, self.pages.len(), "buffers.pages"),
            (tokens, self.tokens.len(), "buffers.tokens"),
            (items, self.items.capacity(), "buffers.items"),
        ];
        let short = short.into_iter().find(|(needed, room, _)| needed > room);
        let (count, room, name) = short.expect("the record doesn't fit");
        (needed, Some(Fail::too_small(count, room, name)))
    }
}

/// A record without where the rest of it is.
fn described(record: &Record<'_>) -> rkv_journal_record {
    let mut made = rkv_journal_record {
        number: record.number,
        kind: RKV_JOURNAL_REMOVED,
        group: record.group as u32,
        ..rkv_journal_record::zeroed()
    };
    match record.what {
        What::Removed(reason) => {
            made.reason = match reason {
                Reason::Capacity => RKV_REASON_CAPACITY,
                Reason::Caller => RKV_REASON_CALLER,
                Reason::Destroyed => RKV_REASON_DESTROYED,
                Reason::Invalidated => RKV_REASON_INVALIDATED,
                Reason::Limit => RKV_REASON_LIMIT,
            };
        }
        What::Stored { namespace, parent, first_position, .. } => {
            made.kind = RKV_JOURNAL_STORED;
            (made.parent_page, made.first_position) = (parent, first_position);
            put_namespace(&mut made, &namespace);
        }
        What::Cleared(namespace) => {
            (made.kind, made.reason) = (RKV_JOURNAL_CLEARED, RKV_REASON_INVALIDATED);
            put_namespace(&mut made, &namespace);
        }
    }
    made
}

fn put_namespace(made: &mut rkv_journal_record, namespace: &Namespace) {
    let rkv_namespace { flags, lora_id, epoch, image_digest, salt, .. } = namespace_of(namespace);
    (made.namespace_flags, made.lora_id, made.epoch) = (flags, lora_id, epoch);
    (made.image_digest, made.salt) = (image_digest, salt);
}

fn item(part: &Part) -> rkv_journal_item {
    let whole = rkv_token_item::from(&Item { token_index: 0, kind: part.kind });
    let rkv_token_item { kind, position_count, bin, height_bin, digest, .. } = whole;
    rkv_journal_item {
        kind,
        position: part.start as u32,
        position_count: part.positions as u32,
        image_offset: part.offset,
        image_position_count: position_count,
        bin,
        height_bin,
        reserved: 0,
        digest,
    }
}
