//! The program in README.md compiles as it stands and prints what its comments say.
use std::path::Path;
use std::{env, fs};

mod native;

#[test]
fn the_program_of_the_readme_runs() {
    let readme = fs::read_to_string(native::root().join("README.md")).unwrap();
    let program = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme.c");
    fs::write(&source, program).unwrap();

    let compiler = native::compilers(false)[0];
    let printed = native::run(&native::build(&[source], "readme", compiler, false, "c99"));
    let expected: Vec<_> = program
        .lines()
        .filter_map(|line| line.trim().strip_prefix("request(cache, prompt, "))
        .map(|line| line.split("/* ").nth(1).unwrap().strip_suffix(" */").unwrap())
        .collect();
    assert_eq!(expected.len(), 3, "the README calls request() three times");
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}
