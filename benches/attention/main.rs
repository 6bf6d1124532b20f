//! Attention on the CPU: time per call, as a fraction of what the machine can do.
//!
//!     cargo bench --bench attention -- [--threads n] [--shape 'words']
//!     cargo bench --bench attention -- --window [--threads n]
//!     cargo bench --bench attention -- --serve
//!
//! With --window it times decodes at position 100,000, in a window and without. With --serve it
//! times what each line of its input says and answers with seconds: so another program can take
//! turns with it. scripts/bench_attention.sh does so with PyTorch.

mod machine;
mod shape;
mod window;

use shape::{Bench, Shape};
use std::io::{BufRead, Write};
use std::time::Instant;

/// Shapes of the table.
const SHAPES: &[&str] = &[
    "1 2048 2048 32 8 128 f32 f32",
    "1 2048 2048 32 8 128 bf16 bf16",
    "1 2048 2048 32 32 64 f32 f32",
    "1 2048 2048 16 8 256 bf16 bf16",
    "1 128 8192 32 8 128 bf16 bf16",
    "1 128 8192 32 8 128 bf16 fp8",
    "16 1 4096 32 8 128 f32 f32",
    "16 1 4096 32 8 128 bf16 bf16",
    "16 1 4096 32 8 128 bf16 fp8",
    "1 1 32768 32 8 128 bf16 bf16",
    "8 1 2048 32 32 128 bf16 bf16",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    if arguments.iter().any(|argument| argument == "--serve") {
        return serve();
    }
    let threads = value("--threads").map_or(1, |text| text.parse().expect("--threads n"));
    if arguments.iter().any(|argument| argument == "--window") {
        return window::measure(threads);
    }
    let best = |measure: fn(usize) -> f64| (0..9).map(|_| measure(threads)).fold(0.0, f64::max);
    let (peak, bandwidth) = (best(machine::peak), best(machine::bandwidth));
    println!("{threads} threads: {:.1} GFLOP/s, {:.1} GB/s", peak / 1e9, bandwidth / 1e9);
    println!("| batch new keys q-heads kv-heads dim dtype kv | ms | GFLOP/s | GB/s | of bound |");
    println!("|---|--:|--:|--:|--:|");
    let chosen = value("--shape");
    for text in chosen.iter().map(String::as_str).chain(SHAPES.iter().copied()) {
        let shape = Shape::parse(text).expect("a shape");
        let mut bench = Bench::new(shape, threads);
        let seconds = quickest(&mut bench);
        let (flops, bytes) = (shape.flops() / seconds, shape.bytes() / seconds);
        let bound = (flops / peak).max(bytes / bandwidth);
        println!(
            "| {text} | {:.3} | {:.1} | {:.2} | {:.0} % |",
            seconds * 1e3,
            flops / 1e9,
            bytes / 1e9,
            bound * 100.0
        );
        if chosen.is_some() {
            break;
        }
    }
}

/// Seconds of the quickest call of many.
fn quickest(bench: &mut Bench) -> f64 {
    let (start, mut quickest) = (Instant::now(), f64::INFINITY);
    let mut calls = 0;
    while calls < 5 || start.elapsed().as_secs_f64() < 2.0 {
        let start = Instant::now();
        bench.call();
        quickest = quickest.min(start.elapsed().as_secs_f64());
        calls += 1;
    }
    quickest
}

/// Seconds of a call; short ones are repeated.
fn time(bench: &mut Bench) -> f64 {
    let (start, mut calls) = (Instant::now(), 0);
    while calls == 0 || start.elapsed().as_secs_f64() < 0.02 {
        bench.call();
        calls += 1;
    }
    start.elapsed().as_secs_f64() / f64::from(calls)
}

/// Answers lines: `shape <threads> <shape>` prepares one, `time` times it, `peak <threads>` and
/// `bandwidth <threads>` measure the machine.
fn serve() {
    let mut bench = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("text");
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match verb {
            "shape" => {
                let (threads, shape) = rest.split_once(' ').expect("threads and shape");
                let shape = Shape::parse(shape).expect("a shape");
                bench = Some(Bench::new(shape, threads.parse().expect("threads")));
                format!("{} {}", shape.flops(), shape.bytes())
            }
            "time" => time(bench.as_mut().expect("a shape first")).to_string(),
            "peak" => machine::peak(rest.parse().expect("threads")).to_string(),
            "bandwidth" => machine::bandwidth(rest.parse().expect("threads")).to_string(),
            _ => panic!("unknown: {verb}"),
        };
        println!("{answer}");
        std::io::stdout().flush().expect("somebody listens");
    }
}
