//! `scripts/gpu.sh` without a GPU.
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::stages::cuda_tests;
use crate::{Machine, ended, script, write_program};

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
        // The emulator alone has faults and clocks; the whole matrix takes minutes.
        if !["::faults::", "::clocks::", "::matrix::"].iter().any(|left| test.contains(left)) {
            assert!(chosen.iter().any(|filter| test.contains(filter)), "{test} is not run");
        }
    }
}

/// Results of one commit, or of one device, are not published as those of another.
#[test]
fn results_of_another_commit_are_put_aside() {
    let (pack, run) = packed("gpu results");
    let (results, aside) = (pack.join("results"), pack.join("results.0123abc"));
    assert!(run("tests").0);
    fs::write(results.join("peers.tsv"), "of the first").unwrap();
    assert!(run("tests").0 && results.join("peers.tsv").exists() && !aside.exists());
    fs::write(pack.join("commit"), "4567def\n").unwrap();
    let (success, said) = run("tests");
    assert!(success && !results.join("peers.tsv").exists(), "{said}");
    assert!(aside.join("peers.tsv").exists() && results.join("commit").exists(), "{said}");
    // The same twice: nothing is lost.
    for device in ["one\n", "another\n"] {
        fs::write(results.join("device"), device).unwrap();
        assert!(run("tests").0);
        let last = fs::read_to_string(pack.join("results.4567def/device")).unwrap();
        assert_eq!(last, device);
    }
    assert!(pack.join("results.4567def.~1~").exists());
}

/// Packed again, with other peers, it has those and no others.
#[test]
fn peers_are_those_that_were_named_last() {
    let machine = Machine::new("gpu pack");
    let (folder, target) = (&machine.folder, machine.folder.join("target"));
    for name in ["target/release", "target/engine/tests", "first", "second"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    for name in ["engine_bench", "make_checkpoint", "tests/test_cuda"] {
        fs::write(target.join("engine").join(name), name).unwrap();
    }
    for name in ["first", "second"] {
        fs::write(folder.join(name).join("fa3.so"), name).unwrap();
    }
    fs::write(folder.join("program"), "").unwrap();
    let made = format!("echo '\"executable\":\"{}/program\"'", folder.display());
    machine.program("cargo", &format!("[ $1 = --version ] && echo cargo 9.0.0 || {made}"));
    machine.program("ldd", "echo 'libx.so => /bin/true (0)'");
    machine.program("c++", "cat >/dev/null");
    machine.program("xz", "cat");
    machine.program("git", "echo 0123abc");
    for name in ["cmake", "pkg-config", "strip"] {
        machine.program(name, "true");
    }
    let pack = |name: &str| {
        let mut command = script("gpu.sh");
        command.arg("pack").arg(folder.join(name)).env("PATH", path_from(folder));
        command.env("HOME", folder).env("CARGO_TARGET_DIR", &target).env("RADIXKV_CUDA", "0");
        let (success, said) = ended(command.output().unwrap());
        let packed = fs::read_to_string(target.join("gpu/peers/fa3.so"));
        (success, packed.unwrap_or_default(), said)
    };
    for name in ["first", "second"] {
        let (success, packed, said) = pack(name);
        assert!(success && packed == name, "{said}");
    }
    // A slip of the pen: what is there is 330 MB to fetch again.
    let (success, packed, said) = pack("thrid");
    assert!(!success && packed == "second", "{said}");
    let (success, packed, said) = pack("first");
    assert!(success && packed == "first", "{said}");
}

/// The PATH with a folder before all others.
fn path_from(folder: &Path) -> OsString {
    let path = env::var_os("PATH").unwrap();
    env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&path))).unwrap()
}

/// Something that was packed, on a machine whose Python has PyTorch and nothing else; and a
/// function that runs a stage of it.
fn packed(name: &str) -> (PathBuf, impl Fn(&str) -> (bool, String)) {
    let machine = Machine::new(name);
    machine.program("python3", "[ \"$1\" = -c ]");
    machine.program("nvidia-smi", "exit 1");
    let pack = machine.folder.join("pack");
    fs::create_dir_all(&pack).unwrap();
    fs::write(pack.join("commit"), "0123abc\n").unwrap();
    write_program(&pack.join("tests"), "true");
    let (path, folder) = (path_from(&machine.folder), pack.clone());
    let run = move |stage: &str| {
        let mut command = script("gpu.sh");
        command.args([Path::new("run"), &folder.join("results"), Path::new(stage)]);
        command.env("PATH", &path).env("RADIXKV_GPU_PACK", &folder);
        ended(command.output().unwrap())
    };
    (pack, run)
}

/// scripts/gpu.sh: PyTorch is there, and what is compared with it fails.
#[test]
fn a_comparison_that_fails_is_a_failure() {
    let (_, run) = packed("gpu peers");
    let (success, said) = run("peers");
    assert!(!success && said.contains("FAIL peers"), "{said}");
}
