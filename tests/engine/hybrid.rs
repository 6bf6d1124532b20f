//! Models with layers of several kinds through the engine's programs. G15.
use std::path::{Path, PathBuf};

use super::{built, native, program, scratch};

/// A small one of an architecture, for one test.
pub fn model(folder: &Path, architecture: &str, test: &str) -> PathBuf {
    let model = scratch(&format!("engine-{architecture}-{test}"));
    let made = program(folder, "make_checkpoint")
        .args(["--architecture", architecture, "--layers", "4", "--window", "40"])
        .args(["--hidden", "64", "--inner", "128", "--heads", "2", "--kv-heads", "1", "--out"])
        .arg(&model)
        .output()
        .unwrap();
    native::check(&made, &model);
    model
}

/// What `make demo` prints of them: a chat is answered alike with caching, and most of it is found.
#[test]
fn g15_engine_bench() {
    let Some(folder) = built() else { return };
    for architecture in ["gemma3", "qwen3-next", "deepseek-v2"] {
        let output = program(folder, "engine_bench")
            .args(["--workload", "chat", "--max-output", "8", "--model"])
            .arg(model(folder, architecture, "bench"))
            .output()
            .unwrap();
        native::check(&output, folder);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("outputs identical: yes"), "{said}");
        let rates = said.lines().find(|line| line.contains("hit rate")).expect(&said);
        let rates: Vec<f64> =
            rates.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(rates[0] == 0.0 && rates[1] > 60.0, "{said}");
    }
}

/// One line that says why, and a status, before anything is served.
#[test]
fn g15_command_lines_that_are_wrong() {
    let Some(folder) = built() else { return };
    for architecture in ["gemma3", "qwen3-next", "deepseek-v2"] {
        let output = program(folder, "engine_server")
            .args(["--device", "cuda", "--model"])
            .arg(model(folder, architecture, "wrong"))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let reason = "is computed on the processor only";
        assert!(said.contains(reason) && said.lines().count() == 1, "{said}");
    }
}
