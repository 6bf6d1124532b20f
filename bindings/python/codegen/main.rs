//! Reads include/radixkv.h and writes what this crate declares from it into OUT_DIR: the C
//! interface, a Python class for each struct of results, and the layouts of those that go into
//! arrays. Says where the library is to be linked, and found at run time.
use std::path::{Path, PathBuf};
use std::{env, fs};

mod declarations;
mod header;
mod records;

use header::Header;

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    println!("cargo:rerun-if-changed=codegen");

    let path = root.join("../../include/radixkv.h");
    println!("cargo:rerun-if-changed={}", path.display());
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let header = Header::parse(&text);
    fs::write(out.join("c.rs"), declarations::write(&header)).unwrap();
    fs::write(out.join("records.rs"), records::write(&header)).unwrap();

    link(&root.join("python/radixkv/lib"));
}

/// The package carries the library in `lib`, beside the extension module.
fn link(folder: &Path) {
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib=radixkv");
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-rpath,@loader_path/lib");
            println!("cargo:rustc-cdylib-link-arg=-undefined");
            println!("cargo:rustc-cdylib-link-arg=dynamic_lookup");
        }
        // As DT_RPATH: before LD_LIBRARY_PATH, where an installation for C programs has a library
        // of this name, of whatever version.
        _ => println!("cargo:rustc-cdylib-link-arg=-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib"),
    }
}
