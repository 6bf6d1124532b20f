//! What a run is: all drawn from its seed.
use crate::model::ops::Config;
use fastrand::Rng;

#[derive(Clone, Copy, Debug)]
pub struct RunConfig {
    pub pool: Config,
    /// Operations of the run.
    pub operations: u64,
    /// Operations between two audits.
    pub audit_interval: u64,
    /// Calls meet a host without memory now and then, and say so.
    pub allocation_failures: bool,
    pub traffic: Traffic,
}

/// How busy the engine is, and with what. Chances are out of 256.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Requests that wait at most.
    pub waiting: usize,
    /// Pages of the longest prompt, and of what it is given to answer.
    pub prompt_pages: usize,
    /// Tokens that a step computes.
    pub budget: usize,
    /// Different first words.
    pub systems: u32,
    pub namespaces: u8,
    pub images: u8,
    pub chats: u8,
    pub forks: u8,
    pub retains: u8,
    pub cancels: u8,
    pub drafts: u8,
    pub device_failures: u8,
    pub foreign: u8,
    pub snapshots: u8,
    /// A chunk of a prefill is published at once.
    pub publishes: u8,
    pub clears: u8,
}

const SMALL: [usize; 8] = [1, 1, 2, 3, 4, 4, 8, 16];

impl RunConfig {
    pub fn of_seed(rng: &mut Rng, operations: u64) -> Self {
        let page_size = match rng.u8(0..16) {
            0 => rng.usize(1..=256),
            // Some are larger than what kernels take.
            1 => match rng.usize(1..=256) {
                size if size % 9 == 0 => size * 7,
                size => size,
            },
            2 => [32, 64, 128, 256][rng.usize(0..4)],
            _ => SMALL[rng.usize(0..SMALL.len())],
        };
        let large = page_size > 16;
        let page_count = match rng.u8(0..8) {
            0 => rng.usize(4..=9),
            1..=4 => rng.usize(10..=if large { 24 } else { 60 }),
            5 | 6 => rng.usize(60..=if large { 80 } else { 300 }),
            _ => rng.usize(100..=if large { 120 } else { 1500 }),
        };
        let row_page_limit = if rng.u8(0..4) == 0 { rng.usize(2..page_count.min(60)) } else { 0 };
        let pool = Config {
            page_size,
            page_count,
            slot_count: if rng.bool() { rng.usize(2..=6) } else { rng.usize(6..=24) },
            row_page_limit,
            whole_pages: rng.u8(0..4) == 0,
            block_hash: rng.u8(0..3) == 0,
            retained_sequences: if rng.bool() { 0 } else { rng.usize(1..=6) },
            retained_pages: if rng.bool() { 0 } else { rng.usize(1..page_count) },
            // Whatever was drawn stays as it was before there were journals.
            journal_bytes: if page_count % 3 == 0 { 1024 + 256 * page_size } else { 0 },
        };
        let chance = |rng: &mut Rng, most: u8| if rng.u8(0..4) == 0 { 0 } else { rng.u8(0..=most) };
        let longest = match row_page_limit {
            0 => page_count - 1,
            limit => limit,
        };
        let prompt_pages = longest.min(rng.usize(2..=(240 / page_size).clamp(4, 40)));
        let traffic = Traffic {
            waiting: rng.usize(1..=12),
            prompt_pages,
            budget: rng.usize(1..=(prompt_pages * page_size * 2)),
            systems: rng.u32(1..=6),
            namespaces: rng.u8(1..=8),
            images: chance(rng, 100),
            chats: chance(rng, 200),
            forks: chance(rng, 80),
            retains: chance(rng, 180),
            cancels: chance(rng, 12),
            drafts: chance(rng, 100),
            device_failures: chance(rng, 10),
            foreign: chance(rng, 150),
            snapshots: chance(rng, 30),
            publishes: rng.u8(60..=255),
            clears: chance(rng, 4),
        };
        RunConfig {
            pool,
            operations,
            // An audit reads every page and every row.
            audit_interval: 8 + page_count as u64 * rng.u64(1..4),
            allocation_failures: rng.bool(),
            traffic,
        }
    }
}
