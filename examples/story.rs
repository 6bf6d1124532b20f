//! The story of two requests that share a system prompt and an image, in Rust. The same story
//! stands in examples/c, examples/cpp and bindings/go/examples, and each prints the same text.
//!
//! ```text
//! cargo run --example story
//! ```
use radixkv::api::{Cache, PageTable, Sequence};
use radixkv::error::Error;
use radixkv::index::Namespace;
use radixkv::paging::{BatchRow, PageTableConfig};
use radixkv::store::CacheConfig;

use radixkv::token::{Item, TokenKind, TokenList, image_digest, position_count};
use std::error;
use std::io::{Write, stdout};
use std::ops::Range;

const PAGE_SIZE: u32 = 16;
const PAGES: u32 = 16;
const SYSTEM: u32 = 40;

/// A prompt: the system prompt, the image, and a question.
struct Prompt {
    ids: Vec<u32>,
    items: [Item; 1],
}

impl Prompt {
    /// The image is one token that takes 50 positions. Its digest is its identity.
    fn new(question: Range<u32>) -> Self {
        let image = TokenKind::Image { digest: image_digest(b"a picture of a cat"), positions: 50 };
        Self {
            ids: (1..=SYSTEM).chain([0]).chain(question).collect(),
            items: [Item { token_index: SYSTEM as usize, kind: image }],
        }
    }

    fn tokens(&self) -> TokenList<'_> {
        TokenList { ids: &self.ids, items: &self.items }
    }
}

/// A page table with a cache, and where the story is told.
struct Teller<'a> {
    table: &'a PageTable,
    cache: &'a Cache,
    out: &'a mut dyn Write,
}

type Told<T = ()> = Result<T, Box<dyn error::Error>>;

impl Teller<'_> {
    /// How much of a prompt is cached. Changes nothing: good for admission and routing.
    fn probe(&self, tokens: TokenList<'_>) -> Told<usize> {
        let (_, positions) = self.cache.probe(&Namespace::default(), tokens)?;
        Ok(positions)
    }

    fn begin(&mut self, tokens: TokenList<'_>) -> Told<Sequence> {
        let sequence = self.cache.begin(&Namespace::default(), tokens, 0)?;
        let begun = sequence.info()?;
        writeln!(
            self.out,
            "   begin: {} positions reused, {} pages in the row, {} of them shared",
            begun.cached_positions, begun.pages, begun.shared_pages
        )?;
        Ok(sequence)
    }

    fn publish(&mut self, sequence: &mut Sequence, computed: usize) -> Told {
        let done = sequence.publish(computed)?;
        writeln!(
            self.out,
            "   publish: {} pages claimed, {} pages of the row shared",
            done.claimed, done.shared_pages
        )?;
        Ok(())
    }

    fn print_pages(&mut self) -> Told {
        let stats = self.table.stats()?;
        writeln!(
            self.out,
            "   pages: {} free, {} cached, {} private; {} reclaimable",
            stats.free, stats.cached, stats.private, stats.reclaimable
        )?;
        Ok(())
    }
}

/// Tells the story.
pub fn tell(out: &mut dyn Write) -> Told {
    // Page 0 is reserved for padding, so a pool of 16 pages has 17.
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: PAGES + 1,
        ..PageTableConfig::default()
    };
    let table = PageTable::new(config)?;
    let cache = table.cache(CacheConfig::default())?;
    let mut story = Teller { table: &table, cache: &cache, out };
    writeln!(
        story.out,
        "1. A page table of {PAGES} pages of {PAGE_SIZE} positions, and a cache on it"
    )?;
    story.print_pages()?;

    // Nothing is cached yet. `begin` takes a slot and a private page per 16 positions. Then the
    // engine computes all positions, and publishes: whole pages become the cache's.
    let a = Prompt::new(100..112);
    let count = position_count(a.tokens())?;
    writeln!(story.out, "2. Request A: {} tokens, {count} positions", a.ids.len())?;
    writeln!(story.out, "   probe: {} positions cached", story.probe(a.tokens())?)?;
    let mut sequence_a = story.begin(a.tokens())?;
    story.publish(&mut sequence_a, count)?;

    // The shared beginning ends inside a page. Whole pages are mapped; of the next one the engine
    // copies what matched, in every layer, since nobody may write to a page of the cache.
    let b = Prompt::new(200..220);
    let count = position_count(b.tokens())?;
    writeln!(
        story.out,
        "3. Request B, same image, other question: {} tokens, {count} positions",
        b.ids.len()
    )?;
    writeln!(story.out, "   probe: {} positions cached", story.probe(b.tokens())?)?;
    let mut sequence_b = story.begin(b.tokens())?;
    writeln!(
        story.out,
        "   copy: {} positions into a private page; compute from token {} on",
        sequence_b.copy()?.map_or(0, |copy| copy.positions),
        sequence_b.info()?.cached_tokens
    )?;
    sequence_b.confirm_copies()?;
    story.publish(&mut sequence_b, count)?;

    // Decode: a token at a time; a page is allocated when one is full. Generated tokens can be
    // published too.
    for decoded in 1000..1020 {
        sequence_b.append(TokenList::text(&[decoded]))?;
    }
    let grown = sequence_b.info()?;
    writeln!(
        story.out,
        "4. B decodes 20 tokens: {} positions, {} pages in the row",
        grown.positions, grown.pages
    )?;
    story.publish(&mut sequence_b, grown.positions)?;

    // One step over both: the arrays that paged attention kernels take.
    let row = |sequence: &Sequence| -> Result<BatchRow, Error> {
        Ok(BatchRow { slot: sequence.slot(), positions: sequence.info()?.positions })
    };
    let batch = table.batch(&[row(&sequence_a)?, row(&sequence_b)?])?;
    let words = |values: &[i32]| values.iter().map(i32::to_string).collect::<Vec<_>>().join(" ");
    writeln!(
        story.out,
        "5. A batch of both: indptr {}, last page lengths {}",
        words(batch.indptr()),
        words(batch.last_page_len())
    )?;
    story.print_pages()?;

    // A request that does not fit is refused whole, and told why: everything cached is in use.
    let ids: Vec<u32> = (5000..5150).collect();
    let c = TokenList::text(&ids);
    writeln!(story.out, "6. Request C: {} tokens of its own", ids.len())?;
    match cache.begin(&Namespace::default(), c, 0) {
        Err(Error::OutOfPages(shortage)) => writeln!(
            story.out,
            "   refused: {} pages needed, {} free, {} reclaimable, {} locked, {} private",
            shortage.needed, shortage.free, shortage.reclaimable, shortage.locked, shortage.private
        )?,
        other => return Err(format!("C was expected not to fit: {other:?}").into()),
    }

    // Private pages return to the pool. What was published stays cached, and may be evicted now.
    drop((sequence_a, sequence_b));
    writeln!(story.out, "7. A and B are released")?;
    story.print_pages()?;
    let counters = cache.stats()?.counters;
    writeln!(
        story.out,
        "   cache: {} lookups for {} positions, {} found, {} of them by copy",
        counters.lookups,
        counters.lookup_positions,
        counters.hit_positions,
        counters.partial_hit_positions
    )?;

    // Now it fits: what was used longest ago is evicted, page by page, no more than needed.
    writeln!(story.out, "8. Request C again")?;
    let sequence_c = story.begin(c)?;
    story.print_pages()?;
    drop(sequence_c);
    let (left_a, left_b) = (story.probe(a.tokens())?, story.probe(b.tokens())?);
    writeln!(story.out, "   still cached: {left_a} positions of A, {left_b} of B")?;

    // Eviction on demand reports its victims, for an engine that moves them elsewhere.
    let evicted = cache.evict(PAGES as usize)?;
    writeln!(story.out, "9. Evicted by hand: {} pages", evicted.len())?;
    story.print_pages()?;
    table.check()?;
    cache.check()?;
    writeln!(story.out, "   audit: every page is in exactly one state")?;
    Ok(())
}

fn main() -> Told {
    tell(&mut stdout().lock())
}
