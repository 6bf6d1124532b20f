//! Runs random operations until something differs, makes the list small, and prints it.
use super::clearing::REMEMBERED;
use super::driver::Driver;
use super::generate::{Generator, Theme};
use super::naive::{Fault, Marks};
use super::ops::{Config, Op};
use super::shrink::shrink;
use fastrand::Rng;
use radixkv::index::Limits;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Page sizes of the random runs.
pub const PAGE_SIZES: [usize; 12] = [1, 2, 3, 4, 5, 7, 8, 16, 32, 64, 128, 256];

/// What differed, after which operation.
pub struct Failure {
    pub step: usize,
    pub message: String,
}

/// Carries out operations on a new library and a new model. Returns what the model came across.
pub fn run(config: &Config, ops: &[Op], fault: Fault) -> Result<Marks, Failure> {
    let mut step = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut driver = Driver::new(config, fault)?;
        for op in ops {
            let done = driver.step(op);
            if crate::ends_here() {
                break;
            }
            done?;
            step += 1;
        }
        Ok(driver.model.marks.take())
    }));
    let message = match outcome {
        Ok(Ok(marks)) => return Ok(marks),
        Ok(Err(wrong)) => wrong,
        Err(panic) => match panic.downcast_ref::<String>() {
            Some(text) => format!("the model or the driver panicked: {text}"),
            None => "the model or the driver panicked".into(),
        },
    };
    Err(Failure { step, message })
}

impl Failure {
    /// The beginning of the message without its numbers: what went wrong, wherever it did.
    fn kind(&self) -> String {
        self.message.chars().filter(|c| !c.is_ascii_hexdigit()).take(24).collect()
    }
}

/// A small list that fails in the same way as the given one.
pub fn smallest(config: &Config, ops: &[Op], failure: &Failure, fault: Fault) -> Vec<Op> {
    let upto = ops[..(failure.step + 1).min(ops.len())].to_vec();
    let kind = failure.kind();
    shrink(upto, |ops| run(config, ops, fault).is_err_and(|failure| failure.kind() == kind))
}

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// A pool in which pages are scarce and prefixes meet.
fn config(rng: &mut Rng, theme: Theme, page_size: usize, kind: Kind) -> Config {
    // The smallest ring, in which records are lost, or one that is never full.
    let ring = |rng: &mut Rng| if rng.bool() { 1024 + 256 * page_size } else { 1 << 20 };
    let journal_bytes = if kind.journal { ring(rng) } else { 0 };
    let most = if page_size <= 16 { 36 } else { 16 };
    let page_count = match theme {
        Theme::Pressure => rng.usize(5..=12),
        _ => rng.usize(6..=most),
    };
    let row_page_limit = if rng.u8(0..5) == 0 { rng.usize(2..page_count) } else { 0 };
    Config {
        page_size,
        page_count,
        slot_count: rng.usize(1..=6),
        row_page_limit,
        whole_pages: rng.u8(0..4) == 0,
        block_hash: kind.block_hash,
        journal_bytes,
        retained_sequences: if rng.bool() { 0 } else { rng.usize(1..=4) },
        retained_pages: if rng.bool() { 0 } else { rng.usize(1..page_count) },
    }
}

/// Many runs of one theme. RKV_MODEL_STEPS operations in all, from the seed RKV_MODEL_SEED on.
/// Each of the marks, the rare cases of the theme, must be come across.
#[allow(dead_code)] // not every test that includes this does
pub fn soak(theme: Theme, default_steps: u64, expected: &[&str]) {
    soak_kind(Kind::default(), theme, default_steps, expected);
}

/// The same with the block-hash index.
#[allow(dead_code)] // as above
pub fn soak_block_hash(theme: Theme, default_steps: u64, expected: &[&str]) {
    let kind = Kind { block_hash: true, ..Kind::default() };
    soak_kind(kind, theme, default_steps, expected);
}

/// What kind of caches there are.
#[derive(Clone, Copy, Default)]
pub struct Kind {
    /// Pages by their digests.
    pub block_hash: bool,
    /// A consumer follows the journal.
    pub journal: bool,
}

/// The same with caches of a kind.
pub fn soak_kind(kind: Kind, theme: Theme, default_steps: u64, expected: &[&str]) {
    Limits::choose_clears(REMEMBERED as u32);
    let seed = number("RKV_MODEL_SEED", 1).wrapping_mul(1_000_003);
    let steps = number("RKV_MODEL_STEPS", default_steps);
    let mut done = 0;
    let mut marks = Marks::default();
    for episode in 0.. {
        if done >= steps {
            break;
        }
        let mut rng = Rng::with_seed(seed.wrapping_add(episode));
        // Large pages cost the naive model the most, so they get shorter runs.
        let page_size = PAGE_SIZES[episode as usize % PAGE_SIZES.len()];
        let config = config(&mut rng, theme, page_size, kind);
        let count = rng.usize(200..=800) / (1 + page_size / 32);
        let ops = Generator::new(rng, theme, config).ops(count);
        match run(&config, &ops, Fault::None) {
            Ok(more) => more.iter().for_each(|(mark, count)| {
                *marks.entry(mark).or_default() += count;
            }),
            Err(failure) => {
                report(theme, seed.wrapping_add(episode), &config, &ops, &failure);
            }
        }
        done += count as u64;
    }
    println!("{theme:?}: {done} operations, {marks:#?}");
    let missed: Vec<_> = expected.iter().filter(|mark| !marks.contains_key(*mark)).collect();
    assert!(missed.is_empty() || done < default_steps, "{theme:?} never comes to {missed:?}");
}

fn report(theme: Theme, seed: u64, config: &Config, ops: &[Op], failure: &Failure) -> ! {
    let small = smallest(config, ops, failure, Fault::None);
    let message = match run(config, &small, Fault::None) {
        Err(failure) => failure.message,
        Ok(_) => "does not fail every time".into(),
    };
    let lines: String = small.iter().map(|op| format!("        {op:?},\n")).collect();
    panic!(
        "library and model differ ({theme:?}, episode seed {seed}, after {} operations: {}).\n\
         Smallest case ({} operations): {message}\n\n    \
         replay(\n    {config:?},\n    &[\n{lines}    ],\n    );\n",
        failure.step + 1,
        failure.message,
        small.len()
    );
}
