//! Random operations: prompts that often share a beginning, and a mix of verbs for each theme.
use super::namespaces::NAMESPACE_COUNT;
use super::ops::{Config, Items, Op, Wrong};
use super::prompt::{Piece, Prompt};
use fastrand::Rng;
use radixkv::capi::{RKV_CLEAR_EVERYTHING, RKV_CLEAR_NAMESPACE};

/// What a run of operations is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Match, insert, lock and evict.
    Cache,
    /// Begin, append, publish and release.
    Sequences,
    /// Sequences in a pool that is too small for them.
    Pressure,
    /// Retain, continue, fork, and sequences to do that with.
    Children,
    /// Slots, rows and pages.
    PageTable,
    /// Prompts full of images.
    Images,
    /// Calls that must fail among a few that succeed.
    Misuse,
    /// Everything.
    All,
}

pub struct Generator {
    rng: Rng,
    theme: Theme,
    config: Config,
    /// Prompts of earlier operations.
    prompts: Vec<Prompt>,
    /// The rest of a prompt of which a sequence began with the first part.
    rest: Option<Prompt>,
    /// What comes next, the last at first.
    next: Vec<Op>,
    /// Different text ids to begin a piece with.
    variety: u32,
    namespaces: u8,
}

impl Generator {
    pub fn new(mut rng: Rng, theme: Theme, config: Config) -> Self {
        let variety = rng.u32(2..5);
        let namespaces = if rng.bool() { 2 } else { NAMESPACE_COUNT };
        let (prompts, rest, next) = (Vec::new(), None, Vec::new());
        Generator { rng, theme, config, prompts, rest, next, variety, namespaces }
    }

    pub fn ops(&mut self, count: usize) -> Vec<Op> {
        (0..count).map(|_| self.op()).collect()
    }

    fn ns(&mut self) -> u8 {
        if self.rng.u8(0..4) > 0 { 0 } else { self.rng.u8(0..self.namespaces) }
    }

    /// Mostly small, at times up to `most`.
    fn few(&mut self, most: usize) -> u16 {
        let most = if self.rng.u8(0..4) > 0 { most / 4 } else { most };
        self.rng.u16(0..=most as u16)
    }

    fn pick(&mut self) -> u16 {
        self.rng.u16(..)
    }

    /// Positions that a row of a usual sequence has.
    fn usual_positions(&self) -> usize {
        let limit = match self.config.row_page_limit {
            0 => self.config.page_count,
            limit => limit.min(self.config.page_count),
        };
        self.config.page_size * (limit / 2).clamp(1, 6) + self.config.page_size / 2
    }

    fn piece(&mut self) -> Piece {
        let page_size = self.config.page_size as u32;
        let images = if self.theme == Theme::Images { 5 } else { 1 };
        match self.rng.u8(0..10) {
            kind if kind < images => {
                // The same content twice, at two lengths, and some that span pages.
                let lengths = [1, 2, page_size, page_size + 1, page_size * 2 + page_size / 2];
                Piece::Image(self.rng.u8(0..2), self.rng.choice(lengths).unwrap_or(1))
            }
            5 => Piece::Coord(self.rng.u32(0..2)),
            6 => Piece::Size(self.rng.u32(0..2), self.rng.u32(0..2)),
            _ => {
                let count = match self.rng.u8(0..4) {
                    0 => self.rng.u32(1..=2),
                    1 => page_size,
                    _ => self.rng.u32(1..=page_size * 2),
                };
                Piece::Text(self.rng.u32(0..self.variety) * 1000, count)
            }
        }
    }

    fn fresh(&mut self) -> Prompt {
        let wanted = self.rng.usize(0..=self.usual_positions());
        let mut made = Prompt::default();
        while made.positions() < wanted {
            made.0.push(self.piece());
        }
        made
    }

    /// Often an earlier prompt, the beginning of one, or one gone on with.
    fn prompt(&mut self) -> Prompt {
        let earlier = self.rng.choice(&self.prompts).cloned();
        let made = match (earlier, self.rng.u8(0..8)) {
            (Some(earlier), 0..=1) => earlier,
            (Some(earlier), 2..=3) => earlier.cut(self.rng.usize(0..=earlier.positions())),
            (Some(earlier), 4..=6) => {
                let kept = earlier.cut(self.rng.usize(0..=earlier.positions()));
                kept.then(&Prompt(vec![self.piece()]))
            }
            _ => self.fresh(),
        };
        let most = self.usual_positions() * 2;
        let made = if made.positions() > most { made.cut(most) } else { made };
        if self.prompts.len() < 12 {
            self.prompts.push(made.clone());
        } else {
            let place = self.rng.usize(0..self.prompts.len());
            self.prompts[place] = made.clone();
        }
        if self.rng.u8(0..50) == 0 { self.spoil(made) } else { made }
    }

    /// A prompt with ids that are no text ids, which must not pass for images or coordinates.
    fn spoil(&mut self, mut prompt: Prompt) -> Prompt {
        let id = match self.rng.u8(0..4) {
            0 => (1 << 31) + self.rng.u32(0..4),
            1 => (1 << 31) + self.rng.u32(..1 << 31) / 2,
            2 => (3 << 30) + self.rng.u32(0..2048),
            _ => u32::MAX - self.rng.u32(2..6),
        };
        let place = self.rng.usize(0..=prompt.0.len());
        prompt.0.insert(place, Piece::Text(id, self.rng.u32(1..=2)));
        prompt
    }

    /// What decoding adds: usually a token.
    fn more(&mut self) -> Prompt {
        if let Some(rest) = self.rest.take() {
            return rest;
        }
        match self.rng.u8(0..6) {
            0 => Prompt(vec![self.piece(), self.piece()]),
            1 => Prompt(vec![self.piece()]),
            2 => Prompt(vec![Piece::Text(self.rng.u32(0..self.variety) * 1000, 3)]),
            _ => Prompt(vec![Piece::Text(self.rng.u32(0..self.variety), 1)]),
        }
    }

    fn op(&mut self) -> Op {
        if let Some(op) = self.next.pop() {
            return op;
        }
        let (cache, sequence, table, misuse) = match self.theme {
            Theme::Cache => (90, 0, 4, 6),
            Theme::Sequences | Theme::Pressure | Theme::Children => (12, 84, 2, 2),
            Theme::PageTable => (25, 10, 60, 5),
            Theme::Images => (45, 50, 2, 3),
            Theme::Misuse => (20, 20, 15, 45),
            Theme::All => (35, 40, 15, 10),
        };
        if self.rng.u8(0..120) == 0 {
            return self.clear();
        }
        let at = self.rng.u32(0..cache + sequence + table + misuse);
        if at < cache {
            let op = self.cache_op();
            self.perhaps_many(op)
        } else if at < cache + sequence {
            let op = self.sequence_op();
            self.perhaps_many(op)
        } else if at < cache + sequence + table {
            self.table_op()
        } else {
            self.misuse_op()
        }
    }

    /// One to six calls of the same verb at once, some of them such as are refused.
    fn perhaps_many(&mut self, first: Op) -> Op {
        type Again = fn(&mut Generator) -> Op;
        let (again, many): (Again, fn(Items) -> Op) = match first {
            Op::Match { .. } => (Self::a_match, Op::MatchMany),
            Op::Probe { .. } => (Self::probe, Op::ProbeMany),
            Op::Begin { .. } => (Self::begin, Op::BeginMany),
            Op::Append { .. } => (Self::append, Op::AppendMany),
            Op::Publish { .. } => (Self::publish, Op::PublishMany),
            Op::Release { .. } => (Self::release, Op::ReleaseMany),
            other => return other,
        };
        if self.rng.u8(0..3) > 0 || !self.next.is_empty() {
            return first;
        }
        let mut items = vec![Some(first)];
        // Some sequences stay.
        let most = if matches!(items[0], Some(Op::Release { .. })) { 3 } else { 6 };
        for _ in 0..self.rng.u8(0..most) {
            let item =
                if self.rng.u8(0..6) == 0 { self.refused(&items[0]) } else { Some(again(self)) };
            items.insert(self.rng.usize(0..=items.len()), item);
        }
        many(Items(items))
    }

    /// An item that is refused beside others of this verb.
    fn refused(&mut self, like: &Option<Op>) -> Option<Op> {
        match like {
            Some(Op::Match { .. }) if self.rng.bool() => {
                Some(Op::MatchTooSmall { ns: self.ns(), prompt: self.prompt() })
            }
            Some(Op::Publish { .. }) if self.rng.bool() => {
                Some(Op::PublishBeyond { sequence: self.pick(), more: self.few(100) })
            }
            _ => None,
        }
    }

    fn a_match(&mut self) -> Op {
        Op::Match { ns: self.ns(), prompt: self.prompt(), lock: self.rng.u8(0..3) == 0 }
    }

    fn probe(&mut self) -> Op {
        Op::Probe { ns: self.ns(), prompt: self.prompt() }
    }

    fn begin(&mut self) -> Op {
        let page_size = self.config.page_size;
        let reserve = if self.rng.bool() { 0 } else { self.few(page_size * 3) };
        let first = if self.rng.u8(0..3) > 0 { 0 } else { self.few(page_size * 4) };
        Op::Begin { ns: self.ns(), prompt: self.prompt(), reserve, first }
    }

    fn append(&mut self) -> Op {
        Op::Append { sequence: self.pick(), prompt: self.more() }
    }

    fn publish(&mut self) -> Op {
        let back = if self.rng.bool() { 0 } else { self.few(self.config.page_size * 3) };
        Op::Publish { sequence: self.pick(), back }
    }

    fn release(&mut self) -> Op {
        Op::Release { sequence: self.pick() }
    }

    fn cache_op(&mut self) -> Op {
        let pages = self.config.page_count;
        match self.rng.u8(0..100) {
            0..=29 => self.a_match(),
            30 => Op::ReadTokens { prompt: self.prompt() },
            31..=33 => self.probe(),
            34..=58 => {
                Op::Insert { ns: self.ns(), prompt: self.prompt(), keep: self.rng.u8(0..20) == 0 }
            }
            59..=67 => {
                let more = if self.rng.bool() { self.fresh() } else { self.more() };
                Op::InsertResumed { earlier: self.pick(), more, keep: false }
            }
            68..=71 => Op::Lock { node: self.pick() },
            72..=86 => Op::Unlock { lock: self.pick() },
            87..=89 => Op::InsertRow { row: self.pick(), ns: self.ns(), prompt: self.prompt() },
            90..=98 => Op::Evict { count: self.few(pages), reported: self.rng.u8(0..4) > 0 },
            _ => Op::EvictSmallBuffer { count: self.few(pages), capacity: self.few(pages / 2) },
        }
    }

    /// One namespace, some, or all; now and then more, one after another, than are remembered.
    fn clear(&mut self) -> Op {
        let one = |rng: &mut Rng, namespaces| {
            let flags = match rng.u8(0..8) {
                0 => rng.u16(1..15),
                1 => RKV_CLEAR_EVERYTHING as u16,
                2 => rng.u16(0..20),
                _ => RKV_CLEAR_NAMESPACE as u16,
            };
            Op::Clear { ns: rng.u8(0..namespaces), flags }
        };
        if self.rng.u8(0..8) == 0 {
            let count = self.rng.usize(30..36);
            // Of a few that are hardly used, so that what was there before goes on.
            let flags = RKV_CLEAR_NAMESPACE as u16;
            self.next = (0..count).map(|at| Op::Clear { ns: 4 + at as u8 % 3, flags }).collect();
        }
        one(&mut self.rng, self.namespaces)
    }

    fn child_op(&mut self) -> Op {
        let page_size = self.config.page_size;
        match self.rng.u8(0..100) {
            0..=24 => Op::Retain { sequence: self.pick() },
            25..=64 => {
                let prompt = if self.rng.u8(0..4) == 0 { Prompt::default() } else { self.more() };
                Op::Continue {
                    parent: self.pick(),
                    ns: if self.rng.u8(0..12) > 0 { 0 } else { self.ns() },
                    prompt,
                    reserve: if self.rng.bool() { 0 } else { self.few(page_size * 2) },
                    first: if self.rng.u8(0..4) > 0 { 0 } else { self.few(page_size * 4) },
                    running: self.rng.u8(0..4) > 0,
                    all: self.rng.u8(0..4) == 0,
                }
            }
            65..=84 => Op::Fork {
                parent: self.pick(),
                count: self.rng.u16(0..3),
                reserve: if self.rng.bool() { 0 } else { self.few(page_size * 2) },
            },
            85..=90 => Op::Drop { sequence: self.pick() },
            91..=94 => {
                // A parent that decoded a little is forked, and takes it back.
                let sequence = self.rng.u16(0..4);
                self.next = vec![
                    Op::Truncate { sequence, back: self.rng.u16(1..=2) },
                    Op::Fork { parent: sequence * 8, count: self.rng.u16(0..2), reserve: 0 },
                    Op::Publish { sequence, back: 0 },
                ];
                Op::Append { sequence, prompt: self.more() }
            }
            _ => Op::DropRetained { pages: self.few(self.config.page_count) },
        }
    }

    fn sequence_op(&mut self) -> Op {
        let page_size = self.config.page_size;
        let children = if self.theme == Theme::Children { 40 } else { 8 };
        if self.rng.u8(0..100) < children {
            return self.child_op();
        }
        match self.rng.u8(0..100) {
            0..=21 => {
                if let Some(earlier) = self.rng.choice(&self.prompts).cloned()
                    && self.rng.u8(0..4) == 0
                {
                    let at = self.rng.usize(0..=earlier.positions());
                    self.rest = Some(earlier.after(at));
                    return Op::Begin { ns: 0, prompt: earlier.cut(at), reserve: 0, first: 0 };
                }
                self.begin()
            }
            22..=34 => Op::ConfirmCopies { sequence: self.pick() },
            35..=41 => Op::Allocate { sequence: self.pick(), back: self.few(page_size * 4) },
            42..=54 => self.append(),
            55..=58 => Op::Truncate { sequence: self.pick(), back: self.few(page_size * 2) },
            59..=81 => self.publish(),
            _ => self.release(),
        }
    }

    fn table_op(&mut self) -> Op {
        let positions = self.config.page_size * self.config.page_count;
        match self.rng.u8(0..100) {
            0..=9 => Op::AllocateSlot,
            10..=19 => Op::Erase { slot: self.pick() },
            20..=31 => Op::AllocatePages { count: self.few(self.config.page_count) },
            32..=43 => Op::FreePages { first: self.pick(), count: self.few(12) },
            44..=57 => Op::Map { row: self.pick(), first: self.pick(), count: self.few(12) },
            58..=67 => Op::MapMatch { row: self.pick(), ns: self.ns(), prompt: self.prompt() },
            68..=81 => Op::Reserve { slot: self.pick(), positions: self.few(positions) },
            82..=87 => Op::CanReserve { slot: self.pick(), positions: self.few(positions) },
            _ => Op::ReadRows { first: self.pick(), count: self.few(8), seed: self.pick() },
        }
    }

    fn misuse_op(&mut self) -> Op {
        const WRONGS: [Wrong; 14] = [
            Wrong::PageZero,
            Wrong::PageOutOfRange,
            Wrong::PageFree,
            Wrong::PageTwice,
            Wrong::PageCachedElsewhere,
            Wrong::PageOfSequence,
            Wrong::TooFewPages,
            Wrong::TokenIndexTooSmall,
            Wrong::TokenIndexTooLarge,
            Wrong::PageIndexTooSmall,
            Wrong::PageIndexTooLarge,
            Wrong::IndexWithoutNode,
            Wrong::OtherPrefix,
            Wrong::ForeignNode,
        ];
        match self.rng.u8(0..100) {
            0..=39 => Op::InsertWrong {
                wrong: self.rng.choice(WRONGS).unwrap_or(Wrong::PageZero),
                earlier: self.pick(),
                ns: self.ns(),
                prompt: self.prompt(),
            },
            40..=49 => Op::UnlockStale { lock: self.pick() },
            50..=59 => Op::DeadSequence { sequence: self.pick() },
            60 => Op::AllocateBeyond { sequence: self.pick(), more: self.few(100) },
            61..=64 => Op::TruncateBeyond { sequence: self.pick(), more: self.few(100) },
            65..=69 => Op::PublishBeyond { sequence: self.pick(), more: self.few(100) },
            70..=79 => Op::FreeAny { pages: [self.pick(), self.pick()] },
            80..=89 => {
                Op::MapAny { slot: self.pick(), index: self.rng.u16(0..4), page: self.pick() }
            }
            90..=97 => Op::MatchTooSmall { ns: self.ns(), prompt: self.prompt() },
            _ if self.rng.u8(0..10) == 0 => Op::RecreateCache,
            _ => Op::Lock { node: self.pick() },
        }
    }
}
