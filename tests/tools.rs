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
