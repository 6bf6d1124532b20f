//! Merging of states.
use super::memory::Padded;
use super::numbers::{normal, rounding};
use super::setup::{DTYPES, HEAD_DIMS, Setup};
use super::world::{Chunk, Kind, World};
use fastrand::Rng;
use radixkv::attention::reference::{Problem, State, merge};
use radixkv::attention::{Dtype, Geometry, Tensor};
use radixkv::cpu::{CpuBackend, Isa, MergeStates, PartialState, Threads};

/// States of several sets of keys in a caller's memory.
struct States {
    outs: Vec<Padded>,
    lses: Vec<Vec<f32>>,
    shape: [usize; 3],
}

impl States {
    fn random(random: &mut Rng, dtype: Dtype, shape: [usize; 3], count: usize) -> Self {
        let numbers = |random: &mut Rng| -> Vec<f32> {
            (0..shape.iter().product()).map(|_| normal(random)).collect()
        };
        let outs = (0..count).map(|_| Padded::of(dtype, shape, 3, &numbers(random))).collect();
        let lse = |random: &mut Rng| match random.u8(0..4) {
            0 => f32::NEG_INFINITY,
            1 => normal(random) * 100.0,
            _ => normal(random),
        };
        let lses =
            (0..count).map(|_| (0..shape[0] * shape[1]).map(|_| lse(random)).collect()).collect();
        let mut made = Self { outs, lses, shape };
        made.poison_empty();
        made
    }

    /// NaN wherever a state saw no key.
    fn poison_empty(&mut self) {
        let [_, heads, _] = self.shape;
        for (out, lse) in self.outs.iter_mut().zip(&self.lses) {
            for at in (0..lse.len()).filter(|&at| lse[at] == f32::NEG_INFINITY) {
                let place = out.place(at / heads, at % heads);
                out.bytes[place].fill(0xff);
            }
        }
    }

    fn merge(&self, backend: &CpuBackend, out: Tensor<*mut u8>, lse: Option<*mut f32>) {
        let states: Vec<PartialState> = self
            .outs
            .iter()
            .zip(&self.lses)
            .map(|(out, lse)| PartialState { out: out.tensor(), lse: lse.as_ptr() })
            .collect();
        let [positions, heads, head_dim] = self.shape;
        let call = MergeStates { states: &states, out, lse, positions, heads, head_dim };
        // SAFETY: everything is as large as the shape says.
        unsafe { backend.merge_states(&call) };
    }

    fn exact(&self) -> State {
        let states: Vec<State> = self
            .outs
            .iter()
            .zip(&self.lses)
            .map(|(out, lse)| State {
                out: out.numbers().into_iter().map(f64::from).collect(),
                lse: lse.iter().copied().map(f64::from).collect(),
            })
            .collect();
        merge(&states, self.shape[2])
    }
}

fn check(found: &[f32], lse: &[f32], exact: &State, dtype: Dtype) {
    // Weights err by a few units of 2^-24 of the logarithms, which are below 400.
    let computing = 0.5f64.powi(24) * 400.0;
    for (found, exact) in found.iter().zip(&exact.out) {
        let near = (f64::from(*found) - exact).abs() <= rounding(dtype) * exact.abs() + computing;
        assert!(near, "{found} not {exact}");
    }
    for (&found, &exact) in lse.iter().zip(&exact.lse) {
        let near = (f64::from(found) - exact).abs() <= computing;
        assert!(near || f64::from(found) == exact, "lse {found} not {exact}");
    }
}

/// Against the definition: several states, some of them empty, in place too.
pub fn random_states(cases: u64) {
    for (case, (dtype, _)) in (0..cases).zip(DTYPES.into_iter().cycle()) {
        let mut random = Rng::with_seed(case);
        // Each size of heads with each format.
        let head_dim = HEAD_DIMS[(case + case / 6) as usize % HEAD_DIMS.len()];
        let shape = [random.usize(1..2 + case as usize), random.usize(1..5), head_dim];
        let count = random.usize(1..6);
        let mut states = States::random(&mut random, dtype, shape, count);
        let exact = states.exact();
        let threads = 1 + case as usize / 3 % 3;
        let merge_into = |states: &States, isa: Isa| {
            let backend = CpuBackend::with_isa(Threads::Own(threads), isa).unwrap();
            let mut out = Padded::new(dtype, shape, 1);
            let mut lse = vec![f32::NAN; shape[0] * shape[1]];
            states.merge(&backend, out.tensor_mut(), Some(lse.as_mut_ptr()));
            check(&out.numbers(), &lse, &exact, dtype);
            (backend, out)
        };
        let (backend, out) =
            Isa::available().map(|isa| merge_into(&states, isa)).last().expect("portable ones");
        // Into the last of the states itself.
        let target = states.outs.last_mut().unwrap().tensor_mut();
        states.merge(&backend, target, None);
        assert_eq!(states.outs.last().unwrap().bits(), out.bits());
    }
}

/// Nobody saw a key: zeros, and an lse that says so.
pub fn all_empty() {
    let mut states = States::random(&mut Rng::with_seed(1), Dtype::F32, [2, 2, 64], 3);
    states.lses.iter_mut().flatten().for_each(|lse| *lse = f32::NEG_INFINITY);
    states.poison_empty();
    let backend = CpuBackend::new(Threads::Own(1)).unwrap();
    let mut out = Padded::new(Dtype::F32, [2, 2, 64], 0);
    let mut lse = [0.0; 4];
    states.merge(&backend, out.tensor_mut(), Some(lse.as_mut_ptr()));
    assert!(out.numbers().iter().all(|&number| number == 0.0));
    assert_eq!(lse, [f32::NEG_INFINITY; 4]);
}

/// One query against the keys of three sequences, each by itself, merged: attention to all of them.
/// Sinks, where there are any, are given with one of the three.
fn merged_parts(setup: Setup) {
    const KEYS: usize = 50;
    let (dtype, with_sinks) = (setup.dtype, setup.sinks);
    let mut world = World::new(setup, 3);
    (0..3).for_each(|sequence| world.fill(sequence, KEYS));
    let Geometry { query_heads, v_head_dim: head_dim, .. } = world.setup.geometry;
    let mut states =
        States { outs: Vec::new(), lses: Vec::new(), shape: [1, query_heads, head_dim] };
    for sequence in 0..3 {
        // All of them are asked with the last query of sequence 0.
        world.sequences.swap(0, sequence);
        world.setup.sinks = with_sinks && sequence == 1;
        let (out, lse) = world.run_written(&[Chunk::new(0, 1)]);
        world.sequences.swap(0, sequence);
        states.outs.push(Padded::of(dtype, states.shape, 2, &out));
        states.lses.push(lse);
    }
    let mut out = Padded::new(dtype, states.shape, 0);
    let mut lse = vec![f32::NAN; query_heads];
    states.merge(&world.backend, out.tensor_mut(), Some(lse.as_mut_ptr()));

    let [k, v] = [Kind::K, Kind::V].map(|kind| -> Vec<f64> {
        (0..3).flat_map(|sequence| world.stored(sequence, 0..KEYS, kind)).collect()
    });
    let q: Vec<f64> = world.numbers(0, KEYS - 1, Kind::Q).into_iter().map(f64::from).collect();
    world.setup.sinks = with_sinks;
    let sinks = world.sinks();
    let exact = Problem {
        geometry: world.setup.geometry,
        params: world.setup.params,
        sinks: sinks.as_deref(),
        start: 3 * KEYS - 1,
        q: &q,
        k: &k,
        v: &v,
        regions: &[],
        tree: &[],
    };
    let exact = exact.attend();
    // The parts, which are below 4, were rounded to the format before they were merged.
    let tolerance = rounding(dtype) * 4.0 * 2.0 + 1e-5;
    for (found, exact) in out.numbers().iter().zip(&exact.out) {
        assert!((f64::from(*found) - exact).abs() <= tolerance, "{found} not {exact}");
    }
    for (found, exact) in lse.iter().zip(&exact.lse) {
        assert!((f64::from(*found) - exact).abs() <= 1e-5, "lse {found} not {exact}");
    }
}

/// In every format.
pub fn parts_make_the_whole() {
    for dtypes in DTYPES {
        let setup = Setup::default().with_dtypes(dtypes).with_heads((6, 2));
        merged_parts(Setup { sinks: true, ..setup.clone() });
        merged_parts(setup);
    }
}
