//! The reference engine: examples/engine is built as its README says, against the library beside
//! this test, with the programs of tests/engine; each is run. B11, B12, C10, C11, and B06, B07 and
//! C08 from an engine's side.
use std::io::{BufRead, BufReader, Read, Write, stderr};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

mod native;

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Says what is not tested, past the capture of the test harness.
fn skip(reason: &str) {
    stderr().write_all(format!("SKIP the engine: {reason}\n").as_bytes()).unwrap();
}

/// How cpp-httplib wants to be compiled, where it is a library and not a header alone.
fn http_flags() -> String {
    let output = Command::new("pkg-config").args(["--cflags", "cpp-httplib"]).output();
    output.map_or(String::new(), |output| String::from_utf8(output.stdout).unwrap())
}

/// Whether a C++ header can be included.
fn has_header(name: &str) -> bool {
    let source = scratch("has_header.cpp");
    fs::write(&source, format!("#include <{name}>\n")).unwrap();
    let compiler = native::compilers(true)[0];
    Command::new(compiler)
        .args(["-std=c++17", "-fsyntax-only"])
        .args(http_flags().split_whitespace())
        .arg(&source)
        .output()
        .unwrap()
        .status
        .success()
}

/// Builds with little optimisation outside of the layers: compiling takes longer than the tests.
fn cmake(build: &Path) {
    let library = native::lib_dir().join("libradixkv.so");
    let configured = Command::new("cmake")
        .args(["-G", "Unix Makefiles", "-S"])
        .arg(native::root().join("examples/engine"))
        .arg("-B")
        .arg(build)
        .arg(format!("-DRADIXKV_LIBRARY={}", library.display()))
        .args(["-DENGINE_TESTS=ON", "-DENGINE_OPTIMIZATION=-O1"])
        .output()
        .unwrap();
    native::check(&configured, build);
    let built = Command::new("cmake").arg("--build").arg(build).args(["-j", "2"]).output().unwrap();
    native::check(&built, build);
}

/// The folder with the programs, built once; None when a tool is missing.
fn built() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        if Command::new("cmake").arg("--version").output().is_err() {
            skip("cmake is not installed");
            return None;
        }
        for header in ["nlohmann/json.hpp", "httplib.h"] {
            if !has_header(header) {
                skip(&format!("{header} is not installed"));
                return None;
            }
        }
        let folder = scratch("engine");
        cmake(&folder);
        Some(folder)
    });
    folder.as_deref()
}

/// Runs a program of tests/engine.
fn run(name: &str, arguments: &[&str]) {
    if let Some(folder) = built() {
        let program = folder.join("tests").join(format!("test_{name}"));
        let output =
            Command::new(&program).args(arguments).env_remove("LD_LIBRARY_PATH").output().unwrap();
        native::check(&output, &program);
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
}

fn program(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(folder.join(name));
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// A small model, written once for all tests of the programs.
fn model(folder: &Path) -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        let model = scratch("engine-model");
        let made = program(folder, "make_checkpoint")
            .args(["--hidden", "64", "--inner", "128", "--heads", "2", "--kv-heads", "1"])
            .args(["--qk-norm", "--tied", "--out"])
            .arg(&model)
            .output()
            .unwrap();
        native::check(&made, &model);
        model
    })
}

#[test]
fn b11_forward_pass() {
    run("forward", &[]);
}

#[test]
fn b11_b07_parity() {
    run("parity", &[]);
}

#[test]
fn b06_failures() {
    run("failures", &[]);
}

#[test]
fn b11_loading() {
    run("loading", &[]);
}

#[test]
fn b11_text() {
    run("text", &[]);
}

#[test]
fn b11_server() {
    run("server", &[]);
}

#[test]
fn b11_b06_clients() {
    run("clients", &[]);
}

#[test]
fn c08_choices() {
    run("choices", &[]);
}

#[test]
fn c08_c10_beams() {
    run("beams", &[]);
}

#[test]
fn c10_continuation() {
    run("continuation", &[]);
}

#[test]
fn c10_server_choices() {
    run("server_choices", &[]);
}

#[test]
fn b12_benchmark() {
    run("bench", &[]);
}

#[test]
fn c11_two_stage() {
    run("two_stage", &[]);
}

/// B11, B06, C10; `make test-long` lets it run for minutes.
#[test]
fn b11_soak() {
    run("soak", &[&env::var("RKV_SOAK_SECONDS").unwrap_or("10".into())]);
}

#[test]
fn every_program_of_tests_engine_is_run() {
    let text = fs::read_to_string(file!()).unwrap();
    for path in native::files(&native::root().join("tests/engine"), "cpp") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let run = format!("run(\"{name}\"");
        assert!(name == "reference" || text.contains(&run), "nobody runs {}", path.display());
    }
}

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
    assert_eq!(said.matches("outputs identical: yes").count(), 4, "{said}");
    assert_eq!(said.matches("identical results: yes").count(), 1, "{said}");
    assert_eq!(fs::read_to_string(json).unwrap().matches("\"ttft_each_s\"").count(), 8);
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg"));
}

/// C11: the second stage on its own, over HTTP, in an engine and at a server that runs already.
#[test]
fn c11_engine_bench_two_stage() {
    let Some(folder) = built() else { return };
    let (mut child, address) = serve(folder);
    let url = format!("http://{address}");
    let json = scratch("engine-two-stage.json");
    for (arguments, runs) in [(["--transport", "http"], 3), (["--url", &url], 2)] {
        let output = program(folder, "engine_bench")
            .args(["--workload", "two_stage", "--requests", "3", "--speed", "20"])
            .args(["--max-output", "20"])
            .args(arguments)
            .arg("--model")
            .arg(model(folder))
            .arg("--json")
            .arg(&json)
            .output()
            .unwrap();
        native::check(&output, folder);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("identical results: yes"), "{said}");
        let text = fs::read_to_string(&json).unwrap();
        assert_eq!(text.matches("\"stage_2_ttft_s\"").count(), runs, "{text}");
        assert!(text.contains("\"results_identical\": true"), "{text}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The server program, and where it listens.
fn serve(folder: &Path) -> (Child, String) {
    let mut child = program(folder, "engine_server")
        .arg("--model")
        .arg(model(folder))
        .args(["--port", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").expect(&line).to_owned();
    (child, address)
}

/// B11: on SIGTERM what runs is finished, and the process ends well.
#[test]
fn b11_sigterm() {
    let Some(folder) = built() else { return };
    let (mut child, address) = serve(folder);
    let mut stream = TcpStream::connect(&address).unwrap();
    let body = r#"{"prompt": "abc", "max_tokens": 1500, "ignore_eos": true, "stream": true}"#;
    let head = format!("Host: test\r\nConnection: close\r\nContent-Length: {}", body.len());
    write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    let mut first = [0; 512];
    stream.read_exact(&mut first).unwrap();
    let killed = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "cut off: {rest}");
    assert!(child.wait().unwrap().success());
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn b11_command_lines_that_are_wrong() {
    let Some(folder) = built() else { return };
    for (arguments, code, reason) in [
        (&["--help"][..], 0, ""),
        (&["--nonsense"], 2, "there is no such option"),
        (&["--port"], 2, "--port: needs a value"),
        (&["--port", "99999"], 2, "--port: from 0 to 65535"),
        (&["--port", "x"], 2, "--port: x is not a number"),
        (&["--gemm", "magic"], 2, "--gemm: magic is no choice"),
        (&[], 2, "--model: say which folder"),
        (&["--model", "/nowhere"], 1, "/nowhere/config.json: cannot be opened"),
    ] {
        let output = program(folder, "engine_server").args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

/// The sources of a folder and those below it.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "cpp") {
            found.push(path);
        }
    }
}

/// The other compiler has nothing to say either.
#[test]
fn clang_has_no_warnings() {
    if !native::compilers(true).contains(&"clang++") || built().is_none() {
        return;
    }
    let (engine, tests) =
        (native::root().join("examples/engine"), native::root().join("tests/engine"));
    let mut files = Vec::new();
    sources(&engine, &mut files);
    sources(&tests, &mut files);
    assert!(files.len() > 40);
    let output = Command::new("clang++")
        .args(["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow"])
        .arg("-Werror")
        .args(http_flags().split_whitespace())
        .arg("-I")
        .arg(&engine)
        .arg("-I")
        .arg(native::root().join("include"))
        .args(files)
        .output()
        .unwrap();
    native::check(&output, &engine);
}
