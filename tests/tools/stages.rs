//! `scripts/test.sh` where nothing is compiled: the stages as such.
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::{Machine, ended, script};

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

/// Full names of the tests of tests/cuda.rs.
pub fn cuda_tests() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let (text, module) = (fs::read_to_string(&path).unwrap(), path.file_stem().unwrap());
            let tests = text.split("#[test]\nfn ").skip(1).map(|rest| rest.split('(').next());
            names
                .extend(tests.map(|name| format!("cuda::{}::{}", module.display(), name.unwrap())));
        }
    }
    names
}

/// scripts/test.sh: `--skip` takes parts of names, and with those of one module those of another.
#[test]
fn the_kernels_of_nvcc_are_run_by_all_but_two_modules() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test.sh"));
    let text = text.unwrap().replace("\\\n", " ");
    let line = text.lines().find(|line| line.contains("RKV_CUDA_KERNELS=ptx:")).unwrap();
    let (_, chosen) = line.split_once(" -- ").unwrap();
    let skipped: Vec<_> = chosen.split("--skip ").skip(1).map(str::trim).collect();
    let tests = cuda_tests();
    assert!(tests.len() > 90, "{tests:?}");
    for test in tests {
        let is_left_out = ["driver", "faults"].iter().any(|it| test.contains(&format!("::{it}::")));
        let is_skipped = skipped.iter().any(|part| test.contains(part));
        assert_eq!(is_skipped, is_left_out, "{test}: {skipped:?}");
    }
}

/// scripts/test.sh: what it has started ends with it, and starts nothing more.
#[test]
fn who_stops_the_tests_stops_their_stages() {
    let machine = Machine::new("stopped");
    machine.link(&["basename", "date", "flock", "mkdir", "realpath", "rm", "sleep", "tee"]);
    machine.link(&["timeout", "tr"]);
    // Each use of cargo takes as long as a compiler would, and is written down.
    machine.program(
        "cargo",
        "[ \"$1\" != --version ] || { echo cargo 9.0.0; exit; }\n\
         echo $$ >>\"$HOME/started\"\nexec sleep 100",
    );
    let started = machine.folder.join("started");
    let written = || fs::read_to_string(&started).unwrap_or_default();
    let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {}", written());
            thread::sleep(Duration::from_millis(20));
        }
    };
    let is_there = |process: &str| {
        let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        command.starts_with(b"sleep")
    };
    // Two at a time, and one that is named.
    for (stages, at_a_time) in [(&[][..], 2), (&["engine"], 1)] {
        let _ = fs::remove_file(&started);
        let mut tests = script("test.sh")
            .args(stages)
            .env_clear()
            .env("PATH", &machine.folder)
            .env("HOME", &machine.folder)
            .env("CARGO_TARGET_DIR", machine.folder.join("target"))
            .env("RADIXKV_CUDA", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("stages begin", &|| {
            written().lines().filter(|it| is_there(it)).count() >= at_a_time
        });
        let stopped = Command::new("kill").arg(tests.id().to_string()).status().unwrap();
        assert!(stopped.success());
        assert!(!tests.wait().unwrap().success());
        wait_for("stages go on", &|| !written().lines().any(is_there));
    }
}

/// scripts/test.sh: a program of a stage that took too long is not left beside the next one.
#[test]
fn what_takes_too_long_ends_with_its_stage() {
    let machine = Machine::new("too long");
    machine.link(&["basename", "date", "flock", "mkdir", "realpath", "rm", "sleep", "tee"]);
    machine.link(&["sh", "timeout"]);
    // As cargo does: it starts a program with a limit of its own.
    machine.program("cargo", "timeout 100 sh -c 'echo $$ >\"$HOME/started\"; exec sleep 100'");
    let mut tests = script("test.sh")
        .arg("net")
        .env_clear()
        .env("PATH", &machine.folder)
        .env("HOME", &machine.folder)
        .env("CARGO_TARGET_DIR", machine.folder.join("target"))
        .env("RADIXKV_CUDA", "0")
        .env("RKV_STAGE_SECONDS", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let wait = || {
        assert!(Instant::now() < deadline, "a program of the stage goes on");
        thread::sleep(Duration::from_millis(20));
    };
    while tests.try_wait().unwrap().is_none() {
        wait();
    }
    let status = fs::read_to_string(machine.folder.join("target/test-logs/net.status")).unwrap();
    assert!(status.starts_with("124 "), "{status}");
    let process = fs::read_to_string(machine.folder.join("started")).unwrap();
    // Until its status is read, there is something of that name.
    while fs::read(format!("/proc/{}/cmdline", process.trim())).is_ok_and(|it| !it.is_empty()) {
        wait();
    }
}

/// scripts/test.sh: a second run leaves the logs of the first one alone.
#[test]
fn the_tests_run_once_in_a_folder() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tools second run");
    let _ = fs::remove_dir_all(&target);
    fs::create_dir_all(target.join("test-logs")).unwrap();
    let status = target.join("test-logs/tests.status");
    fs::write(&status, "0 1 1 1\n").unwrap();
    let second = script("test.sh");
    let mut first = Command::new("flock"); // has what it has
    first.arg(target.join("test-logs.lock")).arg(second.get_program()).args(second.get_args());
    first.arg("nothing").env("CARGO_TARGET_DIR", &target).env("RADIXKV_CUDA", "0");
    let (success, said) = ended(first.output().unwrap());
    assert!(!success && said.contains("error: another run has "), "{said}");
    assert!(status.is_file());
}

/// scripts/test.sh: stages build with the nvcc that kernels/build.rs takes; who says that there
/// must be one is told when there is none.
#[test]
fn the_stages_have_the_nvcc_of_the_library() {
    let machine = Machine::new("stages nvcc");
    machine.link(&["basename", "date", "flock", "mkdir", "realpath", "rm", "tee", "timeout"]);
    let tree = machine.tree();
    machine.program("cargo", "echo \"cuda <$RADIXKV_CUDA> archs <$RADIXKV_CUDA_ARCHS>\"");
    machine.program("python3", "exit 1"); // no nvcc from PyPI
    let lint = |release: Option<&str>, stage: &str, variables: &[(&str, &str)]| {
        let _ = fs::remove_file(machine.folder.join("nvcc"));
        release.into_iter().for_each(|release| machine.nvcc(release));
        let mut command = Command::new("bash");
        command.arg(tree.join("scripts/test.sh")).arg(stage).env_clear();
        command.env("PATH", &machine.folder).env("HOME", &machine.folder);
        ended(command.envs(variables.iter().copied()).output().unwrap())
    };
    for release in [None, Some("12.8")] {
        let (success, said) = lint(release, "lint", &[]);
        assert!(success && said.contains("cuda <0>"), "{said}");
        for stage in ["lint", "kernels"] {
            let (success, said) = lint(release, stage, &[("RADIXKV_CUDA", "1")]);
            assert!(!success && said.contains("error: RADIXKV_CUDA is 1, but there is"), "{said}");
            assert!(!said.contains("cuda <"), "{said}");
        }
    }
    let (success, said) = lint(Some("12.8"), "lint", &[("RADIXKV_CUDA_ARCHS", "80 90a")]);
    assert!(success && said.contains("cuda <> archs <80 90a>"), "{said}");
    let (success, said) = lint(Some("12.9"), "lint", &[("RADIXKV_CUDA", "1")]);
    assert!(success && said.contains("cuda <1> archs <>"), "{said}");
}
