//! All that can be seen of a page table and its cache: what a failing call must leave as it was.
use crate::abi::Pair;
use crate::abi::ok;
use radixkv::capi::*;

/// A state, to compare.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Free, cached, private, reclaimable, free slots.
    pub pages: [u64; 5],
    /// Nodes, namespaces, sequences, images, the counters, prefixes, and what is retained.
    pub cache: [u64; 17],
    /// The whole tree, recency and locks included.
    tree: String,
    /// Retained sequences in order.
    retained: Vec<rkv_sequence_id>,
    /// The row of each slot; None where it is not in use.
    rows: Vec<Option<Vec<u32>>>,
}

impl Snapshot {
    pub fn of(pair: &Pair) -> Self {
        let (table, cache) = (pair.table_stats(), pair.cache_stats());
        assert_eq!(
            table.free_page_count + table.cached_page_count + table.private_page_count,
            table.total_page_count,
            "free + cached + private is not the total"
        );
        assert_eq!(table.cached_page_count, cache.cached_page_count);
        assert_eq!(table.reclaimable_page_count, cache.reclaimable_page_count);
        assert!(table.reclaimable_page_count <= table.cached_page_count);
        assert!(cache.hit_position_count <= cache.lookup_position_count);
        assert!(cache.partial_hit_position_count <= cache.hit_position_count);
        Self {
            pages: [
                table.free_page_count,
                table.cached_page_count,
                table.private_page_count,
                table.reclaimable_page_count,
                table.free_slot_count,
            ],
            cache: [
                cache.node_count,
                cache.namespace_count,
                cache.sequence_count,
                cache.image_count,
                cache.lookup_count,
                cache.lookup_position_count,
                cache.hit_position_count,
                cache.partial_hit_position_count,
                cache.inserted_page_count,
                cache.duplicate_page_count,
                cache.evicted_page_count,
                cache.prefix_count,
                cache.retained_sequence_count,
                cache.retained_page_count,
                cache.displaced_sequence_count,
                cache.inherit_count,
                cache.inherited_position_count,
            ],
            retained: pair.retained(),
            tree: tree(pair),
            rows: (0..table.slot_count as u32).map(|slot| row(pair, slot)).collect(),
        }
    }

    pub fn free(&self) -> u64 {
        self.pages[0]
    }

    pub fn cached(&self) -> u64 {
        self.pages[1]
    }

    pub fn private(&self) -> u64 {
        self.pages[2]
    }

    pub fn reclaimable(&self) -> u64 {
        self.pages[3]
    }

    pub fn free_slots(&self) -> u64 {
        self.pages[4]
    }

    pub fn retained_pages(&self) -> u64 {
        self.cache[13]
    }

    pub fn evicted(&self) -> u64 {
        self.cache[10]
    }
}

fn tree(pair: &Pair) -> String {
    let mut needed = 0;
    let mut text = Vec::new();
    // SAFETY: the handle is alive, the buffer has the room that is stated.
    unsafe {
        let format = RKV_DUMP_JSON;
        ok(rkv_cache_dump(pair.cache, format, std::ptr::null_mut(), 0, &mut needed));
        text.resize(needed, 0u8);
        let into = text.as_mut_ptr().cast();
        ok(rkv_cache_dump(pair.cache, format, into, text.len(), &mut needed));
    }
    assert_eq!(text.pop(), Some(0), "a dump ends with NUL");
    String::from_utf8(text).expect("a dump is text")
}

fn row(pair: &Pair, slot: u32) -> Option<Vec<u32>> {
    let mut count = 0;
    // SAFETY: the handle is alive; no room is stated.
    let status = unsafe {
        rkv_page_table_read_row(pair.table, slot, 0, std::ptr::null_mut(), 0, &mut count)
    };
    match status {
        rkv_status::Ok => Some(pair.row(slot)),
        rkv_status::InvalidArgument => None,
        other => panic!("a row cannot be read: {other:?}"),
    }
}
