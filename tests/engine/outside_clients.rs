//! The server as clients that we didn't write call it.
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{built, native, real_model, serve, serve_with, skip, target, terminate};

/// A Python with one package from PyPI, in an environment of its own. None, and said for which
/// tests, where there cannot be one.
pub(super) fn python_with(package: &str, version: &str, tests: &str) -> Option<PathBuf> {
    let venv = target().join(package);
    let python = venv.join("bin/python");
    if !python.exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&venv).output();
        if !made.is_ok_and(|output| output.status.success()) {
            skip(&format!("{tests}: python3 cannot make a virtual environment"));
            return None;
        }
    }
    let installed = Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--retries", "2", &format!("{package}=={version}")])
        .output()
        .unwrap();
    if !installed.status.success() {
        skip(&format!("{tests}: {package} {version} cannot be installed"));
        return None;
    }
    Some(python)
}

#[test]
fn b11_openai_client() {
    let (Some(folder), Some(model)) = (built(), real_model::model()) else { return };
    let Some(python) = python_with("openai", "3.54.0", "with OpenAI's client") else { return };
    let (mut child, address) = serve_with(folder, |command| {
        command.arg("--model").arg(model);
    });
    let script = native::root().join("tests/engine/openai_client.py");
    let output = Command::new(python)
        .arg(&script)
        .arg(format!("http://{address}"))
        .arg(model.file_name().unwrap())
        .output()
        .unwrap();
    native::check(&output, &script);
    terminate(&child);
    assert!(child.wait().unwrap().success());
}

/// The commands that the README shows, in their order: each is answered with what it promises.
#[test]
fn b11_curl_as_the_readme_has_it() {
    let Some(folder) = built() else { return };
    if Command::new("curl").arg("--version").output().is_err() {
        return skip("with curl: it is not installed");
    }
    let (mut child, address) = serve(folder);
    let readme = fs::read_to_string(native::root().join("examples/engine/README.md")).unwrap();
    let mut last_id = String::new();
    let mut count = 0;
    for block in readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        for command in block.split("curl ").skip(1) {
            let command = command.replace("127.0.0.1:8080", &address).replace("cmpl-…", &last_id);
            let command = format!("curl -sS --fail-with-body {command}");
            let output = Command::new("bash").args(["-c", &command]).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{command}: {said}");
            if command.contains("\"stream\": true") {
                assert!(said.ends_with("data: [DONE]\n\n"), "{command}: {said}");
            } else {
                assert!(said.contains("\"finish_reason\""), "{command}: {said}");
                last_id = said.split('"').nth(3).unwrap().to_owned();
            }
            count += 1;
        }
    }
    assert_eq!(count, 5, "the README calls curl five times");
    terminate(&child);
    assert!(child.wait().unwrap().success());
}
