//! Attention on a GPU: the target shapes, timed by events, as lines that `scripts/gpu.sh` turns
//! into the table of docs/PERFORMANCE.md.
//!
//!     cargo bench --bench cuda -- [shape...] [mma|sm90] [page=N]
//!
//! Shapes such as P1 and D2; nothing: all. A page size is that of all of them, in bf16.
//!
//! A line: id, page size, format, kernel for tiles of many rows, median µs of a call, spread of the
//! runs in %, TFLOP/s, TB/s, µs that the host takes to put a call on the stream, and what the shape
//! is bound by. On Hopper there are two kernels; what is bound by memory is timed as a graph, too.
//! What is timed is checked before: a line that begins with `check` says how far it is from
//! attention in f64, and the program fails when that is too far, or when two runs differ.
//!
//! With the word `tiers` also pages to host memory and back, see `tiers.rs`.
mod calls;
mod check;
mod device;
mod shapes;
mod tiers;

use calls::Calls;
use radixkv::attention::{Dtype, Geometry};
use radixkv::error::Error;
use radixkv::gpu::{CudaBackend, CudaConfig, Images};
use shapes::{SHAPES, Shape, TRIAL};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let (pages, words): (Vec<_>, Vec<_>) = words.partition(|word| word.starts_with("page="));
    let page_wanted: Option<usize> =
        pages.first().map(|word| word["page=".len()..].parse().expect("page=N, N a number"));
    let (kernels, wanted): (Vec<_>, Vec<_>) =
        words.into_iter().partition(|word| word == "mma" || word == "sm90");
    // Those of RADIXKV_KERNELS, so that two builds of them are compared side by side.
    let images = match Images::available() {
        Ok(images) if !images.is_empty() => images,
        Ok(_) => {
            eprintln!("SKIP benches/cuda: built without nvcc");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("benches/cuda: {error}");
            return ExitCode::FAILURE;
        }
    };
    let sm90 = Some(false);
    let config = CudaConfig { device: 0, images, sm90, staging_bytes: None };
    if let Err(error) = probe(&config) {
        eprintln!("SKIP benches/cuda: {error}");
        return ExitCode::SUCCESS;
    }
    let device = device::enter();
    println!("device\t{device}");
    println!("copy\t{:.3}", device::copy_bandwidth());
    let mut is_right = true;
    if wanted.iter().any(|word| word == "tiers") {
        is_right &= tiers::measure(&config);
    }
    println!("id\tpage\tformat\tkernel\tmedian_us\tspread_pct\ttflops\ttbps\thost_us\tbound");
    let is_named = |shape: &Shape| wanted.iter().any(|id| id == shape.id);
    let trial = std::iter::once(&TRIAL).filter(|shape| is_named(shape));
    for shape in SHAPES.iter().filter(|shape| wanted.is_empty() || is_named(shape)).chain(trial) {
        for page_size in page_wanted.map_or(vec![1, 16, 64, 128], |wanted| vec![wanted]) {
            for kv_dtype in [Dtype::Bf16, Dtype::Fp8E4m3] {
                // Page sizes and formats in full for one prefill, one append, one decode, and one
                // with latent vectors.
                let in_full = ["P3", "A3", "D2", "M1"].contains(&shape.id);
                let is_usual = page_size == 16 && kv_dtype == Dtype::Bf16;
                let is_wanted = match page_wanted {
                    Some(_) => kv_dtype == Dtype::Bf16,
                    None => in_full || is_usual,
                };
                if is_wanted {
                    for (sm90, kernel) in [(false, "mma"), (true, "sm90")] {
                        if !kernels.is_empty() && kernels.iter().all(|named| named != kernel) {
                            continue;
                        }
                        let config = CudaConfig { sm90: Some(sm90), ..config };
                        let in_graph = is_usual && shape.bound == "memory";
                        is_right &= measure(&config, shape, page_size, kv_dtype, in_graph);
                    }
                }
            }
        }
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn probe(config: &CudaConfig) -> Result<(), Error> {
    let geometry =
        Geometry { query_heads: 8, kv_heads: 8, head_dim: 128, v_head_dim: 128, page_size: 16 };
    CudaBackend::supports(config, &geometry, false, (Dtype::Bf16, Dtype::Bf16), false)
}

/// Returns whether results were right.
fn measure(
    config: &CudaConfig,
    shape: &Shape,
    page_size: usize,
    kv_dtype: Dtype,
    in_graph: bool,
) -> bool {
    let (geometry, latent) = (shape.geometry(page_size), shape.heads.latent);
    let backend =
        CudaBackend::new(config, geometry, latent, (Dtype::Bf16, kv_dtype), false).unwrap();
    if config.sm90 == Some(true) && (shape.is_write || !backend.uses_sm90()) {
        return true;
    }
    let mut calls = Calls::new(&backend, shape, &geometry, kv_dtype, in_graph);
    let kernel = if backend.uses_sm90() { "sm90" } else { "mma" };
    let format = if kv_dtype == Dtype::Bf16 { "bf16" } else { "e4m3" };
    let checked = check::check(&calls);
    let found = match &checked {
        Ok(error) => format!("{error:.1e}"),
        Err(wrong) => format!("WRONG: {wrong}"),
    };
    println!("check\t{}\t{page_size}\t{format}\t{kernel}\t{found}", shape.id);
    let (flops, bytes) = (shape.flops(calls.batch()), shape.bytes(calls.batch(), kv_dtype.bytes()));
    let line = |kernel: &str, median: f64, spread: f64, host: f64| {
        println!(
            "{}\t{page_size}\t{format}\t{kernel}\t{median:.1}\t{:.1}\t{:.1}\t{:.3}\t{host:.1}\t{}",
            shape.id,
            spread * 100.0,
            flops / median / 1e6,
            bytes / median / 1e6,
            shape.bound,
        );
    };
    let mut time = calls.time(false);
    if shape.is_write {
        time.device = calls.time(true).device - time.device;
    }
    line(kernel, time.device, time.spread, time.host);
    if !in_graph || shape.is_write {
        return checked.is_ok();
    }
    let time = calls.time_graphs(true);
    line(&format!("{kernel}, graph"), time.device, time.spread, time.host);
    if shape.shared > 0 {
        let time = calls.time_graphs(false);
        line(&format!("{kernel}, graph, nothing shared"), time.device, time.spread, time.host);
    }
    checked.is_ok()
}
