//! Copies the committed headers to OUT_DIR, so that dependants find them as `DEP_RADIXKV_INCLUDE`,
//! builds the CUDA kernels where there is nvcc, and sets what the shared library needs from the
//! linker. Never writes into the source tree.
use std::path::PathBuf;
use std::{env, fs};

#[path = "kernels/build.rs"]
mod kernels;

fn main() {
    println!("cargo:rustc-env=RKV_TARGET={}", env::var("TARGET").unwrap());

    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let include = out.join("include");
    fs::create_dir_all(&include).unwrap();
    for name in ["radixkv.h", "radixkv_spatial.h"] {
        println!("cargo:rerun-if-changed=include/{name}");
        fs::copy(format!("include/{name}"), include.join(name)).unwrap();
    }
    println!("cargo:include={}", include.display());

    kernels::build(&out);

    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The standard library keeps thread-local destructors: unloading it under them would crash.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
