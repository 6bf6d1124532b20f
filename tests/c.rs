//! Compiles tests/c/*.c as strict consumers would, against the header and the libraries that this
//! build made, and runs them. `RKV_RUNNER="valgrind -q --error-exitcode=99"` wraps the runs,
//! `RKV_LIBRARY_DIR` names a folder with another library.
//!
//! Give builds with another feature set a target directory of their own: cargo names the shared
//! library the same whatever it was built with.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

mod native;

const STANDARDS: [&str; 3] = ["c99", "c11", "c17"];
/// What the static library needs from the system.
const SYSTEM: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

fn sources() -> Vec<PathBuf> {
    native::files(&native::root().join("tests/c"), "c")
}

/// All programs but fault.c, for which few libraries have what it calls.
fn programs() -> Vec<PathBuf> {
    sources().into_iter().filter(|path| !path.ends_with("fault.c")).collect()
}

fn stem(source: &Path) -> &str {
    source.file_stem().unwrap().to_str().unwrap()
}

fn run(program: &Path) {
    let mut runner = env::var("RKV_RUNNER").unwrap_or_default();
    // What a child process inherits is left where it is, on purpose.
    if runner.contains("valgrind") && program.to_str().unwrap().contains("/child_process-") {
        runner += " --leak-check=no";
    }
    native::run_under(&runner, program);
}

/// Builds and runs programs, and tells of all that failed.
fn run_all(name: &str, standard: &str, programs: Vec<PathBuf>) {
    let passes = |source: &PathBuf| {
        let sources = std::slice::from_ref(source);
        run(&native::build(sources, stem(source), name, false, standard));
    };
    let failed: Vec<_> = programs
        .into_iter()
        .filter(|source| std::panic::catch_unwind(|| passes(source)).is_err())
        .collect();
    assert!(failed.is_empty(), "{name} -std={standard}: {failed:?}");
}

#[test]
fn every_file_compiles_strictly() {
    for name in native::compilers(false) {
        for standard in STANDARDS {
            let mut command = native::compiler(name, false, standard);
            command.args(["-DRKV_FAULT_INJECTION", "-fsyntax-only"]).args(sources());
            native::check(&command.output().unwrap(), Path::new("tests/c"));
        }
    }
}

/// Stage memcheck of scripts/test.sh builds what others are just running.
#[test]
fn programs_of_another_library_lie_elsewhere() {
    let folders = [None, Some("/usr".into()), Some(native::root().into())].map(native::folder);
    assert!(folders[0].ends_with("native") && folders[1].ends_with("native-usr"), "{folders:?}");
    assert!(folders[2] != folders[0] && folders[2] != folders[1], "{folders:?}");
}

/// The benchmarks in C, which nothing else compiles before somebody measures.
#[test]
fn benches_compile() {
    let folders = ["heap", "index", "longest", "snapshot", "tier"];
    let folders = folders.map(|name| native::root().join("benches").join(name));
    let sources: Vec<_> = folders.iter().flat_map(|path| native::files(path, "c")).collect();
    let mut command = Command::new(native::compilers(false)[0]);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-fsyntax-only", "-I"]);
    command.arg(native::root().join("include")).args(sources);
    native::check(&command.output().unwrap(), Path::new("benches"));
}

#[test]
fn programs_built_by_gcc_pass() {
    run_all("gcc", "c99", programs());
}

/// M02
#[test]
#[cfg(feature = "fault-injection")]
fn m02_panics_inside_the_library() {
    run_all("gcc", "c99", vec![native::root().join("tests/c/fault.c")]);
}

#[test]
fn programs_built_by_clang_pass() {
    if native::compilers(false).contains(&"clang") {
        run_all("clang", "c17", programs());
    }
}

#[test]
fn the_static_library_links() {
    let newest = fs::read_dir(native::lib_dir())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            let name = entry.file_name().into_string().unwrap();
            name.starts_with("libradixkv") && name.ends_with(".a")
        })
        .max_by_key(|entry| entry.metadata().unwrap().modified().unwrap())
        .expect("cargo test leaves libradixkv.a beside the test programs");
    let mut library = vec![newest.path().to_str().unwrap().to_owned()];
    library.extend(SYSTEM.split(' ').map(str::to_owned));
    let source = native::root().join("tests/c/cache.c");
    run(&native::build_with(&library, &[source], "static", ("gcc", false, "c11")));
}

/// The names before an opening parenthesis that begin with `rkv_`, in text without comments.
fn called(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = strip_comments(text);
    while let Some(open) = rest.rfind('(') {
        rest.truncate(open);
        let start =
            rest.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |i| i + 1);
        if rest[start..].starts_with("rkv_") {
            found.insert(rest[start..].to_owned());
        }
    }
    found
}

fn strip_comments(text: &str) -> String {
    let mut kept = String::new();
    for (index, part) in text.split("/*").enumerate() {
        kept.push_str(if index == 0 { part } else { part.split_once("*/").map_or("", |p| p.1) });
    }
    kept
}

/// The C headers, one after the other.
fn headers() -> String {
    let read = |name: &str| fs::read_to_string(native::root().join("include").join(name)).unwrap();
    read("radixkv.h") + &read("radixkv_spatial.h")
}

/// What the macros of tests/c/outputs.h are given, in text without comments.
fn misplacements(text: &str) -> Vec<String> {
    let text = strip_comments(text);
    let macros = ["MISPLACED(", "MISALIGNED(", "BAD_STRUCT(", "BAD_STRUCT_FROM("];
    let begins = macros.iter().flat_map(|name| {
        let is_whole = |&at: &usize| !text[..at].ends_with(|c: char| c.is_alphanumeric());
        text.match_indices(name).map(|(at, _)| at).filter(is_whole).map(move |at| at + name.len())
    });
    let given = begins.map(|begin| {
        let mut depth = 1;
        let is_end = |c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        };
        let end = text[begin..].find(is_end).unwrap();
        text[begin..begin + end].to_owned()
    });
    given.collect()
}

/// M09: tests/c/outputs*.c misplace each output of every function that has one.
#[test]
fn m09_every_output_is_misplaced() {
    // Pointers to what is not const are outputs, but for handles, and the memory of a callback.
    const NO_OUTPUTS: [&str; 7] = [
        "rkv_page_table *",
        "rkv_cache *",
        "rkv_runner *",
        "rkv_plan *",
        "rkv_snapshot_cache *",
        "rkv_event_encoder *",
        "void *",
    ];
    // One byte that may be NULL is never misplaced.
    const NOWHERE_WRONG: [&str; 1] = ["rkv_snapshot_cache_remove out_removed"];
    let text = strip_comments(&headers());
    let mut writing = BTreeSet::new();
    let (_, declarations) = text.split_once("extern \"C\" {").unwrap();
    for declaration in declarations.split("RKV_API").skip(1) {
        let (declaration, _) = declaration.split_once(')').unwrap();
        let (head, parameters) = declaration.split_once('(').unwrap();
        let name = head.rsplit(|c: char| c.is_whitespace() || c == '*').next().unwrap();
        let outputs = parameters.split(',').map(|one| one.trim().trim_start_matches("struct "));
        let is_output = |one: &str| {
            let handle = NO_OUTPUTS.iter().any(|handle| one.starts_with(handle));
            one.contains("**") || (one.contains('*') && !one.starts_with("const ") && !handle)
        };
        // The text of a message is cut to fit: there is nothing to refuse.
        if name == "rkv_last_error_message" {
            continue;
        }
        for output in outputs.filter(|one| is_output(one)) {
            let parameter = output.rsplit([' ', '*']).next().unwrap();
            writing.insert(format!("{name} {parameter}"));
        }
    }
    assert!(writing.len() > 40, "the header's outputs were not found: {writing:?}");
    // Those that a struct of arguments names.
    for name in ["rkv_runner_append_prefill", "rkv_runner_merge_states"] {
        writing.extend(["out", "lse"].map(|output| format!("{name} {output}")));
    }
    for name in ["rkv_cache_read_journal", "rkv_cache_read_contents"] {
        let buffers = ["records", "pages", "tokens", "items"];
        writing.extend(buffers.map(|buffer| format!("{name} buffers.{buffer}")));
    }
    let about = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with("outputs");
    let sources = sources().into_iter().filter(|path| about(path));
    let given: Vec<_> =
        sources.flat_map(|path| misplacements(&fs::read_to_string(path).unwrap())).collect();
    let is_misplaced = |output: &String| {
        let (name, parameter) = output.split_once(' ').unwrap();
        let (call, word) = (format!("{name}("), format!("\"{parameter}\""));
        given.iter().any(|given| given.contains(&call) && given.contains(&word))
    };
    let missing: Vec<_> = writing.iter().filter(|output| !is_misplaced(output)).collect();
    assert_eq!(missing, NOWHERE_WRONG, "what tests/c/outputs*.c misplace nowhere");
}

#[test]
fn every_exported_function_is_called() {
    let exported = called(&headers());
    assert!(exported.len() > 40, "the header's functions were not found: {exported:?}");
    let mut used = BTreeSet::new();
    for source in sources() {
        used.append(&mut called(&fs::read_to_string(source).unwrap()));
    }
    let missing: Vec<_> = exported.difference(&used).collect();
    assert!(missing.is_empty(), "tests/c never calls {missing:?}");
}
