//! Python for the tests that compare with what others wrote in it.
use std::path::PathBuf;
use std::process::Command;

use super::{skip, target};

/// A Python with packages of PyPI, in an environment of its own below target/; None, and said,
/// where it cannot be had.
pub(super) fn with(name: &str, packages: &[&str]) -> Option<PathBuf> {
    let venv = target().join(name);
    let python = venv.join("bin/python");
    if !python.exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&venv).output();
        if !made.is_ok_and(|output| output.status.success()) {
            skip(&format!("with {name}: python3 cannot make a virtual environment"));
            return None;
        }
    }
    let installed = Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--retries", "2"])
        .args(packages)
        .output()
        .unwrap();
    if !installed.status.success() {
        skip(&format!("with {name}: it cannot be installed"));
        return None;
    }
    Some(python)
}
