//! The program that scripts/engine_speed.sh runs beside llama.cpp's.
use super::{built, model, native, program};

/// B12: a line of three speeds, and a reason where a prompt is too long.
#[test]
fn b12_speed() {
    let Some(folder) = built() else { return };
    let speed = |prompt: &str| {
        program(folder, "engine_speed")
            .args(["--prompt", prompt, "--context", "20", "--batch", "3", "--steps", "4"])
            .arg("--model")
            .arg(model(folder))
            .output()
            .unwrap()
    };
    let output = speed("40");
    native::check(&output, folder);
    let said = String::from_utf8(output.stdout).unwrap();
    let speeds: Vec<f64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(speeds.len() == 3 && speeds.iter().all(|speed| *speed > 0.0), "{said}");
    let output = speed("100000");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("exceed the limit"));
    // Sequences that don't decode together are no batch.
    let output = program(folder, "engine_speed")
        .args(["--prompt", "40", "--context", "20", "--batch", "3", "--steps", "4"])
        .args(["--max-running", "2", "--model"])
        .arg(model(folder))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--max-running"));
    // A step is a token of each sequence: what drafts gain is not measured.
    let output = program(folder, "engine_speed")
        .args(["--prompt", "40", "--context", "20", "--batch", "3", "--steps", "4"])
        .args(["--speculate", "4", "--model"])
        .arg(model(folder))
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("--speculate"));
}
