//! `scripts/gpu.sh` without a GPU.
use std::env;
use std::fs;
use std::path::Path;

use crate::stages::cuda_tests;
use crate::{Machine, ended, script};

/// A filter that names nothing runs nothing; and a short visit to a GPU runs all but the matrix.
#[test]
fn the_first_stage_runs_all_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("scripts/gpu.sh")).unwrap();
    let filters = |text: &str| -> Vec<String> {
        let words = text.split_whitespace().filter(|word| word.starts_with("cuda::"));
        words.map(|word| word.trim_end_matches(';').to_owned()).collect()
    };
    let tests = cuda_tests();
    for filter in filters(&text) {
        assert!(tests.iter().any(|test| test.contains(&filter)), "{filter} names no test");
    }
    let (_, stage) = text.split_once("\nstage_tests() {").unwrap();
    let chosen = filters(stage.split("\n}").next().unwrap());
    for test in tests {
        // The emulator alone has faults; the whole matrix takes minutes.
        if !test.contains("::faults::") && !test.contains("::matrix::") {
            assert!(chosen.iter().any(|filter| test.contains(filter)), "{test} is not run");
        }
    }
}

/// scripts/gpu.sh: PyTorch is there, and what is compared with it fails.
#[test]
fn a_comparison_that_fails_is_a_failure() {
    let machine = Machine::new("gpu peers");
    machine.program("python3", "[ \"$1\" = -c ]");
    let pack = machine.folder.join("pack");
    fs::create_dir_all(&pack).unwrap();
    fs::write(pack.join("commit"), "0123abc\n").unwrap();
    let path = env::var_os("PATH").unwrap();
    let folders = [machine.folder.clone()].into_iter().chain(env::split_paths(&path));
    let output = script("gpu.sh")
        .args([Path::new("run"), &pack.join("results"), Path::new("peers")])
        .env("PATH", env::join_paths(folders).unwrap())
        .env("RADIXKV_GPU_PACK", &pack)
        .output()
        .unwrap();
    let (success, said) = ended(output);
    assert!(!success && said.contains("FAIL peers"), "{said}");
}
