//! `scripts/tools.sh` on machines that lack something: what it installs, and what it says. There a
//! folder of links is the whole PATH, `apt-get` only writes down what it is asked for, and `id`
//! says that we are root.
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

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
        let path = env::var_os("PATH").unwrap();
        for name in SYSTEM {
            let mut places = env::split_paths(&path).map(|folder| folder.join(name));
            let place = places.find(|place| place.exists()).unwrap_or_else(|| panic!("no {name}"));
            symlink(place, machine.folder.join(name)).unwrap();
        }
        machine.program("id", "echo 0");
        machine.program("apt-cache", "true");
        machine.program("apt-get", "echo \"$@\" >>\"$HOME/asked\"");
        machine
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Whether the script succeeds, what it says, and what apt-get was asked for.
    fn ask(&self, what: &str) -> (bool, String, String) {
        let output = Command::new("bash")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/tools.sh"))
            .arg(what)
            .env("PATH", &self.folder)
            .env("HOME", &self.folder)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let asked = fs::read_to_string(self.folder.join("asked")).unwrap_or_default();
        (output.status.success(), String::from_utf8(said).unwrap(), asked)
    }
}

#[test]
fn without_rust_nothing_is_installed() {
    for what in ["test", "engine", "llama-cpp", "llama-server", "build"] {
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

/// Words of a command of `cargo test` that choose tests, and whether they are whole names.
fn filters(line: &str) -> (Vec<&str>, bool) {
    let (before, behind) = line.split_once(" -- ").unwrap_or((line, ""));
    let end = |word: &&str| !["||", "&&", ";", "}", "|"].contains(word);
    let mut chosen = Vec::new();
    if let Some((_, options)) = before.split_once("cargo test ") {
        let mut words = options.split_whitespace().take_while(end);
        while let Some(word) = words.next() {
            match word {
                "--test" | "--features" | "--manifest-path" | "--target-dir" => {
                    words.next();
                }
                _ if word.starts_with('-') || word.contains('$') => {}
                _ => chosen.push(word),
            }
        }
    }
    let named = behind.split_whitespace().take_while(end);
    chosen.extend(named.filter(|word| !word.starts_with('-') && !word.contains('$')));
    (chosen, behind.contains("--exact"))
}

/// A filter that names nothing runs nothing, and cargo calls that a success.
#[test]
fn the_filters_of_the_stages_name_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut sources) = (vec![root.join("tests"), root.join("src")], String::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(path).unwrap();
            }
        }
    }
    let functions: Vec<&str> =
        sources.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()).collect();
    let is_module = |name: &str| sources.contains(&format!("mod {name};"));
    let (mut seen, mut unknown) = (0, Vec::new());
    for script in ["test.sh", "sanitizers.sh", "loom.sh"] {
        let text = fs::read_to_string(root.join("scripts").join(script)).unwrap();
        let text = text.replace("\\\n", " ");
        let tests = |line: &&str| line.contains("cargo test") || line.contains("${test[@]}");
        for line in text.lines().filter(tests) {
            let (chosen, is_exact) = filters(line);
            for word in chosen {
                seen += 1;
                let name = word.trim_end_matches("::").rsplit("::").next().unwrap();
                let is_there = match is_exact {
                    true => functions.contains(&name),
                    false => is_module(name) || functions.iter().any(|one| one.contains(name)),
                };
                if !is_there {
                    unknown.push(format!("{script}: {word}"));
                }
            }
        }
    }
    assert_eq!(unknown, Vec::<String>::new());
    assert!(seen > 30, "the filters were not found: {seen}");
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
    let build = |release: &str, wish: &str| {
        let version = format!("echo 'Cuda compilation tools, release {release}, V{release}.131'");
        machine.program("nvcc", &format!("[ \"$1\" = --version ] || exit 1\n{version}"));
        let mut command = Command::new(&program);
        for name in ["CUDA_HOME", "RADIXKV_CUDA_ARCHS", "RADIXKV_KERNEL_CACHE"] {
            command.env_remove(name);
        }
        command.current_dir(&machine.folder).env("PATH", &machine.folder).env("OUT_DIR", &out);
        command.env("TARGET", "x86_64-unknown-linux-gnu").env("RADIXKV_CUDA", wish);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    for release in ["11.8", "12.4", "12.8"] {
        let (success, said) = build(release, "");
        assert!(success && said.contains("cargo:warning="), "{release}: {said}");
        assert!(said.contains("RKV_KERNEL_IMAGES=\n"), "{release}: {said}");
        let (success, said) = build(release, "1");
        assert!(!success && said.contains("12.9"), "{release}: {said}");
    }
    // This one is taken, and fails.
    let (success, said) = build("12.9", "");
    assert!(!success && said.contains("nvcc failed"), "{said}");
}

/// scripts/llama_server.sh, with everything built: the model that it adds to the options.
#[test]
fn a_llama_server_has_the_model_that_was_named() {
    let machine = Machine::new("llama-server");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = env::var_os("PATH").unwrap();
    for name in ["mkdir", "flock", "cmp", "tee", "nice", "nproc", "sha256sum"] {
        let place = env::split_paths(&path).map(|folder| folder.join(name)).find(|it| it.exists());
        symlink(place.unwrap_or_else(|| panic!("no {name}")), machine.folder.join(name)).unwrap();
    }
    machine.program("cargo", "echo cargo 9.0.0");
    for name in ["cmake", "patch", "python3"] {
        machine.program(name, "true");
    }
    let target = machine.folder.join("target");
    let made = target.join("llama_server");
    for folder in [made.join("build/bin"), target.join("release"), target.join("model")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(made.join("fetched"), "").unwrap();
    let patch = root.join("integrations/llama_server/llama.cpp.patch");
    fs::copy(patch, made.join("applied.patch")).unwrap();
    let server = made.join("build/bin/llama-server");
    fs::write(&server, "#!/bin/sh\necho starts with \"$@\"\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let model = target.join("model/SmolLM2-135M-Instruct.Q4_1.gguf");
    let run = |options: &[&str], variable: Option<&str>| {
        let mut command = Command::new("bash");
        command.arg(root.join("scripts/llama_server.sh")).arg("run").args(options).env_clear();
        command.env("PATH", &machine.folder).env("HOME", &machine.folder);
        command.env("CARGO_TARGET_DIR", &target);
        if let Some(name) = variable {
            command.env(name, "https://example.org/other.gguf");
        }
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
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
}
