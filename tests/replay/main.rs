//! Real request traces through the C ABI, against a block-level LRU that shares nothing with the
//! library: every request must hit exactly as many pages as there, at every pool size.
//!
//! Two ways lead through the cache. `match` and `insert`, with one page per block of the trace,
//! show the index alone; their unlimited runs give the published hit rates. `begin`, `publish` and
//! `release`, with the real prompt lengths, show the transaction on top.
mod block_lru;
mod library;
mod trace;

use block_lru::BlockLru;
use library::Library;
use radixkv::capi::{RKV_INDEX_BLOCK_HASH, RKV_INDEX_RADIX};
use trace::{Request, read_trace};

/// What a run reports; compared whole.
#[derive(Debug, PartialEq, Default)]
struct Outcome {
    /// Pages hit, request by request; `None` for a request that the pool is too small for.
    hits: Vec<Option<usize>>,
    evicted: usize,
}

/// Compares request by request: the first difference says more than two long lists.
fn assert_equal(library: &Outcome, reference: &Outcome, pool: usize) {
    let pairs = library.hits.iter().zip(&reference.hits);
    for (index, (ours, theirs)) in pairs.enumerate() {
        assert_eq!(ours, theirs, "request {index}, pool of {pool} pages");
    }
    assert_eq!(library, reference, "pool of {pool} pages");
}

/// Blocks of all requests, a page each, and how many different ones there are.
struct Paged {
    page_size: usize,
    blocks: Vec<Vec<u32>>,
    block_count: usize,
}

/// Numbers the pages of token lists: equal numbers for equal tokens after an equal beginning.
fn number_pages(requests: &[Request], page_size: usize) -> Paged {
    let mut known = std::collections::HashMap::new();
    let mut blocks = Vec::new();
    for request in requests {
        let mut parent = u32::MAX;
        let mut number = |page| {
            let next = known.len() as u32;
            parent = *known.entry((parent, page)).or_insert(next);
            parent
        };
        blocks.push(request.units.chunks_exact(page_size).map(&mut number).collect());
    }
    Paged { page_size, blocks, block_count: known.len() }
}

/// Both indexes at each pool size.
fn runs(pools: &[usize]) -> impl Iterator<Item = (usize, u32)> + '_ {
    pools.iter().flat_map(|&pool| [(pool, RKV_INDEX_RADIX), (pool, RKV_INDEX_BLOCK_HASH)])
}

/// `match` + `insert` at each pool size; returns the hits of the unlimited pool, which comes last.
fn replay_index(paged: &Paged, tokens_of: impl Fn(usize, &mut Vec<u32>), pools: &[usize]) -> usize {
    let mut hit_count = 0;
    for (pool, index) in runs(pools) {
        let library = Library::new(index, paged.page_size, pool);
        let mut reference = BlockLru::new(pool, paged.block_count);
        let (mut ours, mut theirs) = (Outcome::default(), Outcome::default());
        let (mut tokens, mut pages) = (Vec::new(), Vec::new());
        for (index, blocks) in paged.blocks.iter().enumerate() {
            tokens.clear();
            tokens_of(index, &mut tokens);
            pages.resize(blocks.len(), 0);
            ours.hits.push(library.match_and_insert(&tokens, &mut pages));

            // A match refreshes what it found even where the allocation after it is refused.
            let hit = reference.matched(blocks);
            reference.touch(&blocks[..hit]);
            let fits = reference.make_room(blocks.len() - hit, hit);
            if fits {
                reference.touch(blocks);
            }
            theirs.hits.push(fits.then_some(hit));
        }
        ours.evicted = library.finish(&reference);
        theirs.evicted = reference.evicted;
        assert_equal(&ours, &theirs, pool);
        hit_count = ours.hits.iter().flatten().sum();
    }
    hit_count
}

/// `begin` to `release` at each pool size. `tokens_of` writes the whole prompt.
fn replay_sequences(paged: &Paged, tokens_of: impl Fn(usize, &mut Vec<u32>), pools: &[usize]) {
    let page_size = paged.page_size;
    for (pool, index) in runs(pools) {
        let library = Library::new(index, page_size, pool);
        let mut reference = BlockLru::new(pool, paged.block_count);
        let (mut ours, mut theirs) = (Outcome::default(), Outcome::default());
        let mut tokens = Vec::new();
        for (index, blocks) in paged.blocks.iter().enumerate() {
            tokens.clear();
            tokens_of(index, &mut tokens);
            ours.hits.push(library.begin_to_release(&tokens, page_size));

            // K15: one token is left to compute, so a prompt that is cached whole and ends with a
            // page computes that page again, in a private one. The cached one is locked as well.
            let matched = reference.matched(blocks);
            let hit = matched.min((tokens.len() - 1) / page_size);
            // K14: begin allocates for the whole prompt, also the last page that is never
            // published; where that cannot be, nothing happens, and recency stays as it is.
            let needed = tokens.len().div_ceil(page_size) - hit;
            let fits = needed + matched <= pool;
            if fits {
                reference.touch(&blocks[..matched]);
                assert!(reference.make_room(needed, matched));
                reference.touch(blocks);
            }
            theirs.hits.push(fits.then_some(hit));
        }
        ours.evicted = library.finish(&reference);
        theirs.evicted = reference.evicted;
        assert_equal(&ours, &theirs, pool);
    }
}

/// Pools from one that refuses the longest prompt to one that holds everything.
fn pool_sizes(paged: &Paged) -> [usize; 5] {
    let longest = paged.blocks.iter().map(Vec::len).max().unwrap();
    let unlimited = paged.block_count + 1;
    [longest - 1, 2 * longest, unlimited / 8, unlimited / 2, unlimited]
}

/// Blocks of 512 tokens by their ids, partly filled last blocks included, as the trace counts them.
/// A page of 16 tokens stands for each: the index is the same, at a fraction of the memory.
fn mooncake_blocks(name: &str, hit_count: usize, hit_rate: f64) {
    let (_, requests) = read_trace(name);
    let blocks: Vec<_> = requests.iter().map(|request| request.units.clone()).collect();
    let block_count = 1 + *blocks.iter().flatten().max().unwrap() as usize;
    let paged = Paged { page_size: 16, blocks, block_count };
    let tokens_of = |index: usize, tokens: &mut Vec<u32>| {
        tokens.extend(paged.blocks[index].iter().flat_map(|block| block * 16..(block + 1) * 16));
    };
    check_rate(&paged, replay_index(&paged, tokens_of, &pool_sizes(&paged)), hit_count, hit_rate);
}

fn check_rate(paged: &Paged, hits: usize, expected: usize, published_rate: f64) {
    let total: usize = paged.blocks.iter().map(Vec::len).sum();
    assert_eq!(hits, expected);
    assert!((hits as f64 / total as f64 - published_rate).abs() < 0.00005);
}

/// The real prompt lengths, with a block of the trace for each page.
fn mooncake_prompts(name: &str, choose: impl Fn([usize; 5]) -> Vec<usize>) {
    let (unit, requests) = read_trace(name);
    let page_size = unit;
    let whole = |request: &Request| request.token_count / page_size;
    let blocks = requests.iter().map(|r| r.units[..whole(r)].to_vec());
    let blocks: Vec<Vec<u32>> = blocks.collect();
    let block_count = 1 + *blocks.iter().flatten().max().unwrap() as usize;
    let paged = Paged { page_size, blocks, block_count };
    let tokens_of = |index: usize, tokens: &mut Vec<u32>| {
        for &page in &requests[index].units {
            // One token tells the pages apart: filling in all of them takes longer than the rest.
            tokens.push(page);
            tokens.extend_from_slice(&vec![0; page_size - 1]);
        }
        tokens.truncate(requests[index].token_count);
    };
    replay_sequences(&paged, tokens_of, &choose(pool_sizes(&paged)));
}

#[test]
fn k09_conversation_blocks_hit_as_in_a_block_lru() {
    mooncake_blocks("conversation", 288_500 - 182_790, 0.3664);
}

#[test]
fn k09_synthetic_blocks_hit_as_in_a_block_lru() {
    mooncake_blocks("synthetic", 121_877 - 43_924, 0.6396);
}

/// H02: with the block-hash index too, as all of these.
#[test]
fn k09_agent_pages_hit_as_in_a_block_lru() {
    let (_, requests) = read_trace("agent");
    let paged = number_pages(&requests, 16);
    let tokens_of = |index: usize, tokens: &mut Vec<u32>| {
        tokens.extend(&requests[index].units[..paged.blocks[index].len() * 16]);
    };
    let hits = replay_index(&paged, tokens_of, &pool_sizes(&paged));
    check_rate(&paged, hits, 320_880 - 31_008, 0.9034);
}

#[test]
fn k14_conversation_prompts_hit_as_in_a_block_lru() {
    // Unlimited would take half a gigabyte here; the blocks above have shown it.
    mooncake_prompts("conversation", |[tiny, _, eighth, half, _]| vec![tiny, eighth, half]);
}

#[test]
fn k14_synthetic_prompts_hit_as_in_a_block_lru() {
    mooncake_prompts("synthetic", |pools| pools.to_vec());
}

/// H02: with the block-hash index too, as all of these.
#[test]
fn k14_agent_prompts_hit_as_in_a_block_lru() {
    let (_, requests) = read_trace("agent");
    let paged = number_pages(&requests, 16);
    let tokens_of = |index: usize, tokens: &mut Vec<u32>| tokens.extend(&requests[index].units);
    replay_sequences(&paged, tokens_of, &pool_sizes(&paged));
}
