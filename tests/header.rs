//! The committed header is what cbindgen makes of `src/capi`. `make header` rewrites it.
use std::path::Path;
use std::{env, fs};

#[test]
fn the_committed_header_is_the_generated_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/radixkv.h");
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_crate(root)
        .with_config(cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap())
        .generate()
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();

    // cbindgen exports every public constant of the crate, also one that was not meant to be seen.
    for line in made.lines().filter(|line| line.starts_with("#define ")) {
        let name = line.split(' ').nth(1).unwrap();
        assert!(name.starts_with("RKV_") || name == "RADIXKV_H", "a foreign name: {line}");
    }

    if env::var_os("RKV_BLESS").is_some() {
        return fs::write(&path, made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    let differing = committed.lines().zip(made.lines()).position(|(a, b)| a != b);
    assert!(
        committed == made,
        "include/radixkv.h is stale from line {}: run `make header`",
        1 + differing.unwrap_or(committed.lines().count().min(made.lines().count())),
    );
}

/// Every function says what it costs and who may call it, in paragraphs of their own.
#[test]
fn every_function_says_its_cost_and_its_threads() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/radixkv.h");
    let header = fs::read_to_string(header).unwrap();
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
