//! Feeds the saved inputs to the fuzz targets, and a few that a generator makes, without libFuzzer.
use std::fs;
use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for folder in ["corpus", "regressions"] {
        let Ok(files) = fs::read_dir(here.join(folder).join(target)) else {
            continue;
        };
        for file in files {
            let path = file.unwrap().path();
            // Seen only when the run fails: libtest shows a failing test's output.
            println!("{}", path.display());
            run(&fs::read(&path).unwrap());
            count += 1;
        }
    }
    assert!(count > 0, "there are no saved inputs for {target}");
    let mut state = 0x1234_5678_9abc_def1_u64;
    for round in 0..200 {
        let bytes: Vec<_> = (0..round * 4).map(|_| next(&mut state)).collect();
        println!("generated input {round}: {bytes:?}");
        run(&bytes);
    }
}

/// Marsaglia's xorshift; its middle byte.
fn next(state: &mut u64) -> u8 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 32) as u8
}

#[test]
fn operations() {
    replay("operations", radixkv_fuzz::operations);
}

/// M01
#[test]
fn arguments() {
    replay("arguments", radixkv_fuzz::arguments);
}

/// G02 G03 G05 G06 G07 G09 G11
#[test]
fn groups() {
    replay("groups", radixkv_fuzz::groups);
}

/// K02, K04
#[test]
fn tokens() {
    replay("tokens", radixkv_fuzz::tokens);
}
