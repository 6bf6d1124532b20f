//! The story in C, C++, Rust and Go: each version is built, run, and prints examples/story.txt. And
//! the other examples, each with its text.
use std::io::{Write, stderr};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

mod native;

#[allow(dead_code)] // its main() is for `cargo run --example story`
#[path = "../examples/story.rs"]
mod story;

fn expected() -> String {
    fs::read_to_string(native::root().join("examples/story.txt")).unwrap()
}

fn check_native(source: &str, cpp: bool, standards: [&str; 2]) {
    let path = native::root().join(source);
    for compiler in native::compilers(cpp) {
        for standard in standards {
            let name = format!("story-{}", if cpp { "cpp" } else { "c" });
            let program =
                native::build(std::slice::from_ref(&path), &name, compiler, cpp, standard);
            assert_eq!(native::run(&program), expected(), "{source}, {compiler} {standard}");
        }
    }
}

#[test]
fn c() {
    check_native("examples/c/story.c", false, ["c99", "c17"]);
}

/// S01, S04: with snapshots the same is said after fewer steps.
#[test]
fn recurrent() {
    let source = native::root().join("examples/c/recurrent.c");
    let expected = fs::read_to_string(source.with_extension("txt")).unwrap();
    for compiler in native::compilers(false) {
        let program =
            native::build(std::slice::from_ref(&source), "recurrent", compiler, false, "c99");
        assert_eq!(native::run(&program), expected, "{compiler}");
    }
}

#[test]
fn cpp() {
    check_native("examples/cpp/story.cpp", true, ["c++17", "c++20"]);
}

#[test]
fn rust() {
    let mut text = Vec::new();
    story::tell(&mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), expected());
}

/// Says what is not tested, past the capture of the test harness.
fn skip(reason: &str) {
    stderr().write_all(format!("SKIPPED: {reason}\n").as_bytes()).unwrap();
}

#[test]
fn go() {
    let module = native::root().join("bindings/go");
    if !module.join("go.mod").exists() {
        return skip("the Go story was not run: bindings/go is not part of this package");
    }
    if Command::new("go").arg("version").output().is_err() {
        return skip("the Go story was not run: `go` is not installed");
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("story-go");
    let library = native::lib_dir();
    let output = Command::new("go")
        .args(["build", "-tags", "radixkv_nopkgconfig", "-o"])
        .arg(&program)
        .arg("./examples/story")
        .current_dir(&module)
        .env("CGO_ENABLED", "1")
        .env("CGO_CFLAGS", format!("-I{}", native::root().join("include").display()))
        .env("CGO_LDFLAGS", format!("-L{0} -lradixkv -Wl,-rpath,{0}", library.display()))
        .output()
        .unwrap();
    native::check(&output, &module);
    assert_eq!(native::run(&program), expected());
}
