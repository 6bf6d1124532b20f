//! Runs the checks of the Go binding, bindings/go, against the library that this build made.
//! Without a Go toolchain, or with one that is too old, they are skipped, and say so.
use std::ffi::OsStr;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, str};

#[path = "native/go.rs"]
mod toolchain;

/// target/<profile>/deps: there `cargo test` leaves the shared library, beside this program.
fn library_folder() -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let library =
        folder.join(format!("{}radixkv{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX));
    assert!(library.exists(), "{} is missing", library.display());
    folder
}

fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings/go")
}

/// A command in the Go module that finds header and library of this build.
fn command(program: &str) -> Command {
    let folder = library_folder();
    let mut command = Command::new(program);
    command
        .current_dir(module())
        // go.mod names the oldest Go that will do: never download another.
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "1")
        .env("CGO_LDFLAGS", format!("-L{}", folder.display()))
        .env("LD_LIBRARY_PATH", folder)
        // A cgo call that passes Go memory which holds Go pointers ends the program.
        .env("GODEBUG", "cgocheck=1");
    command
}

fn tags() -> &'static str {
    if cfg!(feature = "fault-injection") {
        "-tags=radixkv_nopkgconfig,radixkv_fault_injection"
    } else {
        "-tags=radixkv_nopkgconfig"
    }
}

fn go_is_missing() -> bool {
    let missing = toolchain::missing(&module());
    if let Some(reason) = &missing {
        // Written past the harness, which shows the output of failures alone.
        let reason = format!("SKIPPED: the Go binding was not checked: {reason}\n");
        stderr().write_all(reason.as_bytes()).unwrap();
    }
    missing.is_some()
}

fn run<A: AsRef<OsStr>>(command: &mut Command, arguments: impl IntoIterator<Item = A>) -> Output {
    let output = command.args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}

/// scripts/tools.sh does not install one, and says that checks are skipped.
#[test]
fn a_go_that_is_too_old_checks_nothing() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("old go");
    std::fs::create_dir_all(&folder).unwrap();
    // Another process writes it: one that this one has open for writing would not run.
    let write = "printf '#!/bin/sh\necho go version go1.19.8 linux/amd64\n' >go; chmod 755 go";
    run(Command::new("sh").current_dir(&folder), ["-c", write]);
    let mut again = Command::new(env::current_exe().unwrap());
    let output = run(again.env("PATH", &folder), ["--exact", "tests_pass"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("SKIPPED") && said.contains("1.19.8"), "{said}");
}

#[test]
fn formatted_and_vetted() {
    if go_is_missing() {
        return;
    }
    let output = run(&mut command("gofmt"), ["-l", "."]);
    assert_eq!(str::from_utf8(&output.stdout), Ok(""), "these files are not in gofmt's style");
    run(&mut command("go"), ["vet", tags(), "./..."]);
}

/// Counted once (-count=1), because Go's cache of test results does not see the library change.
#[test]
fn tests_pass() {
    if go_is_missing() {
        return;
    }
    run(&mut command("go"), ["test", "-count=1", tags(), "./..."]);
}

#[test]
fn tests_pass_under_the_race_detector() {
    if go_is_missing() {
        return;
    }
    run(&mut command("go"), ["test", "-race", "-count=1", tags(), "./..."]);
}

/// The compiler then checks each store of a pointer, too.
#[test]
fn tests_pass_with_strict_pointer_checks() {
    if go_is_missing() {
        return;
    }
    let mut strict = command("go");
    strict.env("GOEXPERIMENT", "cgocheck2");
    run(&mut strict, ["test", "-count=1", tags(), "./..."]);
}
