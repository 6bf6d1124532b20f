//! What users ask: prompts that share a system prompt, repeat each other, go on where a
//! conversation ended, or hold images.
use super::config::RunConfig;
use super::tokens::Tokens;
use crate::model::prompt::Piece;
use fastrand::Rng;
use std::collections::VecDeque;

const RECENT: usize = 12;

pub struct Prompts {
    page_size: usize,
    /// Positions of the longest prompt.
    longest: usize,
    systems: u32,
    namespaces: u8,
    images: u8,
    recent: VecDeque<Tokens>,
    fresh: u32,
}

impl Prompts {
    pub fn new(config: &RunConfig) -> Self {
        let (page_size, traffic) = (config.pool.page_size, &config.traffic);
        Prompts {
            page_size,
            longest: (traffic.prompt_pages * page_size).max(2),
            systems: traffic.systems,
            namespaces: traffic.namespaces,
            images: traffic.images,
            recent: VecDeque::new(),
            fresh: 0,
        }
    }

    /// A token that is decoded: few different ones, so that two answers may agree.
    pub fn word(&mut self, rng: &mut Rng) -> Piece {
        match rng.u8(0..32) {
            0 => Piece::Coord(rng.u32(0..3)),
            1 => Piece::Size(rng.u32(0..2), rng.u32(0..2)),
            _ => Piece::Text(rng.u32(0..6), 1),
        }
    }

    fn part(&mut self, rng: &mut Rng, most: usize) -> Piece {
        let length = rng.usize(1..=most.max(1)) as u32;
        if rng.u8(..) < self.images {
            return Piece::Image(rng.u8(0..4), length.min(1 + 2 * self.page_size as u32));
        }
        match rng.u8(0..8) {
            0 => {
                // Nobody asked this before.
                self.fresh += length;
                Piece::Text(1_000_000 + self.fresh - length, length)
            }
            1 => Piece::Coord(rng.u32(0..3)),
            _ => Piece::Text(5000 + 100 * rng.u32(0..6), length),
        }
    }

    /// What a user says next.
    pub fn turn(&mut self, rng: &mut Rng) -> Vec<Piece> {
        let most = (self.longest / 3).min(2 * self.page_size);
        (0..rng.usize(1..=3)).map(|_| self.part(rng, most)).collect()
    }

    /// Leaves out what is too long.
    pub fn fit(&self, tokens: &mut Tokens) {
        if tokens.positions() > self.longest {
            let end = tokens.boundary_within(self.longest);
            tokens.truncate(end);
        }
        if tokens.positions() == 0 {
            tokens.push(Piece::Text(1, 1));
        }
    }

    pub fn prompt(&mut self, rng: &mut Rng) -> Tokens {
        let known = self.recent.len();
        let mut tokens = match rng.u8(0..8) {
            0 if known > 0 => self.recent[rng.usize(0..known)].clone(),
            1 if known > 0 => {
                let mut tokens = self.recent[rng.usize(0..known)].clone();
                let end = tokens.boundary_within(rng.usize(0..=tokens.positions()));
                tokens.truncate(end);
                tokens
            }
            _ => {
                let system = rng.u32(0..self.systems);
                let mut tokens = Tokens::new(rng.u8(0..self.namespaces.max(1)));
                let length = (system + 1) * (self.longest as u32 / 3) / self.systems;
                if length > 0 {
                    tokens.push(Piece::Text(10_000 * (system + 1), length));
                }
                tokens
            }
        };
        if rng.u8(0..8) > 0 || tokens.positions() == 0 {
            let turn = self.turn(rng);
            tokens.extend(&turn);
        }
        self.fit(&mut tokens);
        self.remember(&tokens, rng);
        tokens
    }

    /// Somebody may ask this again.
    pub fn remember(&mut self, tokens: &Tokens, rng: &mut Rng) {
        if self.recent.len() == RECENT {
            if rng.bool() {
                return;
            }
            self.recent.pop_front();
        }
        self.recent.push_back(tokens.clone());
    }
}
