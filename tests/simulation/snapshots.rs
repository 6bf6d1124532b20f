//! A user of a snapshot cache in the same run, with the specification of `tests/snapshot` beside.
use super::books::{Wrong, require};
use crate::snapshot::naive::{Fault, Naive};
use crate::snapshot::ops::{Answer, Config, Generator};
use crate::snapshot::real::Real;
use fastrand::Rng;

/// Calls of one step.
const CALLS: u64 = 4;

pub struct Snapshots {
    generator: Generator,
    real: Box<Real>,
    naive: Naive,
}

/// The destructions in any order, the other answers in theirs.
fn in_order(mut log: Vec<Answer>) -> Vec<Answer> {
    log.sort_by_key(|answer| match answer {
        Answer::Destroyed(number) => (1, *number),
        _ => (0, 0),
    });
    log
}

impl Snapshots {
    pub fn new(rng: &mut Rng) -> Self {
        let entry_limit = rng.u64(0..16);
        let byte_limit = if rng.bool() { u64::MAX } else { rng.u64(0..200) };
        let config = Config { entry_limit, byte_limit };
        let generator = Generator::new(rng.fork(), rng.u32(1..4), rng.usize(2..20));
        Snapshots { generator, real: Real::new(config), naive: Naive::new(config, Fault::None) }
    }

    pub fn step(&mut self) -> Result<u64, Wrong> {
        for op in self.generator.ops(CALLS as usize) {
            self.real.perform(&op);
            // Which one the library took, where several would do.
            self.naive.choices = self.real.choices.take();
            self.naive.perform(&op);
            let (seen, ours) = (self.real.log.take(), std::mem::take(&mut self.naive.log));
            let (seen, ours) = (in_order(seen), in_order(ours));
            require!(seen == ours, "snapshots, {op:?}: {seen:?}, in the model {ours:?}");
        }
        let (seen, ours) = (self.real.counts(false), self.naive.counts(false));
        require!(seen == ours, "snapshots: {seen:?}, in the model {ours:?}");
        Ok(CALLS)
    }

    /// Everything goes, and every snapshot exactly once.
    pub fn end(&mut self) -> Result<u64, Wrong> {
        let mut seen = self.real.end();
        seen.sort_unstable();
        require!(seen == self.naive.end(), "snapshots are left: {seen:?}");
        Ok(1)
    }
}
