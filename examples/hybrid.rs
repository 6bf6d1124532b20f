//! A chat with a hybrid model, in Rust: full attention, a sliding window and a recurrent state,
//! each with pages of its own, over one prefix cache. The same loop stands in examples/c,
//! examples/cpp and bindings/go/examples, and each prints the same text.
//!
//! ```text
//! cargo run --example hybrid
//! ```
use radixkv::api::{Cache, PageTable};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, GroupRow};
use radixkv::token::TokenList;
use std::error;
use std::io::{Write, stdout};

const FULL: usize = 0;
const WINDOW: usize = 1;
const STATE: usize = 2;
const PAGE: usize = 16;
const STATE_PAGES: u32 = 7;

type Told<T = ()> = Result<T, Box<dyn error::Error>>;

struct Engine<'a> {
    table: PageTable,
    cache: Cache,
    /// The memory of the states, by page. K and V of the others are left to the imagination.
    states: [u64; STATE_PAGES as usize],
    out: &'a mut dyn Write,
}

/// The recurrent layers: the state after one more token.
fn step(state: u64, token: u32) -> u64 {
    (state * 31 + u64::from(token)) % 1_000_003
}

impl<'a> Engine<'a> {
    fn new(out: &'a mut dyn Write) -> Told<Self> {
        let group = |kind, pool: usize| GroupConfig { kind, pool: pool as u32 };
        let window = GroupKind::Window { window: 64, sinks: 0 };
        let groups =
            [group(GroupKind::Full, FULL), group(window, WINDOW), group(GroupKind::State, STATE)];
        let table = PageTable::new(PageTableConfig {
            page_size: PAGE as u32,
            page_count: 65,
            groups: Groups::new(&groups)?,
            more_pools: MorePools::new(&[33, STATE_PAGES])?,
            ..PageTableConfig::default()
        })?;
        let cache = table.cache(CacheConfig::default())?;
        Ok(Self { table, cache, states: [0; STATE_PAGES as usize], out })
    }

    fn allocate(&self, pool: usize) -> Result<u32, Error> {
        Ok(self.table.allocate_pool_pages(pool as u32, 1)?[0])
    }

    fn serve(&mut self, name: &str, ids: &[u32]) -> Told {
        let (space, tokens) = (Namespace::default(), TokenList::text(ids));
        // What each group costs of what is known; then the match, which protects all it needs.
        let probe = self.cache.probe_groups(&space, tokens)?;
        let found = self.cache.find(&space, tokens)?;
        let pages = ids.len().div_ceil(PAGE);
        let mut rows = [found.pages.clone(), vec![0; found.pages.len()], vec![0; pages]];
        let (window, checkpoint) = match &found.lock {
            Some(lock) => (lock.group_pages(WINDOW)?, lock.group_pages(STATE)?),
            None => Default::default(),
        };
        window.iter().for_each(|held| rows[WINDOW][held.place] = held.page);
        // A checkpoint is copied, never written to: the next request wants it too.
        let mut state = checkpoint.first().map_or(0, |held| self.states[held.page as usize]);

        for _ in found.pages.len()..pages {
            rows[FULL].push(self.allocate(FULL)?);
            rows[WINDOW].push(self.allocate(WINDOW)?);
        }
        // Chunks end where the match says, and the states are saved there.
        for (at, &token) in ids.iter().enumerate().skip(found.positions) {
            state = step(state, token);
            if found.checkpoint_at.contains(&(at + 1)) {
                let page = self.allocate(STATE)?;
                rows[STATE][at / PAGE] = page;
                self.states[page as usize] = state;
            }
        }

        let groups = [WINDOW, STATE].map(|group| GroupRow { group, pages: &rows[group] });
        let done = self.cache.insert_groups(&space, tokens, &rows[FULL], &groups)?;
        // Whose page was not taken keeps it: for another one is published, or it is not full.
        let published = [&done.inserted.pages, &done.pages[0], &done.pages[1]];
        for (group, row) in rows.iter().enumerate() {
            let mine = row.iter().enumerate().filter(|&(_, &page)| page != 0);
            for (_, &page) in mine.filter(|&(at, page)| published[group].get(at) != Some(page)) {
                self.table.free_pool_pages(group as u32, &[page])?;
            }
        }
        let [full, window_lost, state_lost] = [FULL, WINDOW, STATE].map(|group| probe.lost[group]);
        let [first, second] = found.checkpoint_at;
        writeln!(
            self.out,
            "{name}: {} tokens, {} known, {} reused (full costs {full}, window {window_lost}, \
             state {state_lost})\n   reads {} window pages and {} states, saves states at {first} \
             and {second}\n   {} pages claimed, {} of other groups; state {state}",
            ids.len(),
            probe.known,
            found.positions,
            window.len(),
            checkpoint.len(),
            done.inserted.claimed,
            done.claimed,
        )?;
        Ok(())
    }

    fn print_pool(&mut self, name: &str, pool: usize) -> Told {
        let stats = self.table.pool_stats(pool as u32)?;
        let (free, cached, private) = (stats.free, stats.cached, stats.private);
        writeln!(self.out, "   {name}: {free} free, {cached} cached, {private} private")?;
        Ok(())
    }
}

/// A system prompt, then a question of one's own.
fn prompt(question: u32, length: u32) -> Vec<u32> {
    (1..=100).chain(question..question + length).collect()
}

/// The chat.
pub fn tell(out: &mut dyn Write) -> Told {
    let mut engine = Engine::new(out)?;
    engine.serve("A", &prompt(1000, 30))?;
    engine.serve("B", &prompt(2000, 45))?;
    engine.serve("C", &prompt(3000, 60))?;
    engine.serve("A, next turn", &prompt(1000, 75))?;
    engine.print_pool("full", FULL)?;
    engine.print_pool("window", WINDOW)?;
    engine.print_pool("state", STATE)?;
    let freed = engine.cache.evict_from_pool(STATE as u32, 3)?.freed;
    writeln!(engine.out, "{freed} states evicted, the least recently used")?;
    engine.serve("B again", &prompt(2000, 45))?;
    engine.serve("A again", &prompt(1000, 75))
}

fn main() -> Told {
    tell(&mut stdout())
}
