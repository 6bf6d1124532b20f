//! The C++ layer: every tests/cpp/*.cpp compiled strictly by each compiler, in another standard by
//! each, and run; and what must hold of the headers themselves.
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

mod native;

/// Builds and runs one program with each compiler.
fn run_everywhere(name: &str, sources: &[PathBuf]) {
    for (compiler, standard) in native::builds(true) {
        native::run(&native::build(sources, name, compiler, true, standard));
    }
}

fn run_noun(noun: &str) {
    let source = native::root().join("tests/cpp").join(noun).with_extension("cpp");
    run_everywhere(noun, &[source]);
}

#[test]
fn page_table() {
    run_noun("page_table");
}

#[test]
fn cache() {
    run_noun("cache");
}

#[test]
fn groups() {
    run_noun("groups");
}

#[test]
fn sequence() {
    run_noun("sequence");
}

#[test]
fn runner() {
    run_noun("runner");
}

#[test]
fn spatial() {
    run_noun("spatial");
}

#[test]
fn runner_groups() {
    run_noun("runner_groups");
}

/// K21, K22: masks of rows, scales of heads, branches that are kept.
#[test]
fn runner_rows() {
    run_noun("runner_rows");
}

#[test]
fn continuation() {
    run_noun("continuation");
}

#[test]
fn journal() {
    run_noun("journal");
}

#[test]
fn events() {
    run_noun("events");
}

#[test]
fn snapshot() {
    run_noun("snapshot");
}

#[test]
fn snapshot_tiers() {
    run_noun("snapshot_tiers");
}

#[test]
fn tier() {
    run_noun("tier");
}

#[test]
fn tokens() {
    run_noun("tokens");
}

#[test]
fn page_digest() {
    run_noun("page_digest");
}

/// Exceptions in callbacks, each of which ends a process.
#[test]
fn m08_callbacks() {
    run_noun("callbacks");
}

/// J07
#[test]
fn external() {
    run_noun("external");
}

#[test]
fn errors() {
    run_noun("errors");
}

/// A file without its test above would be compiled by nobody.
#[test]
fn every_file_has_a_test() {
    let names: Vec<_> = native::files(&native::root().join("tests/cpp"), "cpp")
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let nouns = [
        "cache",
        "callbacks",
        "continuation",
        "errors",
        "events",
        "external",
        "groups",
        "journal",
        "page_digest",
        "page_table",
        "runner",
        "runner_groups",
        "runner_rows",
        "sequence",
        "snapshot",
        "snapshot_tiers",
        "spatial",
        "tier",
        "tokens",
    ];
    assert_eq!(names, nouns);
}

/// Two translation units in one program: finds a function that should be inline and is not.
#[test]
fn two_units_link() {
    run_everywhere("linked", &native::files(&native::root().join("tests/cpp/linked"), "cpp"));
}

/// The C++ headers, the one that includes all others first.
fn headers() -> Vec<PathBuf> {
    let include = native::root().join("include");
    let mut headers = vec![include.join("radixkv.hpp")];
    headers.extend(native::files(&include.join("radixkv"), "hpp"));
    headers
}

/// Each header stands alone, and may be included twice; the one with all of them in each standard.
#[test]
fn headers_stand_alone() {
    let [oldest, newest] = native::standards(true);
    let headers = headers();
    let alone = headers.iter().map(|header| (header, oldest));
    for (header, standard) in alone.chain([(&headers[0], newest)]) {
        let unit = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(header.file_stem().unwrap())
            .with_extension("twice.cpp");
        let line = format!("#include \"{}\"\n", header.display());
        fs::write(&unit, line.repeat(2)).unwrap();
        for name in native::compilers(true) {
            let output = native::compiler(name, true, standard)
                .args(["-Wsign-conversion", "-Wold-style-cast", "-fsyntax-only"])
                .arg(&unit)
                .output()
                .unwrap();
            native::check(&output, header);
        }
    }
}

/// What the headers cannot work with is refused in words.
#[test]
fn headers_refuse_what_they_cannot_do() {
    let header = native::root().join("include/radixkv.hpp");
    for (standard, flag, reason) in [
        ("c++14", "-fexceptions", "needs C++17"),
        ("c++17", "-fno-exceptions", "a program without them uses radixkv.h"),
    ] {
        for name in native::compilers(true) {
            let output = native::compiler(name, true, standard)
                .args([flag, "-fsyntax-only", "-x", "c++"])
                .arg(&header)
                .output()
                .unwrap();
            assert!(!output.status.success(), "{name} {standard} {flag} compiled");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(text.contains(reason), "{name} {standard} {flag}:\n{text}");
        }
    }
}

/// Every word `rkv_...` of a text, with what follows it.
fn names(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("rkv_").filter(move |(at, _)| !text[..*at].ends_with(is_word)).map(
        move |(at, _)| {
            let rest = &text[at..];
            rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()))
        },
    )
}

/// The C++ layer covers the C header whole: each function that it declares is used by a wrapper.
#[test]
fn every_function_is_wrapped() {
    let is_code = |line: &&str| !line.trim_start().starts_with(['/', '*']);
    let read = |path: &PathBuf| -> String {
        let text = fs::read_to_string(path).unwrap();
        text.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect()
    };
    let include = native::root().join("include");
    let c = read(&include.join("radixkv.h")) + &read(&include.join("radixkv_spatial.h"));
    let cpp: String = headers().iter().map(read).collect();
    let declared: BTreeSet<_> =
        names(&c).filter(|(_, rest)| rest.starts_with('(')).map(|(name, _)| name).collect();
    let used: BTreeSet<_> = names(&cpp).map(|(name, _)| name).collect();
    assert!(declared.contains("rkv_cache_match") && declared.len() > 40, "{declared:?}");
    let missing: Vec<_> = declared.difference(&used).collect();
    assert!(missing.is_empty(), "not wrapped: {missing:?}");
}
