//! Random operations on snapshot caches through the C ABI, against an executable specification: a
//! list of entries that is scanned (`naive.rs`).
//!
//! After each operation every answer, every destruction and every count are compared, and the
//! library proves its own invariants. Destructors call the library again, and caches are destroyed
//! while pins are out. `RKV_MODEL_STEPS` and `RKV_MODEL_SEED` make the runs longer and other ones.
mod naive;
mod ops;
mod real;

use fastrand::Rng;
use naive::{Fault, Marks, Naive};
use ops::{Answer, Config, Generator, Op};
use real::Real;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The destructions in any order, the other answers in theirs: clearing a cache destroys in no
/// order that is promised.
fn in_order(log: &[Answer]) -> (Vec<u64>, Vec<&Answer>) {
    let mut destroyed = Vec::new();
    let mut others = Vec::new();
    for answer in log {
        match answer {
            Answer::Destroyed(number) => destroyed.push(*number),
            other => others.push(other),
        }
    }
    destroyed.sort_unstable();
    (destroyed, others)
}

/// Tells two things apart that should be the same.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: T, naive: T) -> Result<(), String> {
    if real == naive {
        return Ok(());
    }
    Err(format!("{what} differ\n  library: {real:?}\n  model: {naive:?}"))
}

fn compare(real: &Real, naive: &mut Naive, with_nodes: bool) -> Result<(), String> {
    let log = real.log.take();
    let expected = std::mem::take(&mut naive.log);
    same("answers", in_order(&log), in_order(&expected))?;
    same("counts", real.counts(with_nodes), naive.counts(with_nodes))
}

/// The model is told which one the library took, where several would do.
fn perform(real: &Real, naive: &mut Naive, op: &Op) {
    real.perform(op);
    naive.choices = real.choices.take();
    naive.perform(op);
}

/// Carries out operations. Tells what differs, and after which one.
fn run(config: Config, ops: &[Op], fault: Fault) -> Result<Marks, (usize, String)> {
    let mut step = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let real = Real::new(config);
        let mut naive = Naive::new(config, fault);
        for op in ops {
            perform(&real, &mut naive, op);
            compare(&real, &mut naive, true)?;
            step += 1;
        }
        same("snapshots left", sorted(real.end()), naive.end())?;
        Ok(naive.marks)
    }));
    let wrong = match outcome {
        Ok(Ok(marks)) => return Ok(marks),
        Ok(Err(wrong)) => wrong,
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
    };
    Err((step, wrong))
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

/// A list that still fails, in which no operation can be dropped and no list of tokens shortened.
fn smallest(config: Config, ops: &[Op], fault: Fault) -> Vec<Op> {
    let fails = |ops: &[Op]| run(config, ops, fault).is_err();
    let mut ops = ops.to_vec();
    let mut chunk = ops.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        while start < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(start..(start + chunk).min(ops.len()));
            if fails(&fewer) {
                ops = fewer;
            } else {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    for at in 0..ops.len() {
        loop {
            let mut shorter = ops.clone();
            if !shorten(&mut shorter[at]) || !fails(&shorter) {
                break;
            }
            ops = shorter;
        }
    }
    ops
}

fn shorten(op: &mut Op) -> bool {
    match op {
        Op::Insert { tokens, .. }
        | Op::Match { tokens, .. }
        | Op::Probe { tokens, .. }
        | Op::Remove { tokens, .. } => tokens.pop().is_some(),
        Op::Arm(op) => shorten(op),
        _ => false,
    }
}

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn soak(default_steps: u64, config: impl Fn(&mut Rng) -> Config, expected: &[&str]) {
    let seed = number("RKV_MODEL_SEED", 1).wrapping_mul(1_000_003);
    let steps = number("RKV_MODEL_STEPS", default_steps);
    let (mut done, mut marks) = (0, Marks::new());
    for episode in 0.. {
        if done >= steps {
            break;
        }
        let mut rng = Rng::with_seed(seed.wrapping_add(episode));
        let config = config(&mut rng);
        let (alphabet, longest) = (rng.u32(1..4), rng.usize(2..14));
        let ops = Generator::new(rng, alphabet, longest).ops(300);
        match run(config, &ops, Fault::None) {
            Ok(more) => more.iter().for_each(|(mark, count)| {
                *marks.entry(mark).or_default() += count;
            }),
            Err((step, message)) => {
                let small = smallest(config, &ops[..=step.min(299)], Fault::None);
                panic!("{config:?}, episode {episode}: {message}\n{small:#?}");
            }
        }
        done += ops.len() as u64;
    }
    println!("{done} operations, {marks:#?}");
    let missed: Vec<_> = expected.iter().filter(|mark| marks.get(*mark) < Some(&1)).collect();
    assert!(missed.is_empty() || done < default_steps, "never comes to {missed:?}");
}

// S01 S02 S03 S04 S05 S07 S08 M03
#[test]
fn s03_small_caches_do_what_the_specification_does() {
    let config = |rng: &mut Rng| Config {
        entry_limit: rng.u64(0..8),
        byte_limit: if rng.bool() { rng.u64(0..90) } else { u64::MAX },
    };
    soak(
        40_000,
        config,
        &[
            "over the limits while all are pinned",
            "a release shrinks the cache",
            "a snapshot is replaced while somebody reads it",
            "a destructor calls the library",
            "a cache is destroyed while pins are out",
            "an entry is found beyond the prompt",
            "one of several entries is chosen",
        ],
    );
}

// S01 S08
#[test]
fn s08_unlimited_caches_do_what_the_specification_does() {
    let config = |rng: &mut Rng| Config { entry_limit: rng.u64(20..60), byte_limit: u64::MAX };
    soak(20_000, config, &["a destructor calls the library"]);
}

/// S08: a cache that grows to thousands of entries and loses nearly all of them, several times.
#[test]
fn s08_memory_follows_the_entries() {
    let config = Config { entry_limit: 5000, byte_limit: u64::MAX };
    let (real, mut naive) = (Real::new(config), Naive::new(config, Fault::None));
    let mut generator = Generator::new(Rng::with_seed(9), 5, 12);
    let empty = real.index_bytes();
    let mut carry_out = |op: Op, at: usize| {
        perform(&real, &mut naive, &op);
        if at.is_multiple_of(97) {
            compare(&real, &mut naive, false).unwrap();
        }
    };
    for round in 0..3 {
        let lists: Vec<Vec<u32>> = (0..2500)
            .map(|_| (0..generator.rng.usize(1..14)).map(|_| generator.rng.u32(0..5)).collect())
            .collect();
        for (at, tokens) in lists.iter().enumerate() {
            let (ns, tokens) = ((at % 3) as u8, tokens.clone());
            let (destructor, trimmable) = (true, at % 4 == 0);
            let op = Op::Insert { ns, tokens, bytes: 1, next: None, destructor, trimmable };
            carry_out(op, at);
            if at % 50 == 0 {
                carry_out(generator.lookup(), at);
            }
        }
        let full = real.index_bytes();
        for (at, tokens) in lists.iter().enumerate().skip(3 + round) {
            carry_out(Op::Remove { ns: (at % 3) as u8, tokens: tokens.clone() }, at);
            if at % 90 == 0 {
                carry_out(Op::Release { pin: at as u16 }, at);
            }
        }
        let left = real.index_bytes();
        assert!(left * 4 < full, "{full} bytes of index when full, {left} when nearly empty");
    }
    carry_out(Op::Clear, 0);
    assert!(real.index_bytes() < empty + 200_000);
}

/// Bugs are planted in the specification: each must be found, and shrunk to a few operations.
#[test]
fn planted_bugs_are_found() {
    let planted = [
        Fault::ForgetsUse,
        Fault::EvictsPinned,
        Fault::FreesReplaced,
        Fault::ForgetsDetached,
        Fault::ShorterMatch,
        Fault::NeverShrinks,
        Fault::KeepsPath,
        Fault::NeverTrims,
        Fault::TrimsMore,
    ];
    let config = Config { entry_limit: 3, byte_limit: 60 };
    for fault in planted {
        let found = (0..40).find_map(|seed| {
            let ops = Generator::new(Rng::with_seed(seed), 2, 6).ops(200);
            let (step, _) = run(config, &ops, fault).err()?;
            Some(ops[..(step + 1).min(ops.len())].to_vec())
        });
        let ops = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
        let small = smallest(config, &ops, fault);
        assert!(run(config, &small, fault).is_err(), "{fault:?}: the small case holds");
        assert!(run(config, &small, Fault::None).is_ok(), "{fault:?} is not what was found");
        assert!(small.len() <= 9, "{fault:?} is shrunk no further than {small:#?}");
    }
}
