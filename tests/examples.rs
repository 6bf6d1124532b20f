//! The examples are built and run. The story, attention and the hybrid model, in C, C++, Rust and
//! Go, and the others print the text of their own name.
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

mod native;

#[allow(dead_code)] // its main() is for `cargo run --example attention`
#[path = "../examples/attention.rs"]
mod attention;
#[allow(dead_code)] // its main() is for `cargo run --example hybrid`
#[path = "../examples/hybrid.rs"]
mod hybrid;
#[allow(dead_code)] // its main() is for `cargo run --example story`
#[path = "../examples/story.rs"]
mod story;

/// What is told in every language.
const EVERYWHERE: [&str; 3] = ["story", "attention", "hybrid"];

fn expected(example: &str) -> String {
    fs::read_to_string(native::root().join("examples").join(example).with_extension("txt")).unwrap()
}

/// Lines that are neither empty nor comments.
fn lines_of_code(path: &str) -> usize {
    let text = fs::read_to_string(native::root().join(path)).unwrap();
    let mut in_comment = false;
    let is_code = |line: &&str| {
        let begins = line.starts_with("/*");
        let is_comment = in_comment || begins || line.starts_with("//");
        in_comment = (in_comment || begins) && !line.contains("*/");
        !line.is_empty() && !is_comment
    };
    text.lines().map(str::trim).filter(is_code).count()
}

fn check_native(example: &str, language: &str) {
    let source = format!("examples/{language}/{example}.{language}");
    let path = native::root().join(&source);
    for (compiler, standard) in native::builds(language == "cpp") {
        let name = format!("{example}-{language}");
        let path = std::slice::from_ref(&path);
        let program = native::build(path, &name, compiler, language == "cpp", standard);
        assert_eq!(native::run(&program), expected(example), "{source}, {compiler} {standard}");
    }
}

/// G04: of the hybrid model's chat, the third request has all that it can.
#[test]
fn c() {
    EVERYWHERE.into_iter().for_each(|example| check_native(example, "c"));
}

/// The loop of a hybrid engine is short in every language.
#[test]
fn hybrid_is_short() {
    let paths = ["examples/c/hybrid.c", "examples/cpp/hybrid.cpp", "examples/hybrid.rs"];
    let go = "bindings/go/examples/hybrid/main.go";
    for path in paths.into_iter().chain(Some(go).filter(|go| native::root().join(go).exists())) {
        let lines = lines_of_code(path);
        assert!((20..=62).contains(&lines), "{path}: {lines} lines of code");
    }
}

/// What an example doesn't say of its elements the library says, whose elements may be larger.
#[test]
fn sizes_of_elements_are_told() {
    for path in native::files(&native::root().join("examples/c"), "c") {
        let text = fs::read_to_string(&path).unwrap();
        for (array, size) in
            [("config.groups =", "config.group_size ="), ("config.pools =", "config.pool_size =")]
        {
            assert_eq!(text.contains(array), text.contains(size), "{}: {array}", path.display());
        }
    }
}

/// G07: the states that it tells are those after the whole prompts, whatever was reused.
#[test]
fn hybrid_states() {
    let told = expected("hybrid");
    let states = [(1000, 130), (2000, 145), (3000, 160), (1000, 175)].map(|(question, length)| {
        let ids = (0..length).map(|at| if at < 100 { 0 } else { question + at });
        ids.fold(1_u32, |state, id| (state * 31 + id) % 1_000_003).to_string()
    });
    let ends = told.lines().map(|line| line.rsplit(' ').next().unwrap());
    assert_eq!(ends.collect::<Vec<_>>(), states);
}

/// G04: the same with rows of the engine's own.
#[test]
fn hybrid_rows() {
    check_native("hybrid_rows", "c");
}

/// C01, C02, C04, C08
#[test]
fn beam_search() {
    check_native("beam", "c");
}

/// H01, H02: what the router expects of digests is what the workers find.
#[test]
fn router() {
    check_native("router", "c");
}

/// The plan's arrays are all that the kernels know, and what they compute is what the model does
/// without pages.
#[test]
fn j04_kernels_of_an_engines_own() {
    check_native("own_kernels", "c");
}

/// The engine hands out the pages, and finds each of them again in the end.
#[test]
fn j07_an_allocator_of_an_engines_own() {
    check_native("own_allocator", "c");
}

/// S01, S04: with snapshots the same is said after fewer steps.
#[test]
fn recurrent() {
    check_native("recurrent", "c");
}

/// A trace of one request, which is told in bytes.
fn trace(name: &str, ids: &str, request: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).with_extension("trace");
    let head = format!("rkv-trace 1 {name} unit 1 ids {ids} requests 1\n");
    fs::write(&path, [head.as_bytes(), request].concat()).unwrap();
    path
}

/// What examples/replay says of a trace, and how it ends, where it has no more memory than a
/// gigabyte.
fn replay(trace: &Path, arguments: &[&str]) -> Output {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let sources = native::files(&native::root().join("examples/replay"), "c");
        native::build(&sources, "replay", native::compilers(false)[0], false, "gnu17")
    });
    Command::new("sh")
        .args(["-c", "ulimit -v 1000000; exec \"$0\" \"$@\""])
        .arg(program)
        .arg("--trace")
        .arg(trace)
        .arg("--svg")
        .arg(trace.with_extension("svg"))
        .args(arguments)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap()
}

/// Pools that nobody named hold the longest request, whatever a page has.
#[test]
fn replay_chooses_pools_that_hold_any_request() {
    // Nothing is kept of none before, and so many are added; behind them are no outputs.
    let short = trace("short", "implied", &[0, 0, 3, 0]);
    let long = trace("long", "implied", &[0, 0, 0xfa, 0xff, 3, 0]);
    let runs: [(&Path, &[&str]); 3] = [
        (&short, &[]),
        (&short, &["--page-size", "65536", "--concurrency", "3"]),
        (&long, &["--page-size", "100", "--no-decode"]),
    ];
    for (trace, arguments) in runs {
        let output = replay(trace, arguments);
        native::check(&output, trace);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.contains("too long for the pool"), "{said}");
    }
}

/// A file that says it has more than it has is refused before memory is asked for what it says.
#[test]
fn replay_refuses_what_is_cut_off() {
    let request = [0, 0, 0xff, 0xff, 0xff, 0xff, 3];
    let output = replay(&trace("cut", "explicit", &request), &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}: {said}", output.status);
    assert!(said.contains("request 1 of 1 is damaged"), "{said}");
}

/// Sizes of pools are told apart that differ by 2^64.
#[test]
fn replay_refuses_sizes_that_are_too_large() {
    let trace = trace("sizes", "implied", &[0, 0, 3, 0]);
    for (size, code) in [("17179869185G", 2), ("18446744073709551617", 2), ("1k", 0)] {
        let output = replay(&trace, &["--pools", size]);
        assert_eq!(output.status.code(), Some(code), "{size}");
    }
}

#[test]
fn cpp() {
    EVERYWHERE.into_iter().for_each(|example| check_native(example, "cpp"));
}

#[test]
fn rust() {
    let (mut story, mut attention, mut hybrid) = (Vec::new(), Vec::new(), Vec::new());
    story::tell(&mut story).unwrap();
    attention::tell(&mut attention).unwrap();
    hybrid::tell(&mut hybrid).unwrap();
    assert_eq!(String::from_utf8(story).unwrap(), expected("story"));
    assert_eq!(String::from_utf8(attention).unwrap(), expected("attention"));
    assert_eq!(String::from_utf8(hybrid).unwrap(), expected("hybrid"));
}

/// Says what is not tested, past the capture of the test harness.
fn skip(reason: &str) {
    stderr().write_all(format!("SKIPPED: {reason}\n").as_bytes()).unwrap();
}

#[test]
fn go() {
    let module = native::root().join("bindings/go");
    if let Some(reason) = native::go::missing(&module) {
        return skip(&format!("the Go examples were not run: {reason}"));
    }
    let library = native::lib_dir();
    for example in EVERYWHERE {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{example}-go"));
        let output = Command::new("go")
            .args(["build", "-tags", "radixkv_nopkgconfig", "-o"])
            .arg(&program)
            .arg(format!("./examples/{example}"))
            .current_dir(&module)
            .env("CGO_ENABLED", "1")
            .env("CGO_CFLAGS", format!("-I{}", native::root().join("include").display()))
            .env("CGO_LDFLAGS", format!("-L{0} -lradixkv -Wl,-rpath,{0}", library.display()))
            .output()
            .unwrap();
        native::check(&output, &module);
        assert_eq!(native::run(&program), expected(example));
    }
}
