//! Where elements lie.
use super::dtype::Dtype;
use crate::error::Error;

/// Shapes that all layers of a model share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Heads of q and of the result: a multiple of `kv_heads`.
    pub query_heads: usize,
    /// Heads of k and v.
    pub kv_heads: usize,
    /// Elements of a head of q and k.
    pub head_dim: usize,
    /// Elements of a head of v and of the result.
    pub v_head_dim: usize,
    /// Positions of a page.
    pub page_size: usize,
}

impl Geometry {
    /// Query heads that share a KV head.
    pub fn group(&self) -> usize {
        self.query_heads / self.kv_heads
    }
}

/// Order of the dimensions of dense KV memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvLayout {
    /// page, position, head, element
    Nhd,
    /// page, head, position, element
    Hnd,
}

/// Distances in KV memory, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvStrides {
    /// From a page to the next.
    pub page: usize,
    /// From a position to the next of its page.
    pub position: usize,
    /// From a head to the next.
    pub head: usize,
}

impl KvStrides {
    /// Those of memory without gaps, for heads of so many elements.
    pub fn dense(layout: KvLayout, geometry: &Geometry, head_dim: usize) -> Result<Self, Error> {
        let Geometry { kv_heads, page_size, .. } = *geometry;
        let product = |factors: [usize; 2]| factors[0].checked_mul(factors[1]);
        let made = || {
            let position = product([kv_heads, head_dim])?;
            let page = product([position, page_size])?;
            Some(match layout {
                KvLayout::Nhd => Self { page, position, head: head_dim },
                KvLayout::Hnd => Self { page, position: head_dim, head: head_dim * page_size },
            })
        };
        made().ok_or_else(|| Error::argument("a page has more than 2^64 elements"))
    }

    /// Whether a page lies head by head without gaps. That is how it is packed, then; every other
    /// page is packed position by position.
    pub fn is_by_head(&self, geometry: &Geometry, head_dim: usize) -> bool {
        self.position == head_dim && self.head == geometry.page_size * head_dim
    }
}

/// A tensor `[position][head][head_dim]` whose heads are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor<A> {
    /// The first element.
    pub address: A,
    /// Of its elements.
    pub dtype: Dtype,
    /// From a position to the next, in elements.
    pub position_stride: usize,
    /// From a head to the next, in elements.
    pub head_stride: usize,
}

impl<A> Tensor<A> {
    /// A tensor without gaps.
    pub fn dense(address: A, dtype: Dtype, heads: usize, head_dim: usize) -> Self {
        Self { address, dtype, position_stride: heads * head_dim, head_stride: head_dim }
    }
}

/// K and V of a position that go to another place: pages, and positions in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionMove {
    /// Where they are.
    pub source: (u32, u32),
    /// Where they go.
    pub target: (u32, u32),
}

/// A page of all layers as one piece of host memory: K and V of each in turn.
#[derive(Debug, Clone, Copy)]
pub struct PackedPage<A> {
    /// The page.
    pub page: u32,
    /// Where the piece lies.
    pub host: A,
    /// From there to the page, or the other way.
    pub is_load: bool,
}

/// KV memory of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayer<A> {
    /// Keys of page 0.
    pub k: A,
    /// Values of page 0; the keys' address where values are the beginnings of keys.
    pub v: A,
    /// Of keys.
    pub strides: KvStrides,
    /// Of values.
    pub v_strides: KvStrides,
    /// Of both.
    pub dtype: Dtype,
}
