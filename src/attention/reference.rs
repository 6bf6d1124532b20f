//! Attention as its definition says, in f64 and without a thought of speed: what the tests compare
//! the backends with.
use super::Params;
use super::layout::Geometry;
use super::mask::{Region, View};

/// One row, with its keys and values gathered. Scales of fp8 are applied already.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// Heads and their size; the page size is not used.
    pub geometry: Geometry,
    /// `k_scale` and `v_scale` are not used.
    pub params: Params,
    /// A logit for each query head that takes part in the denominator only.
    pub sinks: Option<&'a [f32]>,
    /// Position of the first query.
    pub start: usize,
    /// `[query][query head][element]`
    pub q: &'a [f64],
    /// `[position][KV head][element]`, from position 0 on
    pub k: &'a [f64],
    /// Like `k`, with v_head_dim elements.
    pub v: &'a [f64],
    /// In any order.
    pub regions: &'a [Region],
    /// For each of the queries, all of which are new positions, which of them it sees: the lowest
    /// bit for the first. Empty: those before it.
    pub tree: &'a [u64],
}

/// What attention gives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    /// `[query][query head][element]`, with v_head_dim elements
    pub out: Vec<f64>,
    /// `[query][query head]`: the natural logarithm of the denominator.
    pub lse: Vec<f64>,
}

impl Problem<'_> {
    /// Whether the query at position `query` sees the key at position `key`.
    fn sees(&self, query: usize, key: usize) -> bool {
        if !self.tree.is_empty() {
            return self.sees_on_path(query, key);
        }
        let in_view = self.is_in_view(query, key);
        let inside = |region: &Region, at: usize| region.start <= at && at < region.end;
        key <= query && in_view
            || self.regions.iter().any(|region| inside(region, query) && inside(region, key))
    }

    /// As `sees`, in a tree: what a query sees is put one behind another, and the view is that of
    /// the last of those.
    fn sees_on_path(&self, query: usize, key: usize) -> bool {
        let is_named = |at: usize| {
            at < self.start || at == query || {
                let mask = self.tree[query - self.start];
                at < query && mask >> (at - self.start) & 1 == 1
            }
        };
        let place = |at: usize| (0..at).filter(|&before| is_named(before)).count();
        key <= query && is_named(key) && self.is_in_view(place(query), place(key))
    }

    /// Whether a window, a chunk or sinks show a key, causality aside.
    fn is_in_view(&self, query: usize, key: usize) -> bool {
        let View { window, chunk, sinks } = self.params.view;
        let in_window = window.is_none_or(|window| query < key + window as usize);
        let in_chunk = chunk.is_none_or(|chunk| query / chunk as usize == key / chunk as usize);
        in_window && in_chunk || key < sinks as usize
    }

    fn logit(&self, q: &[f64], k: &[f64]) -> f64 {
        let dot: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
        let logit = dot * f64::from(self.params.scale);
        match self.params.soft_cap.map(f64::from) {
            Some(cap) => cap * (logit / cap).tanh(),
            None => logit,
        }
    }

    /// Attention of all queries to the keys that `keys` lets pass and the mask shows.
    pub fn attend_to(&self, keys: impl Fn(usize) -> bool) -> State {
        let Geometry { query_heads, kv_heads, head_dim, v_head_dim, .. } = self.geometry;
        let group = self.geometry.group();
        let mut state = State::default();
        for (index, q) in self.q.chunks_exact(head_dim).enumerate() {
            let (query, head) = (self.start + index / query_heads, index % query_heads);
            let row = |position: usize| position * kv_heads + head / group;
            let positions = self.k.len() / (kv_heads * head_dim);
            let logit = |key| self.logit(q, &self.k[row(key) * head_dim..][..head_dim]);
            let seen: Vec<(usize, f64)> = (0..positions)
                .filter(|&key| keys(key) && self.sees(query, key))
                .map(|key| (row(key) * v_head_dim, logit(key)))
                .collect();
            let sink = self.sinks.map_or(f64::NEG_INFINITY, |sinks| sinks[head].into());
            let most = seen.iter().map(|seen| seen.1).fold(sink, f64::max);
            let mut out = vec![0.0; v_head_dim];
            let mut lse = f64::NEG_INFINITY;
            if most > f64::NEG_INFINITY {
                let weights: Vec<f64> = seen.iter().map(|seen| (seen.1 - most).exp()).collect();
                let sum = weights.iter().sum::<f64>() + (sink - most).exp();
                for (&(at, _), weight) in seen.iter().zip(weights) {
                    for (out, v) in out.iter_mut().zip(&self.v[at..]) {
                        *out += weight / sum * v;
                    }
                }
                lse = most + sum.ln();
            }
            state.out.extend(out);
            state.lse.push(lse);
        }
        state
    }

    /// Attention of all queries.
    pub fn attend(&self) -> State {
        self.attend_to(|_| true)
    }
}

/// One state of several that saw disjoint keys.
pub fn merge(states: &[State], head_dim: usize) -> State {
    let first = &states[0];
    let mut merged = State { out: vec![0.0; first.out.len()], lse: Vec::new() };
    for (at, out) in merged.out.chunks_exact_mut(head_dim).enumerate() {
        let most = states.iter().map(|state| state.lse[at]).fold(f64::NEG_INFINITY, f64::max);
        let mut sum = 0.0;
        for state in states.iter().filter(|state| state.lse[at] > f64::NEG_INFINITY) {
            let weight = (state.lse[at] - most).exp();
            sum += weight;
            for (out, part) in out.iter_mut().zip(&state.out[at * head_dim..]) {
                *out += weight * part;
            }
        }
        if sum > 0.0 {
            out.iter_mut().for_each(|out| *out /= sum);
        }
        merged.lse.push(if sum > 0.0 { most + sum.ln() } else { f64::NEG_INFINITY });
    }
    merged
}
