//! The rounds, by the instructions that x86 has for them.
use super::{BEFORE, BLOCK, Digest, INITIAL, Layout, QUAD};
use std::arch::x86_64::*;

/// Rounds that are done at a time, and how often.
const STEPS: usize = BLOCK;

/// What is added to the words.
#[rustfmt::skip]
static ADDED: [[u32; QUAD]; STEPS] = [
    [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5],
    [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
    [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3],
    [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
    [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc],
    [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
    [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7],
    [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
    [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13],
    [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
    [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3],
    [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
    [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5],
    [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
    [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208],
    [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
];

/// The state in two registers, as the instructions have it.
#[derive(Clone, Copy)]
struct State {
    abef: __m128i,
    cdgh: __m128i,
}

/// Words in the order in which they are written.
type Halves = [__m128i; 2];

#[target_feature(enable = "sha,avx")]
#[inline]
fn state([dcba, hgfe]: Halves) -> State {
    let cdab = _mm_shuffle_epi32(dcba, 0xB1);
    let efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    let abef = _mm_alignr_epi8(cdab, efgh, 8);
    State { abef, cdgh: _mm_blend_epi16(efgh, cdab, 0xF0) }
}

#[target_feature(enable = "sha,avx")]
#[inline]
fn halves(State { abef, cdgh }: State) -> Halves {
    let feba = _mm_shuffle_epi32(abef, 0x1B);
    let dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    [_mm_blend_epi16(feba, dchg, 0xF0), _mm_alignr_epi8(dchg, feba, 8)]
}

/// Turns the bytes of each word round.
#[target_feature(enable = "sha,avx")]
#[inline]
fn turned(words: __m128i) -> __m128i {
    let order = _mm_set_epi64x(0x0C0D_0E0F_0809_0A0B, 0x0405_0607_0001_0203);
    _mm_shuffle_epi8(words, order)
}

#[target_feature(enable = "sha,avx")]
#[inline]
fn four_rounds(state: &mut State, words: __m128i, step: usize) {
    let sum = _mm_add_epi32(words, bytemuck::cast(ADDED[step]));
    state.cdgh = _mm_sha256rnds2_epu32(state.cdgh, state.abef, sum);
    state.abef = _mm_sha256rnds2_epu32(state.abef, state.cdgh, _mm_shuffle_epi32(sum, 0x0E));
}

/// The words of a later step, from those of the four before it.
#[target_feature(enable = "sha,avx")]
#[inline]
fn next_words(words: &[__m128i; QUAD], step: usize) -> __m128i {
    let before = |steps: usize| words[(step + QUAD - steps) % QUAD];
    let sum = _mm_sha256msg1_epu32(before(4), before(3));
    let sum = _mm_add_epi32(sum, _mm_alignr_epi8(before(1), before(2), 4));
    _mm_sha256msg2_epu32(sum, before(1))
}

/// The rounds of a block of each chain from a step on. A round needs the one before in its chain,
/// so those of others are done meanwhile.
#[target_feature(enable = "sha,avx")]
#[inline]
fn rounds<const FROM: usize, const N: usize>(
    states: &mut [State; N],
    words: &mut [[__m128i; QUAD]; N],
) {
    macro_rules! step {
        ($($step:literal)*) => {$(
            for (state, words) in states.iter_mut().zip(words.iter_mut()) {
                if $step >= QUAD {
                    words[$step % QUAD] = next_words(words, $step);
                }
                if $step >= FROM {
                    four_rounds(state, words[$step % QUAD], $step);
                }
            }
        )*};
    }
    step!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}

#[target_feature(enable = "sha,avx")]
#[inline]
fn add(state: State, more: State) -> State {
    let abef = _mm_add_epi32(state.abef, more.abef);
    State { abef, cdgh: _mm_add_epi32(state.cdgh, more.cdgh) }
}

/// The quarter of a page's words that begins at one of them, or of its padding.
#[target_feature(enable = "sha,avx")]
#[inline]
fn quad(layout: &Layout, page: &[u32], at: usize) -> __m128i {
    match page.get(at..at + QUAD) {
        Some(&[a, b, c, d]) => turned(bytemuck::cast([a, b, c, d])),
        _ => bytemuck::cast(layout.padded(page, at)),
    }
}

/// The words of a block that begins with one of a page's.
#[target_feature(enable = "sha,avx")]
#[inline]
fn block(layout: &Layout, page: &[u32], at: usize) -> [__m128i; QUAD] {
    [
        quad(layout, page, at),
        quad(layout, page, at + QUAD),
        quad(layout, page, at + 2 * QUAD),
        quad(layout, page, at + 3 * QUAD),
    ]
}

/// The digests of as many pages of each chain, a page of each in turn. `visit` gets the chain too.
#[target_feature(enable = "sha,avx")]
pub fn pages<const N: usize>(
    layout: &Layout,
    parents: [&Digest; N],
    words: [&[u32]; N],
    mut visit: impl FnMut(usize, Digest),
) {
    let initial: [[u32; QUAD]; 2] = bytemuck::cast(INITIAL);
    let initial = state([bytemuck::cast(initial[0]), bytemuck::cast(initial[1])]);
    let head: __m128i = bytemuck::cast(layout.head);
    let mut begun = initial;
    four_rounds(&mut begun, head, 0);
    let mut last = parents.map(|parent| {
        let parent: [[u8; 16]; 2] = bytemuck::cast(*parent);
        [turned(bytemuck::cast(parent[0])), turned(bytemuck::cast(parent[1]))]
    });
    let size = layout.page_size;
    for number in 0..words[0].len() / size {
        // Not by `map`: that is not for these instructions alone, and so a call with all in memory.
        let mut page = words;
        for page in &mut page {
            *page = &page[number * size..][..size];
        }
        let mut states = [begun; N];
        let mut words = std::array::from_fn(|at| {
            let [first, second] = last[at];
            [head, first, second, quad(layout, page[at], 0)]
        });
        rounds::<1, N>(&mut states, &mut words);
        states = states.map(|state| add(state, initial));
        for next in (1..layout.block_count).map(|block| BLOCK * block - BEFORE) {
            let mut words = page.map(|page| block(layout, page, next));
            let before = states;
            rounds::<0, N>(&mut states, &mut words);
            states = std::array::from_fn(|at| add(states[at], before[at]));
        }
        last = states.map(|state| halves(state));
        for (at, [first, second]) in last.into_iter().enumerate() {
            let bytes: [[u8; 16]; 2] =
                [bytemuck::cast(turned(first)), bytemuck::cast(turned(second))];
            visit(at, bytemuck::cast(bytes));
        }
    }
}
