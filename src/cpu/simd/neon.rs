//! NEON: eight numbers in two registers, of thirty-two. Every aarch64 processor has it.
use super::{Simd, Vectorized};
use std::arch::aarch64::*;
use std::arch::asm;

/// The target has it.
#[derive(Debug, Clone, Copy)]
pub(in crate::cpu) struct Neon;

/// Evaluates what needs the instructions.
macro_rules! with {
    ($($body:tt)*) => {
        // SAFETY: the target has NEON. Memory is accessed as the method's own contract allows.
        unsafe { $($body)* }
    };
}

type Vector = [float32x4_t; 2];

#[inline(always)]
fn both(
    a: Vector,
    b: Vector,
    function: impl Fn(float32x4_t, float32x4_t) -> float32x4_t,
) -> Vector {
    [function(a[0], b[0]), function(a[1], b[1])]
}

/// Eight numbers of f16: what the intrinsics take has no stable type.
#[inline(always)]
fn widen(halves: uint16x8_t) -> Vector {
    let (low, high);
    // SAFETY: the target has NEON, and the instructions touch registers alone.
    unsafe {
        asm!("fcvtl {:v}.4s, {:v}.4h",
            out(vreg) low, in(vreg) halves, options(pure, nomem, nostack));
        asm!("fcvtl2 {:v}.4s, {:v}.8h",
            out(vreg) high, in(vreg) halves, options(pure, nomem, nostack));
    }
    [low, high]
}

/// Four numbers as f16.
#[inline(always)]
fn narrow(numbers: float32x4_t) -> uint16x4_t {
    let halves;
    // SAFETY: as above.
    unsafe {
        asm!("fcvtn {:v}.4h, {:v}.4s",
            out(vreg) halves, in(vreg) numbers, options(pure, nomem, nostack));
    }
    halves
}

impl Simd for Neon {
    type Vector = Vector;
    const LANES: usize = 8;
    const SCORE_ROWS: usize = 2;
    const RESULT_ROWS: usize = 4;

    #[inline(never)]
    fn run<W: Vectorized>(self, work: W) -> W::Result {
        work.run(self)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Vector {
        with! { [vdupq_n_f32(value); 2] }
    }

    #[inline(always)]
    fn add(self, a: Vector, b: Vector) -> Vector {
        with! { both(a, b, |a, b| vaddq_f32(a, b)) }
    }

    #[inline(always)]
    fn sub(self, a: Vector, b: Vector) -> Vector {
        with! { both(a, b, |a, b| vsubq_f32(a, b)) }
    }

    #[inline(always)]
    fn mul(self, a: Vector, b: Vector) -> Vector {
        with! { both(a, b, |a, b| vmulq_f32(a, b)) }
    }

    #[inline(always)]
    fn div(self, a: Vector, b: Vector) -> Vector {
        with! { both(a, b, |a, b| vdivq_f32(a, b)) }
    }

    #[inline(always)]
    fn max(self, a: Vector, b: Vector) -> Vector {
        self.if_less(b, a, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Vector, b: Vector, c: Vector) -> Vector {
        with! { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
    }

    #[inline(always)]
    fn abs(self, a: Vector) -> Vector {
        with! { [vabsq_f32(a[0]), vabsq_f32(a[1])] }
    }

    #[inline(always)]
    fn copy_sign(self, a: Vector, b: Vector) -> Vector {
        with! { both(a, b, |a, b| vbslq_f32(vdupq_n_u32(1 << 31), b, a)) }
    }

    #[inline(always)]
    fn if_less(self, a: Vector, b: Vector, x: Vector, y: Vector) -> Vector {
        with! {
            [vbslq_f32(vcltq_f32(a[0], b[0]), x[0], y[0]),
             vbslq_f32(vcltq_f32(a[1], b[1]), x[1], y[1])]
        }
    }

    #[inline(always)]
    fn low_bits_as_exponent(self, a: Vector) -> Vector {
        with! { a.map(|a| vreinterpretq_f32_u32(vshlq_n_u32::<23>(vreinterpretq_u32_f32(a)))) }
    }

    #[inline(always)]
    fn sum(self, a: Vector) -> f32 {
        self.sums([a; 4])[0]
    }

    #[inline(always)]
    fn sums(self, a: [Vector; 4]) -> [f32; 4] {
        with! {
            let [a, b, c, d] = a.map(|a| vaddq_f32(a[0], a[1]));
            let sums = vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d));
            let mut array = [0.0; 4];
            vst1q_f32(array.as_mut_ptr(), sums);
            array
        }
    }

    #[inline(always)]
    fn largest(self, a: Vector) -> f32 {
        with! { vmaxvq_f32(vmaxq_f32(a[0], a[1])) }
    }

    /// # Safety
    /// 8 numbers are readable.
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Vector {
        with! { [vld1q_f32(from), vld1q_f32(from.add(4))] }
    }

    /// # Safety
    /// 8 numbers are writable.
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: Vector) {
        with! { vst1q_f32(to, a[0]); vst1q_f32(to.add(4), a[1]) }
    }

    /// # Safety
    /// 32 bytes are readable.
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> [Vector; 2] {
        with! {
            let load = |at| widen(vld1q_u16(from.add(at).cast()));
            [load(0), load(16)]
        }
    }

    /// # Safety
    /// 16 bytes are writable.
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u8, a: Vector) {
        with! { vst1q_u16(to.cast(), vcombine_u16(narrow(a[0]), narrow(a[1]))) }
    }

    /// # Safety
    /// 32 bytes are readable.
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u8) -> [Vector; 2] {
        with! {
            let load = |at| {
                let bits = vld1q_u16(from.add(at).cast());
                [vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(bits))),
                 vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_high_u16(bits)))]
            };
            [load(0), load(16)]
        }
    }

    /// # Safety
    /// 16 bytes are writable.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u8, a: Vector) {
        with! {
            let upper = a.map(|a| {
                let bits = vreinterpretq_u32_f32(a);
                let last = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
                let rounded = vaddq_u32(bits, vaddq_u32(last, vdupq_n_u32(0x7fff)));
                let quiet = vorrq_u32(bits, vdupq_n_u32(1 << 22));
                vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(a, a), rounded, quiet))
            });
            vst1q_u16(to.cast(), vcombine_u16(upper[0], upper[1]))
        }
    }

    /// # Safety
    /// 16 bytes are readable.
    #[inline(always)]
    unsafe fn load_e4m3(self, from: *const u8) -> [Vector; 2] {
        with! {
            // As f16 the same bits mean 2^-8 of the number: the exponents' biases are 15 and 7.
            let as_f16 = |bytes: int8x8_t| {
                let wide = vreinterpretq_u16_s16(vshll_n_s8::<7>(bytes));
                let magnitude = vandq_u16(wide, vdupq_n_u16(0x3f80));
                let nan = vceqq_u16(magnitude, vdupq_n_u16(0x3f80));
                vorrq_u16(vandq_u16(wide, vdupq_n_u16(0xbfff)), nan)
            };
            let bytes = vld1q_s8(from.cast());
            [widen(as_f16(vget_low_s8(bytes))), widen(as_f16(vget_high_s8(bytes)))]
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: a hint, which touches nothing.
        unsafe {
            asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, readonly));
        }
    }
}
