//! A consumer of the journal: what it knows from records alone must be what the cache holds, of
//! every group.
use super::library::{Library, World, sized};
use super::model::{Pages, Prefix};
use radixkv::capi::*;
use std::collections::BTreeMap;

/// What is known of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    tenant: u32,
    /// Of group 0, the page before it; of another group, the page of group 0 that it hangs on.
    on: u32,
    first_position: u64,
    ids: Vec<u32>,
    cleared: bool,
}

/// Follows a cache by its journal.
#[derive(Debug, Default)]
pub struct Follower {
    /// By group and page.
    held: BTreeMap<(u32, u32), Held>,
    /// Records up to this one are applied.
    number: u64,
    follows: u64,
    /// Records that were lost, and what was told in their place: all but what was cleared and is
    /// still in use.
    pub lost: u64,
    /// Records of groups beside the first.
    pub of_groups: u64,
}

/// Room for records.
struct Room {
    records: Vec<rkv_journal_record>,
    pages: Vec<u32>,
    tokens: Vec<u32>,
}

impl Room {
    /// Little, so that it is too small for all records, and sometimes for one.
    fn new([records, pages, tokens]: [usize; 3]) -> Self {
        // SAFETY: plain integers, for which zero is a value.
        let record: rkv_journal_record = unsafe { std::mem::zeroed() };
        Self { records: vec![record; records], pages: vec![0; pages], tokens: vec![0; tokens] }
    }

    /// Makes a call that reads into it, with more room when a record doesn't fit. The call returns
    /// its status and how much was read.
    fn read(&mut self, call: &mut dyn FnMut(&rkv_journal_buffers) -> (rkv_status, [u64; 3])) {
        loop {
            let buffers = rkv_journal_buffers {
                records: self.records.as_mut_ptr(),
                record_size: size_of::<rkv_journal_record>(),
                record_capacity: self.records.len(),
                pages: self.pages.as_mut_ptr(),
                page_capacity: self.pages.len(),
                tokens: self.tokens.as_mut_ptr(),
                token_capacity: self.tokens.len(),
                ..sized()
            };
            let (status, counts) = call(&buffers);
            let [records, pages, tokens] = counts.map(|count| count as usize);
            if status == rkv_status::BufferTooSmall {
                *self = Self::new([records, pages, tokens]);
                continue;
            }
            assert_eq!(status, rkv_status::Ok);
            self.records.truncate(records);
            return;
        }
    }

    fn pages_of(&self, record: &rkv_journal_record) -> &[u32] {
        &self.pages[record.page_index as usize..][..record.page_count as usize]
    }

    fn spine_of(&self, record: &rkv_journal_record) -> &[u32] {
        &self.pages[record.group_0_page_index as usize..][..record.page_count as usize]
    }

    fn tokens_of(&self, record: &rkv_journal_record) -> &[u32] {
        &self.tokens[record.token_index as usize..][..record.token_count as usize]
    }
}

impl Follower {
    /// Takes a record over. `whole`: records follow each other without a gap, from a whole state.
    fn apply(&mut self, room: &Room, record: &rkv_journal_record, whole: bool) {
        let (group, tenant) = (record.group, record.lora_id as u32);
        let pages = room.pages_of(record);
        self.of_groups += u64::from(group > 0);
        match record.kind {
            RKV_JOURNAL_STORED => {
                let (spine, tokens) = (room.spine_of(record), room.tokens_of(record));
                assert_eq!(group == 0, record.group_0_page_index == record.page_index);
                let page_size = tokens.len() / pages.len();
                let mut before = record.parent_page;
                let mut first_position = record.first_position;
                for (at, ids) in tokens.chunks_exact(page_size).enumerate() {
                    let on = if group == 0 { before } else { spine[at] };
                    let ids = ids.to_vec();
                    let held = Held { tenant, on, first_position, ids, cleared: false };
                    if whole && group > 0 {
                        let there = &self.held[&(0, on)];
                        let is_same = (there.on, there.tenant, &there.ids, there.first_position)
                            == (before, tenant, &held.ids, first_position);
                        assert!(is_same && !there.cleared, "{held:?} hangs on {there:?}");
                    }
                    if whole && group == 0 && before != 0 {
                        let end = self.held[&(0, before)].first_position + page_size as u64;
                        assert_eq!(first_position, end, "a page follows the one before");
                    }
                    let known = self.held.insert((group, pages[at]), held);
                    assert!(!whole || known.is_none(), "a page of group {group} is stored twice");
                    (before, first_position) = (spine[at], first_position + page_size as u64);
                }
            }
            RKV_JOURNAL_REMOVED => {
                for &page in pages {
                    let known = self.held.remove(&(group, page));
                    let invalid = record.reason == RKV_REASON_INVALIDATED;
                    let may_be_unknown = !whole || (invalid && self.lost > 0);
                    assert!(
                        may_be_unknown || known.is_some(),
                        "page {page} is not held: {record:?}"
                    );
                    assert!(known.is_none_or(|known| known.cleared == invalid), "{record:?}");
                    // A cache that is destroyed loses its pages by their numbers.
                    let first = u32::from(record.reason == RKV_REASON_DESTROYED);
                    let is_on = |((of, _), held): &(&(u32, u32), &Held)| {
                        group == 0 && *of >= first && held.on == page
                    };
                    let on_it = self.held.iter().find(is_on);
                    assert!(!whole || on_it.is_none(), "page {page} goes before {on_it:?}");
                }
            }
            RKV_JOURNAL_CLEARED => {
                assert!(pages.is_empty());
                let of = self.held.values_mut().filter(|held| held.tenant == tenant);
                of.for_each(|held| held.cleared = true);
            }
            kind => panic!("a record has the kind {kind}"),
        }
    }

    /// Reads on. Every now and then it begins anew with what is held.
    pub fn follow(&mut self, library: &Library) {
        self.follows += 1;
        let is_whole = self.read_on(library);
        // What was cleared before it began is removed later, and not told.
        let can_begin = self.held.values().all(|held| !held.cleared);
        if !is_whole || (can_begin && self.follows.is_multiple_of(7)) {
            self.begin_again(library);
        }
    }

    /// False when records were lost.
    pub fn read_on(&mut self, library: &Library) -> bool {
        loop {
            let mut room = Room::new([3, 6, 6]);
            let mut read: rkv_cache_read_journal_result = sized();
            let after = self.number;
            // SAFETY: the page table lives as long as the library, and the buffers have their room.
            room.read(&mut |buffers| unsafe {
                let status =
                    rkv_page_table_read_journal(library.table(), after, buffers, &mut read);
                (status, [read.record_count, read.page_count, read.token_count])
            });
            if read.lost_count > 0 {
                self.lost += read.lost_count;
                return false;
            }
            for record in &room.records {
                self.number += 1;
                assert_eq!(record.number, self.number, "no record is skipped");
                self.apply(&room, record, true);
            }
            if self.number == read.newest_number {
                return true;
            }
        }
    }

    fn begin_again(&mut self, library: &Library) {
        let mut before: BTreeMap<_, _> = std::mem::take(&mut self.held);
        let (mut first, mut next) = (None, 0);
        loop {
            let mut room = Room::new([2, 5, 5]);
            let mut told: rkv_cache_read_contents_result = sized();
            // SAFETY: as above.
            room.read(&mut |buffers| unsafe {
                let status = rkv_cache_read_contents(library.cache(), next, buffers, &mut told);
                (status, [told.record_count, told.page_count, told.token_count])
            });
            room.records.iter().for_each(|record| self.apply(&room, record, false));
            first.get_or_insert(told.number);
            next = told.next_page;
            if next == 0 {
                break;
            }
        }
        let first = first.expect("there was a call");
        if first == self.number {
            before.retain(|_, held| !held.cleared);
            assert_eq!(self.held, before, "what is held is what records said");
        }
        self.number = first;
    }

    fn prefix(&self, mut page: u32) -> Prefix {
        let (mut parts, tenant) = (Vec::new(), self.held[&(0, page)].tenant);
        while page != 0 {
            let held = &self.held[&(0, page)];
            parts.push(&held.ids[..]);
            page = held.on;
        }
        parts.reverse();
        (tenant, parts.concat())
    }

    /// What the cache holds, as far as it can be found: the pages of each prefix, by group.
    pub fn entries(&self, group_count: usize) -> BTreeMap<Prefix, Pages> {
        let mut entries = BTreeMap::new();
        for (&(group, page), held) in self.held.iter().filter(|(_, held)| !held.cleared) {
            let prefix = self.prefix(if group == 0 { page } else { held.on });
            let pages: &mut Pages = entries.entry(prefix).or_insert_with(|| vec![0; group_count]);
            pages[group as usize] = page;
        }
        entries
    }

    /// What the journal says can be found, the prefix of number `any` for one, and it is all that
    /// is cached, unless something was cleared that is still in use.
    pub fn check(&self, library: &Library, world: &World, any: usize, may_have_cleared: bool) {
        let told = self.entries(world.groups.len());
        let mut counts = vec![0; world.pools.len()];
        for pages in told.values() {
            for (of, page) in world.groups.iter().zip(pages) {
                counts[of.pool] += u64::from(*page != 0);
            }
        }
        for (pool, told) in counts.into_iter().enumerate() {
            let cached = library.counts(pool).cached;
            let is_all = told == cached || (may_have_cleared && told < cached);
            assert!(is_all, "{told} pages of pool {pool}, {cached} are cached");
        }
        if let Some(((tenant, ids), pages)) = told.into_iter().nth(any) {
            let found = library.lookup(tenant, &ids, false);
            let last = ids.len() / world.page_size as usize - 1;
            assert!(found.known >= ids.len(), "{ids:?} can be found");
            assert!(found.pages.get(last).is_none_or(|&page| page == pages[0]));
        }
    }
}
