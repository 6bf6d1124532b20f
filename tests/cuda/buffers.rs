//! What an engine hands to a call: q, k, v, out and logarithms, with room for some number of new
//! positions. What a step has no numbers for is NaN, and must stay as it is.
use super::device::Memory;
use super::memory::{Padded, poison};
use super::numbers::decode;
use super::world::{Outcome, World};
use radixkv::attention::{Dtype, Geometry, Tensor};
use radixkv::gpu::{AppendPrefill, NewKv, StepOfPlan};

pub struct Buffers {
    inputs: [Memory; 3],
    out: Memory,
    lse: Memory,
    sinks: Option<Memory>,
    head_scales: Option<[Memory; 2]>,
    /// Shapes of q, of k, of v.
    shapes: [Padded; 3],
    out_shape: Padded,
    /// Values are in keys.
    latent: bool,
    room: usize,
}

impl Buffers {
    /// For as many new positions as `room` says.
    pub fn new(world: &World, room: usize) -> Self {
        let Geometry { query_heads, kv_heads, head_dim, v_head_dim, .. } = world.setup.geometry;
        let padded =
            |heads, dim| Padded::new(world.setup.dtype, [room, heads, dim], world.setup.padding);
        let shapes = [(query_heads, head_dim), (kv_heads, head_dim), (kv_heads, v_head_dim)]
            .map(|(heads, dim)| padded(heads, dim));
        let out_shape = padded(query_heads, v_head_dim);
        Self {
            inputs: [0, 1, 2].map(|at| Memory::of(&shapes[at].bytes)),
            out: Memory::of(&out_shape.bytes),
            lse: Memory::of(&poison(4 * room * query_heads)),
            sinks: world.sinks().map(|sinks| Memory::of_floats(&sinks)),
            head_scales: world
                .head_scales()
                .map(|scales| scales.map(|scales| Memory::of_floats(&scales))),
            shapes,
            out_shape,
            latent: world.setup.latent,
            room,
        }
    }

    /// The inputs of the next positions of sequences; everything else becomes NaN.
    pub fn load(&self, world: &World, chunks: &[(usize, usize)]) {
        let given = world.inputs(chunks);
        for ((memory, shape), given) in self.inputs.iter().zip(&self.shapes).zip(given) {
            let mut bytes = poison(shape.bytes.len());
            bytes[..given.bytes.len()].copy_from_slice(&given.bytes);
            memory.write(0, &bytes);
        }
        self.out.write(0, &poison(self.out_shape.bytes.len()));
        self.lse.write(0, &poison(4 * self.room * self.shapes[0].heads));
    }

    /// Other keys and values, as many bytes of each.
    pub fn replace_kv(&self, bytes: &[u8]) {
        self.inputs[1..].iter().for_each(|memory| memory.write(0, bytes));
    }

    /// A call that reads and writes them.
    pub fn call<'a>(&self, world: &World, step: StepOfPlan<'a>) -> AppendPrefill<'a> {
        let tensor = |at: usize| Tensor {
            address: self.inputs[at].address().cast_const(),
            ..self.shapes[at].tensor()
        };
        let Tensor { dtype, position_stride, head_stride, .. } = self.out_shape.tensor();
        let address = self.out.address();
        let mut params = world.setup.params;
        if self.head_scales.is_some() {
            (params.k_scale, params.v_scale) = (f32::NAN, f32::NAN);
        }
        AppendPrefill {
            step,
            params,
            sinks: self.sinks.as_ref().map_or(std::ptr::null(), |sinks| sinks.address().cast()),
            head_scales: self.head_scales.as_ref().map_or([std::ptr::null(); 2], |scales| {
                [0, 1].map(|at| scales[at].address().cast_const().cast())
            }),
            q: tensor(0),
            kv: Some(NewKv { k: tensor(1), v: (!self.latent).then(|| tensor(2)) }),
            out: Tensor { address, dtype, position_stride, head_stride },
            lse: self.lse.address().cast(),
            layer: world.layer(),
            page_count: world.setup.pages,
            is_captured: false,
        }
    }

    /// What came out for so many new positions; None when the device failed.
    pub fn outcome(&self, positions: usize) -> Option<Outcome> {
        let Padded { dtype, heads, head_dim, head_stride, position_stride, .. } = self.out_shape;
        let bytes = self.out.try_read()?;
        let out = Padded { bytes, dtype, heads, head_dim, head_stride, position_stride };
        let (mut out, mut lse) = (out.numbers(), self.lse.try_read()?);
        let rest = out.split_off(positions * heads * head_dim);
        let lse_rest = lse.split_off(4 * positions * heads);
        let untouched =
            rest.iter().all(|number| number.is_nan()) && lse_rest.iter().all(|&byte| byte == 0xff);
        assert!(untouched, "something was written behind {positions} positions");
        let lse = lse.chunks_exact(4).map(|bytes| decode(bytes, Dtype::F32)).collect();
        Some(Outcome { out, lse })
    }
}
