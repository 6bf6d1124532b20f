//! The committed headers are what cbindgen makes of `src/capi`. `make header` rewrites them.
use cbindgen::{Builder, Config};
use std::path::{Path, PathBuf};
use std::{env, fs};

const SPATIAL_TOP: &str = r#"/**
 * @file radixkv_spatial.h
 * @brief Coordinates and sizes as bins, for models that point at things.
 *
 * A token of radixkv.h may be a coordinate or a size (RKV_TOKEN_COORD, RKV_TOKEN_SIZE), which it
 * names by its bin. Here is how values become bins, bins values, and logits a bin. An engine for
 * other models needs none of it. The conventions are those of radixkv.h.
 *
 * Generated from src/capi/spatial.rs by cbindgen: edit there, then run `make header`.
 */"#;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn config() -> Config {
    Config::from_file(root().join("cbindgen.toml")).unwrap()
}

fn made(builder: Builder) -> String {
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    String::from_utf8(made).unwrap()
}

/// What stands in `src/capi/spatial.rs` alone, over radixkv.h.
fn spatial() -> String {
    let config = Config {
        header: Some(SPATIAL_TOP.to_owned()),
        include_guard: Some("RADIXKV_SPATIAL_H".to_owned()),
        sys_includes: Vec::new(),
        includes: vec!["radixkv.h".to_owned()],
        after_includes: None,
        ..config()
    };
    made(Builder::new().with_src(root().join("src/capi/spatial.rs")).with_config(config))
}

/// All else.
fn main_header(spatial: &str) -> String {
    let mut config = config();
    let words = spatial.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut names: Vec<_> =
        words.filter(|word| declares(spatial, word)).map(str::to_owned).collect();
    assert!(names.len() > 5, "the spatial header declares only {names:?}");
    config.export.exclude.append(&mut names);
    made(Builder::new().with_crate(root()).with_config(config))
}

/// Whether a header declares a function or a number of that name.
fn declares(header: &str, name: &str) -> bool {
    let lines = || header.lines().filter(|line| !line.starts_with(" *"));
    let is_function = name.starts_with("rkv_") && lines().any(|l| l.contains(&format!(" {name}(")));
    is_function || lines().any(|line| line.starts_with(&format!("#define {name} ")))
}

#[test]
fn the_committed_headers_are_the_generated_ones() {
    let spatial = spatial();
    let mut stale = String::new();
    for (name, made) in [("radixkv.h", main_header(&spatial)), ("radixkv_spatial.h", spatial)] {
        let guard = name.to_uppercase().replace('.', "_");
        // cbindgen exports every public constant of the crate, also one that was not meant to be
        // seen.
        for line in made.lines().filter(|line| line.starts_with("#define ")) {
            let name = line.split(' ').nth(1).unwrap();
            assert!(name.starts_with("RKV_") || name == guard, "a foreign name: {line}");
        }
        let path = root().join("include").join(name);
        if env::var_os("RKV_BLESS").is_some() {
            fs::write(&path, made).unwrap();
            continue;
        }
        let committed = fs::read_to_string(&path).unwrap();
        if committed != made {
            let differing = committed.lines().zip(made.lines()).position(|(a, b)| a != b);
            let line = differing.unwrap_or(committed.lines().count().min(made.lines().count()));
            stale +=
                &format!("include/{name} is stale from line {}: run `make header`\n", 1 + line);
        }
    }
    assert!(stale.is_empty(), "{stale}");
}

/// Every function says what it costs and who may call it, in paragraphs of their own.
#[test]
fn every_function_says_its_cost_and_its_threads() {
    let read = |name: &str| -> String {
        let path: PathBuf = root().join("include").join(name);
        fs::read_to_string(path).unwrap()
    };
    let header = read("radixkv.h") + &read("radixkv_spatial.h");
    let mut count = 0;
    for part in header.split("/**").skip(1) {
        let (comment, code) = part.split_once("*/").unwrap();
        let Some(function) = code.strip_prefix("\nRKV_API") else { continue };
        let name = function.split('(').next().unwrap().split_whitespace().last().unwrap();
        count += 1;
        for paragraph in ["\n * @par Cost\n", "\n * @par Thread safety\n"] {
            assert_eq!(comment.matches(paragraph).count(), 1, "{name} lacks {paragraph:?}");
        }
    }
    assert_eq!(count, header.matches("\nRKV_API").count(), "a function has no comment");
    assert!(count > 90, "only {count} functions are found");
}

/// Whoever comes from 0.1 finds every name that is gone in `docs/migration.md`.
#[test]
fn names_that_are_gone_are_told() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (old, page) = (read("abi/names-0.1.txt"), read("docs/migration.md"));
    let header = read("include/radixkv.h") + &read("include/radixkv_spatial.h");
    let is_told = |name: &str| header.contains(name) || page.contains(name);
    let missing: Vec<_> =
        old.lines().filter(|name| !name.contains('.') && !is_told(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// And every field, also of structs that have another name now.
#[test]
fn fields_that_are_gone_are_told() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (old, page, header) =
        (read("abi/names-0.1.txt"), read("docs/migration.md"), read("include/radixkv.h"));
    let has = |name: &str, field: &str| {
        let (_, rest) = header.split_once(&format!("typedef struct {name} {{\n"))?;
        let (body, _) = rest.split_once("\n}")?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let code = body.lines().filter(|line| line.ends_with(';'));
        let mut fields = code.map(|line| line.split([';', '[']).next().unwrap());
        Some(fields.any(|line| line.rsplit(|c| !is_word(c)).next() == Some(field)))
    };
    let mut gone = 0;
    for (name, field) in old.lines().filter_map(|line| line.split_once('.')) {
        let row = format!("| `{name}` | `");
        let now = page.split_once(&row).map_or(name, |(_, rest)| rest.split('`').next().unwrap());
        if has(now, field).unwrap_or_else(|| panic!("{now} is not in the header")) {
            continue;
        }
        gone += 1;
        // Some fields have another name wherever they are; there is a `reserved` in many structs.
        let told = [format!("`{name}.{field}`"), format!("`{now}.{field}`"), format!("`{field}`")];
        let count = if field == "reserved" { 2 } else { 3 };
        assert!(told[..count].iter().any(|word| page.contains(word)), "{name}.{field}");
    }
    assert!(gone > 10, "only {gone} fields are gone");
}
