//! What needs a model that somebody trained: SmolLM2-135M-Instruct, which scripts/model.sh fetches.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{built, native, run, skip, target};

/// The folder of the model; None, and said once, where it cannot be fetched.
pub(super) fn model() -> Option<&'static Path> {
    static MODEL: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = MODEL.get_or_init(|| {
        let output = Command::new("bash")
            .arg(native::root().join("scripts/model.sh"))
            .env("CARGO_TARGET_DIR", target())
            .output()
            .unwrap();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            skip(&format!("with a real model: {}", said.lines().last().unwrap_or_default()));
            return None;
        }
        Some(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
    });
    folder.as_deref()
}

#[test]
fn b11_smollm2() {
    let (Some(_), Some(model)) = (built(), model()) else { return };
    let recorded = native::root().join("tests/engine/smollm2.json");
    run("smollm2", &[model.to_str().unwrap(), recorded.to_str().unwrap()]);
}
