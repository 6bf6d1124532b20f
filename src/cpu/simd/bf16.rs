//! What AVX-512 with VBMI and BF16 does with bf16 and e4m3.
use std::arch::x86_64::*;

/// The upper and the lower bytes of bf16, by the lower seven bits of e4m3. Every number of e4m3 is
/// one of bf16, and none is smaller than what the instructions take for 0.
static UPPER: [u8; 128] = bytes_of_bf16(8);
static LOWER: [u8; 128] = bytes_of_bf16(0);

const fn bytes_of_bf16(shift: u32) -> [u8; 128] {
    let mut bytes = [0; 128];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (bf16_of_e4m3(at as u16) >> shift) as u8;
        at += 1;
    }
    bytes
}

/// Of a number that is not negative: a 256th, as all conversions here have it.
const fn bf16_of_e4m3(bits: u16) -> u16 {
    const BIAS: u16 = 127 - 7 - 8;
    match bits {
        0 => 0,
        0x7f => 0x7fc0,
        // Multiples of 2^-9: the first bit that is set says which power of two.
        1..8 => {
            let power = 15 - bits.leading_zeros() as u16;
            ((BIAS + power - 2) << 7) | ((bits << (7 - power)) & 0x7f)
        }
        _ => (bits << 4) + (BIAS << 7),
    }
}

/// Sixty-four numbers of e4m3 as bf16: of each sixteen the first eight in one vector, the others in
/// the other.
///
/// # Safety
/// The processor has the instructions. What calls this has them, too, and is no closure: for one
/// they would all be functions.
#[inline(always)]
pub(super) unsafe fn e4m3_as_bf16(numbers: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller's contract; the tables are as long as is read.
    unsafe {
        let upper = _mm512_permutex2var_epi8(half(&UPPER, 0), numbers, half(&UPPER, 64));
        let lower = _mm512_permutex2var_epi8(half(&LOWER, 0), numbers, half(&LOWER, 64));
        // The sign stays where it is: upper | (numbers & 0x80).
        let sign = _mm512_set1_epi8(0x80u8 as i8);
        let upper = _mm512_ternarylogic_epi32::<0b1111_1000>(upper, numbers, sign);
        [_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)]
    }
}

/// # Safety
/// The processor has the instructions; 64 bytes follow.
#[inline(always)]
unsafe fn half(table: &[u8; 128], at: usize) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_loadu_si512(table.as_ptr().add(at).cast()) }
}

/// Sixty-four numbers of e4m3, in their order.
///
/// # Safety
/// As for [`e4m3_as_bf16`].
#[inline(always)]
pub(super) unsafe fn e4m3_as_f32(numbers: __m512i) -> [[__m512; 2]; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        // Fours of numbers go to where they are unpacked from in order: their rows and columns
        // change places.
        let fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        let zero = _mm512_setzero_si512();
        let [a, b] = e4m3_as_bf16(_mm512_permutexvar_epi32(fours, numbers));
        let a = [_mm512_unpacklo_epi16(zero, a), _mm512_unpackhi_epi16(zero, a)];
        let b = [_mm512_unpacklo_epi16(zero, b), _mm512_unpackhi_epi16(zero, b)];
        [
            [_mm512_castsi512_ps(a[0]), _mm512_castsi512_ps(a[1])],
            [_mm512_castsi512_ps(b[0]), _mm512_castsi512_ps(b[1])],
        ]
    }
}

/// Sixty-four numbers of bf16 in that order.
///
/// # Safety
/// As for [`e4m3_as_bf16`].
#[inline(always)]
pub(super) unsafe fn in_order_of_e4m3([a, b]: [__m512i; 2]) -> [__m512i; 2] {
    // SAFETY: the caller's contract. Eight numbers are two of eight byte long ones.
    unsafe {
        let first = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
        let second = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
        [_mm512_permutex2var_epi64(a, first, b), _mm512_permutex2var_epi64(a, second, b)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Avx512, Simd, Vectorized};
    use super::*;
    use crate::attention::e4m3_to_f32;
    use half::bf16;

    #[test]
    fn tables_say_what_the_format_says() {
        for bits in 0..0x7f {
            let found = bf16::from_bits(bf16_of_e4m3(bits)).to_f32();
            assert_eq!(found * 256.0, e4m3_to_f32(bits as u8), "{bits:#x}");
        }
        assert!(bf16::from_bits(bf16_of_e4m3(0x7f)).is_nan());
    }

    /// Numbers as f32, those as bf16, and numbers of bf16 in the order of those.
    struct Loads<'a>(&'a [u8; 64], &'a [u16; 64]);

    impl Vectorized for Loads<'_> {
        type Result = ([f32; 64], [u16; 64], [u16; 64]);

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Self::Result {
            let (mut numbers, mut halves, mut ordered) = ([0.0; 64], [0; 64], [0; 64]);
            // SAFETY: all are as long as is read and written.
            unsafe {
                let pairs = simd.load_e4m3_pairs(self.0.as_ptr());
                for (at, vector) in pairs.as_flattened().iter().enumerate() {
                    simd.store(numbers.as_mut_ptr().add(at * S::LANES), *vector);
                }
                let loaded = simd.load_e4m3_as_bf16(self.0.as_ptr());
                let order = simd.order_of_e4m3(self.1.as_ptr().cast());
                for at in 0..2 {
                    simd.store(halves.as_mut_ptr().cast::<f32>().add(at * S::LANES), loaded[at]);
                    simd.store(ordered.as_mut_ptr().cast::<f32>().add(at * S::LANES), order[at]);
                }
            }
            (numbers, halves, ordered)
        }
    }

    #[test]
    fn every_number_comes_to_its_place() {
        let Some(simd) = Avx512::<true>::detect() else { return };
        for first in (0..=255u8).step_by(64) {
            let bytes: [u8; 64] = std::array::from_fn(|at| first + at as u8);
            let places: [u16; 64] = std::array::from_fn(|at| at as u16);
            let (numbers, halves, ordered) = simd.run(Loads(&bytes, &places));
            for (at, &byte) in bytes.iter().enumerate() {
                let (exact, found) = (e4m3_to_f32(byte) / 256.0, numbers[at]);
                assert!(found == exact || found.is_nan() && exact.is_nan(), "{byte:#x}: {found}");
                let place = ordered.iter().position(|&place| usize::from(place) == at);
                let half = bf16::from_bits(halves[place.expect("each has a place")]).to_f32();
                assert_eq!(half.to_bits(), found.to_bits(), "{byte:#x}");
            }
        }
    }
}
