//! Memory as engines have it: strided, larger than needed, and full of NaN.
use super::numbers::{decode, encode};
use radixkv::attention::{Dtype, Tensor};

/// Bytes of which each stands for NaN in every format.
pub fn poison(len: usize) -> Vec<u8> {
    vec![0xff; len]
}

/// A tensor [position][head][head_dim] with gaps.
pub struct Padded {
    pub bytes: Vec<u8>,
    pub dtype: Dtype,
    pub heads: usize,
    pub head_dim: usize,
    pub head_stride: usize,
    pub position_stride: usize,
}

impl Padded {
    pub fn new(dtype: Dtype, shape: [usize; 3], padding: usize) -> Self {
        let [positions, heads, head_dim] = shape;
        let head_stride = head_dim + padding;
        let position_stride = heads * head_stride + 3 * padding;
        let bytes = poison(positions * position_stride * dtype.bytes());
        Self { bytes, dtype, heads, head_dim, head_stride, position_stride }
    }

    /// With these numbers, [position][head][element].
    pub fn of(dtype: Dtype, shape: [usize; 3], padding: usize, numbers: &[f32]) -> Self {
        let mut made = Self::new(dtype, shape, padding);
        assert_eq!(numbers.len(), shape.iter().product::<usize>());
        for (index, numbers) in numbers.chunks_exact(shape[2]).enumerate() {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|&number| encode(number, dtype, &mut bytes));
            let at = made.byte(index / shape[1], index % shape[1]);
            made.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        made
    }

    /// The bytes of a head.
    pub fn place(&self, position: usize, head: usize) -> std::ops::Range<usize> {
        let at = self.byte(position, head);
        at..at + self.head_dim * self.dtype.bytes()
    }

    /// The bits of all numbers.
    pub fn bits(&self) -> Vec<u32> {
        self.numbers().iter().map(|number| number.to_bits()).collect()
    }

    fn byte(&self, position: usize, head: usize) -> usize {
        (position * self.position_stride + head * self.head_stride) * self.dtype.bytes()
    }

    /// All numbers; what lies between them must be poison still.
    pub fn numbers(&self) -> Vec<f32> {
        let mut numbers = Vec::new();
        let size = self.dtype.bytes();
        let mut gaps = self.bytes.clone();
        let position_bytes = self.position_stride * size;
        for position in 0..self.bytes.len() / position_bytes.max(1) {
            for head in 0..self.heads {
                let at = self.byte(position, head);
                let range = at..at + self.head_dim * size;
                let found = self.bytes[range.clone()].chunks_exact(size);
                numbers.extend(found.map(|bytes| decode(bytes, self.dtype)));
                gaps[range].fill(0xff);
            }
        }
        assert!(gaps.iter().all(|&byte| byte == 0xff), "a gap was written to");
        numbers
    }

    pub fn tensor(&self) -> Tensor<*const u8> {
        Tensor {
            address: self.bytes.as_ptr(),
            dtype: self.dtype,
            position_stride: self.position_stride,
            head_stride: self.head_stride,
        }
    }

    pub fn tensor_mut(&mut self) -> Tensor<*mut u8> {
        let Tensor { dtype, position_stride, head_stride, .. } = self.tensor();
        Tensor { address: self.bytes.as_mut_ptr(), dtype, position_stride, head_stride }
    }
}
