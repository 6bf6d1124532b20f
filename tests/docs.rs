//! The program in README.md compiles as it stands and prints what its comments say. The fragments
//! of C in docs/ compile in what stands around them in tests/docs.
use std::fs;
use std::path::{Path, PathBuf};

mod native;

/// What stands in fences of C.
fn fragments(page: &str) -> impl Iterator<Item = &str> {
    page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap())
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs");
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_program_of_the_readme_runs() {
    let readme = fs::read_to_string(native::root().join("README.md")).unwrap();
    let program = fragments(&readme).next().unwrap();
    let source = folder().join("readme.c");
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

#[test]
fn the_oldest_rust_is_named() {
    let version = env!("CARGO_PKG_RUST_VERSION");
    for page in ["README.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(native::root().join(page)).unwrap();
        let named = text.split("[Rust](https://rustup.rs) ").nth(1).unwrap();
        assert!(named.starts_with(&format!("{version} or later")), "{page}");
    }
}

#[test]
fn the_fragments_of_the_pages_compile() {
    let compiler = native::compilers(false)[0];
    for page in native::files(&native::root().join("docs"), "md") {
        let name = page.file_stem().unwrap().to_str().unwrap();
        let around = native::root().join("tests/docs").join(name).with_extension("c");
        let frame = fs::read_to_string(&around).unwrap_or_default();
        for (number, fragment) in fragments(&fs::read_to_string(&page).unwrap()).enumerate() {
            let file = format!("{name}-{}.inc", number + 1);
            assert!(frame.contains(&file), "{}: nothing around {file}", around.display());
            fs::write(folder().join(file), fragment).unwrap();
        }
        if !frame.is_empty() {
            let mut command = native::compiler(compiler, false, "c99");
            command.arg("-I").arg(folder()).arg("-fsyntax-only").arg(&around);
            native::check(&command.output().unwrap(), &page);
        }
    }
}
