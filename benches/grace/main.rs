//! What readers and the writer pay for `src/grace`, beside crossbeam-epoch, in one run.
//!
//!     cargo bench --bench grace
//!
//! Prints nanoseconds and, where there is valgrind, instructions of each step, and ratios.

#[allow(dead_code, unused_imports)]
#[path = "../../src/memory/mod.rs"]
mod memory;
#[allow(dead_code, unused_imports)]
#[path = "../../src/grace/mod.rs"]
mod grace;
#[allow(dead_code, unused_imports)]
#[path = "../../src/sync.rs"]
mod sync;

use crossbeam_epoch as epoch;
use grace::{Garbage, Link, One, Reader};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Something to repeat, with ours and with the crate's; both do the same work.
struct Step {
    name: &'static str,
    /// One of so many repeats is carried out.
    of: u64,
    whose: [fn(u64); 2],
}

const STEPS: [Step; 3] = [
    Step { name: "a reader comes, reads, leaves", of: 1, whose: [our_read, epoch_read] },
    Step { name: "the same, on a new thread", of: THREAD_OF, whose: [our_first, epoch_first] },
    Step { name: "an array is replaced and freed", of: 1, whose: [our_change, epoch_change] },
];
const THREAD_OF: u64 = 1000;

fn our_read(count: u64) {
    let link = Link::default();
    link.set(Some(One::new(1_u64).unwrap().array()), &mut Garbage::default());
    for _ in 0..count {
        let reader = Reader::enter().expect("there is a place");
        black_box(black_box(&link).read(&reader).first());
    }
}

fn epoch_read(count: u64) {
    let link = epoch::Atomic::new(1_u64);
    for _ in 0..count {
        let guard = epoch::pin();
        // SAFETY: what is in the link was made by `Atomic::new` and is never changed.
        black_box(unsafe { black_box(&link).load(Ordering::Acquire, &guard).as_ref() });
    }
    // SAFETY: nobody else has the link.
    drop(unsafe { link.into_owned() });
}

fn on_new_threads(count: u64, run: fn(u64)) {
    for _ in 0..count.div_ceil(THREAD_OF) {
        std::thread::spawn(move || run(1)).join().expect("nothing panics");
    }
}

fn our_first(count: u64) {
    on_new_threads(count, our_read);
}

fn epoch_first(count: u64) {
    on_new_threads(count, epoch_read);
}

fn our_change(count: u64) {
    let (link, mut garbage) = (Link::default(), Garbage::default());
    for number in 0..count {
        link.set(Some(One::new(number).unwrap().array()), &mut garbage);
    }
}

fn epoch_change(count: u64) {
    let link = epoch::Atomic::new(0_u64);
    for number in 0..count {
        let guard = epoch::pin();
        let before = link.swap(epoch::Owned::new(number), Ordering::AcqRel, &guard);
        // SAFETY: it is out of the link, so nobody who comes later finds it.
        unsafe { guard.defer_destroy(before) };
    }
    // SAFETY: nobody else has the link.
    drop(unsafe { link.into_owned() });
}

const COUNT: u64 = 1_000_000;

/// Nanoseconds of one, the best of some rounds.
fn time(step: fn(u64)) -> f64 {
    let round = || {
        let start = Instant::now();
        step(COUNT);
        start.elapsed().as_nanos() as f64 / COUNT as f64
    };
    (0..9).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Instructions of one, as callgrind counts them; what comes before and after falls out.
fn instructions(step: usize, whose: usize) -> Option<f64> {
    let count = |repeats: u64| -> Option<f64> {
        let mut run = Command::new("valgrind");
        run.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        run.arg(std::env::current_exe().ok()?);
        run.args([step.to_string(), whose.to_string(), repeats.to_string()]);
        let said = String::from_utf8(run.output().ok()?.stderr).ok()?;
        said.lines().find_map(|line| line.split("Collected : ").nth(1))?.trim().parse().ok()
    };
    let few = 10_000;
    Some((count(11 * few)? - count(few)?) / (10 * few) as f64)
}

fn main() {
    let arguments: Vec<u64> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    if let [step, whose, count] = arguments[..] {
        return STEPS[step as usize].whose[whose as usize](count);
    }
    println!("{:44} {:>8} {:>8} {:>6}", "", "ours", "epoch", "ratio");
    for (number, Step { name, of, whose }) in STEPS.into_iter().enumerate() {
        let line = |unit: &str, [ours, epoch]: [f64; 2]| {
            let (ours, epoch, ratio) = (ours * of as f64, epoch * of as f64, ours / epoch);
            println!("{name:31} {unit:12} {ours:8.1} {epoch:8.1} {ratio:6.2}");
        };
        line("ns", whose.map(time));
        if let (Some(ours), Some(epoch)) = (instructions(number, 0), instructions(number, 1)) {
            line("instructions", [ours, epoch]);
        }
    }
}
