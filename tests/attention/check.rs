//! Steps of a world, each compared with the definition.
use super::compare::{Sizes, check_lse, check_out};
use super::numbers::{decode, round};
use super::world::{Chunk, Kind, World};
use radixkv::attention::Geometry;
use radixkv::attention::reference::{Problem, State};
use std::collections::HashMap;
use std::ops::Range;

/// The bits of the results of each (sequence, position).
pub type Bits = HashMap<(usize, usize), Vec<u32>>;

impl World {
    /// Computes a step and compares it with the definition.
    pub fn step(&mut self, chunks: &[Chunk]) -> Bits {
        let Geometry { query_heads, v_head_dim: head_dim, .. } = self.setup.geometry;
        let starts: Vec<usize> =
            chunks.iter().map(|chunk| self.sequences[chunk.sequence].positions).collect();
        let (out, lse) = self.run(chunks);
        let mut first = 0;
        for (chunk, start) in chunks.iter().zip(starts) {
            let positions = start..start + chunk.count;
            let (from, to) = (first * query_heads, (first + chunk.count) * query_heads);
            let (out, lse) = (&out[from * head_dim..to * head_dim], &lse[from..to]);
            if !chunk.is_context {
                self.check_memory(chunk.sequence, positions.clone());
            }
            self.check(chunk.sequence, positions, out, lse);
            first += chunk.count;
        }
        self.bits(chunks, &out, &lse)
    }

    /// The bits of what a step gave.
    pub fn bits(&self, chunks: &[Chunk], out: &[f32], lse: &[f32]) -> Bits {
        let Geometry { query_heads, v_head_dim: head_dim, .. } = self.setup.geometry;
        let mut results =
            out.chunks_exact(query_heads * head_dim).zip(lse.chunks_exact(query_heads));
        let mut bits = Bits::new();
        for chunk in chunks {
            let end = self.sequences[chunk.sequence].positions;
            let start = if chunk.is_context { end } else { end - chunk.count };
            for position in start..start + chunk.count {
                let (out, lse) = results.next().expect("a result for each position");
                let both = out.iter().chain(lse).map(|number| number.to_bits());
                bits.insert((chunk.sequence, position), both.collect());
            }
        }
        bits
    }

    /// What is in the cache for positions, as numbers.
    pub fn stored(&self, sequence: usize, positions: Range<usize>, kind: Kind) -> Vec<f64> {
        let (heads, head_dim) = (self.setup.geometry.kv_heads, self.head_dim(kind));
        let stored = |(at, x): (usize, f32)| {
            let scale = self.scale(kind, at / head_dim % heads);
            f64::from(round(x / scale, self.setup.kv_dtype)) * f64::from(scale)
        };
        let numbers = positions.flat_map(|position| self.numbers(sequence, position, kind));
        numbers.enumerate().map(stored).collect()
    }

    /// What the definition says for the queries at some positions, which are the last ones of the
    /// sequence or come behind it, and what limits the error of each query head.
    pub fn exact(&self, sequence: usize, positions: Range<usize>) -> (State, Vec<Sizes>) {
        let Geometry { kv_heads, head_dim, query_heads, .. } = self.setup.geometry;
        let keys = self.sequences[sequence].positions.min(positions.end);
        let [k, v] = [Kind::K, Kind::V].map(|kind| self.stored(sequence, 0..keys, kind));
        let q: Vec<f64> = positions
            .clone()
            .flat_map(|position| self.numbers(sequence, position, Kind::Q))
            .map(f64::from)
            .collect();
        let sinks = self.sinks();
        let problem = Problem {
            geometry: self.setup.geometry,
            params: self.setup.params,
            sinks: sinks.as_deref(),
            start: positions.start,
            q: &q,
            k: &k,
            v: &v,
            regions: &self.sequences[sequence].regions,
            tree: &self.sequences[sequence].tree,
        };
        let value = v.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let scale = f64::from(self.setup.params.scale.abs());
        let sizes = q.chunks_exact(head_dim).enumerate().map(|(index, q)| {
            let head = index % query_heads / self.setup.geometry.group();
            let keys = k.chunks_exact(head_dim).skip(head).step_by(kv_heads);
            let size = |k: &[f64]| q.iter().zip(k).map(|(q, k)| (q * k).abs()).sum::<f64>();
            Sizes { logit: keys.map(size).fold(0.0, f64::max) * scale, value }
        });
        let sizes = sizes.collect();
        (problem.attend(), sizes)
    }

    /// Compares results, [position][query head][element], with the definition.
    pub fn check(&self, sequence: usize, positions: Range<usize>, out: &[f32], lse: &[f32]) {
        let Geometry { query_heads, v_head_dim: head_dim, .. } = self.setup.geometry;
        let (exact, sizes) = self.exact(sequence, positions.clone());
        for (index, sizes) in sizes.into_iter().enumerate() {
            let what = || {
                let (position, head) = (positions.start + index / query_heads, index % query_heads);
                let (regions, tree) =
                    (&self.sequences[sequence].regions, &self.sequences[sequence].tree);
                let setup = &self.setup;
                format!(
                    "sequence {sequence}, new {positions:?}, position {position}, head {head}, \
                     regions {regions:?}, tree {tree:x?}, {setup:?}"
                )
            };
            let range = index * head_dim..(index + 1) * head_dim;
            check_out(&out[range.clone()], &exact.out[range], sizes, self.setup.dtype, &what);
            check_lse(lse[index], exact.lse[index], sizes, &what);
        }
    }

    /// The pages hold what was passed, converted.
    fn check_memory(&self, sequence: usize, positions: Range<usize>) {
        let size = self.setup.kv_dtype.bytes();
        for position in positions {
            for (kind, memory) in [(Kind::K, &self.k), (Kind::V, &self.v)] {
                let expected = self.stored(sequence, position..position + 1, kind);
                for (head, expected) in expected.chunks_exact(self.head_dim(kind)).enumerate() {
                    let scale = f64::from(self.scale(kind, head));
                    let bytes = &memory[self.place(kind, sequence, position, head)];
                    for (bytes, expected) in bytes.chunks_exact(size).zip(expected) {
                        let found = f64::from(decode(bytes, self.setup.kv_dtype)) * scale;
                        assert_eq!(found, *expected, "position {position} as stored");
                    }
                }
            }
        }
    }

    /// What no sequence uses is poison still.
    pub fn check_poison(&self) {
        for (kind, memory) in [(Kind::K, &self.k), (Kind::V, &self.v)] {
            let mut used = vec![false; memory.len()];
            for (sequence, at) in self.sequences.iter().zip(0..) {
                let is_there = |position: &usize| {
                    sequence.pages[position / self.setup.geometry.page_size] != 0
                };
                for position in (0..sequence.positions).filter(is_there) {
                    for head in 0..self.setup.geometry.kv_heads {
                        used[self.place(kind, at, position, head)].fill(true);
                    }
                }
            }
            let clean = memory.iter().zip(&used).all(|(&byte, &used)| used || byte == 0xff);
            assert!(clean, "memory of no sequence was written");
        }
    }
}
