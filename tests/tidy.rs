//! Checks of the source itself: who may use whom, where `unsafe` may stand, how long things are.
//!
//! They read text and not syntax, so they can be fooled; they are there for the honest mistake.
use std::fs;
use std::path::{Path, PathBuf};

/// The folders and files directly under `src/`, from the bottom up. A file may use its own and
/// those of earlier lines; names on one line don't know each other, except on the first.
const LAYERS: &[&[&str]] = &[
    &["ids", "error", "memory", "sync", "grace", "lock", "handles", "ring", "sha256"],
    &["token"],
    &["group"],
    &["tree"],
    &["index"],
    &["paging"],
    &["journal"],
    &["store"],
    &["events"],
    &["sequence"],
    &["tier"],
    &["snapshot"],
    &["attention"],
    &["plan"],
    &["cpu", "gpu"],
    &["runner"],
    &["api"],
    &["capi"],
];

/// Folders that compute and touch no raw memory.
const PURE: &[&str] = &[
    "handles",
    "token",
    "group",
    "tree",
    "index",
    "paging",
    "journal",
    "store",
    "events",
    "sequence",
    "tier",
    "snapshot",
    "attention",
    "plan",
    "api",
];

const LINE_LIMIT: usize = 100;
const FILE_LIMIT: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file and its path from the root of the repository.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// `index` of `src/index/radix/walk.rs`, `ids` of `src/ids.rs`.
    fn layer(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap();
        inside.split('/').next().unwrap().trim_end_matches(".rs")
    }

    /// The lines with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, without_comment(line)))
    }
}

/// Cuts a line at its `//`, unless that stands in a string.
fn without_comment(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'"' if !escaped && !line[..at].ends_with('\'') => quoted = !quoted,
            b'/' if !quoted && line[at..].starts_with("//") => return &line[..at],
            _ => {}
        }
        escaped = byte == b'\\' && !escaped;
    }
    line
}

/// Every file below `folder` whose name ends in one of `endings`.
fn sources(folder: &str, endings: &[&str]) -> Vec<Source> {
    fn walk(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.map(|entry| entry.unwrap()) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            let foreign = ["target", "build", "corpus", "artifacts"].contains(&name.as_str());
            // Copies of the public headers, for the Python wheel.
            let foreign = foreign || path.ends_with("python/radixkv/include");
            if entry.file_type().unwrap().is_dir() {
                if !foreign && (!name.starts_with('.') || name == ".ci") {
                    walk(&path, endings, found);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), endings, &mut found);
    found.sort();
    let read = |path: PathBuf| Source {
        text: fs::read_to_string(&path).unwrap(),
        path: path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(),
    };
    found.into_iter().map(read).collect()
}

fn rust_sources() -> Vec<Source> {
    let found = sources("src", &[".rs"]);
    assert!(found.len() > 10, "the source is not where it is looked for");
    found
}

/// Everything written by hand.
fn all_sources() -> Vec<Source> {
    let endings = [
        ".rs", ".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".go", ".py", ".sh", "run", ".js",
        ".css", ".html", ".pyi",
    ];
    let mut found = sources("", &endings);
    found.retain(|source| {
        !source.path.starts_with("include/radixkv") || !source.path.ends_with(".h")
    }); // generated
    found.extend(sources("", &["Makefile"]));
    found
}

fn fail_if_any(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The names that `code` takes from the crate: `crate::a::X` and `crate::{a::X, b}` name a and b.
fn crate_names(code: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut names = Vec::new();
    for (at, matched) in code.match_indices("crate::") {
        let rest = code[at + matched.len()..].trim_start();
        let Some(group) = rest.strip_prefix('{') else {
            names.push(word(rest));
            continue;
        };
        let (mut depth, mut from) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                ',' | '}' if depth == 0 => {
                    names.push(word(&group[from..at]));
                    from = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn crate_names_are_found() {
    assert_eq!(crate_names("use crate::ids::PageId; crate::error::fail()"), ["ids", "error"]);
    assert_eq!(
        crate_names("use crate::{ids::{A, B}, token,\n  paging::C};\nlet a = 1;"),
        ["ids", "token", "paging"]
    );
    assert_eq!(crate_names("use std::fmt;"), [""; 0]);
    assert_eq!(without_comment(r#"let a = "//"; // crate::b"#), r#"let a = "//"; "#);
}

/// How many modules deep a file's own module is: 1 for `src/ids.rs` and `src/token/mod.rs`.
fn module_depth(path: &str) -> usize {
    let inside = path.strip_prefix("src/").unwrap();
    inside.matches('/').count() + usize::from(!inside.ends_with("/mod.rs"))
}

#[test]
fn a_file_uses_only_what_stands_above_it() {
    let rank = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    let mut wrong = Vec::new();
    for source in rust_sources().iter().filter(|source| source.path != "src/lib.rs") {
        let Source { path, .. } = source;
        let own = source.layer();
        let Some(own_rank) = rank(own) else {
            wrong.push(format!("{path}: give {own} a place in LAYERS"));
            continue;
        };
        let code: Vec<&str> = source.code().map(|(_, line)| line).collect();
        for name in crate_names(&code.join("\n")) {
            let allowed =
                rank(&name).is_none_or(|rank| rank < own_rank || rank == 0 || name == own);
            if !allowed {
                wrong.push(format!("{path}: {own} may not use {name}"));
            }
        }
        // A chain of `super::` that reaches the root would get around the check.
        let mut to_root = "super::".repeat(module_depth(path));
        for (line, code) in source.code() {
            if code.contains("#[cfg(test)]") {
                to_root.push_str("super::");
            }
            if code.contains(&to_root) {
                wrong.push(format!("{path}:{line}: write crate:: for the root of the crate"));
            }
        }
    }
    fail_if_any(wrong);
}

#[test]
fn pure_folders_touch_no_raw_memory() {
    let mut wrong = Vec::new();
    for source in rust_sources() {
        if !PURE.contains(&source.layer()) {
            continue;
        }
        for (line, code) in source.code() {
            let words = ["unsafe ", "std::ffi", "core::ffi", "*const ", "*mut ", "extern \"C\""];
            for word in words.iter().filter(|word| code.contains(**word)) {
                wrong.push(format!("{}:{line}: {word}", source.path));
            }
        }
        let top = source.path == format!("src/{}/mod.rs", source.layer());
        if top && !source.code().any(|(_, code)| code.trim() == "#![forbid(unsafe_code)]") {
            wrong.push(format!("{}: #![forbid(unsafe_code)] is missing", source.path));
        }
    }
    fail_if_any(wrong);
}

#[test]
fn only_capi_exports() {
    let mut wrong = Vec::new();
    for source in rust_sources().iter().filter(|source| source.layer() != "capi") {
        for (line, code) in source.code() {
            // What C functions call back is private.
            let is_public = code.contains("pub") && code.contains("extern \"C\" fn ");
            if code.contains("no_mangle") || is_public {
                wrong.push(format!("{}:{line}: belongs into src/capi", source.path));
            }
        }
    }
    fail_if_any(wrong);
}

/// Clippy wants a reason at every unsafe block; this wants one at functions and impls as well.
#[test]
fn unsafe_items_state_their_contract() {
    let mut wrong = Vec::new();
    for source in rust_sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (line, code) in source.code() {
            let is_fn = code.contains("unsafe fn ") || code.contains("unsafe extern \"C\" fn ");
            let is_item = is_fn || code.trim_start().starts_with("unsafe impl");
            // Function pointer types and trait declarations say it where they are used.
            if !is_item || code.contains("type ") {
                continue;
            }
            let above = lines[..line - 1].iter().rev().map(|above| above.trim_start());
            let above: Vec<&str> =
                above.take_while(|text| text.starts_with("//") || text.starts_with("#[")).collect();
            // The contract of an exported function is its text in the header.
            let exported = above.contains(&"#[unsafe(no_mangle)]");
            let word = if is_fn { "# Safety" } else { "SAFETY:" };
            if !exported && !above.iter().any(|text| text.contains(word)) {
                wrong.push(format!("{}:{line}: {word} is missing", source.path));
            }
        }
    }
    fail_if_any(wrong);
}

#[test]
fn every_file_is_compiled() {
    let sources = rust_sources();
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.path != "src/lib.rs") {
        let module = source.path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let (folder, name) = module.rsplit_once('/').unwrap();
        let parents = [format!("{folder}/mod.rs"), format!("{folder}.rs"), "src/lib.rs".into()];
        let parents = if folder == "src" { &parents[2..] } else { &parents[..2] };
        let declared = sources.iter().filter(|other| parents.contains(&other.path)).any(|parent| {
            parent.code().any(|(_, code)| {
                code.trim().strip_suffix(';').is_some_and(|code| {
                    code == format!("mod {name}") || code.ends_with(&format!(" mod {name}"))
                })
            })
        });
        if !declared {
            wrong.push(format!("{}: no `mod {name};` leads to it", source.path));
        }
    }
    fail_if_any(wrong);
}

#[test]
fn files_and_lines_are_short() {
    let mut wrong = Vec::new();
    for Source { path, text } in all_sources() {
        for (at, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_LIMIT {
                wrong.push(format!("{path}:{}: {columns} columns", at + 1));
            }
        }
        // The doc comments of src/capi are the text of the header. A public header is one file, and
        // so are the types of a Python module.
        let is_capi = path.starts_with("src/capi/");
        let counted = |line: &&str| !(is_capi && line.trim_start().starts_with("///"));
        let lines = text.lines().filter(counted).count();
        let is_public = path.starts_with("include/") || path.ends_with(".pyi");
        if lines > FILE_LIMIT && !is_public {
            wrong.push(format!("{path}: {lines} lines; split it"));
        }
    }
    fail_if_any(wrong);
}

#[test]
fn nothing_is_left_open() {
    // Spelled in halves, or this file would find itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ign", "ore"),
    ];
    let mut wrong = Vec::new();
    for Source { path, text } in all_sources() {
        let name = path.rsplit('/').next().unwrap();
        if name.starts_with("util") {
            wrong.push(format!("{path}: name the file after what it does"));
        }
        for (at, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{path}:{}: {word}", at + 1));
            }
        }
    }
    fail_if_any(wrong);
}

#[test]
fn the_layers_are_those_of_the_page() {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let rule =
        page.split("A folder of `src/` uses only").nth(1).unwrap().split("\n- ").next().unwrap();
    let named: Vec<&str> = rule.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    for name in LAYERS.iter().copied().flatten() {
        assert!(named.contains(name), "CONTRIBUTING.md: {name}");
    }
}
