//! The page in a browser: Chromium, driven by Playwright.
use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::outside_clients::python_with;
use super::{built, native, real_model, serve_with, skip, terminate};

/// A Python with Playwright, on a machine with Chromium.
fn python() -> Option<&'static PathBuf> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let found = Command::new("chromium").arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            skip("its page in a browser: chromium is not installed (apt-get install chromium)");
            return None;
        }
        python_with("playwright", "1.65.2", "its page in a browser")
    });
    python.as_ref()
}

fn drive(what: &str, serve: impl Fn(&mut Command)) {
    let (Some(folder), Some(python)) = (built(), python()) else { return };
    let (mut child, address) = serve_with(folder, |command| serve(command.arg("--page")));
    let script = native::root().join("tests/engine/browser.py");
    let output = Command::new(python)
        .arg(&script)
        .args([what, &format!("http://{address}")])
        .args(env::var_os("RKV_PICTURE"))
        .output()
        .unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    native::check(&output, &script);
    terminate(&child);
    assert!(child.wait().unwrap().success());
}

/// With the real model where it can be had. RKV_PICTURE names a file for the picture of the README.
#[test]
fn b11_the_page_in_a_browser() {
    drive("chat", |command| {
        if let Some(model) = real_model::model() {
            command.arg("--model").arg(model);
        }
    });
}

/// Pages of one token: each is a node where random samples part.
#[test]
fn b11_the_page_with_ten_thousand_nodes() {
    drive("nodes", |command| {
        command.args(["--page-size", "1", "--pages", "60000", "--max-running", "128"]);
    });
}
