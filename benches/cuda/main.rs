//! Attention on a GPU: the target shapes, timed by events, as lines that `scripts/gpu.sh` turns
//! into the table of docs/PERFORMANCE.md.
//!
//!     cargo bench --bench cuda -- [shape...]      e.g. P1 D2; nothing: all
//!
//! A line: id, page size, format, kernel for tiles of many rows, median µs, spread of the runs in
//! %, TFLOP/s, TB/s, and what the shape is bound by. On Hopper there are two kernels.
mod device;
mod shapes;

use device::{Memory, Timer};
use radixkv::attention::{Batch, Dtype, Geometry, KvLayer, KvLayout, KvStrides, Params, Tensor};
use radixkv::error::Error;
use radixkv::gpu::{AppendPrefill, CudaBackend, CudaConfig, Images, NewKv, StepOfPlan, Stream};
use shapes::{SHAPES, Shape};

const RUNS: usize = 30;
/// Copies of the inputs that are taken in turn, so that the L2 cache holds none of them: more than
/// 60 MB in all, as long as memory allows.
const ROTATED_BYTES: usize = 256 << 20;

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let images = Images::embedded();
    if images.is_empty() {
        eprintln!("SKIP benches/cuda: built without nvcc");
        return;
    }
    let config = CudaConfig { device: 0, images, sm90: Some(false) };
    if let Err(error) = probe(&config) {
        eprintln!("SKIP benches/cuda: {error}");
        return;
    }
    let device = device::enter();
    println!("device\t{device}");
    println!("copy\t{:.3}", device::copy_bandwidth());
    println!("id\tpage\tformat\tkernel\tmedian_us\tspread_pct\ttflops\ttbps\tbound");
    for shape in SHAPES {
        if !wanted.is_empty() && !wanted.iter().any(|id| id == shape.id) {
            continue;
        }
        for page_size in [1, 16, 64, 128] {
            for kv_dtype in [Dtype::Bf16, Dtype::Fp8E4m3] {
                // Page sizes and formats in full for one prefill, one append and one decode.
                let in_full = ["P3", "A3", "D2"].contains(&shape.id);
                if in_full || (page_size == 16 && kv_dtype == Dtype::Bf16) {
                    for sm90 in [false, true] {
                        let config = CudaConfig { sm90: Some(sm90), ..config };
                        measure(&config, shape, page_size, kv_dtype);
                    }
                }
            }
        }
    }
}

fn probe(config: &CudaConfig) -> Result<(), Error> {
    let geometry = Geometry { query_heads: 8, kv_heads: 8, head_dim: 128, page_size: 16 };
    CudaBackend::supports(config, &geometry, Dtype::Bf16, Dtype::Bf16)
}

fn measure(config: &CudaConfig, shape: &Shape, page_size: usize, kv_dtype: Dtype) {
    let geometry = Geometry {
        query_heads: shape.query_heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        page_size,
    };
    let dtype = Dtype::Bf16;
    let backend = CudaBackend::new(config, geometry, dtype, kv_dtype, false).unwrap();
    if config.sm90 == Some(true) && (shape.is_write || !backend.uses_sm90()) {
        return;
    }
    let (batch, pages) = batch_of(shape, page_size);
    let strides = KvStrides::dense(KvLayout::Nhd, &geometry).unwrap();
    let queries = batch.query_count();
    let q_elements = queries * shape.query_heads * shape.head_dim;
    let kv_elements = queries * shape.kv_heads * shape.head_dim;
    let kv_bytes = pages * strides.page * kv_dtype.bytes();
    let sets = (ROTATED_BYTES / (2 * kv_bytes + 4 * q_elements)).clamp(1, 8);
    let inputs: Vec<[Memory; 6]> = (0..sets)
        .map(|_| {
            [
                Memory::random(q_elements, dtype),
                Memory::random(kv_elements, dtype),
                Memory::random(kv_elements, dtype),
                Memory::random(pages * strides.page, kv_dtype),
                Memory::random(pages * strides.page, kv_dtype),
                Memory::random(q_elements, dtype),
            ]
        })
        .collect();
    let slots: Vec<u32> = (0..batch.rows().len() as u32).collect();
    let mut plan = backend.new_plan().unwrap();
    let timer = Timer::new();
    let mut time = |writes: bool| {
        let mut times = Vec::new();
        for run in 0..RUNS + 3 {
            let [q, k, v, k_pages, v_pages, out] = &inputs[run % sets];
            let new = |memory: &Memory| {
                Tensor::dense(memory.read(), dtype, shape.kv_heads, shape.head_dim)
            };
            let call = AppendPrefill {
                step: StepOfPlan { number: 1, batch: &batch, slots: &slots },
                params: Params::new(shape.head_dim),
                sinks: std::ptr::null(),
                q: Tensor::dense(q.read(), dtype, shape.query_heads, shape.head_dim),
                kv: writes.then(|| NewKv { k: new(k), v: new(v) }),
                out: Tensor::dense(out.address(), dtype, shape.query_heads, shape.head_dim),
                lse: std::ptr::null_mut(),
                layer: KvLayer {
                    k: k_pages.address(),
                    v: v_pages.address(),
                    strides,
                    dtype: kv_dtype,
                },
                page_count: pages,
                is_captured: false,
            };
            let elapsed = timer.time(|| {
                // SAFETY: memory of these shapes; the default stream.
                unsafe {
                    let stream = Stream::new(std::ptr::null_mut());
                    backend.append_prefill(&call, &mut plan, stream).unwrap();
                }
            });
            // The first ones send the plan and warm the device up.
            if run >= 3 {
                times.push(elapsed);
            }
        }
        times.sort_by(f64::total_cmp);
        let quarter = times.len() / 4;
        let spread = (times[times.len() - 1 - quarter] - times[quarter]) / times[times.len() / 2];
        (times[times.len() / 2], spread)
    };
    let (mut median, spread) = time(false);
    if shape.is_write {
        median = time(true).0 - median;
    }
    let bytes = shape.bytes(&batch, kv_dtype.bytes());
    println!(
        "{}\t{page_size}\t{}\t{}\t{median:.1}\t{:.1}\t{:.1}\t{:.3}\t{}",
        shape.id,
        if kv_dtype == Dtype::Bf16 { "bf16" } else { "e4m3" },
        if backend.uses_sm90() { "sm90" } else { "mma" },
        spread * 100.0,
        shape.flops(&batch) / median / 1e6,
        bytes / median / 1e6,
        shape.bound,
    );
}

/// The rows of a shape over pages in no order; and how many pages there are.
fn batch_of(shape: &Shape, page_size: usize) -> (Batch, usize) {
    let per_row = shape.keys.div_ceil(page_size);
    let shared = shape.shared / page_size;
    let total = shared + shape.rows * (per_row - shared) + 1;
    let mut ids: Vec<u32> = (1..total as u32).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut ids);
    let (stem, mut own) = ids.split_at(shared);
    let mut batch = Batch::new(page_size);
    for _ in 0..shape.rows {
        let (mine, rest) = own.split_at(per_row - shared);
        own = rest;
        let pages: Vec<u32> = stem.iter().chain(mine).copied().collect();
        batch.push_row(shape.keys - shape.queries, shape.queries, &pages, &[]).unwrap();
    }
    (batch, total)
}
