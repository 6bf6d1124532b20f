//! B09: models of what probes do without a lock. Loom runs each in every order of its threads'
//! steps that can make a difference, as far as C11 lets atomics be seen late; docs/TESTING.md has
//! more.

mod grace;
mod version;
mod table;
mod tree;
mod faults;

use crate::grace::{Array, Garbage, Link};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much of what can happen a model goes through.
#[derive(Clone, Copy)]
enum Extent {
    /// All of it.
    Everything,
    /// Up to so many preemptions, and `RKV_LOOM_MORE`.
    Preemptions(usize),
    /// The same, when everybody sees everything at once.
    InOrder(usize),
}

/// Runs a model, and says how often.
fn model(extent: Extent, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let more: usize = std::env::var("RKV_LOOM_MORE").map_or(0, |text| text.parse().unwrap());
    builder.preemption_bound = match extent {
        Extent::Everything => None,
        Extent::Preemptions(few) | Extent::InOrder(few) => Some(few + more),
    };
    builder.max_branches = 100_000;
    let runs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&runs);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        crate::sync::begin_run(matches!(extent, Extent::InOrder(_)));
        make_statics();
        run();
        crate::sync::end_run();
    });
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("{name}: {} runs", runs.load(Ordering::Relaxed));
}

/// Loom makes statics when they are first used; here that is before there are threads, as it is in
/// a library.
fn make_statics() {
    let mut garbage = Garbage::default();
    let link = Link::default();
    link.set(Some(&mut Array::<u32>::shown([].into_iter()).unwrap()), &mut garbage);
    link.set(None, &mut garbage);
}
