//! libFuzzer's way into [`radixkv_fuzz::groups`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| radixkv_fuzz::groups(data));
