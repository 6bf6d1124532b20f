//! Where cargo builds, and where the loader looks: both may be told.
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::{as_a_user, have, prefix, release, root, run, scratch, script};

/// Another process writes it: what other tests start meanwhile has, for a moment, all that this one
/// has open, and what somebody has open for writing does not run.
pub fn write_program(path: &Path, text: &str) {
    let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
    run(Command::new("sh").args(["-c", write, "sh"]).arg(path).arg(text));
}

/// The PATH with a folder before all others.
fn path_from(folder: &Path) -> OsString {
    let path = env::var_os("PATH").unwrap();
    env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&path))).unwrap()
}

/// Cargo may be told elsewhere where to build, and the scripts look into one folder.
#[test]
fn make_tells_cargo_where_to_build() {
    if !have("where make builds", &["make"]) {
        return;
    }
    let build = |given: Option<&str>| {
        let mut make = as_a_user("make");
        make.env_remove("CARGO_TARGET_DIR").env("CARGO_BUILD_TARGET_DIR", "/nowhere");
        make.envs(given.map(|folder| ("CARGO_TARGET_DIR", folder))).current_dir(root());
        // What cargo prints is read by a script, which looks for the library in it.
        let cargo = "CARGO=sh -c 'printf \"<%s>\" \"$$CARGO_TARGET_DIR\" \"$$@\" >&2'";
        let made = make.args(["build", "net", cargo]).output().unwrap();
        assert!(made.status.success());
        String::from_utf8(made.stderr).unwrap()
    };
    let here = fs::canonicalize(root()).unwrap().join("target");
    for (given, expected) in [(None, here.to_str().unwrap()), (Some("/else where"), "/else where")]
    {
        let said = build(given);
        assert!(said.contains(&format!("<{expected}><--locked>")), "{said}");
        assert!(said.contains(&format!("<--target-dir><{expected}/net>")), "{said}");
    }
}

/// What is built for a target that is named lies in a folder of its own.
#[test]
fn what_was_built_for_a_target_is_installed() {
    prefix();
    let tools = scratch("cargo of another target");
    // It has built already.
    write_program(&tools.join("cargo"), "echo \"cargo 9.0.0 $@\"");
    let built = scratch("built for a target");
    let folder = built.join("some-target/release");
    fs::create_dir_all(&folder).unwrap();
    for ending in ["a", "so"] {
        symlink(release(ending), folder.join("libradixkv").with_extension(ending)).unwrap();
    }
    let to = scratch("of a target");
    let mut install = script(&to);
    install.env("PATH", path_from(&tools)).env("HOME", &tools);
    install.env("CARGO_TARGET_DIR", &built).env("CARGO_BUILD_TARGET", "some-target");
    let said = run(&mut install);
    assert!(to.join("lib/libradixkv.so").is_file());
    // There, whatever a file of cargo's says.
    assert!(said.contains(&format!(" --target-dir {}\n", built.display())), "{said}");
}

/// The loader has one name for a folder, and a prefix may have another.
#[test]
fn the_loader_is_asked_for_a_folder_and_not_for_its_name() {
    prefix();
    let place = fs::canonicalize(scratch("loader")).unwrap();
    fs::create_dir_all(place.join("usr/lib")).unwrap();
    symlink("usr/lib", place.join("lib")).unwrap();
    let text = format!("echo '{}/lib: (from <builtin>:0)'", place.display());
    write_program(&place.join("ldconfig"), &text);
    for (folder, is_searched) in [("usr", true), ("other", false)] {
        let said = run(script(&place.join(folder)).env("PATH", path_from(&place)));
        assert_eq!(said.contains("does not search"), !is_searched, "{said}");
    }
}
