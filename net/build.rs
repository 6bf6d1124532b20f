//! What the shared library needs from the linker.
use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The standard library keeps thread-local destructors: unloading it under them would crash.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
