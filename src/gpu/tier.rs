//! Pages of all layers that go to host memory, and come from there, on a stream of its own.
//!
//! ```text
//!   pages ──gather──► dense memory of the device ──copy engine──► host memory
//!         ◄─scatter─                             ◄─────────────
//! ```
//!
//! In dense memory a page is as it will be in host memory, K and V of each layer in turn. There is
//! room for some pages at a time, so many copies go in portions.
use super::CudaBackend;
use super::arguments::{Address, PageCopy, PageCopyArguments};
use super::call::{HELPER_THREADS, address};
use super::driver::check;
use super::memory::{Blob, DeviceBuffer, GrowingBuffer, Staging};
use super::stream::OwnStream;
use crate::attention::{KvLayer, KvStrides, PackedPage};
use crate::error::Error;
use cudarc::driver::sys;

/// Bytes of dense memory, unless a page is longer. The copy engine takes a third of a millisecond
/// for it, a launch some microseconds.
const STAGING_BYTES: usize = 16 << 20;

/// Layers that a launch takes at most, as pairs of parts.
const PAIRS_MAX: usize = 65535;

/// What copies between pages and host memory need on the device; made for the first of them.
#[derive(Debug)]
pub(super) struct TierCopying {
    stream: OwnStream,
    packing: Packing,
    dense: DeviceBuffer,
    /// Pages for which it has room.
    portion: usize,
    /// Addresses of parts, and lists of pages.
    arrays: GrowingBuffer,
    staging: Staging,
    blob: Blob,
}

/// How a page lies in dense memory: its parts, K or V of a layer, one after another.
#[derive(Debug, Default)]
struct Packing {
    /// Of each part in page 0.
    addresses: Vec<Address>,
    runs: Vec<Run>,
    /// Bytes of a page, and from one to the next, which suits every launch.
    bytes: usize,
    stride: usize,
}

/// Parts that follow one another, alike in shape and strides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: usize,
    count: usize,
    /// Where the first one begins in a page.
    at: usize,
    part: Part,
}

/// Rows of a part and how they lie in pages, in bytes. Rows come in `outer` times `inner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    row: usize,
    outer: usize,
    inner: usize,
    page_stride: usize,
    outer_stride: usize,
    inner_stride: usize,
    /// Head by head; otherwise position by position.
    by_head: bool,
}

impl Part {
    fn bytes(&self) -> usize {
        self.row * self.outer * self.inner
    }
}

impl Packing {
    fn of(backend: &CudaBackend, layers: &[KvLayer<*mut u8>]) -> Self {
        let mut packing = Self::default();
        for layer in layers {
            packing.push(layer.k, backend.part(&layer.strides, backend.heads.head_dim));
            if !backend.heads.latent {
                packing.push(layer.v, backend.part(&layer.v_strides, backend.heads.v_head_dim));
            }
        }
        // A launch has pages at a multiple of two parts.
        let pair = packing.runs.iter().map(|run| 2 * run.part.bytes()).fold(1, common_multiple);
        packing.stride = packing.bytes.next_multiple_of(pair);
        packing
    }

    fn push(&mut self, base: *mut u8, part: Part) {
        match self.runs.last_mut() {
            Some(run) if run.part == part && run.count < 2 * PAIRS_MAX => run.count += 1,
            _ => {
                let (first, at) = (self.addresses.len(), self.bytes);
                self.runs.push(Run { first, count: 1, at, part });
            }
        }
        self.addresses.push(address(base));
        self.bytes += part.bytes();
    }
}

fn common_multiple(left: usize, right: usize) -> usize {
    let (mut divisor, mut rest) = (left, right);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    left / divisor * right
}

/// Where the arrays of a call lie on the device.
#[derive(Debug, Clone, Copy)]
struct Lists {
    addresses: Address,
    /// The pages, for parts that go position by position.
    by_position: Address,
    by_head: Address,
}

impl CudaBackend {
    /// Copies pages of every layer to host memory, or from there, in their order, and waits. They
    /// come after what calls put on streams before.
    ///
    /// # Safety
    /// The pages lie in the memory of every layer, of so many pages; the host memory is as long as
    /// all parts of a page together; nobody uses either meanwhile. All calls get the same layers.
    pub unsafe fn copy_packed(
        &self,
        layers: &[KvLayer<*mut u8>],
        page_count: usize,
        copies: &[PackedPage<*mut u8>],
    ) -> Result<(), Error> {
        if copies.is_empty() {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        let mut tier = self.tier.lock();
        let copying = match &mut *tier {
            Some(copying) => copying,
            none => none.insert(TierCopying::new(self, layers, page_count)?),
        };
        // SAFETY: the caller's contract.
        let put = unsafe { copying.put(self, copies) };
        let done = put.and(copying.stream.wait());
        if done.is_err() {
            // What was put on the stream still uses host memory. Where this fails too, the device
            // is lost.
            let _ = copying.stream.wait();
        }
        done
    }

    fn part(&self, strides: &KvStrides, head_dim: usize) -> Part {
        let (bytes, geometry) = (self.kv_dtype.bytes(), &self.geometry);
        let positions = (geometry.page_size, strides.position * bytes);
        let heads = (geometry.kv_heads, strides.head * bytes);
        let by_head = strides.is_by_head(geometry, head_dim);
        let (outer, inner) = if by_head { (heads, positions) } else { (positions, heads) };
        Part {
            row: head_dim * bytes,
            outer: outer.0,
            inner: inner.0,
            page_stride: strides.page * bytes,
            outer_stride: outer.1,
            inner_stride: inner.1,
            by_head,
        }
    }

    /// Makes a stream wait for everything that calls of this backend put on others.
    fn hold_for_calls(&self, stream: &OwnStream) -> Result<(), Error> {
        let plans: Vec<_> = self.plans.lock().iter().filter_map(std::sync::Weak::upgrade).collect();
        for used in plans {
            used.hold(stream.stream())?;
        }
        self.copying.lock().hold(stream.stream())
    }
}

impl TierCopying {
    fn new(
        backend: &CudaBackend,
        layers: &[KvLayer<*mut u8>],
        page_count: usize,
    ) -> Result<Self, Error> {
        let context = &backend.context;
        let packing = Packing::of(backend, layers);
        let bound = backend.staging_bytes.unwrap_or(STAGING_BYTES);
        let portion = (bound / packing.stride).clamp(1, page_count.max(1));
        Ok(Self {
            stream: OwnStream::new(context)?,
            dense: DeviceBuffer::new(context, portion * packing.stride)?,
            packing,
            portion,
            arrays: GrowingBuffer::default(),
            staging: Staging::default(),
            blob: Blob::default(),
        })
    }

    /// Puts copies on the stream. The context is current.
    ///
    /// # Safety
    /// That of [`CudaBackend::copy_packed`].
    unsafe fn put(
        &mut self,
        backend: &CudaBackend,
        copies: &[PackedPage<*mut u8>],
    ) -> Result<(), Error> {
        backend.hold_for_calls(&self.stream)?;
        let lists = self.send(backend, copies)?;
        let mut first = 0;
        while first < copies.len() {
            let is_load = copies[first].is_load;
            let alike = copies[first..].iter().take_while(|copy| copy.is_load == is_load);
            let portion = &copies[first..][..alike.take(self.portion).count()];
            // SAFETY: the caller's contract; the lists have these pages from `first` on.
            unsafe {
                if is_load {
                    self.pass(portion)?;
                    self.launch(backend, "rkv_page_scatter", &lists, first, portion.len())?;
                } else {
                    self.launch(backend, "rkv_page_gather", &lists, first, portion.len())?;
                    self.pass(portion)?;
                }
            }
            first += portion.len();
        }
        Ok(())
    }

    fn send(
        &mut self,
        backend: &CudaBackend,
        copies: &[PackedPage<*mut u8>],
    ) -> Result<Lists, Error> {
        let list = |positions: usize| -> Vec<PageCopy> {
            let copy = |of: &PackedPage<*mut u8>| PageCopy {
                source: of.page,
                target: of.page,
                positions: positions as u32,
                reserved: 0,
            };
            copies.iter().map(copy).collect()
        };
        self.blob.clear();
        let addresses = self.blob.push(&self.packing.addresses);
        let by_position = self.blob.push(&list(backend.geometry.page_size));
        let by_head = self.blob.push(&list(backend.geometry.kv_heads));
        self.arrays.reserve(&backend.context, self.blob.len())?;
        let arrays = self.arrays.address();
        self.staging.send(&backend.context, &self.blob, arrays, self.stream.stream())?;
        let [addresses, by_position, by_head] =
            [addresses, by_position, by_head].map(|at| arrays + at as u64);
        Ok(Lists { addresses, by_position, by_head })
    }

    /// Between the dense memory and that of the host: a portion.
    ///
    /// # Safety
    /// That of [`CudaBackend::copy_packed`].
    unsafe fn pass(&self, portion: &[PackedPage<*mut u8>]) -> Result<(), Error> {
        let (stream, bytes) = (self.stream.stream().raw(), self.packing.bytes);
        for (at, copy) in portion.iter().enumerate() {
            let dense = self.dense.address() + (at * self.packing.stride) as u64;
            // SAFETY: a portion is no longer than the dense memory; the caller's contract.
            unsafe {
                if copy.is_load {
                    let from = copy.host.cast_const().cast();
                    let sent = sys::cuMemcpyHtoDAsync_v2(dense, from, bytes, stream);
                    check(sent, "cuMemcpyHtoDAsync")?;
                } else {
                    let sent = sys::cuMemcpyDtoHAsync_v2(copy.host.cast(), dense, bytes, stream);
                    check(sent, "cuMemcpyDtoHAsync")?;
                }
            }
        }
        Ok(())
    }

    /// Between the pages from `first` of the lists on and the dense memory.
    ///
    /// # Safety
    /// There are so many in the lists, and no more than a portion.
    unsafe fn launch(
        &self,
        backend: &CudaBackend,
        kernel: &str,
        lists: &Lists,
        first: usize,
        count: usize,
    ) -> Result<(), Error> {
        let kernel = backend.kernels.get(kernel);
        for run in &self.packing.runs {
            // Parts are taken in pairs, as K and V of a layer, and what is left over.
            let pairs = run.count / 2;
            let launches = [(0, pairs, 2), (2 * pairs, run.count % 2, 1)];
            for (begin, layers, kinds) in launches.into_iter().filter(|&(_, layers, _)| layers > 0)
            {
                let part = run.part;
                let list = if part.by_head { lists.by_head } else { lists.by_position };
                let arguments = PageCopyArguments {
                    layers: lists.addresses + ((run.first + begin) * size_of::<Address>()) as u64,
                    copies: list + (first * size_of::<PageCopy>()) as u64,
                    dense: self.dense.address() + (run.at + begin * part.bytes()) as u64,
                    page_stride: part.page_stride as i64,
                    position_stride: part.outer_stride as i64,
                    head_stride: part.inner_stride as i64,
                    kv_heads: part.inner as i32,
                    row_bytes: part.row as i32,
                    page_size: part.outer as i32,
                    layer_count: (self.packing.stride / (2 * part.bytes())) as i32,
                };
                let grid = [count, layers, kinds];
                let stream = self.stream.stream();
                // SAFETY: the caller's contract.
                unsafe { kernel.launch(grid, HELPER_THREADS, 0, &arguments, stream)? };
            }
        }
        Ok(())
    }
}
