//! include/radixkv_net.h is what cbindgen makes of src/capi.rs and src/store/capi.rs. `make header`
//! rewrites it.
use cbindgen::{Builder, Config};
use std::path::Path;
use std::{env, fs};

#[test]
fn the_committed_header_is_the_generated_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(root.join("cbindgen.toml")).unwrap();
    let builder = Builder::new()
        .with_src(root.join("src/capi.rs"))
        .with_src(root.join("src/store/capi.rs"))
        .with_config(config);
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("../include/radixkv_net.h");
    if env::var_os("RKV_BLESS").is_some() {
        fs::write(path, made).unwrap();
    } else {
        assert!(fs::read_to_string(path).unwrap() == made, "run `make header`");
    }
}
