//! Hugging Face's transformers beside the engine. The first run installs it and torch, which on
//! Linux comes with CUDA: 5 GB below target/. `PIP_EXTRA_INDEX_URL` with PyTorch's index of wheels
//! for the CPU makes that a tenth.
//!
//!     cargo test --features transformers --test engine transformers
use std::process::Command;

use super::{built, native, python, run, scratch};

#[test]
fn b11_g15_transformers() {
    if built().is_none() {
        return;
    }
    let packages = ["torch==2.13.0", "transformers==5.23.0"];
    let Some(python) = python::with("transformers", &packages) else { return };
    let folder = scratch("transformers");
    let script = native::root().join("tests/engine/transformers_greedy.py");
    let output = Command::new(python).arg(&script).arg(&folder).output().unwrap();
    native::check(&output, &script);
    run("transformers", &[folder.to_str().unwrap()]);
}
