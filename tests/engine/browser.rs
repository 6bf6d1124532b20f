//! The page in a browser: Chromium, driven by Playwright.
use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::{built, hybrid, native, real_model, serve_with, skip, terminate};

/// A Python with Playwright, on a machine with Chromium.
fn python() -> Option<&'static PathBuf> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let found = Command::new("chromium").arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            skip("its page in a browser: chromium is not installed (apt-get install chromium)");
            return None;
        }
        super::python::with("playwright", &["playwright==1.65.2"])
    });
    python.as_ref()
}

fn drive(arguments: &[&OsStr], serve: impl Fn(&mut Command)) {
    let (Some(folder), Some(python)) = (built(), python()) else { return };
    let (mut child, address) = serve_with(folder, |command| serve(command.arg("--page")));
    let script = native::root().join("tests/engine/browser.py");
    let output = Command::new(python)
        .arg(&script)
        .arg(format!("http://{address}"))
        .args(arguments)
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
    let serve = |command: &mut Command| {
        if let Some(model) = real_model::model() {
            command.arg("--model").arg(model);
        }
    };
    drive(&["chat".as_ref()], serve);
    if let Some(file) = env::var_os("RKV_PICTURE") {
        drive(&["picture".as_ref(), &file], |command| serve(command.args(["--pages", "160"])));
    }
}

/// Layers of several kinds: each has its bar, and its strip below the prefixes.
#[test]
fn b11_g15_the_page_with_groups() {
    let Some(folder) = built() else { return };
    for (architecture, kind, pages) in [("gemma3", "window", "100"), ("qwen3-next", "state", "8")] {
        let model = hybrid::model(folder, architecture, "page");
        drive(&[kind.as_ref()], |command| {
            command.arg("--model").arg(&model).args([&format!("--{kind}-pages"), pages]);
        });
    }
}

/// Pages of one token: each is a node where random samples part. There are more than find room.
#[test]
fn b11_the_page_with_ten_thousand_nodes() {
    drive(&["nodes".as_ref()], |command| {
        command.args(["--page-size", "1", "--pages", "16000", "--max-running", "128"]);
    });
}
