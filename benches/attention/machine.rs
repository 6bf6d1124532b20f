//! What the machine can do: multiply-adds and reading memory.
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What several threads get done together per second: each repeats the work for a while. The work
/// is told how often it was done before.
fn rate(threads: usize, work: impl Fn(usize) -> f64 + Sync) -> f64 {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let worker = || {
        let mut done = 0.0;
        while start.elapsed() < WHILE {
            done += work(next.fetch_add(1, Ordering::Relaxed));
        }
        done
    };
    let done: f64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        running.into_iter().map(|thread| thread.join().expect("it ran")).sum()
    });
    done / start.elapsed().as_secs_f64()
}

/// How long a measurement takes.
const WHILE: Duration = Duration::from_millis(50);

/// Floating point operations per second: independent fused multiply-adds in registers.
pub fn peak(threads: usize) -> f64 {
    rate(threads, |_| {
        const ROUNDS: usize = 100_000;
        let lanes = fused(ROUNDS);
        (ROUNDS * CHAINS * lanes * 2) as f64
    })
}

/// Enough to keep two units with a latency of five cycles busy.
const CHAINS: usize = 12;

/// Returns the lanes of a vector.
fn fused(rounds: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has it.
            unsafe { fused_avx512(rounds) };
            return 16;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has them.
            unsafe { fused_avx2(rounds) };
            return 8;
        }
    }
    let mut sums = [[1f32; 8]; CHAINS];
    for _ in 0..rounds {
        for sum in sums.as_flattened_mut() {
            *sum = *sum * black_box(0.999) + 0.001;
        }
    }
    black_box(sums);
    8
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused_avx2(rounds: usize) {
    use std::arch::x86_64::*;
    let (factor, summand) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(0.001));
    let mut sums = [_mm256_set1_ps(1.0); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, summand);
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fused_avx512(rounds: usize) {
    use std::arch::x86_64::*;
    let (factor, summand) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(0.001));
    let mut sums = [_mm512_set1_ps(1.0); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, summand);
        }
    }
    black_box(sums);
}

/// Bytes per second: reading 256 MB from one end to the other.
pub fn bandwidth(threads: usize) -> f64 {
    const WORDS: usize = 1 << 25;
    const READ: usize = 1 << 17;
    static MEMORY: OnceLock<Vec<u64>> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| (0..WORDS as u64).collect());
    rate(threads, |time| {
        let at = time % (WORDS / READ);
        let memory = &memory[at * READ..(at + 1) * READ];
        let mut sums = [0u64; 32];
        for words in memory.chunks_exact(32) {
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum = sum.wrapping_add(*word);
            }
        }
        black_box(sums);
        size_of_val(memory) as f64
    })
}
