//! Compiles C and C++ as a strict consumer of the headers would, against the shared library that
//! stands beside the running test, and runs the result. `RKV_RUNNER="valgrind -q ..."` wraps runs.
#![allow(dead_code)] // each test that includes this uses its own part of it
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

pub mod go;

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// target/<profile>/deps: where `cargo test` leaves the test and the shared library; or the folder
/// that RKV_LIBRARY_DIR names, with a library of another profile.
pub fn lib_dir() -> PathBuf {
    if let Some(folder) = env::var_os("RKV_LIBRARY_DIR") {
        return fs::canonicalize(folder).unwrap();
    }
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// The compilers of a language that are installed, of gcc and clang. At least one must be.
pub fn compilers(cpp: bool) -> Vec<&'static str> {
    let names = if cpp { ["g++", "clang++"] } else { ["gcc", "clang"] };
    let installed = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let found: Vec<_> = names.into_iter().filter(installed).collect();
    assert!(!found.is_empty(), "neither {} nor {} is installed", names[0], names[1]);
    for name in names.iter().filter(|name| !found.contains(name)) {
        // Past the harness, which shows the output of failures alone.
        let reason = format!("SKIP what {name} says and makes: it is not installed\n");
        std::io::stderr().write_all(reason.as_bytes()).unwrap();
    }
    found
}

/// The oldest standard and the newest that the headers of a language are written for.
pub fn standards(cpp: bool) -> [&'static str; 2] {
    if cpp { ["c++17", "c++20"] } else { ["c99", "c17"] }
}

/// Compilers and standards that programs are built with to run: one standard for each compiler.
/// Behind RKV_RUNNER, which is slow and looks at the library, only one compiler.
pub fn builds(cpp: bool) -> Vec<(&'static str, &'static str)> {
    let mut builds: Vec<_> = compilers(cpp).into_iter().zip(standards(cpp)).collect();
    builds.truncate(if env::var_os("RKV_RUNNER").is_some() { 1 } else { builds.len() });
    builds
}

/// A compiler with a strict consumer's warnings, all of them errors.
pub fn compiler(name: &str, cpp: bool, std: &str) -> Command {
    let tool = cc::Build::new()
        .cpp(cpp)
        .compiler(name)
        .std(std)
        .target(env!("RKV_TARGET"))
        .host(env!("RKV_TARGET"))
        // Without optimisation a few C programs take long, and under valgrind as many times longer.
        // Compiling takes longer with it, C++ most of all, and C with clang six times as long.
        .opt_level(if name == "gcc" { 1 } else { 0 })
        .debug(true)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flag("-pedantic")
        .flag("-Wconversion")
        .flag("-Wshadow")
        .include(root().join("include"))
        .cargo_metadata(false)
        .get_compiler();
    let mut command = tool.to_command();
    if !cpp {
        command.arg("-Wstrict-prototypes");
    }
    if cfg!(feature = "fault-injection") {
        command.arg("-DRKV_FAULT_INJECTION");
    }
    command
}

/// Compiles and links `sources` into one program with the shared library; returns it.
pub fn build(
    sources: &[PathBuf],
    name: &str,
    compiler_name: &str,
    cpp: bool,
    std: &str,
) -> PathBuf {
    let library = [
        format!("-L{}", lib_dir().display()),
        "-lradixkv".to_owned(),
        format!("-Wl,-rpath,{}", lib_dir().display()),
    ];
    build_with(&library, sources, name, (compiler_name, cpp, std))
}

/// Where programs with such a library lie: two stages build the same ones at one time, with two
/// libraries, and each is to run its own.
pub fn folder(library_dir: Option<OsString>) -> PathBuf {
    let name =
        library_dir.map(|dir| fs::canonicalize(dir).unwrap().file_name().unwrap().to_owned());
    let name = name.map_or("native".to_owned(), |name| format!("native-{}", name.display()));
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The same with the words that link a library.
pub fn build_with(
    library: &[String],
    sources: &[PathBuf],
    name: &str,
    (compiler_name, cpp, std): (&str, bool, &str),
) -> PathBuf {
    let folder = folder(env::var_os("RKV_LIBRARY_DIR"));
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(format!("{name}-{compiler_name}-{std}"));
    let output = compiler(compiler_name, cpp, std)
        .arg("-pthread")
        .args(sources)
        .arg("-o")
        .arg(&program)
        .args(library)
        .arg("-lm")
        .output()
        .unwrap();
    check(&output, &program);
    program
}

/// Runs a program, which must succeed; returns what it printed.
pub fn run(program: &Path) -> String {
    let runner = env::var("RKV_RUNNER").unwrap_or_default();
    run_under(&runner, program)
}

/// The same behind the words of a runner.
pub fn run_under(runner: &str, program: &Path) -> String {
    let mut words = runner.split_whitespace().chain([program.to_str().unwrap()]);
    let output = Command::new(words.next().unwrap())
        .args(words)
        // A printed backtrace would leave memory behind that valgrind reports.
        .env("RUST_BACKTRACE", "0")
        // cargo names target/<profile> here, where another build may have left an older library.
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    check(&output, program);
    String::from_utf8(output.stdout).unwrap()
}

/// Panics with everything that was printed when a command failed.
pub fn check(output: &Output, what: &Path) {
    assert!(
        output.status.success(),
        "{}: {}\n{}{}",
        what.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The files of a folder with an extension, sorted. At least one must be there.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no .{extension} in {}", folder.display());
    found
}
