//! AVX2 with FMA and F16C: eight numbers, sixteen registers.
use super::{Simd, Vectorized};
use std::arch::x86_64::*;

/// The processor has them.
#[derive(Debug, Clone, Copy)]
pub(in crate::cpu) struct Avx2(());

impl Avx2 {
    pub(in crate::cpu) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }
}

/// Evaluates what needs the instructions, in a method of [`Avx2`].
macro_rules! with {
    ($($body:tt)*) => {
        // SAFETY: an Avx2 exists only where the processor has the instructions. Memory is accessed
        // as the method's own contract allows.
        unsafe { $($body)* }
    };
}

impl Simd for Avx2 {
    type Vector = __m256;
    const LANES: usize = 8;
    const SCORE_ROWS: usize = 3;
    const RESULT_ROWS: usize = 6;

    #[inline(always)]
    fn run<W: Vectorized>(self, work: W) -> W::Result {
        #[inline(never)]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn run<W: Vectorized>(simd: Avx2, work: W) -> W::Result {
            work.run(simd)
        }
        with! { run(self, work) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        with! { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        with! { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        with! { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        with! { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        with! { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        with! { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        with! { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        with! { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }

    #[inline(always)]
    fn copy_sign(self, a: __m256, b: __m256) -> __m256 {
        with! {
            let sign = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b))
        }
    }

    #[inline(always)]
    fn if_less(self, a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        with! { _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) }
    }

    #[inline(always)]
    fn low_bits_as_exponent(self, a: __m256) -> __m256 {
        with! { _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(a))) }
    }

    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        self.sums([a; 4])[0]
    }

    #[inline(always)]
    fn sums(self, [a, b, c, d]: [__m256; 4]) -> [f32; 4] {
        with! {
            // Of each half: a0+a2 b0+b2 a1+a3 b1+b3, and the same of c and d.
            let ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            let even = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
            let odd = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
            let sums = _mm256_add_ps(even, odd);
            let sums = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
            let mut array = [0.0; 4];
            _mm_storeu_ps(array.as_mut_ptr(), sums);
            array
        }
    }

    #[inline(always)]
    fn largest(self, a: __m256) -> f32 {
        with! {
            let most = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let most = _mm_max_ps(most, _mm_movehl_ps(most, most));
            _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)))
        }
    }

    /// # Safety
    /// 8 numbers are readable.
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        with! { _mm256_loadu_ps(from) }
    }

    /// # Safety
    /// 8 numbers are writable.
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: __m256) {
        with! { _mm256_storeu_ps(to, a) }
    }

    /// # Safety
    /// 32 bytes are readable.
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> [__m256; 2] {
        with! {
            let load = |at| _mm_loadu_si128(from.add(at).cast());
            [_mm256_cvtph_ps(load(0)), _mm256_cvtph_ps(load(16))]
        }
    }

    /// # Safety
    /// 16 bytes are writable.
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u8, a: __m256) {
        with! { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a)) }
    }

    /// # Safety
    /// 32 bytes are readable.
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u8) -> [__m256; 2] {
        with! {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(16).cast()));
            let low = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low));
            [low, _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high))]
        }
    }

    /// # Safety
    /// 16 bytes are writable.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u8, a: __m256) {
        with! {
            let bits = _mm256_castps_si256(a);
            let last = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_add_epi32(bits, half);
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(1 << 22));
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
            let upper = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
            let low = _mm256_castsi256_si128(upper);
            let packed = _mm_packus_epi32(low, _mm256_extracti128_si256::<1>(upper));
            _mm_storeu_si128(to.cast(), packed)
        }
    }

    /// # Safety
    /// 16 bytes are readable.
    #[inline(always)]
    unsafe fn load_e4m3(self, from: *const u8) -> [__m256; 2] {
        with! {
            // As f16 the same bits mean 2^-8 of the number: the exponents' biases are 15 and 7.
            let bytes = _mm_loadu_si128(from.cast());
            let wide = _mm256_slli_epi16::<7>(_mm256_cvtepi8_epi16(bytes));
            let magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x3f80));
            let nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80));
            let number = _mm256_and_si256(wide, _mm256_set1_epi16(0xbfffu16 as i16));
            let number = _mm256_or_si256(number, nan);
            let low = _mm256_cvtph_ps(_mm256_castsi256_si128(number));
            [low, _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(number))]
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        with! { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
}
