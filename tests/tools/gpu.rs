//! `scripts/gpu.sh` without a GPU.
use std::env;
use std::fs;
use std::path::Path;

use crate::{Machine, ended, script};

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
