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
