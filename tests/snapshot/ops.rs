//! What the random runs do, and what can be seen of it.
use fastrand::Rng;

/// A cache to run on.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub entry_limit: u64,
    pub byte_limit: u64,
}

/// One call, or something to do at the next destruction.
#[derive(Debug, Clone)]
pub enum Op {
    Insert {
        ns: u8,
        tokens: Vec<u32>,
        bytes: u64,
        next: Option<u32>,
        destructor: bool,
        trimmable: bool,
    },
    Match {
        ns: u8,
        tokens: Vec<u32>,
        trimmable: bool,
    },
    Probe {
        ns: u8,
        tokens: Vec<u32>,
    },
    /// One of the pins that are out, of whichever cache.
    Release {
        pin: u16,
    },
    /// One of the pins that were released.
    ReleaseAgain {
        pin: u16,
    },
    Remove {
        ns: u8,
        tokens: Vec<u32>,
    },
    Clear,
    /// The next destructor that is called does this, inside the library's call.
    Arm(Box<Op>),
    /// A new cache; the old one is destroyed, pins or not.
    Recreate,
}

/// What a call said, or a destructor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Inserted { stored: bool, replaced: bool, evicted: u64 },
    Hit { snapshot: u64, bytes: u64, tokens: u64, common: u64, full: bool, next: Option<u32> },
    Miss,
    Probed(usize),
    Released,
    Stale,
    Removed(bool),
    Done,
    Destroyed(u64),
}

/// Everything that can be counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    pub entries: u64,
    pub entry_bytes: u64,
    pub pinned_entries: u64,
    pub pins: u64,
    pub detached: u64,
    pub detached_bytes: u64,
    pub nodes: u64,
    pub namespaces: u64,
    pub lookups: u64,
    pub hits: u64,
    pub full_hits: u64,
    pub lookup_tokens: u64,
    pub hit_tokens: u64,
    pub stored: u64,
    pub replaced: u64,
    pub rejected: u64,
    pub evicted: u64,
    pub removed: u64,
}

/// Makes operations that meet: few tokens, short lists, lists that extend earlier ones.
pub struct Generator {
    pub rng: Rng,
    /// Different tokens.
    pub alphabet: u32,
    pub longest: usize,
    /// Lists that were used before.
    known: Vec<(u8, Vec<u32>)>,
}

impl Generator {
    pub fn new(rng: Rng, alphabet: u32, longest: usize) -> Self {
        Self { rng, alphabet, longest, known: Vec::new() }
    }

    fn list(&mut self) -> (u8, Vec<u32>) {
        let longest = self.longest;
        let (mut ns, mut tokens) = (u8::from(self.rng.u8(0..5) == 0), Vec::new());
        if !self.known.is_empty() && self.rng.u8(0..4) > 0 {
            (ns, tokens) = self.known[self.rng.usize(0..self.known.len())].clone();
            if self.rng.bool() {
                tokens.truncate(self.rng.usize(0..=tokens.len()));
            }
        }
        if self.rng.u8(0..3) > 0 {
            let more = self.rng.usize(0..=longest.saturating_sub(tokens.len()));
            let token = |_| self.rng.u32(0..self.alphabet);
            tokens.extend((0..more).map(token));
        }
        if self.known.len() < 40 {
            self.known.push((ns, tokens.clone()));
        } else {
            let at = self.rng.usize(0..40);
            self.known[at] = (ns, tokens.clone());
        }
        (ns, tokens)
    }

    fn bytes(&mut self) -> u64 {
        match self.rng.u8(0..40) {
            0 => u64::MAX,
            1 => u64::MAX - 1,
            2 => 0,
            3 => 1000,
            _ => self.rng.u64(1..30),
        }
    }

    pub fn insert(&mut self) -> Op {
        let (ns, tokens) = self.list();
        let next = self.rng.bool().then(|| self.rng.u32(..));
        let (destructor, trimmable) = (self.rng.u8(0..9) > 0, self.rng.u8(0..3) == 0);
        Op::Insert { ns, tokens, bytes: self.bytes(), next, destructor, trimmable }
    }

    pub fn lookup(&mut self) -> Op {
        let (ns, tokens) = self.list();
        match self.rng.u8(0..5) {
            0 => Op::Probe { ns, tokens },
            _ => Op::Match { ns, tokens, trimmable: self.rng.bool() },
        }
    }

    pub fn remove(&mut self) -> Op {
        let (ns, tokens) = self.list();
        Op::Remove { ns, tokens }
    }

    /// Any call, a change of the cache included when nothing is in progress.
    fn call(&mut self, nested: bool) -> Op {
        match self.rng.u8(0..100) {
            0..35 => self.insert(),
            35..60 => self.lookup(),
            60..80 => Op::Release { pin: self.rng.u16(..) },
            80..84 => Op::ReleaseAgain { pin: self.rng.u16(..) },
            84..92 => self.remove(),
            92 => Op::Clear,
            93 if !nested => Op::Recreate,
            _ if !nested => Op::Arm(Box::new(self.call(true))),
            _ => self.lookup(),
        }
    }

    pub fn ops(&mut self, count: usize) -> Vec<Op> {
        (0..count).map(|_| self.call(false)).collect()
    }
}
