//! Sequences of calls that an engine could make, with the KV memory beside them.
//!
//! The memory holds for each position of each page a hash of all tokens up to there; a runner
//! writes and reads it for every other sequence. Whatever a match, a row or a copy names must hold
//! what the tokens say: a page that is shared wrongly, handed out twice or freed too early shows at
//! once. After each call the library checks itself, and a call that failed must have changed
//! nothing.
mod caller;
mod children;
mod compute;
mod lookups;
mod sequences;

use crate::abi::{Pair, Sized32, index_for, last_message};
use crate::input::Input;
use crate::prompt::Prompt;
use crate::snapshot::Snapshot;
use compute::Kv;
use radixkv::capi::*;

/// Lists that later ones begin like.
const PROMPTS_KEPT: usize = 12;
/// Calls in one run.
const STEP_LIMIT: usize = 400;

/// A live sequence.
struct Live {
    id: rkv_sequence_id,
    slot: u32,
    namespace: usize,
    prompt: Prompt,
    /// Positions whose KV is written.
    computed: usize,
    /// Of those, the ones that the library was told of.
    told: usize,
    /// Source, target and positions of a copy that is not confirmed.
    copy: Option<(u32, u32, usize)>,
}

/// A retained sequence.
struct Kept {
    id: rkv_sequence_id,
    namespace: usize,
    prompt: Prompt,
    /// Positions that it has KV for.
    computed: usize,
}

/// A row that the caller maps, and the lock that keeps its cached pages.
struct CallerRow {
    slot: u32,
    lock: Option<rkv_lock_id>,
}

struct World {
    pair: Pair,
    page_size: usize,
    row_limit: usize,
    whole_pages: bool,
    /// What each position of each page holds.
    kv: Kv,
    prompts: Vec<Prompt>,
    live: Vec<Live>,
    /// By the order of finishing.
    kept: Vec<Kept>,
    released: Vec<rkv_sequence_id>,
    locks: Vec<rkv_lock_id>,
    /// Node ids seen, some of them stale by now.
    nodes: Vec<rkv_node_id>,
    loose: Vec<u32>,
    rows: Vec<CallerRow>,
    last: Snapshot,
}

/// Runs the calls that `data` stands for.
pub fn operations(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input, index_for(data));
    for _ in 0..STEP_LIMIT {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.finish();
}

/// One of a few namespaces.
fn namespace(number: usize) -> rkv_namespace {
    let mut made = rkv_namespace::sized();
    match number {
        1 => made.flags = RKV_NAMESPACE_LORA,
        2 => made.salt[31] = 1,
        3 => made.epoch = 1,
        _ => {}
    }
    made
}

impl World {
    fn new(input: &mut Input<'_>, index: u32) -> Self {
        const SIZES: [u32; 8] = [1, 2, 3, 4, 8, 16, 64, 256];
        let page_size = *input.pick(&SIZES).expect("there are some");
        let page_count = 2 + input.below(96) as u32;
        let slot_count = 1 + input.below(8) as u32;
        let limit = input.below(8) as u32 * 16;
        let row_page_limit = if limit < page_count { limit } else { 0 };
        let config = rkv_page_table_config {
            page_size,
            page_count,
            slot_count,
            row_page_limit,
            ..Sized32::sized()
        };
        let flags = if input.rarely(3) { RKV_CACHE_WHOLE_PAGES } else { 0 };
        let pair = Pair::new(&config, flags, index);
        let kv = Kv::new(&pair, page_size as usize, page_count as usize);
        let last = Snapshot::of(&pair);
        Self {
            pair,
            page_size: page_size as usize,
            row_limit: if row_page_limit == 0 { page_count - 1 } else { row_page_limit } as usize,
            whole_pages: flags != 0,
            kv,
            prompts: Vec::new(),
            live: Vec::new(),
            kept: Vec::new(),
            released: Vec::new(),
            locks: Vec::new(),
            nodes: Vec::new(),
            loose: Vec::new(),
            rows: Vec::new(),
            last,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        // What came later has bytes that few saved inputs use.
        let byte = input.byte();
        match byte % 32 {
            0..6 if byte >= 224 => self.begin_part(input),
            18 if byte >= 128 => self.allocate_more(input),
            0..6 => self.begin(input),
            6..9 => self.append(input),
            9 => self.truncate(input),
            10..14 => self.publish(input),
            14 => self.confirm_copies(input),
            15 => self.go_on(input),
            16 => self.release(input),
            17 => self.retain_or_drop(input),
            18 => self.release_twice(input),
            19 | 20 => self.find(input),
            21 => self.probe_live(input),
            22 => self.lock(input),
            23 => self.unlock(input),
            24 | 25 => self.evict(input),
            26 => self.insert(input),
            27 => self.fork(input),
            28 => self.allocate(input),
            29 => self.free(input),
            30 => self.caller_row(input),
            _ => self.look(input),
        }
    }

    /// What must hold after a call: every invariant, and no change when it failed.
    #[track_caller]
    fn after(&mut self, status: rkv_status) -> bool {
        self.pair.check();
        let now = Snapshot::of(&self.pair);
        let good = status == rkv_status::Ok;
        if !good {
            assert_eq!(now, self.last, "{status:?} changed something: {}", last_message());
        }
        self.last = now;
        good
    }

    /// A call that never changes anything.
    #[track_caller]
    fn after_look(&mut self) {
        let now = Snapshot::of(&self.pair);
        assert_eq!(now, self.last, "looking changed something");
    }

    fn prompt(&mut self, input: &mut Input<'_>) -> Prompt {
        let mut prompt = Prompt::default();
        if let Some(earlier) = input.pick(&self.prompts) {
            let keep = input.byte() as usize;
            prompt = if keep >= 192 { earlier.clone() } else { earlier.cut(keep) };
        }
        for _ in 0..input.below(12) {
            prompt.push_any(input);
        }
        if self.prompts.len() == PROMPTS_KEPT {
            self.prompts.remove(0);
        }
        self.prompts.push(prompt.clone());
        prompt
    }

    fn note_node(&mut self, node: rkv_node_id) {
        if node != 0 && !self.nodes.contains(&node) {
            if self.nodes.len() == 32 {
                self.nodes.remove(0);
            }
            self.nodes.push(node);
        }
    }

    /// Where a position of a row lies in KV memory.
    fn place(&self, row: &[u32], position: usize) -> usize {
        row[position / self.page_size] as usize * self.page_size + position % self.page_size
    }

    /// The first positions of a row hold what the tokens say.
    #[track_caller]
    fn check_content(&self, prompt: &Prompt, namespace: usize, row: &[u32], positions: usize) {
        for position in 0..positions {
            let found = self.kv.content(self.place(row, position));
            let page = row[position / self.page_size];
            assert_eq!(
                found,
                prompt.content(namespace, position),
                "position {position}, in page {page}, holds the KV of other tokens"
            );
        }
    }

    fn write_content(
        &mut self,
        prompt: &Prompt,
        namespace: usize,
        row: &[u32],
        positions: std::ops::Range<usize>,
    ) {
        for position in positions {
            let place = self.place(row, position);
            self.kv.write(place, prompt.content(namespace, position), position);
        }
    }

    /// A refused allocation says the truth.
    #[track_caller]
    fn check_shortage(&self) {
        let shortage = crate::abi::last_shortage();
        assert!(
            shortage.needed_page_count > shortage.free_page_count + shortage.reclaimable_page_count,
            "refused although it fits"
        );
        assert_eq!(shortage.free_page_count, self.last.free());
        assert_eq!(shortage.private_page_count, self.last.private());
        assert!(shortage.reclaimable_page_count <= self.last.reclaimable());
        assert_eq!(shortage.retained_page_count, self.last.retained_pages());
        assert_eq!(
            shortage.locked_page_count + shortage.reclaimable_page_count,
            self.last.cached()
        );
    }

    /// Ends everything: nothing may be left.
    fn finish(&mut self) {
        while let Some(live) = self.live.pop() {
            self.release_one(live);
        }
        self.drop_retained(usize::MAX);
        while let Some(row) = self.rows.pop() {
            self.erase_one(row);
        }
        while let Some(lock) = self.locks.pop() {
            self.unlock_one(lock);
        }
        let (loose, cached) = (std::mem::take(&mut self.loose), self.last.cached());
        self.free_all(&loose);
        assert_eq!(self.last.reclaimable(), cached, "nothing is locked any more");
        self.evict_count(usize::MAX);
        assert_eq!(self.last.cached(), 0);
        assert_eq!(self.last.private(), 0);
        assert_eq!(self.last.cache[..4], [0, 0, 0, 0], "nodes, namespaces, sequences, images");
    }
}
