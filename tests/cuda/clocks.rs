//! The emulator's own account of who touched shared memory.
use std::path::Path;
use std::process::Command;

/// A write that some reader does not know of is found, whoever else read the word before or after.
#[test]
fn every_reader_of_a_word_is_remembered() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clocks-{}", std::process::id()));
    let built = Command::new("g++")
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root)
        .arg(root.join("tests/cuda/clocks.cpp"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(built.expect("g++ runs").success());
    let ran = Command::new(&program).output().unwrap();
    std::fs::remove_file(&program).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
