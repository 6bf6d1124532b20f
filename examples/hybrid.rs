//! A chat with a hybrid model, in Rust: full attention, a sliding window and a recurrent state,
//! each with pages of its own, over one prefix cache. The same loop stands in examples/c,
//! examples/cpp and bindings/go/examples, and each prints the same text.
//!
//! ```text
//! cargo run --example hybrid
//! ```
use radixkv::api::{
    Cache, CacheConfig, GroupKind, Groups, MorePools, Namespace, PageTable, PageTableConfig,
    TokenList,
};
use std::error::Error;
use std::io::{Write, stdout};

const STATE: usize = 2;

type Told<T = ()> = Result<T, Box<dyn Error>>;

struct Engine {
    cache: Cache,
    /// The memory of the states, by page. K and V of the others are left to the imagination.
    states: [u32; 8],
}

impl Engine {
    /// A system prompt of 100 tokens, then a question of one's own. Tells how that went.
    fn serve(&mut self, question: u32, length: u32) -> Told<String> {
        let ids: Vec<u32> = [0; 100].into_iter().chain(question + 100..question + length).collect();
        let mut sequence = self.cache.begin(&Namespace::default(), TokenList::text(&ids), 0)?;

        let (info, states) = (sequence.info()?, &mut self.states);
        let state = sequence.group_row(STATE)?[0] as usize;
        let mut at = info.cached_positions;
        if at == 0 {
            states[state] = 1;
        }
        while at < ids.len() {
            // What it waits for: states, since the others are shared as whole pages.
            sequence.carry_out_copies(|_group, copy| {
                states[copy.target as usize] = states[copy.source as usize];
            })?;
            // Chunks end where begin says: there the states are saved.
            let saves = info.depths.checkpoint_at.map(|place| place as usize);
            let end = saves.into_iter().find(|&save| save > at).unwrap_or(ids.len());
            for &id in &ids[at..end] {
                states[state] = (states[state] * 31 + id) % 1_000_003;
            }
            at = end;
            sequence.publish(at)?;
            if at < ids.len() {
                sequence.checkpoint()?;
            }
        }
        let (known, reused, state) = (info.depths.known, info.cached_positions, states[state]);
        Ok(format!("{length} tokens, {known} known, {reused} reused; state {state}"))
    }
}

/// The chat.
pub fn tell(out: &mut dyn Write) -> Told {
    let window = GroupKind::Window { window: 64, sinks: 0 };
    let groups = [GroupKind::Full.in_pool(0), window.in_pool(1), GroupKind::State.in_pool(2)];
    let table = PageTable::new(PageTableConfig {
        page_count: 65,
        more_pools: MorePools::new(&[33, 8])?,
        groups: Groups::new(&groups)?,
        ..PageTableConfig::default()
    })?;
    let mut engine = Engine { cache: table.cache(CacheConfig::default())?, states: [0; 8] };
    writeln!(out, "A: {}", engine.serve(1000, 130)?)?;
    writeln!(out, "B: {}", engine.serve(2000, 145)?)?;
    writeln!(out, "C: {}", engine.serve(3000, 160)?)?;
    writeln!(out, "A, next turn: {}", engine.serve(1000, 175)?)?;
    Ok(())
}

fn main() -> Told {
    tell(&mut stdout())
}
