//! Pages to host memory and back, beside one copy of as many bytes.
//!
//! A line: `tiers`, page size, layout, pages, MiB of a page, direction, host memory, GB/s of
//! `CudaBackend::copy_packed`, of one copy from dense memory, and the share in %. Medians by the
//! host's clock, the two in turn: what each takes until the bytes have arrived.
use crate::device::{self, Memory, Pinned};
use radixkv::attention::{Dtype, Geometry, KvLayer, KvLayout, KvStrides, PackedPage};
use radixkv::gpu::{CudaBackend, CudaConfig};
use std::time::Instant;

const LAYERS: usize = 32;
/// As many as a poll gives at once.
const COPIES: usize = 64;
const ROUNDS: usize = 9;

/// Returns whether what came back was what went.
pub fn measure(config: &CudaConfig) -> bool {
    println!("tiers\tpage\tlayout\tpages\tmib\tdirection\thost\tgbps\tone_copy_gbps\tshare_pct");
    let mut is_right = true;
    for (page_size, layout) in
        [(16, KvLayout::Nhd), (16, KvLayout::Hnd), (1, KvLayout::Nhd), (64, KvLayout::Nhd)]
    {
        is_right &= Pages::new(config, page_size, layout).measure();
    }
    is_right
}

struct Pages {
    backend: CudaBackend,
    layers: Vec<KvLayer<*mut u8>>,
    memory: Vec<[Memory; 2]>,
    page_size: usize,
    layout: KvLayout,
    page_bytes: usize,
}

impl Pages {
    fn new(config: &CudaConfig, page_size: usize, layout: KvLayout) -> Self {
        let geometry =
            Geometry { query_heads: 8, kv_heads: 8, head_dim: 128, v_head_dim: 128, page_size };
        let dtypes = (Dtype::Bf16, Dtype::Bf16);
        let backend = CudaBackend::new(config, geometry, false, dtypes, false).unwrap();
        let strides = KvStrides::dense(layout, &geometry, 128).unwrap();
        let memory: Vec<[Memory; 2]> = (0..LAYERS)
            .map(|_| [0, 1].map(|_| Memory::random((2 * COPIES + 1) * strides.page, Dtype::Bf16)))
            .collect();
        let layers = memory.iter().map(|[k, v]| KvLayer {
            k: k.address(),
            v: v.address(),
            strides,
            v_strides: strides,
            dtype: Dtype::Bf16,
        });
        let page_bytes = LAYERS * 2 * strides.page * Dtype::Bf16.bytes();
        Self { layers: layers.collect(), backend, memory, page_size, layout, page_bytes }
    }

    /// Odd pages go, and come to even ones.
    fn copy(&self, host: *mut u8, is_load: bool) {
        let copies: Vec<_> = (0..COPIES)
            .map(|at| PackedPage {
                page: (2 * at + 1 + usize::from(is_load)) as u32,
                host: host.wrapping_add(at * self.page_bytes),
                is_load,
            })
            .collect();
        // SAFETY: pages of the memory, and so many bytes of the host.
        unsafe { self.backend.copy_packed(&self.layers, 2 * COPIES + 1, &copies).unwrap() };
    }

    fn measure(&self) -> bool {
        let bytes = COPIES * self.page_bytes;
        let dense = Memory::random(bytes / 2, Dtype::Bf16);
        let pinned = Pinned::new(bytes);
        let mut pageable = vec![1u8; bytes];
        for (host, name) in [(pinned.start(), "pinned"), (pageable.as_mut_ptr(), "pageable")] {
            for is_load in [false, true] {
                let mut times = [Vec::new(), Vec::new()];
                for _ in 0..ROUNDS {
                    let begin = Instant::now();
                    self.copy(host, is_load);
                    times[0].push(begin.elapsed().as_secs_f64());
                    let begin = Instant::now();
                    // SAFETY: so many bytes are there.
                    unsafe { device::copy_once(&dense, host, bytes, is_load) };
                    times[1].push(begin.elapsed().as_secs_f64());
                    // What the other one left is no page.
                    if !is_load {
                        self.copy(host, false);
                    }
                }
                let [ours, one] = times.map(|mut times| {
                    times.sort_by(f64::total_cmp);
                    bytes as f64 / times[ROUNDS / 2] / 1e9
                });
                let direction = if is_load { "load" } else { "store" };
                let mib = self.page_bytes as f64 / f64::from(1 << 20);
                let share = 100.0 * ours / one;
                let pages = format!("{}\t{:?}\t{COPIES}\t{mib:.3}", self.page_size, self.layout);
                println!("tiers\t{pages}\t{direction}\t{name}\t{ours:.2}\t{one:.2}\t{share:.1}");
            }
        }
        let is_right = self.is_right();
        if !is_right {
            println!("check\ttiers\t{}\tWRONG: pages that came are others", self.page_size);
        }
        is_right
    }

    /// Of some layers each page that came is the one that went.
    fn is_right(&self) -> bool {
        let page = self.page_bytes / LAYERS / 2;
        self.memory.iter().step_by(7).flatten().all(|memory| {
            let bytes = memory.bytes(0..memory.len());
            (0..COPIES).all(|at| {
                let of = |number: usize| &bytes[number * page..][..page];
                of(2 * at + 1) == of(2 * at + 2)
            })
        })
    }
}
