//! E03, T13: tests/c as a strict C program compiles and runs it.
use std::env;
use std::path::Path;
use std::process::Command;

#[test]
fn e03_a_c_program_publishes() {
    compile_and_run("publisher");
}

#[test]
fn t13_a_c_program_has_a_store() {
    compile_and_run("store");
}

fn compile_and_run(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // target/<profile>/deps, where cargo leaves the shared library of the tests.
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wstrict-prototypes", "-Wshadow"];
    let output = Command::new(env::var("CC").unwrap_or_else(|_| "cc".to_owned()))
        .arg("-std=c99")
        .args(warnings)
        .arg("-I")
        .arg(root.join("../include"))
        .arg(root.join("tests/c").join(name).with_extension("c"))
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", folder.display()))
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .arg("-lradixkv_net")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Not another one, which cargo may have left beside and names first.
    let output = Command::new(&program).env("LD_LIBRARY_PATH", &folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// E03: what threads run when they end stays where it is.
#[test]
fn e03_the_library_is_never_unloaded() {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = folder.join("libradixkv_net.so");
    let output = Command::new("readelf").arg("-d").arg(library).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("NODELETE"));
}
