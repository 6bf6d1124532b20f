//! The sources of the engine and its tests, by the other compiler.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{built, http_flags, native};

/// The sources of a folder and those below it.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "cpp") {
            found.push(path);
        }
    }
}

/// The other compiler has nothing to say either.
#[test]
fn clang_has_no_warnings() {
    if !native::compilers(true).contains(&"clang++") || built().is_none() {
        return;
    }
    let (engine, tests) =
        (native::root().join("examples/engine"), native::root().join("tests/engine"));
    let mut files = Vec::new();
    sources(&engine, &mut files);
    sources(&tests, &mut files);
    assert!(files.len() > 40);
    let output = Command::new("clang++")
        .args(["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow"])
        .arg("-Werror")
        // Files that the programs contain; CMake says where they are.
        .args(["-DENGINE_PAGE=\"\"", "-DENGINE_LIBRARY=\"\""])
        .args(http_flags().split_whitespace())
        .arg("-I")
        .arg(&engine)
        .arg("-I")
        .arg(native::root().join("include"))
        .arg("-I")
        .arg(native::root())
        .args(files)
        .output()
        .unwrap();
    native::check(&output, &engine);
}
