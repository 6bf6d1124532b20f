//! AVX-512: sixteen numbers, thirty-two registers.
use super::bf16::{e4m3_as_bf16, e4m3_as_f32, in_order_of_e4m3};
use super::{Simd, Vectorized};
use std::arch::x86_64::*;

/// The processor has it, with BF16 also what multiplies bf16.
#[derive(Debug, Clone, Copy)]
pub(in crate::cpu) struct Avx512<const BF16: bool>(());

impl<const BF16: bool> Avx512<BF16> {
    pub(in crate::cpu) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && (!BF16
                || is_x86_feature_detected!("avx512bf16")
                    && is_x86_feature_detected!("avx512vbmi"));
        found.then_some(Self(()))
    }
}

/// Evaluates what needs the instructions, in a method of [`Avx512`].
macro_rules! with {
    ($($body:tt)*) => {
        // SAFETY: an Avx512 exists only where the processor has the instructions. Memory is
        // accessed as the method's own contract allows.
        unsafe { $($body)* }
    };
}

/// In each quarter the sums of four vectors' quarters.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn sums_in_quarters([a, b, c, d]: [__m512; 4]) -> __m512 {
    with! {
        // a0+a2 b0+b2 a1+a3 b1+b3, and the same of c and d.
        let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        let even = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
        _mm512_add_ps(even, _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd))
    }
}

impl<const BF16: bool> Simd for Avx512<BF16> {
    type Vector = __m512;
    const LANES: usize = 16;
    const SCORE_ROWS: usize = 6;
    const RESULT_ROWS: usize = 12;

    #[inline(always)]
    fn run<W: Vectorized>(self, work: W) -> W::Result {
        #[inline(never)]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn run<S: Simd, W: Vectorized>(simd: S, work: W) -> W::Result {
            work.run(simd)
        }
        #[inline(never)]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
        fn run_bf16<S: Simd, W: Vectorized>(simd: S, work: W) -> W::Result {
            work.run(simd)
        }
        with! { if BF16 { run_bf16(self, work) } else { run(self, work) } }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        with! { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        with! { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        with! { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        with! { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        with! { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        with! { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        with! { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        with! { _mm512_abs_ps(a) }
    }

    #[inline(always)]
    fn copy_sign(self, a: __m512, b: __m512) -> __m512 {
        with! {
            let sign = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b))
        }
    }

    #[inline(always)]
    fn if_less(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        with! { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x) }
    }

    #[inline(always)]
    fn low_bits_as_exponent(self, a: __m512) -> __m512 {
        with! { _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(a))) }
    }

    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        self.sums([a; 4])[0]
    }

    #[inline(always)]
    fn sums(self, four: [__m512; 4]) -> [f32; 4] {
        with! {
            let sums = sums_in_quarters(four);
            let low = _mm512_castps512_ps256(sums);
            let sums = _mm256_add_ps(low, _mm512_extractf32x8_ps::<1>(sums));
            let sums = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
            let mut array = [0.0; 4];
            _mm_storeu_ps(array.as_mut_ptr(), sums);
            array
        }
    }

    #[inline(always)]
    fn sums_of_16(self, all: &[__m512; 16]) -> [f32; 16] {
        with! {
            let mut halves = [_mm512_setzero_ps(); 2];
            for (half, eight) in halves.iter_mut().zip(all.as_chunks::<8>().0) {
                let [a, b] = [[eight[0], eight[1], eight[2], eight[3]],
                    [eight[4], eight[5], eight[6], eight[7]]];
                let (a, b) = (sums_in_quarters(a), sums_in_quarters(b));
                let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b);
                *half = _mm512_add_ps(low, _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b));
            }
            let [a, b] = halves;
            let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
            let sums = _mm512_add_ps(even, _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b));
            let mut array = [0.0; 16];
            _mm512_storeu_ps(array.as_mut_ptr(), sums);
            array
        }
    }

    #[inline(always)]
    fn largest(self, a: __m512) -> f32 {
        with! { _mm512_reduce_max_ps(a) }
    }

    #[inline(always)]
    fn largest_of_4(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        with! {
            let ab = _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            let cd = _mm512_max_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
            let even = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
            let most = _mm512_max_ps(even, _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd));
            let low = _mm512_castps512_ps256(most);
            let most = _mm256_max_ps(low, _mm512_extractf32x8_ps::<1>(most));
            let most = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps::<1>(most));
            let mut array = [0.0; 4];
            _mm_storeu_ps(array.as_mut_ptr(), most);
            array
        }
    }

    /// # Safety
    /// 16 numbers are readable.
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        with! { _mm512_loadu_ps(from) }
    }

    /// # Safety
    /// 16 numbers are writable.
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: __m512) {
        with! { _mm512_storeu_ps(to, a) }
    }

    /// # Safety
    /// 64 bytes are readable.
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> [__m512; 2] {
        with! {
            let load = |at| _mm256_loadu_si256(from.add(at).cast());
            [_mm512_cvtph_ps(load(0)), _mm512_cvtph_ps(load(32))]
        }
    }

    /// # Safety
    /// 32 bytes are writable.
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u8, a: __m512) {
        with! { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a)) }
    }

    /// # Safety
    /// 64 bytes are readable.
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u8) -> [__m512; 2] {
        with! {
            let low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            let high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.add(32).cast()));
            let low = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(low));
            [low, _mm512_castsi512_ps(_mm512_slli_epi32::<16>(high))]
        }
    }

    /// # Safety
    /// 32 bytes are writable.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u8, a: __m512) {
        with! {
            let bits = _mm512_castps_si512(a);
            let last = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_add_epi32(bits, half);
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(1 << 22));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
            let upper = _mm512_srli_epi32::<16>(_mm512_mask_blend_epi32(nan, rounded, quiet));
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(upper))
        }
    }

    /// # Safety
    /// 32 bytes are readable.
    #[inline(always)]
    unsafe fn load_e4m3(self, from: *const u8) -> [__m512; 2] {
        with! {
            // As f16 the same bits mean 2^-8 of the number: the exponents' biases are 15 and 7.
            let bytes = _mm256_loadu_si256(from.cast());
            let wide = _mm512_slli_epi16::<7>(_mm512_cvtepi8_epi16(bytes));
            let magnitude = _mm512_and_si512(wide, _mm512_set1_epi16(0x3f80));
            let nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x3f80));
            let number = _mm512_and_si512(wide, _mm512_set1_epi16(0xbfffu16 as i16));
            let number = _mm512_mask_blend_epi16(nan, number, _mm512_set1_epi16(-1));
            let low = _mm512_cvtph_ps(_mm512_castsi512_si256(number));
            [low, _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(number))]
        }
    }

    /// # Safety
    /// 64 bytes are readable.
    #[inline(always)]
    unsafe fn load_e4m3_pairs(self, from: *const u8) -> [[__m512; 2]; 2] {
        with! {
            if BF16 {
                e4m3_as_f32(_mm512_loadu_si512(from.cast()))
            } else {
                [self.load_e4m3(from), self.load_e4m3(from.add(32))]
            }
        }
    }

    const ACROSS: bool = true;

    /// # Safety
    /// 16 numbers of each row are readable, and as many rows, so far apart, writable.
    #[inline(always)]
    unsafe fn turn(self, from: [*const f32; 16], to: *mut f32, to_stride: usize) {
        with! {
            let mut rows = [_mm512_setzero_ps(); 16];
            for (row, from) in rows.iter_mut().zip(from) {
                *row = _mm512_loadu_ps(from);
            }
            // Of each quarter a column of four rows, then the quarters of a column side by side.
            let mut columns = [_mm512_setzero_ps(); 16];
            for four in 0..4 {
                let [a, b] = [rows[4 * four], rows[4 * four + 1]];
                let [c, d] = [rows[4 * four + 2], rows[4 * four + 3]];
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                columns[four] = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
                columns[four + 4] = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
                let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                columns[four + 8] = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
                columns[four + 12] = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
            }
            for column in 0..4 {
                let [a, b] = [columns[4 * column], columns[4 * column + 1]];
                let [c, d] = [columns[4 * column + 2], columns[4 * column + 3]];
                let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
                let odd = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
                let after_even = _mm512_shuffle_f32x4::<0b10_00_10_00>(c, d);
                let after_odd = _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d);
                let quarters = [
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(even, after_even),
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(odd, after_odd),
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(even, after_even),
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(odd, after_odd),
                ];
                for (quarter, numbers) in quarters.into_iter().enumerate() {
                    _mm512_storeu_ps(to.add((4 * quarter + column) * to_stride), numbers);
                }
            }
        }
    }

    const DOTS: bool = BF16;

    #[inline(always)]
    fn dot_bf16(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        assert!(BF16, "the processor has it only then");
        // SAFETY: it has it; all numbers are made of the same bits.
        unsafe {
            let a = std::mem::transmute::<__m512, __m512bh>(a);
            _mm512_dpbf16_ps(c, a, std::mem::transmute::<__m512, __m512bh>(b))
        }
    }

    /// # Safety
    /// 64 bytes are readable.
    #[inline(always)]
    unsafe fn load_e4m3_as_bf16(self, from: *const u8) -> [__m512; 2] {
        assert!(BF16, "the processor has it only then");
        with! {
            let [a, b] = e4m3_as_bf16(_mm512_loadu_si512(from.cast()));
            [_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)]
        }
    }

    /// # Safety
    /// 128 bytes are readable.
    #[inline(always)]
    unsafe fn order_of_e4m3(self, from: *const u8) -> [__m512; 2] {
        with! {
            let pair = [_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(64).cast())];
            let [a, b] = in_order_of_e4m3(pair);
            [_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)]
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        with! { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }

    #[inline(always)]
    fn prefetch_near(self, address: *const u8) {
        with! { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}
