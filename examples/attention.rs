//! Attention by the library, in Rust: a toy model computes a prompt in chunks, a second prompt
//! reuses the start of the first, both decode in one batch, and the result is what it is without a
//! cache. The same stands in examples/c, examples/cpp and bindings/go/examples, and each prints the
//! same text.
//!
//! ```text
//! cargo run --example attention
//! ```
use radixkv::api::{Cache, PageTable, Sequence};
use radixkv::attention::{Dtype, KvLayout, Params, RowMask};
use radixkv::cpu::Threads;
use radixkv::index::Namespace;
use radixkv::memory::Arc;
use radixkv::paging::PageTableConfig;
use radixkv::plan::{Plan, PlanRow};
use radixkv::runner::{LayerStep, Runner, RunnerConfig, Strides};
use radixkv::sequence::ComputedRow;
use radixkv::store::{CacheConfig, SequenceInfo};
use radixkv::token::TokenList;
use std::error;
use std::io::{Write, stdout};
use std::ops::Range;
use std::ptr;

const LAYERS: usize = 2;
const HEAD_DIM: usize = 64;
const QUERY_HEADS: usize = 2;
const WIDTH: usize = QUERY_HEADS * HEAD_DIM;
const PAGE_SIZE: u32 = 16;
const PAGES: u32 = 32;
const VOCABULARY: u32 = 100;
const DECODED: usize = 6;
const SHARED: Range<u32> = 0..36;

type Told<T = ()> = Result<T, Box<dyn error::Error>>;

/// In [-1, 1): the model's weights, the same in every language.
fn number(row: u32, column: usize) -> f32 {
    let mut x = row.wrapping_mul(2_654_435_761);
    x = x.wrapping_add((column as u32).wrapping_mul(40503)).wrapping_add(12345);
    x ^= x >> 15;
    x = x.wrapping_mul(2_246_822_519);
    x ^= x >> 13;
    (x >> 8) as f32 / 8_388_608.0 - 1.0
}

fn embed(x: &mut Vec<f32>, id: u32, position: usize) {
    x.extend((0..WIDTH).map(|at| number(id, at) + number(1000 + position as u32, at) / 4.0));
}

/// Queries, keys or values: here, elements of the states in another order.
fn project(x: &[f32], size: usize, factor: usize, offset: usize) -> Vec<f32> {
    let row = |state: &[f32]| -> Vec<f32> {
        (0..size).map(|at| state[(at * factor + offset) % WIDTH]).collect()
    };
    x.chunks(WIDTH).flat_map(row).collect()
}

fn most_likely(x: &[f32]) -> u32 {
    let logit = |id| -> f64 {
        x.iter().enumerate().map(|(at, &x)| f64::from(x) * f64::from(number(5000 + id, at))).sum()
    };
    let better = |best: (u32, f64), id| {
        let logit = logit(id);
        if logit > best.1 { (id, logit) } else { best }
    };
    (0..VOCABULARY).fold((0, f64::NEG_INFINITY), better).0
}

fn shapes() -> RunnerConfig {
    RunnerConfig {
        group: 0,
        layers: LAYERS,
        query_heads: QUERY_HEADS,
        kv_heads: 1,
        head_dim: HEAD_DIM,
        v_head_dim: HEAD_DIM,
        dtype: Dtype::F32,
        kv_dtype: Dtype::F32,
        kv_layout: KvLayout::Nhd,
        // So that a request's numbers do not depend on what else is in a batch.
        batch_invariant: true,
        latent: false,
    }
}

/// A request: its tokens, how many are computed, and the model's state after the last of those.
struct Request {
    sequence: Sequence,
    begun: SequenceInfo,
    ids: Vec<u32>,
    computed: usize,
    last: Vec<f32>,
}

/// The books, the memory behind them, and the plan of a step.
struct Engine {
    cache: Cache,
    runner: Arc<Runner>,
    plan: Plan,
}

impl Engine {
    fn new() -> Told<Self> {
        let (page_size, page_count) = (PAGE_SIZE, PAGES);
        let config = PageTableConfig { page_size, page_count, ..PageTableConfig::default() };
        let table = PageTable::new(config)?;
        let cache = table.cache(CacheConfig::default())?;
        let runner = Runner::new(table.shared(), shapes(), Threads::Own(0))?;
        let plan = Plan::new(table.shared())?;
        Ok(Self { cache, runner, plan })
    }

    /// A prompt that shares its start with others. What is cached of it need not be computed.
    fn begin(&self, own: Range<u32>) -> Told<Request> {
        let ids: Vec<u32> = SHARED.chain(own).collect();
        let sequence = self.cache.begin(&Namespace::default(), TokenList::text(&ids), 0)?;
        let begun = sequence.info()?;
        Ok(Request { sequence, begun, ids, computed: begun.cached_positions, last: Vec::new() })
    }

    /// One step of a batch: up to `limit` new positions of each request, through all layers.
    fn step(&self, batch: &mut [&mut Request], limit: usize) -> Told {
        let (mut rows, mut x) = (Vec::new(), Vec::new());
        for request in batch.iter() {
            let start = request.computed;
            let count = limit.min(request.ids.len() - start);
            rows.push(PlanRow {
                row: ComputedRow::Sequence(request.begun.id),
                start,
                count,
                mask: RowMask::Causal,
                regions: &[],
                tree_masks: &[],
            });
            for (at, &id) in request.ids.iter().enumerate().skip(start).take(count) {
                embed(&mut x, id, at);
            }
        }
        self.plan.set(&rows)?;
        let dense = Strides::default();
        let mut out = vec![0f32; x.len()];
        for layer in 0..LAYERS {
            let q = project(&x, WIDTH, 5, layer);
            let (k, v) = (project(&x, HEAD_DIM, 3, layer), project(&x, HEAD_DIM, 7, 1));
            let step = LayerStep {
                k_scales: std::ptr::null(),
                v_scales: std::ptr::null(),
                stream: ptr::null_mut(),
                layer,
                q: (q.as_ptr().cast(), dense),
                k: Some((k.as_ptr().cast(), dense)),
                v: Some((v.as_ptr().cast(), dense)),
                out: (out.as_mut_ptr().cast(), dense),
                lse: ptr::null_mut(),
                sinks: ptr::null(),
                params: Params::new(HEAD_DIM),
            };
            // The first layer also carries out copies of partly shared pages, in all layers.
            // SAFETY: the tensors are dense, and have the positions of the plan; nobody else
            // computes these rows.
            unsafe { self.runner.append_prefill(&self.plan, &step)? };
            x.iter_mut().zip(&out).for_each(|(x, out)| *x += out);
        }
        let mut end = 0;
        for (request, row) in batch.iter_mut().zip(&rows) {
            end += row.count * WIDTH;
            request.last = x[end - WIDTH..end].to_vec();
            request.computed += row.count;
            request.sequence.publish(request.computed)?;
        }
        Ok(())
    }

    /// Appends the most likely token to each request, and computes it.
    fn decode(&self, batch: &mut [&mut Request]) -> Told {
        for request in batch.iter_mut() {
            let id = most_likely(&request.last);
            request.sequence.append(TokenList::text(&[id]))?;
            request.ids.push(id);
        }
        self.step(batch, 1)
    }
}

fn print_decoded(out: &mut dyn Write, name: &str, request: &Request) -> Told {
    let decoded = &request.ids[request.ids.len() - DECODED..];
    let words: Vec<_> = decoded.iter().map(u32::to_string).collect();
    Ok(writeln!(out, "   {name}: {}", words.join(" "))?)
}

/// Tells what happens.
pub fn tell(out: &mut dyn Write) -> Told {
    writeln!(
        out,
        "1. A runner of {LAYERS} layers: {} bytes of KV for each page of {PAGE_SIZE} positions",
        shapes().page_bytes(PAGE_SIZE as usize)
    )?;
    let engine = Engine::new()?;

    // Nothing is cached: every position is computed, in chunks, and published as it goes.
    let mut a = engine.begin(50..66)?;
    let mut steps = 0;
    while a.computed < a.ids.len() {
        engine.step(&mut [&mut a], 32)?;
        steps += 1;
    }
    writeln!(
        out,
        "2. Request A: {} tokens, {} of them cached, computed in {steps} steps",
        a.ids.len(),
        a.begun.cached_tokens
    )?;

    // The shared start ends inside a page: two pages are shared, four positions copied.
    let mut b = engine.begin(70..82)?;
    writeln!(
        out,
        "3. Request B: {} tokens, {} of them cached, {} of these by a copy",
        b.ids.len(),
        b.begun.cached_tokens,
        b.begun.copy.map_or(0, |copy| copy.positions)
    )?;
    engine.step(&mut [&mut b], 32)?;

    for _ in 0..DECODED {
        engine.decode(&mut [&mut a, &mut b])?;
    }
    writeln!(out, "4. Both decode {DECODED} tokens, in one batch")?;
    print_decoded(out, "A", &a)?;
    print_decoded(out, "B", &b)?;

    let fresh = Engine::new()?;
    let mut alone = fresh.begin(70..82)?;
    fresh.step(&mut [&mut alone], 64)?;
    for _ in 0..DECODED {
        fresh.decode(&mut [&mut alone])?;
    }
    writeln!(out, "5. B again, alone, in a cache that is empty")?;
    print_decoded(out, "B", &alone)?;
    let same = if alone.last == b.last { "the same, to the bit" } else { "others" };
    writeln!(out, "   the numbers are {same}")?;
    Ok(())
}

fn main() -> Told {
    tell(&mut stdout().lock())
}
