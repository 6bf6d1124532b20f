//! `scripts/tools.sh` on machines that lack something: what it installs, and what it says; and
//! other scripts there, those of the tests and of a GPU in modules. A folder of links is the whole
//! PATH, `apt-get` only writes down what it is asked for, and `id` says that we are root.
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

#[path = "tools/gpu.rs"]
mod gpu;
#[path = "tools/stages.rs"]
mod stages;

/// What the script itself needs of a system, and a compiler.
const SYSTEM: &[&str] = &[
    "bash", "cat", "cut", "dirname", "env", "grep", "head", "sed", "sort", "make", "cc", "c++",
    "nm",
];

struct Machine {
    folder: PathBuf,
}

impl Machine {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tools {name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let machine = Self { folder };
        machine.link(SYSTEM);
        machine.program("id", "echo 0");
        machine.program("apt-cache", "true");
        machine.program("apt-get", "echo \"$@\" >>\"$HOME/asked\"");
        machine
    }

    /// Programs of this system are there too.
    fn link(&self, names: &[&str]) {
        let path = env::var_os("PATH").unwrap();
        for name in names {
            let mut places = env::split_paths(&path).map(|folder| folder.join(name));
            let place = places.find(|place| place.exists()).unwrap_or_else(|| panic!("no {name}"));
            symlink(place, self.folder.join(name)).unwrap();
        }
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        let _ = fs::remove_file(&path); // not what a link leads to
        write_program(&path, text);
    }

    /// An nvcc that says of which release it is.
    fn nvcc(&self, release: &str) {
        let text = format!("echo 'Cuda compilation tools, release {release}, V{release}.131'");
        self.program("nvcc", &text);
    }

    /// A tree of its own: the real one may have an nvcc, from `make cuda-toolchain`.
    fn tree(&self) -> PathBuf {
        let tree = self.folder.join("tree");
        fs::create_dir_all(tree.join("target/release")).unwrap();
        for name in ["scripts", "bindings"] {
            symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join(name), tree.join(name)).unwrap();
        }
        tree
    }

    /// Whether the script succeeds, what it says, and what apt-get was asked for.
    fn ask(&self, what: &str) -> (bool, String, String) {
        let mut command = script("tools.sh");
        let command = command.arg(what).env("PATH", &self.folder).env("HOME", &self.folder);
        let (success, said) = ended(command.output().unwrap());
        let asked = fs::read_to_string(self.folder.join("asked")).unwrap_or_default();
        (success, said, asked)
    }
}

fn script(name: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name));
    command
}

/// Another process writes it: what other tests start meanwhile has, for a moment, all that this one
/// has open, and what somebody has open for writing does not run.
fn write_program(path: &Path, text: &str) {
    let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
    let mut command = Command::new("sh");
    let (success, said) =
        ended(command.args(["-c", write, "sh"]).arg(path).arg(text).output().unwrap());
    assert!(success, "{said}");
}

/// Whether it succeeded, and what it said.
fn ended(output: Output) -> (bool, String) {
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn without_rust_nothing_is_installed() {
    for what in ["test", "engine", "model", "llama-cpp", "llama-server", "build"] {
        let (success, said, asked) = Machine::new("no rust").ask(what);
        assert!(!success && said.starts_with("error: cargo is not installed"), "{said}");
        assert_eq!((said.matches("rustup.rs").count(), said.lines().count()), (1, 2), "{said}");
        assert_eq!(asked, "", "{what}");
    }
}

#[test]
fn a_rust_that_is_too_old_is_named() {
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    let machine = Machine::new("old rust");
    machine.program("cargo", "echo cargo 1.63.0");
    let (success, said, asked) = machine.ask("engine");
    let first = format!("error: Rust {wanted} or later is needed, here is 1.63.0.");
    assert!(!success && said.starts_with(&first), "{said}");
    assert_eq!(asked, "");
    // As old as it may be.
    machine.program("cargo", &format!("echo 'cargo {wanted}.0 (0123abc 2026-01-01)'"));
    let (_, said, _) = machine.ask("build");
    assert_eq!(said, "");
}

#[test]
fn a_command_gets_what_it_needs_and_no_more() {
    let machine = Machine::new("bare");
    machine.program("cargo", "echo cargo 9.0.0");
    assert_eq!(machine.ask("build"), (true, String::new(), String::new()));

    let (success, said, asked) = machine.ask("llama-cpp");
    // The apt-get of this machine installs nothing.
    assert!(!success && said.contains("sudo apt-get install -y"), "{said}");
    assert!(asked.lines().any(|line| line.ends_with("--no-install-recommends cmake")), "{asked}");

    let (_, said, asked) = machine.ask("engine");
    assert!(asked.contains(" cmake pkg-config"), "{asked}");
    for package in ["clang", "valgrind", "doxygen", "golang", "abigail", "openblas", "zstd"] {
        assert!(!asked.contains(package) && !said.contains(package), "{said}{asked}");
    }

    // What fetches the model; the engine itself goes without.
    assert!(!asked.contains("python3"), "{asked}");
    let (success, said, asked) = machine.ask("model");
    assert!(!success && said.contains("recommends python3 python3-venv"), "{said}");
    assert!(asked.lines().any(|line| line.ends_with(" python3-venv")), "{asked}");

    // The checks that lack a tool are skipped.
    let (success, said, asked) = machine.ask("test");
    assert!(success && asked.contains(" clang ") && said.contains("some checks are skipped"));
}

/// scripts/test.sh gathers what was skipped, which pytest tells when it is asked.
#[test]
fn pytest_says_what_it_skips() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings/python/pyproject.toml");
    let text = fs::read_to_string(path).unwrap();
    let options = text.lines().find(|line| line.starts_with("addopts")).unwrap();
    assert!(options.contains("-rs"), "{options}");
}

/// kernels/build.rs: the CPU part is not to fail for an nvcc that doesn't know what the kernels
/// need.
#[test]
fn an_nvcc_that_is_too_old_is_passed_over() {
    let machine = Machine::new("old nvcc");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = machine.folder.join("build-script");
    let made = Command::new("rustc")
        .args(["--edition", "2024", "-o"])
        .arg(&program)
        .arg(root.join("build.rs"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // Where cargo starts it, but without a target folder that has another nvcc.
    for name in ["include", "kernels"] {
        symlink(root.join(name), machine.folder.join(name)).unwrap();
    }
    let out = machine.folder.join("target/debug/build/radixkv-0/out");
    fs::create_dir_all(&out).unwrap();
    let build = |release: &str, wish: &str, compile: &str| {
        let version = format!("echo 'Cuda compilation tools, release {release}, V{release}.131'");
        machine.program("nvcc", &format!("[ \"$1\" = --version ] || {{ {compile}; }}\n{version}"));
        let mut command = Command::new(&program);
        for name in ["CUDA_HOME", "RADIXKV_CUDA_ARCHS", "RADIXKV_KERNEL_CACHE"] {
            command.env_remove(name);
        }
        command.current_dir(&machine.folder).env("PATH", &machine.folder).env("OUT_DIR", &out);
        command.env("TARGET", "x86_64-unknown-linux-gnu").env("RADIXKV_CUDA", wish);
        command.env("NUM_JOBS", "3");
        ended(command.output().unwrap())
    };
    for release in ["11.8", "12.4", "12.8"] {
        let (success, said) = build(release, "", "exit 1");
        assert!(success && said.contains("cargo:warning="), "{release}: {said}");
        assert!(said.contains("RKV_KERNEL_IMAGES=\n"), "{release}: {said}");
        let (success, said) = build(release, "1", "exit 1");
        assert!(!success && said.contains("12.9"), "{release}: {said}");
    }
    // This one is taken, and fails.
    let (success, said) = build("12.9", "", "exit 1");
    assert!(!success && said.contains("nvcc failed") && said.contains("RADIXKV_CUDA=0"), "{said}");
    // So does this one, for one source; what it makes of the others is waited for.
    machine.link(&["sleep"]);
    let (success, said) = build(
        "12.9",
        "",
        "while [ $# -gt 1 ]; do [ \"$1\" != -o ] || out=$2; shift; done; : >$out
         [ $1 != kernels/memory.cu ] || exit 1; sleep 1; exit",
    );
    assert!(!success && said.contains("nvcc failed"), "{said}");
    let folder = fs::read_dir(machine.folder.join("target/kernels")).unwrap().next().unwrap();
    let names = fs::read_dir(folder.unwrap().path()).unwrap();
    let names: Vec<_> = names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.ends_with(".fatbin")), "{names:?}");
    assert!(!names.iter().any(|name| name.contains(".part")), "{names:?}");
}

/// scripts/llama_server.sh, with everything built: the model that it adds to the options.
#[test]
fn a_llama_server_has_the_model_that_was_named() {
    let machine = Machine::new("llama-server");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    machine.link(&["mkdir", "flock", "cmp", "tee", "nice", "nproc", "rm", "sha256sum"]);
    machine.program("cargo", "echo cargo 9.0.0");
    for name in ["cmake", "patch", "python3"] {
        machine.program(name, "true");
    }
    let target = machine.folder.join("target");
    let made = target.join("llama_server");
    for folder in [made.join("build/bin"), target.join("release"), target.join("model")] {
        fs::create_dir_all(folder).unwrap();
    }
    let text = fs::read_to_string(root.join("scripts/llama_server.sh")).unwrap();
    let wanted = text.lines().find_map(|line| line.strip_prefix("package=")).unwrap();
    let wanted = wanted.replace("version=", "") + "\n";
    fs::write(made.join("fetched"), &wanted).unwrap();
    let patch = root.join("integrations/llama_server/llama.cpp.patch");
    fs::copy(patch, made.join("applied.patch")).unwrap();
    let server = made.join("build/bin/llama-server");
    write_program(&server, "echo starts with \"$@\"");
    let model = target.join("model/SmolLM2-135M-Instruct.Q4_1.gguf");
    let run = |options: &[&str], variable: Option<&str>| {
        let mut command = script("llama_server.sh");
        command.arg("run").args(options).env_clear();
        command.env("PATH", &machine.folder).env("HOME", &machine.folder);
        command.env("CARGO_TARGET_DIR", &target);
        if let Some(name) = variable {
            command.env(name, "https://example.org/other.gguf");
        }
        ended(command.output().unwrap())
    };
    let (success, said) = run(&[], None); // python3 of this machine fetches nothing
    assert!(!success && said.contains("cannot be fetched"), "{said}");
    assert!(!said.contains("starts with"), "{said}");
    fs::write(&model, "").unwrap();
    let (success, said) = run(&[], None);
    let expected = format!("starts with --model {}\n", model.display());
    assert!(success && said.contains(&expected), "{said}");
    for variable in ["LLAMA_ARG_MODEL_URL", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_MODELS_DIR"] {
        let (success, said) = run(&[], Some(variable));
        assert!(success && said.contains("starts with\n"), "{variable}: {said}");
    }
    for options in [["-hfr", "user/model"], ["--docker-repo", "model"]] {
        let (success, said) = run(&options, None);
        let expected = format!("starts with {}\n", options.join(" "));
        assert!(success && said.contains(&expected), "{said}");
    }

    // A patch that does not apply leaves what it has changed: from then on it is fetched again.
    let is_fetched = |said: &str| said.contains("fetching llama.cpp");
    fs::create_dir_all(made.join("llama.cpp")).unwrap();
    machine.program("sha256sum", "[ \"$2\" = --quiet ]");
    machine.program("patch", "[ \"$5\" = --reverse ]");
    fs::write(made.join("applied.patch"), "").unwrap();
    let (success, said) = run(&[], None);
    assert!(!success && said.contains("does not apply") && !is_fetched(&said), "{said}");
    let (success, said) = run(&[], None);
    assert!(!success && is_fetched(&said), "{said}");
    // So is another version.
    fs::write(made.join("fetched"), wanted.replace("0.", "1.")).unwrap();
    let (success, said) = run(&[], None);
    assert!(!success && is_fetched(&said), "{said}");
}

/// scripts/engine.sh: the nvcc that makes the library's kernels makes the engine's, or none does.
#[test]
fn the_engine_has_the_nvcc_of_the_library() {
    let machine = Machine::new("engine nvcc");
    machine.link(&["mkdir", "nproc", "realpath", "tee"]);
    // This compiler has every header.
    machine.program("c++", "cat >/dev/null");
    machine.program("pkg-config", "true");
    machine.program("cargo", "echo cargo 9.0.0");
    machine.program("cmake", "echo \"$@\" >>\"$HOME/told\"");
    let tree = machine.tree();
    let configure = |release: &str, wish: &str, archs: Option<&str>| {
        machine.nvcc(release);
        let _ = fs::remove_file(machine.folder.join("told"));
        let mut command = Command::new("bash");
        command.arg(tree.join("scripts/engine.sh")).arg("build").env_clear();
        command.env("PATH", &machine.folder).env("HOME", &machine.folder);
        command.env("RADIXKV_CUDA", wish);
        command.envs(archs.map(|archs| ("RADIXKV_CUDA_ARCHS", archs)));
        let (success, said) = ended(command.output().unwrap());
        assert!(success, "{said}");
        fs::read_to_string(machine.folder.join("told")).unwrap()
    };
    let none = "-DENGINE_NVCC=OFF";
    let nvcc = &*format!("-DENGINE_NVCC={}", machine.folder.join("nvcc").display());
    // CMake, which remembers, is told each time.
    for (release, wish, archs, expected) in [
        ("12.4", "", None, none),
        ("12.8", "", None, none),
        ("12.8", "", Some("80 90a"), nvcc),
        ("12.9", "0", None, none),
        ("12.9", "", None, nvcc),
        ("13.0", "1", Some("90a 100f"), nvcc),
    ] {
        let told = configure(release, wish, archs);
        assert!(told.contains(expected), "{release} {wish} {archs:?}: {told}");
    }
}

/// scripts/engine.sh: with a target folder of its own, nothing of a build lies elsewhere, where
/// that of another one may be.
#[test]
fn the_engine_is_built_in_the_target_folder() {
    let machine = Machine::new("engine folder");
    machine.link(&["mkdir", "nproc", "realpath", "tee"]);
    machine.program("c++", "cat >/dev/null");
    for name in ["pkg-config", "cmake"] {
        machine.program(name, "true");
    }
    machine.program("cargo", "echo cargo 9.0.0");
    let (tree, target) = (machine.tree(), machine.folder.join("else where"));
    fs::remove_dir_all(tree.join("target")).unwrap();
    fs::write(tree.join("target"), "").unwrap();
    fs::create_dir_all(target.join("release")).unwrap();
    let mut command = Command::new("bash");
    command.arg(tree.join("scripts/engine.sh")).arg("build").env_clear();
    command.env("PATH", &machine.folder).env("HOME", &machine.folder);
    let output = command.env("CARGO_TARGET_DIR", &target).env("RADIXKV_CUDA", "0").output();
    let (success, said) = ended(output.unwrap());
    assert!(success && target.join("engine/build.log").is_file(), "{said}");
}

/// scripts/python.sh: tests that can't run are skipped; who asked for a wheel and has none is told.
#[test]
fn no_wheel_is_a_failure() {
    let run = |what: &str| {
        ended(script("python.sh").arg(what).env("PYTHON", "/nowhere").output().unwrap())
    };
    let (success, said) = run("test");
    assert!(success && said.starts_with("SKIP the Python package: no Python 3.11"), "{said}");
    for what in ["wheel", "wheels", "bench", "example"] {
        let (success, said) = run(what);
        assert!(!success && said.starts_with("error: ") && said.contains("3.11"), "{what}: {said}");
    }
}

/// bindings/python/backend: builds with two target folders put their library into one place of the
/// tree, and each wheel has its own.
#[test]
fn a_wheel_has_the_library_of_its_own_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if Command::new("python3").arg("--version").output().is_err() {
        return; // scripts/python.sh says so
    }
    let machine = Machine::new("wheels");
    machine.program("strip", "true"); // these libraries are texts
    let path = env::var_os("PATH").unwrap();
    let path = [machine.folder.clone()].into_iter().chain(env::split_paths(&path));
    let path = env::join_paths(path).unwrap();
    let package = machine.folder.join("bindings/python");
    for folder in ["bindings/python/backend", "bindings/python/python/radixkv", "include"] {
        fs::create_dir_all(machine.folder.join(folder)).unwrap();
    }
    for name in ["pyproject.toml", "backend/wheel_with_library.py"] {
        fs::copy(root.join("bindings/python").join(name), package.join(name)).unwrap();
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "first", "second"] {
        fs::write(machine.folder.join(name), name).unwrap();
    }
    let maturin = "import pathlib, time\n\
        get_requires_for_build_wheel = get_requires_for_build_editable = None\n\
        prepare_metadata_for_build_wheel = build_editable = None\n\
        def build_wheel(folder, settings, metadata):\n    \
            pathlib.Path(folder, 'begun').touch()\n    \
            time.sleep(1)\n    \
            return pathlib.Path('python/radixkv/lib/libradixkv.so').read_text()\n";
    fs::write(package.join("backend/maturin.py"), maturin).unwrap();
    let build = |name: &str| {
        let out = machine.folder.join(format!("{name} wheel"));
        fs::create_dir_all(&out).unwrap();
        let text = "import sys, wheel_with_library as it; print(it.build_wheel(sys.argv[1]))";
        let mut command = Command::new("python3");
        command.args(["-c", text]).arg(&out).current_dir(&package);
        command.env("PATH", &path).env("PYTHONPATH", package.join("backend"));
        command.env("RADIXKV_LIBRARY", machine.folder.join(name));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (child, out.join("begun"))
    };
    let (mut first, begun) = build("first");
    while !begun.exists() && first.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(10));
    }
    let (second, _) = build("second");
    for (child, name) in [(first, "first\n"), (second, "second\n")] {
        let (success, said) = ended(child.wait_with_output().unwrap());
        assert!(success && said == name, "{said}");
    }
}

/// scripts/abi.sh: a comparison may be skipped, but what was to be accepted was not.
#[test]
fn nothing_is_blessed_without_abidiff() {
    let machine = Machine::new("bless");
    for (argument, succeeds) in [("", true), ("--bless", false)] {
        let output = script("abi.sh").arg(argument).env("PATH", &machine.folder).output().unwrap();
        let (success, said) = ended(output);
        assert_eq!((success, said.contains("abidiff is not")), (succeeds, true), "{said}");
        assert_eq!(said.starts_with("SKIP abi: "), succeeds, "{said}");
    }
}

/// scripts/abi.sh: what is looked at was built here, whatever target Cargo is told elsewhere.
#[test]
fn types_are_those_of_what_is_built_here() {
    let machine = Machine::new("abi of a target");
    machine.program("abidiff", "true");
    machine.program("uname", "echo Linux x86_64");
    machine.program("cargo", "echo \"for ${CARGO_BUILD_TARGET-this machine}\"; exit 1");
    let mut command = script("abi.sh");
    command.arg("--bless").env("PATH", &machine.folder).env("CARGO_BUILD_TARGET", "some-target");
    let (success, said) = ended(command.output().unwrap());
    assert_eq!((success, said.as_str()), (false, "for this machine\n"));
}

/// scripts/sanitizers.sh: the programs for helgrind get the library that was built for them.
#[test]
fn helgrind_looks_at_what_is_built_here() {
    let machine = Machine::new("helgrind of a target");
    machine.link(&["mkdir", "tail", "timeout"]);
    machine.program("rustc", "echo host: some-host");
    machine.program("valgrind", "true");
    machine.program("gcc", "true");
    machine.program("cargo", "echo \"for ${CARGO_BUILD_TARGET-this machine}\"; exit 1");
    let mut command = script("sanitizers.sh");
    command.arg("helgrind").env("PATH", &machine.folder).env("CARGO_BUILD_TARGET", "some-target");
    command.env("CARGO_TARGET_DIR", machine.folder.join("built"));
    let (success, said) = ended(command.output().unwrap());
    assert!(!success && said.contains("\nfor this machine\n"), "{said}");
}
