//! Elements of tensors, as vectors of f32.
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
}

/// Reads `count` elements, divided by their format's factor.
pub(super) struct Widen<E> {
    from: *const u8,
    to: *mut f32,
    count: usize,
    element: PhantomData<E>,
}

impl<E> Widen<E> {
    /// # Safety
    /// `from` is readable and `to` writable for `count` elements, a multiple of 2 * LANES.
    pub(super) unsafe fn new(from: *const u8, to: *mut f32, count: usize) -> Self {
        Self { from, to, count, element: PhantomData }
    }
}

impl<E: Element> Vectorized for Widen<E> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { from, to, count, .. } = self;
        for at in (0..count).step_by(2 * S::LANES) {
            // SAFETY: new()'s contract.
            unsafe {
                let [low, high] = E::load(simd, from.add(at * E::BYTES));
                simd.store(to.add(at), low);
                simd.store(to.add(at + S::LANES), high);
            }
        }
    }
}

/// Reads `count` elements of a tensor.
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
