//! Runs simulations, one after another on each thread, and tells how to see a failure again.
use super::books::Wrong;
use super::config::RunConfig;
use super::engine::Engine;
use super::world::{Fault, World};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a run came to.
pub struct Summary {
    pub operations: u64,
    /// Of all that was done, in order.
    pub digest: u64,
    pub marks: BTreeMap<&'static str, u64>,
    /// A slip that was planted happened.
    pub slipped: bool,
}

/// What differed in a run.
pub struct Failure {
    pub message: Wrong,
    /// The operation, and what was done last.
    pub story: String,
    pub slipped: bool,
}

/// The run that a seed names.
pub fn run(seed: u64, fault: Fault) -> Result<Summary, Failure> {
    // A request for memory that is refused is named by its number: there must be as many again.
    radixkv::memory::choose_seed(1);
    let mut rng = Rng::with_seed(seed);
    let operations = rng.u64(10_000..60_000);
    let config = RunConfig::of_seed(&mut rng, operations);
    let failure = |message| Failure { message, story: format!("{config:#?}"), slipped: false };
    let mut world = World::new(config, rng.fork(), fault).map_err(failure)?;
    let outcome = catch_unwind(AssertUnwindSafe(|| live(&mut world, rng)));
    let wrong = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(wrong)) => Some(wrong),
        Err(panic) => Some(match panic.downcast_ref::<String>() {
            Some(text) => format!("the simulation panicked: {text}"),
            None => "the simulation panicked".into(),
        }),
    };
    let slipped = fault != Fault::None && world.fault == Fault::None;
    match wrong {
        None => {
            let (operations, digest) = (world.operations, world.log.digest());
            Ok(Summary { operations, digest, marks: std::mem::take(&mut world.marks), slipped })
        }
        Some(message) => {
            let at = world.operations;
            let story = format!("after {at} operations, of which the last:\n{}", world.log);
            Err(Failure { message, story: format!("{story}{config:#?}"), slipped })
        }
    }
}

fn live(world: &mut World, mut rng: Rng) -> Result<(), Wrong> {
    let mut engine = Engine::new(world, rng.fork());
    while world.operations < world.config.operations {
        engine.step(world)?;
    }
    engine.end(world)
}

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs from RKV_SIM_SEED on until there are RKV_SIM_OPS operations, on RKV_SIM_THREADS threads.
/// Returns how often each rare case came.
pub fn simulate(default_seed: u64, default_operations: u64) -> BTreeMap<&'static str, u64> {
    let first = number("RKV_SIM_SEED", default_seed);
    let wanted = number("RKV_SIM_OPS", default_operations);
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let (marks, failed) = (Mutex::new(BTreeMap::new()), Mutex::new(None));
    let tells = number("RKV_SIM_TELL", 0) > 0;
    println!("from seed {first} on");
    let start = Instant::now();
    let work = || {
        while done.load(Ordering::Relaxed) < wanted && failed.lock().unwrap().is_none() {
            let seed = first.wrapping_add(next.fetch_add(1, Ordering::Relaxed));
            if tells {
                println!("seed {seed}"); // For what ends the process.
            }
            match run(seed, Fault::None) {
                Ok(summary) => {
                    done.fetch_add(summary.operations, Ordering::Relaxed);
                    let mut marks = marks.lock().unwrap();
                    for (mark, count) in summary.marks {
                        *marks.entry(mark).or_insert(0) += count;
                    }
                }
                Err(failure) => *failed.lock().unwrap() = Some((seed, failure)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..number("RKV_SIM_THREADS", 2) {
            scope.spawn(work);
        }
    });
    if let Some((seed, Failure { message, story, .. })) = failed.into_inner().unwrap() {
        panic!(
            "\nseed {seed}: {message}\n{story}\nagain: RKV_SIM_SEED={seed} \
             RKV_SIM_OPS=1 RKV_SIM_THREADS=1 cargo test --test simulation -- simulated\n"
        );
    }
    let (operations, runs) = (done.into_inner(), next.into_inner());
    let seconds = start.elapsed().as_secs_f64();
    let rate = operations as f64 / seconds;
    println!("{operations} operations in {runs} runs: {rate:.0} per second");
    marks.into_inner().unwrap()
}
