//! Feeds the saved inputs to the fuzz targets, and some that are made of those and of random bytes,
//! without libFuzzer. `RKV_FUZZ_ROUNDS` says how many at least, `RKV_FUZZ_SEED` from which seed.
use std::env;
use std::fs;
use std::path::Path;

/// Twenty times as many inputs are made at most until `is_enough`.
fn replay(target: &str, run: fn(&[u8]), is_enough: fn() -> bool) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut saved = Vec::new();
    for folder in ["corpus", "regressions"] {
        let Ok(files) = fs::read_dir(here.join(folder).join(target)) else {
            continue;
        };
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        // What is made of them is the same everywhere.
        paths.sort();
        for path in paths {
            // Seen only when the run fails: libtest shows a failing test's output.
            println!("{}", path.display());
            let bytes = fs::read(&path).unwrap();
            run(&bytes);
            saved.push(bytes);
        }
    }
    assert!(!saved.is_empty(), "there are no saved inputs for {target}");
    let mut random = fastrand::Rng::with_seed(setting("RKV_FUZZ_SEED", 1));
    let rounds = setting("RKV_FUZZ_ROUNDS", 1000);
    for round in 0..20 * rounds {
        if round >= rounds && is_enough() {
            break;
        }
        let bytes = match round % 2 {
            0 => (0..random.usize(..2000)).map(|_| random.u8(..)).collect(),
            _ => mixed(&saved, &mut random),
        };
        println!("generated input {round}: {bytes:?}");
        run(&bytes);
    }
}

/// The front of one saved input and the back of another, with a few other bytes.
fn mixed(saved: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let [front, back] = [(); 2].map(|()| &saved[random.usize(..saved.len())]);
    let mut bytes = front[..random.usize(..=front.len())].to_vec();
    bytes.extend_from_slice(&back[random.usize(..=back.len())..]);
    for _ in 0..random.usize(..4).min(bytes.len()) {
        let at = random.usize(..bytes.len());
        bytes[at] = random.u8(..);
    }
    bytes
}

/// What comes after several other calls, which random bytes seldom are.
const SELDOM: [&str; 10] = [
    "rkv_cache_cancel_prefetch",
    "rkv_cache_complete",
    "rkv_plan_check",
    "rkv_runner_append_prefill",
    "rkv_runner_keep_branches",
    "rkv_runner_prepare_plan",
    "rkv_sequence_agree",
    "rkv_sequence_fetch",
    "rkv_snapshot_cache_cancel",
    "rkv_snapshot_cache_take",
];
/// What needs groups that these page tables don't have; those of the target `groups` do.
const OF_GROUPS: [&str; 3] =
    ["rkv_cache_read_locked_pages", "rkv_sequence_checkpoint", "rkv_sequence_donate"];

/// Functions that no caller could call as the target does, so that what they do is not tried.
fn never_succeeded() -> Vec<&'static str> {
    let mut never = radixkv_fuzz::never_succeeded();
    never.retain(|name| !SELDOM.contains(name) && !OF_GROUPS.contains(name));
    never
}

fn setting(name: &str, usual: u64) -> u64 {
    env::var(name).map_or(usual, |value| value.parse().unwrap())
}

#[test]
fn operations() {
    replay("operations", radixkv_fuzz::operations, || true);
}

/// M01
#[test]
fn arguments() {
    replay("arguments", radixkv_fuzz::arguments, || never_succeeded().is_empty());
    assert_eq!(never_succeeded(), [""; 0], "no call succeeded");
}

/// G02 G03 G05 G06 G07 G09 G11
#[test]
fn groups() {
    replay("groups", radixkv_fuzz::groups, || true);
}

/// K02, K04
#[test]
fn tokens() {
    replay("tokens", radixkv_fuzz::tokens, || true);
}
