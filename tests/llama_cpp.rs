//! examples/llama_cpp: llama.cpp's sequence states in the snapshot cache. The first run fetches and
//! compiles llama.cpp, which takes minutes, so these tests need a feature of their own:
//!
//!     cargo test --features llama-cpp --test llama_cpp
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

mod native;

fn scratch() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("llama_cpp")
}

/// Where scripts/llama_cpp.sh has installed llama.cpp.
fn llama() -> PathBuf {
    let script = native::root().join("scripts/llama_cpp.sh");
    let output = Command::new("bash").arg(&script).arg("library").output().unwrap();
    native::check(&output, &script);
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// The folder with the example's programs, built once against the library beside this test, with
/// AddressSanitizer: it sees what is freed twice, or never.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = scratch();
        let library = native::lib_dir().join("libradixkv.so");
        let configured = Command::new("cmake")
            .arg("-S")
            .arg(native::root().join("examples/llama_cpp"))
            .arg("-B")
            .arg(&folder)
            .arg(format!("-DCMAKE_PREFIX_PATH={}", llama().display()))
            .arg(format!("-DRADIXKV_LIBRARY={}", library.display()))
            .arg("-DCMAKE_CXX_FLAGS=-fsanitize=address,undefined -fno-sanitize-recover=all")
            .output()
            .unwrap();
        native::check(&configured, &folder);
        let made = Command::new("cmake").arg("--build").arg(&folder).args(["-j", "2"]).output();
        native::check(&made.unwrap(), &folder);
        folder
    })
}

fn program(name: &str, arguments: &[&str]) -> Output {
    Command::new(built().join(name))
        .args(arguments)
        .env("ASAN_OPTIONS", "detect_leaks=1")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap()
}

/// A small model of an architecture.
fn model(architecture: &str, file: &str, seed: &str) -> String {
    let path = built().join(file).to_str().unwrap().to_owned();
    let output = program(
        "make_gguf",
        &["--architecture", architecture, "--layers", "2", "--width", "128", "--seed", seed]
            .into_iter()
            .chain(["--out", &path])
            .collect::<Vec<_>>(),
    );
    native::check(&output, Path::new(&path));
    path
}

/// Runs the example; returns what it printed.
fn chat(arguments: &[&str]) -> String {
    let output = program("llama_cpp_chat", arguments);
    native::check(&output, built());
    String::from_utf8(output.stdout).unwrap()
}

/// The numbers of the line that begins with `name`, without their units.
fn numbers(said: &str, name: &str) -> Vec<f64> {
    let line = said.lines().find(|line| line.starts_with(name)).expect(name);
    let words = line[name.len()..].split_whitespace();
    words.filter_map(|word| word.trim_end_matches('x').parse().ok()).collect()
}

/// What must be true of every model. One thread: others may be busy with the other tests.
fn check_chats(architecture: &str) {
    let path = model(architecture, &format!("{architecture}.gguf"), "1");
    let said = chat(&["--model", &path, "--repeats", "2", "--threads", "1"]);
    println!("{said}");
    assert!(said.contains("same tokens, same probabilities: yes\n"), "{said}");
    assert!(said.contains(", each once: yes\n"), "{said}");
    let destroyed = numbers(&said, "snapshots: ");
    assert!(destroyed[0] > 0.0 && destroyed[0] == destroyed[1], "{said}");

    // Nothing is stored at first. Then the other chats begin with the system prompt, later turns
    // with the earlier ones, and what is asked again needs no forward pass (S04).
    let request = |name: &str| numbers(&said, name);
    assert_eq!(request("chat 1, turn 1 ")[1], 0.0);
    let system = request("chat 2, turn 1 ")[1];
    assert!(system > 500.0);
    assert_eq!(request("chat 3, turn 1 ")[1], system);
    for chat in 1..=3 {
        for turn in 2..=4 {
            let before = request(&format!("chat {chat}, turn {} ", turn - 1))[0];
            assert_eq!(request(&format!("chat {chat}, turn {turn} "))[1], before);
        }
        let again = request(&format!("chat {chat}, turn 4, again"));
        assert_eq!(again[0], again[1]);
    }

    // Mean, total, restored, read, hits, full hits, stored, evicted, most bytes.
    let (none, all, some) = (request("none "), request("all "), request("at most "));
    assert_eq!(none[2..], [0.0, none[3], 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(all[2] + all[3], none[3]);
    assert_eq!(all[4..8], [14.0, 3.0, 13.0, 0.0]);
    // The limit itself is the first number of its line.
    assert!(some[9] <= some[0] && some[9] > 0.0, "{said}");
    assert!(some[5] > 0.0 && some[8] > 0.0, "{said}");
    assert!(some[3] < all[2] && some[3] + some[4] == none[3], "{said}");
}

/// S01, S03, S04, S07: with KV, whose states grow with the prompt.
#[test]
fn s01_llama() {
    check_chats("llama");
}

/// S01, S03, S04, S07: with a recurrent state, which is all or nothing, and always as large.
#[test]
fn s01_mamba() {
    check_chats("mamba");
}

/// S03: no byte limit admits a single state, so every prompt is read from its first token on.
#[test]
fn s03_a_limit_below_one_state() {
    let path = model("llama", "limit.gguf", "1");
    let said =
        chat(&["--model", &path, "--byte-limit", "1000", "--repeats", "1", "--threads", "1"]);
    let some = numbers(&said, "at most ");
    assert_eq!(some[3], 0.0, "{said}");
    assert_eq!(some[5..], [0.0; 5], "{said}");
    assert!(said.contains("same tokens, same probabilities: yes\n"), "{said}");
    assert!(said.contains(", each once: yes\n"), "{said}");
}

#[test]
fn models_depend_on_their_seed_alone() {
    let read = |file: &str, seed: &str| fs::read(model("mamba", file, seed)).unwrap();
    let first = read("seed-1.gguf", "1");
    assert!(first.starts_with(b"GGUF"));
    assert!(first == read("seed-1-again.gguf", "1"));
    assert!(first != read("seed-2.gguf", "2"));
}

/// What scripts/engine_speed.sh does: the same weights in half the bytes, and three speeds.
#[test]
fn converted_and_measured() {
    let path = model("llama", "wide.gguf", "1");
    let narrow = built().join("narrow.gguf").to_str().unwrap().to_owned();
    let output = program("convert_gguf", &["--model", &path, "--out", &narrow]);
    native::check(&output, Path::new(&narrow));
    let bytes = |path: &str| fs::metadata(path).unwrap().len();
    assert!(bytes(&narrow) < bytes(&path) * 3 / 5, "{} of {}", bytes(&narrow), bytes(&path));
    let sizes = ["--prompt", "40", "--context", "20", "--batch", "3", "--steps", "4"];
    let output = program(
        "llama_cpp_speed",
        &[&["--threads", "1", "--rounds", "1", "--model", &narrow][..], &sizes].concat(),
    );
    native::check(&output, Path::new(&narrow));
    let said = String::from_utf8(output.stdout).unwrap();
    let speeds: Vec<f64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(speeds.len() == 3 && speeds.iter().all(|speed| *speed > 0.0), "{said}");
}

#[test]
fn command_lines_that_are_wrong() {
    for (name, arguments, code, reason) in [
        ("llama_cpp_chat", &["--help"][..], 0, ""),
        ("llama_cpp_chat", &["--nonsense"], 2, "there is no such option"),
        ("llama_cpp_chat", &[], 2, "--model: say which file"),
        ("llama_cpp_chat", &["--model", "/nowhere"], 1, "/nowhere: llama.cpp cannot load it"),
        ("make_gguf", &["--out", "x", "--width", "100"], 2, "--width: no multiple of 64"),
        ("make_gguf", &["--out", "x", "--architecture", "gpt"], 2, "gpt is no choice"),
        ("make_gguf", &["--out", "/nowhere/x"], 1, "/nowhere/x: cannot be written"),
        ("convert_gguf", &["--out", "x"], 2, "--model: say which file"),
        ("convert_gguf", &["--model", "/nowhere", "--out", "x"], 1, "/nowhere: llama.cpp cannot"),
        ("llama_cpp_speed", &[], 2, "--model: say which file"),
        ("llama_cpp_speed", &["--model", "/nowhere"], 1, "/nowhere: llama.cpp cannot load it"),
    ] {
        let output = program(name, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
