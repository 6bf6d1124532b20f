//! The reference engine: examples/engine is built as its README says, against the library beside
//! this test, with the programs of tests/engine; each is run. B11, B12, C10, C11, and B06, B07 and
//! C08 from an engine's side.
use std::io::{BufRead, BufReader, Read, Write, stderr};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

#[path = "engine/bench.rs"]
mod bench;
#[path = "engine/browser.rs"]
mod browser;
#[path = "engine/calls.rs"]
mod calls;
#[path = "engine/clang.rs"]
mod clang;
#[path = "cuda/emulated_driver.rs"]
mod emulated_driver;
#[path = "engine/hybrid.rs"]
mod hybrid;
mod native;
#[path = "engine/outside_clients.rs"]
mod outside_clients;
#[path = "engine/python.rs"]
mod python;
#[path = "engine/real_model.rs"]
mod real_model;
#[path = "native/redis.rs"]
mod redis;
#[path = "engine/remote.rs"]
mod remote;
#[path = "engine/speed.rs"]
mod speed;
#[cfg(feature = "transformers")]
#[path = "engine/transformers.rs"]
mod transformers;

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The folder that everything is built in; `make` uses the same one.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
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
        .args([Path::new("-B"), build])
        .arg(format!("-DRADIXKV_LIBRARY={}", library.display()))
        .args(["-DENGINE_TESTS=ON", "-DENGINE_OPTIMIZATION=-O1"])
        .arg(format!("-DENGINE_TEXT_TARGET={}", target().join("engine_text").display()))
        .arg(format!(
            "-DENGINE_NVCC={}",
            native::root().join("tests/engine/emulated/nvcc.sh").display()
        ))
        .arg(format!("-DENGINE_EMULATED_DRIVER={}", emulated().display()))
        .output()
        .unwrap();
    native::check(&configured, build);
    // Its kernels are compiled with the emulated device's headers, of which CMake knows nothing.
    let (made_for, driver) = (build.join("emulated_driver"), emulated().display().to_string());
    if fs::read_to_string(&made_for).ok().as_ref() != Some(&driver) {
        let _ = fs::remove_file(build.join("kernels.fatbin"));
        fs::write(&made_for, driver).unwrap();
    }
    let built = Command::new("cmake")
        .arg("--build")
        .arg(build)
        .args(["-j", "2"])
        .env("RKV_EMULATED_DRIVER", emulated())
        .output()
        .unwrap();
    native::check(&built, build);
}

/// The folder of the emulated libcuda.so.
fn emulated() -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| emulated_driver::build().parent().unwrap().to_owned())
}

/// Kernels for the library under test, which was built with none or with real ones. The emulated
/// driver knows its own, whatever the image says.
fn kernels() -> PathBuf {
    let folder = scratch("engine-kernels");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("sources"), env!("RKV_KERNEL_SOURCES")).unwrap();
    fs::write(folder.join("any.fatbin"), "any\0").unwrap();
    folder
}

/// Lets a program find the emulated driver and cuBLAS, and the library kernels.
fn on_emulated_gpu(command: &mut Command, folder: &Path) {
    let libraries = env::join_paths([emulated(), &folder.join("tests/emulated")]).unwrap();
    command.env("LD_LIBRARY_PATH", libraries).env("RADIXKV_KERNELS", kernels());
}

/// The folder with the programs, built once; None when a tool is missing.
fn built() -> Option<&'static Path> {
    // Err: it does not compile, and would not the next time either.
    static BUILT: OnceLock<Result<Option<PathBuf>, ()>> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        if Command::new("cmake").arg("--version").output().is_err() {
            skip("cmake is not installed");
            return Ok(None);
        }
        for header in ["nlohmann/json.hpp", "httplib.h"] {
            if !has_header(header) {
                skip(&format!("{header} is not installed"));
                return Ok(None);
            }
        }
        let folder = scratch("engine");
        let made = std::panic::catch_unwind(|| cmake(&folder));
        made.map(|()| Some(folder)).map_err(drop)
    });
    match folder {
        Ok(folder) => folder.as_deref(),
        Err(()) => panic!("the engine does not compile: the first test that needs it says why"),
    }
}

/// Runs a program of tests/engine.
fn run(name: &str, arguments: &[&str]) {
    run_with(name, arguments, |command, _| {
        command.env_remove("LD_LIBRARY_PATH");
    });
}

fn run_with(name: &str, arguments: &[&str], prepare: impl Fn(&mut Command, &Path)) {
    if let Some(folder) = built() {
        let program = folder.join("tests").join(format!("test_{name}"));
        let mut command = Command::new(&program);
        prepare(command.args(arguments), folder);
        let output = command.output().unwrap();
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
    run("no_blas", &[]);
}

#[test]
fn b11_b07_parity() {
    run("parity", &[]);
}

#[test]
fn b11_latent_attention() {
    run("latent", &[]);
}

#[test]
fn g15_hybrid() {
    run("hybrid", &[]);
}

#[test]
fn b06_failures() {
    run("failures", &[]);
}

#[test]
fn b06_without_memory() {
    run("without_memory", &[]);
}

#[test]
fn b11_b06_on_a_gpu() {
    run_with("cuda", &[], on_emulated_gpu);
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
fn b11_tokenizer() {
    run("tokenizer", &[]);
}

#[test]
fn b11_server() {
    run("server", &[]);
}

#[test]
fn b11_page() {
    run("page", &[]);
}

#[test]
fn b11_chat() {
    run("chat", &[]);
}

#[test]
fn b11_b06_clients() {
    run("clients", &[]);
}

#[test]
fn b11_b06_hostile_clients() {
    run("hostile", &[]);
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
fn t02_tiers() {
    run("tiers", &[]);
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
fn b12_chat() {
    run("bench_chat", &[]);
}

#[test]
fn b11_speculation() {
    run("speculation", &[]);
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
    let text = fs::read_to_string(file!()).unwrap()
        + include_str!("engine/real_model.rs")
        + include_str!("engine/transformers.rs");
    for path in native::files(&native::root().join("tests/engine"), "cpp") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_run =
            ["run", "run_with"].iter().any(|run| text.contains(&format!("{run}(\"{name}\"")));
        assert!(name == "reference" || is_run, "nobody runs {}", path.display());
    }
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
    serve_with(folder, |_| {})
}

fn serve_with(folder: &Path, prepare: impl Fn(&mut Command)) -> (Child, String) {
    let mut command = program(folder, "engine_server");
    command.arg("--model").arg(model(folder)).args(["--port", "0"]).stdout(Stdio::piped());
    prepare(&mut command);
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").expect(&line).to_owned();
    (child, address)
}

/// Asks for a completion.
fn post(address: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("Host: test\r\nConnection: close\r\nContent-Length: {}", body.len());
    write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    stream
}

fn terminate(child: &Child) {
    let killed = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
}

/// B11: on SIGTERM what runs is finished, and the process ends well.
#[test]
fn b11_sigterm() {
    let Some(folder) = built() else { return };
    let (mut child, address) = serve(folder);
    let body = r#"{"prompt": "abc", "max_tokens": 1500, "ignore_eos": true, "stream": true}"#;
    let mut stream = post(&address, body);
    let mut first = [0; 512];
    stream.read_exact(&mut first).unwrap();
    terminate(&child);
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
        (&["--pages", "9999999999"], 2, "--pages: from 0 to 1073741824"),
        (&["--max-answers", "768"], 2, "--max-connections: not more than --max-answers"),
        (&["--page", "--host", "0.0.0.0"], 2, "--page: it shows everybody's prompts"),
        (&["--page", "--max-answers", "760"], 2, "--max-answers, and 8 for --page"),
        (&["--events-replay", "tcp://*:1"], 2, "--events-replay: needs --events"),
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

/// B11: the server with all its parts on the emulated GPU.
#[test]
fn b11_server_on_a_gpu() {
    let Some(folder) = built() else { return };
    let (mut child, address) = serve_with(folder, |command| {
        on_emulated_gpu(command.args(["--device", "cuda"]), folder);
    });
    for cached in [0, 32] {
        let body = r#"{"prompt": "The same forty bytes of text, said twice", "max_tokens": 3}"#;
        let mut answer = String::new();
        post(&address, body).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let found = answer.split("\"cached_tokens\":").nth(1).expect(&answer);
        let found: usize = found.split(['}', ',']).next().unwrap().trim().parse().unwrap();
        assert!(found >= cached && (cached > 0) == (found > 0), "{answer}");
    }
    terminate(&child);
    assert!(child.wait().unwrap().success());
}

/// B11: one line and a status, before anything is loaded, where a GPU cannot be used.
#[test]
fn b11_machines_without_a_gpu() {
    let Some(folder) = built() else { return };
    let broken = |name: &str, files: &[&str]| {
        let made = scratch(name);
        fs::create_dir_all(&made).unwrap();
        files.iter().for_each(|file| fs::write(made.join(file), "no library").unwrap());
        made
    };
    let no_driver = broken("no-driver", &["libcuda.so.1", "libcuda.so"]);
    let no_cublas = broken("no-cublas", &["libcublas.so.13", "libcublas.so.12", "libcublas.so"]);
    let old_kernels = broken("old-kernels", &["sources"]);
    let cublas = folder.join("tests/emulated");
    for (libraries, kernels, reason) in [
        ([&no_driver, &cublas], kernels(), "--device cuda: there is no CUDA driver"),
        ([&emulated().to_owned(), &no_cublas], kernels(), "--device cuda: there is no cuBLAS"),
        (
            [&emulated().to_owned(), &cublas],
            old_kernels,
            "its kernels are not those of this version of the library",
        ),
    ] {
        let output = program(folder, "engine_server")
            .args(["--device", "cuda", "--model"])
            .arg(model(folder))
            .env("LD_LIBRARY_PATH", env::join_paths(libraries).unwrap())
            .env("RADIXKV_KERNELS", kernels)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(reason) && said.lines().count() == 1, "{said}");
    }
}
