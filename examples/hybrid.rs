//! A chat with a hybrid model, in Rust: full attention, a sliding window and a recurrent state,
//! each with pages of its own, over one prefix cache. The same loop stands in examples/c,
//! examples/cpp and bindings/go/examples, and each prints the same text.
//!
//! ```text
//! cargo run --example hybrid
//! ```
use radixkv::api::{Cache, PageTable, Sequence};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::CacheConfig;
use radixkv::token::TokenList;
use std::error;
use std::io::{Write, stdout};

const STATE: usize = 2;

type Told<T = ()> = Result<T, Box<dyn error::Error>>;

struct Engine<'a> {
    cache: Cache,
    /// The memory of the states, by page. K and V of the others are left to the imagination.
    states: [u64; 8],
    out: &'a mut dyn Write,
}

impl Engine<'_> {
    /// A system prompt of 100 tokens, then a question of one's own.
    fn serve(&mut self, name: &str, question: u32, length: u32) -> Told {
        let ids: Vec<u32> = (1..=100).chain(question..question + length).collect();
        let mut sequence = self.cache.begin(&Namespace::default(), TokenList::text(&ids), 0)?;
        self.copy_states(&mut sequence)?;

        let (info, mut saved) = (sequence.info()?, 0);
        let places = info.depths.checkpoint_at.map(|place| place as usize);
        let state = sequence.group_row(STATE)?[0] as usize;
        let mut at = info.cached_positions;
        if at == 0 {
            self.states[state] = 0;
        }
        while at < ids.len() {
            // Chunks end where begin says: there the states are saved.
            let save = places.into_iter().find(|&save| save > at);
            for &id in &ids[at..save.unwrap_or(ids.len())] {
                self.states[state] = (self.states[state] * 31 + u64::from(id)) % 1_000_003;
                at += 1;
            }
            sequence.publish(at)?;
            if save.is_some() {
                saved += sequence.checkpoint()?;
                self.copy_states(&mut sequence)?;
            }
        }
        writeln!(
            self.out,
            "{name}: {} tokens, {} known, {} reused; {saved} states saved; state {}",
            ids.len(),
            info.depths.known,
            info.cached_positions,
            self.states[state]
        )?;
        Ok(())
    }

    /// Carries out what a sequence waits for, if anything: states, since the others are shared as
    /// whole pages.
    fn copy_states(&mut self, sequence: &mut Sequence) -> Result<(), Error> {
        let copies = sequence.group_copies()?;
        for copy in &copies {
            self.states[copy.target as usize] = self.states[copy.source as usize];
        }
        if copies.is_empty() { Ok(()) } else { sequence.confirm_copies() }
    }
}

/// The chat.
pub fn tell(out: &mut dyn Write) -> Told {
    let group = |kind, pool| GroupConfig { kind, pool, draft_states: 0 };
    let window = GroupKind::Window { window: 64, sinks: 0 };
    let groups = [group(GroupKind::Full, 0), group(window, 1), group(GroupKind::State, 2)];
    let table = PageTable::new(PageTableConfig {
        page_size: 16,
        page_count: 65,
        groups: Groups::new(&groups)?,
        more_pools: MorePools::new(&[33, 8])?,
        ..PageTableConfig::default()
    })?;
    let cache = table.cache(CacheConfig::default())?;
    let mut engine = Engine { cache, states: [0; 8], out };
    engine.serve("A", 1000, 30)?;
    engine.serve("B", 2000, 45)?;
    engine.serve("C", 3000, 60)?;
    engine.serve("A, next turn", 1000, 75)?;
    engine.serve("B again", 2000, 45)
}

fn main() -> Told {
    tell(&mut stdout())
}
