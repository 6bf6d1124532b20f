//! libFuzzer's way into [`radixkv_fuzz::tokens`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| radixkv_fuzz::tokens(data));
