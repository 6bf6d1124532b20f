//! Eight numbers in an array, of which the compiler makes what vectors the target has.
use super::{Simd, Vectorized};
use crate::attention::e4m3_to_f32;
use half::{bf16, f16};

/// No special instructions.
#[derive(Debug, Clone, Copy)]
pub(in crate::cpu) struct Portable;

const LANES: usize = 8;
type Vector = [f32; LANES];

#[inline(always)]
fn each(function: impl Fn(usize) -> f32) -> Vector {
    let mut made = [0.0; LANES];
    for (lane, made) in made.iter_mut().enumerate() {
        *made = function(lane);
    }
    made
}

impl Simd for Portable {
    type Vector = Vector;
    const LANES: usize = LANES;
    const SCORE_ROWS: usize = 2;
    const RESULT_ROWS: usize = 4;

    #[inline(never)]
    fn run<W: Vectorized>(self, work: W) -> W::Result {
        work.run(self)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Vector {
        [value; LANES]
    }

    #[inline(always)]
    fn add(self, a: Vector, b: Vector) -> Vector {
        each(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    fn sub(self, a: Vector, b: Vector) -> Vector {
        each(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    fn mul(self, a: Vector, b: Vector) -> Vector {
        each(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    fn div(self, a: Vector, b: Vector) -> Vector {
        each(|lane| a[lane] / b[lane])
    }

    #[inline(always)]
    fn max(self, a: Vector, b: Vector) -> Vector {
        each(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    fn fma(self, a: Vector, b: Vector, c: Vector) -> Vector {
        // Without the instruction, mul_add() is a call of the C library.
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            each(|lane| a[lane].mul_add(b[lane], c[lane]))
        } else {
            each(|lane| a[lane] * b[lane] + c[lane])
        }
    }

    #[inline(always)]
    fn abs(self, a: Vector) -> Vector {
        each(|lane| a[lane].abs())
    }

    #[inline(always)]
    fn copy_sign(self, a: Vector, b: Vector) -> Vector {
        each(|lane| a[lane].copysign(b[lane]))
    }

    #[inline(always)]
    fn if_less(self, a: Vector, b: Vector, x: Vector, y: Vector) -> Vector {
        each(|lane| if a[lane] < b[lane] { x[lane] } else { y[lane] })
    }

    #[inline(always)]
    fn low_bits_as_exponent(self, a: Vector) -> Vector {
        each(|lane| f32::from_bits(a[lane].to_bits() << 23))
    }

    #[inline(always)]
    fn sum(self, a: Vector) -> f32 {
        ((a[0] + a[2]) + (a[1] + a[3])) + ((a[4] + a[6]) + (a[5] + a[7]))
    }

    #[inline(always)]
    fn sums(self, a: [Vector; 4]) -> [f32; 4] {
        [self.sum(a[0]), self.sum(a[1]), self.sum(a[2]), self.sum(a[3])]
    }

    #[inline(always)]
    fn largest(self, a: Vector) -> f32 {
        let mut most = a[0];
        for number in &a[1..] {
            most = if most > *number { most } else { *number };
        }
        most
    }

    /// # Safety
    /// 8 numbers are readable.
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Vector {
        // SAFETY: the caller's contract.
        unsafe { from.cast::<Vector>().read_unaligned() }
    }

    /// # Safety
    /// 8 numbers are writable.
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: Vector) {
        // SAFETY: the caller's contract.
        unsafe { to.cast::<Vector>().write_unaligned(a) }
    }

    /// # Safety
    /// 32 bytes are readable.
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> [Vector; 2] {
        // SAFETY: the caller's contract.
        let bits = unsafe { from.cast::<[[u16; LANES]; 2]>().read_unaligned() };
        bits.map(|bits| each(|lane| f16::from_bits(bits[lane]).to_f32()))
    }

    /// # Safety
    /// 16 bytes are writable.
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u8, a: Vector) {
        let bits = a.map(|number| f16::from_f32(number).to_bits());
        // SAFETY: the caller's contract.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(bits) }
    }

    /// # Safety
    /// 32 bytes are readable.
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u8) -> [Vector; 2] {
        // SAFETY: the caller's contract.
        let bits = unsafe { from.cast::<[[u16; LANES]; 2]>().read_unaligned() };
        bits.map(|bits| each(|lane| f32::from_bits(u32::from(bits[lane]) << 16)))
    }

    /// # Safety
    /// 16 bytes are writable.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u8, a: Vector) {
        let bits = a.map(|number| bf16::from_f32(number).to_bits());
        // SAFETY: the caller's contract.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(bits) }
    }

    /// # Safety
    /// 16 bytes are readable.
    #[inline(always)]
    unsafe fn load_e4m3(self, from: *const u8) -> [Vector; 2] {
        // SAFETY: the caller's contract.
        let bits = unsafe { from.cast::<[[u8; LANES]; 2]>().read_unaligned() };
        bits.map(|bits| each(|lane| e4m3_to_f32(bits[lane]) / 256.0))
    }

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
}
