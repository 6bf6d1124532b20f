//! The workloads of the benchmark program.
use std::fs;

use super::{built, model, native, program, scratch};

/// B12: all workloads through the program, a few requests of each.
#[test]
fn b12_engine_bench() {
    let Some(folder) = built() else { return };
    let (json, svg) = (scratch("engine-bench.json"), scratch("engine-bench.svg"));
    let output = program(folder, "engine_bench")
        .args(["--workload", "all", "--requests", "4", "--speed", "20", "--max-output", "8"])
        .arg("--model")
        .arg(model(folder))
        .arg("--json")
        .arg(&json)
        .arg("--svg")
        .arg(&svg)
        .output()
        .unwrap();
    native::check(&output, folder);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.matches("outputs identical: yes").count(), 5, "{said}");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(!progress.contains("after 0."), "{progress}");
    assert_eq!(said.matches("identical results: yes").count(), 1, "{said}");
    assert_eq!(fs::read_to_string(json).unwrap().matches("\"ttft_each_s\"").count(), 10);
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg"));
}

/// B12: the benchmark waits for whatever it asks for, more than a server would.
#[test]
fn b12_more_requests_than_a_server_lets_wait() {
    let Some(folder) = built() else { return };
    let output = program(folder, "engine_bench")
        .args(["--requests", "1100", "--speed", "1000", "--max-output", "1"])
        .args(["--max-running", "8", "--caching", "on"])
        .arg("--model")
        .arg(model(folder))
        .output()
        .unwrap();
    native::check(&output, folder);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("prefix_caching: 1100 requests"), "{said}");
}

/// B12: nor is anybody refused over HTTP, where a server answers so many at once.
#[test]
fn b12_more_requests_than_a_server_answers_at_once() {
    let Some(folder) = built() else { return };
    let output = program(folder, "engine_bench")
        .args(["--requests", "700", "--speed", "1000", "--max-output", "1"])
        .args(["--max-running", "8", "--caching", "on", "--transport", "http"])
        .arg("--model")
        .arg(model(folder))
        .output()
        .unwrap();
    native::check(&output, folder);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("prefix_caching: 700 requests"), "{said}");
}
