//! The program in README.md compiles as it stands and prints what its comments say.
use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn the_program_of_the_readme_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let program = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("readme.c"), folder.join("readme"));
    fs::write(&source, program).unwrap();

    // `cargo test` leaves the shared library beside the test's own binary.
    let library = env::current_exe().unwrap().parent().unwrap().to_owned();
    let compiler = cc::Build::new()
        .target(env!("RKV_TARGET"))
        .host(env!("RKV_TARGET"))
        .opt_level(0)
        .cargo_metadata(false)
        .get_compiler();
    let compiled = compiler
        .to_command()
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I{}", root.join("include").display()))
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .arg(format!("-L{}", library.display()))
        .arg("-lradixkv")
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let ran = Command::new(&binary).output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    let expected: Vec<_> = program
        .lines()
        .filter_map(|line| line.trim().strip_prefix("request(cache, prompt, "))
        .map(|line| line.split("/* ").nth(1).unwrap().strip_suffix(" */").unwrap())
        .collect();
    assert_eq!(expected.len(), 3, "the README calls request() three times");
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}
