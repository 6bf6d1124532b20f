//! Which release this is, and what it was built with.
use std::ffi::c_char;

/// Major version of the release that this header came with.
pub const RKV_VERSION_MAJOR: u32 = 0;
/// Minor version of the release that this header came with.
pub const RKV_VERSION_MINOR: u32 = 2;
/// Patch version of the release that this header came with.
pub const RKV_VERSION_PATCH: u32 = 0;
/// Version of the ABI that this header describes; grows by one with every addition.
pub const RKV_ABI_VERSION: u32 = 3;

/// Bit of rkv_features(): the radix tree index.
pub const RKV_FEATURE_RADIX_INDEX: u64 = 1;
/// Bit of rkv_features(): the block-hash index.
pub const RKV_FEATURE_BLOCK_HASH_INDEX: u64 = 2;
/// Bit of rkv_features(): CUDA kernels, the library's own or those of the folder that the
/// environment variable RADIXKV_KERNELS named at the first call. Whether this machine can run them
/// is another question, see rkv_runner_supports().
pub const RKV_FEATURE_CUDA: u64 = 4;

// cbindgen needs literals above; a release that forgets to move them does not compile.
const fn parse(text: &str) -> u32 {
    let (bytes, mut at, mut number) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    number
}
const _: () = assert!(RKV_VERSION_MAJOR == parse(env!("CARGO_PKG_VERSION_MAJOR")));
const _: () = assert!(RKV_VERSION_MINOR == parse(env!("CARGO_PKG_VERSION_MINOR")));
const _: () = assert!(RKV_VERSION_PATCH == parse(env!("CARGO_PKG_VERSION_PATCH")));

/// ABI version of the loaded library. Compare it with RKV_ABI_VERSION at start: a library with a
/// smaller number lacks functions that this header declares.
///
/// @return the loaded library's RKV_ABI_VERSION
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub extern "C" fn rkv_abi_version() -> u32 {
    RKV_ABI_VERSION
}

/// Release of the loaded library, e.g. "0.2.0".
///
/// @return a static NUL-terminated string, never NULL
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub extern "C" fn rkv_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What the loaded library has.
///
/// @return a set of RKV_FEATURE_ bits
/// @par Cost
/// O(1), but the first call may look for a folder of kernels; no lock
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub extern "C" fn rkv_features() -> u64 {
    let has_kernels = crate::gpu::Images::available().is_ok_and(|images| !images.is_empty());
    let cuda = if has_kernels { RKV_FEATURE_CUDA } else { 0 };
    RKV_FEATURE_RADIX_INDEX | RKV_FEATURE_BLOCK_HASH_INDEX | cuda
}
