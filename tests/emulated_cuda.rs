//! The emulated CUDA device for programs that are no tests of this crate, as those in Python:
//! leaves in target/tmp/emulated-cuda its driver, and in `kernels` what RADIXKV_KERNELS takes.

#[path = "cuda/emulated_driver.rs"]
mod emulated_driver;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

#[test]
fn the_folder_has_a_driver_and_kernels() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-cuda");
    let kernels = folder.join("kernels");
    fs::create_dir_all(&kernels).unwrap();
    // Others may read what is there.
    let put = |name: &str, text: &str| {
        let part = folder.join(format!("{}.part", std::process::id()));
        fs::write(&part, text).unwrap();
        fs::rename(&part, kernels.join(name)).unwrap();
    };
    // The driver knows its own kernels, whatever the image says.
    put("sources", env!("RKV_KERNEL_SOURCES"));
    put("any.fatbin", "any\0");
    let driver = folder.join("libcuda.so");
    let part = folder.join(format!("{}.so", std::process::id()));
    symlink(emulated_driver::build(), &part).unwrap();
    fs::rename(&part, &driver).unwrap();
    // SAFETY: its initialisers list the kernels.
    let loaded = unsafe { libloading::Library::new(&driver) }.expect("the emulated driver loads");
    // SAFETY: looked up alone.
    unsafe { loaded.get::<unsafe extern "C" fn()>(b"rkv_emulator_set\0") }.unwrap();
}
