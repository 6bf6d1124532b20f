//! libFuzzer's way into [`radixkv_fuzz::arguments`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| radixkv_fuzz::arguments(data));
