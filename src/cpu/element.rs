//! Elements of tensors, as vectors of f32.
use super::kernel::padded;
use super::simd::{Simd, Vectorized};
use crate::attention::Dtype;
use std::marker::PhantomData;

/// A number format that vectors are loaded from.
pub(super) trait Element: Copy + Send + Sync + 'static {
    /// Of an element.
    const BYTES: usize;
    /// Whether loading is more than reading.
    const CONVERTS: bool = true;
    /// What a loaded number is to be multiplied with.
    const FACTOR: f32;

    /// # Safety
    /// 2 * LANES elements are readable.
    unsafe fn load<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2];

    /// # Safety
    /// 4 * LANES elements are readable.
    #[inline(always)]
    unsafe fn load_pairs<S: Simd>(simd: S, from: *const u8) -> [[S::Vector; 2]; 2] {
        // SAFETY: the caller's contract.
        unsafe { [Self::load(simd, from), Self::load(simd, from.add(2 * S::LANES * Self::BYTES))] }
    }

    /// Whether all its numbers, divided by FACTOR, are numbers of bf16.
    const IS_BF16: bool = false;

    /// The bits of those, in an order of the format's.
    ///
    /// # Safety
    /// 4 * LANES elements are readable. Where IS_BF16 and [`Simd::DOTS`] say so alone.
    unsafe fn load_bf16<S: Simd>(_simd: S, _from: *const u8) -> [S::Vector; 2] {
        unreachable!("nobody asks for it")
    }

    /// Bits of bf16 in that order.
    ///
    /// # Safety
    /// 4 * LANES numbers of bf16 are readable. As above.
    unsafe fn order_bf16<S: Simd>(_simd: S, _from: *const u8) -> [S::Vector; 2] {
        unreachable!("nobody asks for it")
    }
}

#[derive(Clone, Copy)]
pub(super) struct F32;
#[derive(Clone, Copy)]
pub(super) struct F16;
#[derive(Clone, Copy)]
pub(super) struct Bf16;
#[derive(Clone, Copy)]
pub(super) struct E4m3;

impl Element for F32 {
    const BYTES: usize = 4;
    const CONVERTS: bool = false;
    const FACTOR: f32 = 1.0;

    /// # Safety
    /// 2 * LANES elements are readable.
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2] {
        // SAFETY: the caller's contract.
        unsafe { [simd.load(from.cast()), simd.load(from.cast::<f32>().add(S::LANES))] }
    }
}

impl Element for F16 {
    const BYTES: usize = 2;
    const FACTOR: f32 = 1.0;

    /// # Safety
    /// 2 * LANES elements are readable.
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2] {
        // SAFETY: the caller's contract.
        unsafe { simd.load_f16(from) }
    }
}

impl Element for Bf16 {
    const BYTES: usize = 2;
    const FACTOR: f32 = 1.0;

    /// # Safety
    /// 2 * LANES elements are readable.
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2] {
        // SAFETY: the caller's contract.
        unsafe { simd.load_bf16(from) }
    }

    const IS_BF16: bool = true;

    /// # Safety
    /// 4 * LANES elements are readable.
    #[inline(always)]
    unsafe fn load_bf16<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2] {
        // SAFETY: the caller's contract: twice as many elements are as many numbers.
        unsafe { F32::load(simd, from) }
    }

    /// # Safety
    /// 4 * LANES numbers are readable.
    #[inline(always)]
    unsafe fn order_bf16<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2] {
        // SAFETY: the caller's contract.
        unsafe { Self::load_bf16(simd, from) }
    }
}

impl Element for E4m3 {
    const BYTES: usize = 1;
    const FACTOR: f32 = 256.0;

    /// # Safety
    /// 2 * LANES elements are readable.
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2] {
        // SAFETY: the caller's contract.
        unsafe { simd.load_e4m3(from) }
    }

    /// # Safety
    /// 4 * LANES elements are readable.
    #[inline(always)]
    unsafe fn load_pairs<S: Simd>(simd: S, from: *const u8) -> [[S::Vector; 2]; 2] {
        // SAFETY: the caller's contract.
        unsafe { simd.load_e4m3_pairs(from) }
    }

    const IS_BF16: bool = true;

    /// # Safety
    /// 4 * LANES elements are readable.
    #[inline(always)]
    unsafe fn load_bf16<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2] {
        // SAFETY: the caller's contract.
        unsafe { simd.load_e4m3_as_bf16(from) }
    }

    /// # Safety
    /// 4 * LANES numbers are readable.
    #[inline(always)]
    unsafe fn order_bf16<S: Simd>(simd: S, from: *const u8) -> [S::Vector; 2] {
        // SAFETY: the caller's contract.
        unsafe { simd.order_of_e4m3(from) }
    }
}

/// Reads `count` elements, divided by their format's factor; behind them come zeros, up to
/// [`padded`].
pub(super) struct Widen<E> {
    from: *const u8,
    to: *mut f32,
    count: usize,
    element: PhantomData<E>,
}

impl<E> Widen<E> {
    /// # Safety
    /// `from` is readable for `count` elements, `to` writable for [`padded`] as many.
    pub(super) unsafe fn new(from: *const u8, to: *mut f32, count: usize) -> Self {
        Self { from, to, count, element: PhantomData }
    }
}

impl<E: Element> Vectorized for Widen<E> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { from, to, count, .. } = self;
        let step = 2 * S::LANES;
        let whole = count - count % step;
        for at in (0..whole).step_by(step) {
            // SAFETY: new()'s contract.
            unsafe { widen_step::<S, E>(simd, from.add(at * E::BYTES), to.add(at)) };
        }
        // What is left is less than a step, and all bits 0 are the number 0 in every format.
        for at in (whole..padded(count)).step_by(step) {
            let mut last = [0u8; padded(1) * size_of::<f32>()];
            let left = count.saturating_sub(at) * E::BYTES;
            // SAFETY: new()'s contract; a step is at most what `last` has room for.
            unsafe {
                last.as_mut_ptr()
                    .copy_from_nonoverlapping(from.add(at.min(count) * E::BYTES), left);
                widen_step::<S, E>(simd, last.as_ptr(), to.add(at));
            }
        }
    }
}

/// # Safety
/// 2 * LANES elements are readable, and as many numbers writable.
#[inline(always)]
unsafe fn widen_step<S: Simd, E: Element>(simd: S, from: *const u8, to: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe {
        let [low, high] = E::load(simd, from);
        simd.store(to, low);
        simd.store(to.add(S::LANES), high);
    }
}

/// Writes numbers of bf16, a multiple of 4 * LANES, `ORDER` those of a tensor in the order of E,
/// otherwise elements of that format as what [`Element::load_bf16`] makes of them.
pub(super) struct AsBf16<E, const ORDER: bool> {
    from: *const u8,
    to: *mut f32,
    count: usize,
    element: PhantomData<E>,
}

impl<E, const ORDER: bool> AsBf16<E, ORDER> {
    /// # Safety
    /// `from` is readable for `count` elements, `to` writable for half as many numbers. The
    /// instructions multiply bf16, and E's numbers are such.
    pub(super) unsafe fn new(from: *const u8, to: *mut f32, count: usize) -> Self {
        Self { from, to, count, element: PhantomData }
    }
}

impl<E: Element, const ORDER: bool> Vectorized for AsBf16<E, ORDER> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for at in (0..self.count).step_by(4 * S::LANES) {
            // SAFETY: new()'s contract.
            unsafe {
                let [low, high] = match ORDER {
                    true => E::order_bf16(simd, self.from.add(at * Bf16::BYTES)),
                    false => E::load_bf16(simd, self.from.add(at * E::BYTES)),
                };
                simd.store(self.to.add(at / 2), low);
                simd.store(self.to.add(at / 2 + S::LANES), high);
            }
        }
    }
}

/// Reads `count` elements of a tensor; behind them come zeros, up to [`padded`].
pub(super) struct WidenAs {
    dtype: Dtype,
    from: *const u8,
    to: *mut f32,
    count: usize,
}

impl WidenAs {
    /// # Safety
    /// As for [`Widen::new`]; `dtype` is not fp8.
    pub(super) unsafe fn new(dtype: Dtype, from: *const u8, to: *mut f32, count: usize) -> Self {
        Self { dtype, from, to, count }
    }
}

impl Vectorized for WidenAs {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { dtype, from, to, count } = self;
        // SAFETY: new()'s contract.
        unsafe {
            match dtype {
                Dtype::F32 => Widen::<F32>::new(from, to, count).run(simd),
                Dtype::F16 => Widen::<F16>::new(from, to, count).run(simd),
                Dtype::Bf16 => Widen::<Bf16>::new(from, to, count).run(simd),
                Dtype::Fp8E4m3 => unreachable!("tensors are not fp8"),
            }
        }
    }
}

/// Writes `count` elements of a tensor, each times `factor`.
pub(super) struct Narrow {
    dtype: Dtype,
    from: *const f32,
    factor: f32,
    to: *mut u8,
    count: usize,
}

impl Narrow {
    /// # Safety
    /// `from` is readable and `to` writable for `count` elements, a multiple of LANES; `dtype` is
    /// not fp8.
    pub(super) unsafe fn new(
        dtype: Dtype,
        from: *const f32,
        factor: f32,
        to: *mut u8,
        count: usize,
    ) -> Self {
        Self { dtype, from, factor, to, count }
    }
}

impl Vectorized for Narrow {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { dtype, from, to, count, .. } = self;
        let (factor, zero) = (simd.splat(self.factor), simd.splat(0.0));
        for at in (0..count).step_by(S::LANES) {
            // SAFETY: new()'s contract.
            unsafe {
                // Adding zero makes one zero of both: which it is may depend on how keys were cut.
                let value = simd.fma(simd.load(from.add(at)), factor, zero);
                match dtype {
                    Dtype::F32 => simd.store(to.add(at * 4).cast(), value),
                    Dtype::F16 => simd.store_f16(to.add(at * 2), value),
                    Dtype::Bf16 => simd.store_bf16(to.add(at * 2), value),
                    Dtype::Fp8E4m3 => unreachable!("tensors are not fp8"),
                }
            }
        }
    }
}
