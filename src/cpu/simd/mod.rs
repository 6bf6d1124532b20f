//! Vectors of f32 as the processor at hand has them. The kernels are written once, over [`Simd`].
//! Each kernel is a [`Vectorized`] type, and a function of its own for each set of instructions.
//!
//! A value of a type that implements [`Simd`] is the proof that the processor has the instructions:
//! it can only be had from [`Isa::available`]'s checks. So what touches registers alone is safe.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use crate::error::{Error, text};
#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
pub(super) use math::{exp2, exp2_one, tanh};
#[cfg(target_arch = "aarch64")]
pub(super) use neon::Neon;
pub(super) use portable::Portable;

/// A set of vector instructions. Every other method is inlined into the work that [`Simd::run`] is
/// given: only there the compiler may use the instructions.
pub(super) trait Simd: Copy + Send + Sync + 'static {
    /// LANES numbers.
    type Vector: Copy;
    /// A power of two; twice as many divide every head dimension.
    const LANES: usize;
    /// Rows of a register tile of scores.
    const SCORE_ROWS: usize;
    /// Rows of a register tile of results.
    const RESULT_ROWS: usize;

    /// Does the work with these instructions.
    fn run<W: Vectorized>(self, work: W) -> W::Result;

    fn splat(self, value: f32) -> Self::Vector;
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The larger one; b if either is NaN.
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a * b + c
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn abs(self, a: Self::Vector) -> Self::Vector;
    /// The size of a with the sign of b.
    fn copy_sign(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Where a < b, x, elsewhere y.
    fn if_less(
        self,
        a: Self::Vector,
        b: Self::Vector,
        x: Self::Vector,
        y: Self::Vector,
    ) -> Self::Vector;
    /// The numbers whose bits are those of a, moved 23 to the left.
    fn low_bits_as_exponent(self, a: Self::Vector) -> Self::Vector;

    /// The sum of the lanes, in an order that is the same as in `sums`.
    fn sum(self, a: Self::Vector) -> f32;
    /// The sums of four vectors' lanes.
    fn sums(self, a: [Self::Vector; 4]) -> [f32; 4];
    /// The same of sixteen.
    #[inline(always)]
    fn sums_of_16(self, a: &[Self::Vector; 16]) -> [f32; 16] {
        let mut sums = [0.0; 16];
        for (sums, four) in sums.as_chunks_mut().0.iter_mut().zip(a.as_chunks().0) {
            *sums = self.sums(*four);
        }
        sums
    }
    /// The largest lane, if none is NaN.
    fn largest(self, a: Self::Vector) -> f32;
    /// The same of four vectors.
    #[inline(always)]
    fn largest_of_4(self, [a, b, c, d]: [Self::Vector; 4]) -> [f32; 4] {
        [self.largest(a), self.largest(b), self.largest(c), self.largest(d)]
    }

    /// # Safety
    /// LANES numbers are readable.
    unsafe fn load(self, from: *const f32) -> Self::Vector;
    /// # Safety
    /// LANES numbers are writable.
    unsafe fn store(self, to: *mut f32, a: Self::Vector);
    /// # Safety
    /// 2 * LANES numbers of 2 bytes are readable.
    unsafe fn load_f16(self, from: *const u8) -> [Self::Vector; 2];
    /// # Safety
    /// LANES numbers of 2 bytes are writable.
    unsafe fn store_f16(self, to: *mut u8, a: Self::Vector);
    /// # Safety
    /// 2 * LANES numbers of 2 bytes are readable.
    unsafe fn load_bf16(self, from: *const u8) -> [Self::Vector; 2];
    /// # Safety
    /// LANES numbers of 2 bytes are writable.
    unsafe fn store_bf16(self, to: *mut u8, a: Self::Vector);
    /// A 256th of each number, for the conversion is cheaper like this.
    ///
    /// # Safety
    /// 2 * LANES bytes are readable.
    unsafe fn load_e4m3(self, from: *const u8) -> [Self::Vector; 2];
    /// The same of 4 * LANES bytes.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    unsafe fn load_e4m3_pairs(self, from: *const u8) -> [[Self::Vector; 2]; 2] {
        // SAFETY: the caller's contract.
        unsafe { [self.load_e4m3(from), self.load_e4m3(from.add(2 * Self::LANES))] }
    }

    /// Whether it multiplies bf16. Scores of bf16 are computed so then.
    const DOTS: bool = false;

    /// c plus the products of 2 * LANES numbers of bf16, whose bits a and b are: to each number of
    /// c that of the second of a pair is added, then that of the first. Where DOTS says so alone.
    fn dot_bf16(self, _a: Self::Vector, _b: Self::Vector, _c: Self::Vector) -> Self::Vector {
        unreachable!("nobody asks for it")
    }

    /// 4 * LANES numbers of e4m3 as the bits of bf16, in the order of [`Simd::order_of_e4m3`].
    ///
    /// # Safety
    /// 4 * LANES bytes are readable. Where DOTS says so alone.
    unsafe fn load_e4m3_as_bf16(self, _from: *const u8) -> [Self::Vector; 2] {
        unreachable!("nobody asks for it")
    }

    /// Numbers of bf16 in the order that numbers of e4m3 come in.
    ///
    /// # Safety
    /// 4 * LANES numbers of 2 bytes are readable. Where DOTS says so alone.
    unsafe fn order_of_e4m3(self, _from: *const u8) -> [Self::Vector; 2] {
        unreachable!("nobody asks for it")
    }

    /// Whether many rows' scores are computed with keys side by side: of sixteen lanes, of which
    /// `sums` adds in each four the first and the third, the second and the fourth, then both; so
    /// of the fours.
    const ACROSS: bool = false;

    /// Rows of LANES numbers become columns. Where ACROSS says so alone.
    ///
    /// # Safety
    /// LANES numbers of each row are readable, and as many rows, so far apart, writable.
    unsafe fn turn(self, _from: [*const f32; 16], _to: *mut f32, _to_stride: usize) {
        unreachable!("nobody asks for it")
    }

    /// Asks for the cache line, which need not exist.
    fn prefetch(self, address: *const u8);
    /// The same, into the nearest cache where that was measured to pay.
    #[inline(always)]
    fn prefetch_near(self, address: *const u8) {
        self.prefetch(address);
    }
}

/// The sets of instructions that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// What every processor of the target has.
    Portable,
    /// NEON, which every aarch64 processor has.
    Neon,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// The same with VBMI and BF16.
    Avx512Bf16,
}

impl Isa {
    /// Those that this processor has, the best one last.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Portable, Self::Neon, Self::Avx2, Self::Avx512, Self::Avx512Bf16]
            .into_iter()
            .filter(|isa| isa.is_available())
    }

    /// The best ones that are there, and none better than those that are asked for, if any are.
    fn best(asked: Option<&[u8]>) -> Result<Self, Error> {
        let most = match asked {
            Some(b"portable") => Self::Portable,
            Some(b"neon") => Self::Neon,
            Some(b"avx2") => Self::Avx2,
            Some(b"avx512") => Self::Avx512,
            None | Some(b"" | b"avx512bf16") => Self::Avx512Bf16,
            // Not the best ones: whoever asks wants the same bits as elsewhere.
            Some(other) => {
                return Err(Error::argument(text!(
                    "RADIXKV_CPU \"{}\" in the environment is not portable, neon, avx2, avx512 \
                     or avx512bf16",
                    other.escape_ascii()
                )));
            }
        };
        Ok(Self::available().filter(|&isa| isa <= most).last().unwrap_or(Self::Portable))
    }

    /// Those that a backend computes with: `RADIXKV_CPU` in the environment says which ones at
    /// most, for results depend on them.
    #[cfg(unix)]
    pub fn chosen() -> Result<Self, Error> {
        // std copies it, and without memory for that ends the process.
        // SAFETY: a NUL-terminated name. What it says is read before anything else is called;
        // changing the environment meanwhile is as wrong as with everything that reads it.
        let asked = unsafe {
            let value = libc::getenv(c"RADIXKV_CPU".as_ptr());
            (!value.is_null()).then(|| std::ffi::CStr::from_ptr(value).to_bytes())
        };
        Self::best(asked)
    }

    /// The same where nobody counts on it without memory.
    #[cfg(not(unix))]
    pub fn chosen() -> Result<Self, Error> {
        let asked = std::env::var_os("RADIXKV_CPU");
        Self::best(asked.as_deref().map(std::ffi::OsStr::as_encoded_bytes))
    }

    fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            // Miri knows no assembler.
            #[cfg(target_arch = "aarch64")]
            Self::Neon => !cfg!(miri),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Avx2::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Avx512::<false>::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => Avx512::<true>::detect().is_some(),
            _ => false,
        }
    }
}

/// Work that is compiled for each set of instructions.
pub(super) trait Vectorized {
    /// Its result.
    type Result;
    /// Does it. To be inlined always: only then the compiler uses the instructions.
    fn run<S: Simd>(self, simd: S) -> Self::Result;
}

/// Does work with a set of instructions; with portable ones where it is not there.
pub(super) fn dispatch<W: Vectorized>(isa: Isa, work: W) -> W::Result {
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512Bf16 => {
            if let Some(simd) = Avx512::<true>::detect() {
                return simd.run(work);
            }
        }
        Isa::Avx512 => {
            if let Some(simd) = Avx512::<false>::detect() {
                return simd.run(work);
            }
        }
        Isa::Avx2 => {
            if let Some(simd) = Avx2::detect() {
                return simd.run(work);
            }
        }
        _ => {}
    }
    #[cfg(target_arch = "aarch64")]
    if isa == Isa::Neon {
        return Neon.run(work);
    }
    let _ = isa;
    Portable.run(work)
}

#[cfg(test)]
mod tests {
    use super::Isa;

    #[test]
    fn none_better_than_asked_for() {
        let best = Isa::available().last();
        assert_eq!(Some(Isa::best(None).unwrap()), best);
        assert_eq!(Some(Isa::best(Some(b"avx512bf16")).unwrap()), best);
        assert_eq!(Isa::best(Some(b"portable")).unwrap(), Isa::Portable);
        for (name, most) in [("avx2", Isa::Avx2), ("avx512", Isa::Avx512)] {
            let found = Isa::best(Some(name.as_bytes())).unwrap();
            assert!(found <= most && Isa::available().all(|isa| isa <= found || isa > most));
        }
    }

    #[test]
    fn what_names_no_instructions_is_refused() {
        for name in ["AVX2", "avx-2", "sse", "scalar", "avx512 "] {
            let error = Isa::best(Some(name.as_bytes())).unwrap_err().to_string();
            assert!(error.contains("RADIXKV_CPU") && error.contains(name), "{error}");
        }
        let error = Isa::best(Some(b"avx2\xff")).unwrap_err().to_string();
        assert!(error.contains(r#""avx2\xff""#), "{error}");
        assert_eq!(Isa::best(Some(b"")).unwrap(), Isa::best(None).unwrap());
    }
}
