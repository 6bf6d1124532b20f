//! What attention over a paged KV cache is asked to do: shapes, batches, masks, number formats. No
//! pointers: where data lies is a type parameter, which the backends fill in.
#![forbid(unsafe_code)]

mod batch;
mod capacity;
mod cascade;
mod dtype;
mod fp8;
mod layout;
mod mask;
mod pieces;
pub mod reference;
mod work;

pub use batch::{Batch, Row};
pub use capacity::{Bounds, Capacity};
pub(crate) use cascade::shared_start;
pub use dtype::Dtype;
pub use fp8::{e4m3_from_f32, e4m3_to_f32};
pub use layout::{Geometry, KvLayer, KvLayout, KvStrides, PackedPage, PositionMove, Tensor};
pub use mask::{Mask, Region, RowMask, Seen, TREE_POSITIONS_MAX, View};
pub use work::{Item, Machine, Tile, Work};

pub use crate::paging::PageCopy;

/// What a call may choose for each layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Factor of q · k; usually 1 / sqrt(head_dim).
    pub scale: f32,
    /// c: a logit x becomes c * tanh(x / c).
    pub soft_cap: Option<f32>,
    /// How far back a query sees.
    pub view: View,
    /// fp8 keys: value = stored * scale.
    pub k_scale: f32,
    /// fp8 values: value = stored * scale.
    pub v_scale: f32,
}

impl Params {
    /// Plain attention.
    pub fn new(head_dim: usize) -> Self {
        Self {
            scale: (1.0 / (head_dim as f64).sqrt()) as f32,
            soft_cap: None,
            view: View::default(),
            k_scale: 1.0,
            v_scale: 1.0,
        }
    }
}
