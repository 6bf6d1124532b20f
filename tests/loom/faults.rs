//! The models can fail: the code that they run is broken in one place after the other, and some
//! model must notice. Each model runs in a process of its own, which `RKV_LOOM_WEAK` or
//! `RKV_LOOM_SILENT` tells what is broken in it.
use std::collections::BTreeMap;
use std::process::Command;
use std::{env, fs};

/// Orderings that no model needs, by their lines, with the reason.
const NOT_NEEDED: &[(&str, &str)] = &[
    (
        "USED.load(Ordering::SeqCst)",
        "loom's stand-in for signing in is a fence, which orders what is done with USED too",
    ),
    ("USED.fetch_max(place + 1, Ordering::SeqCst)", "the same"),
    (
        "self.visible().store(before, Ordering::Release)",
        "the fence in nobody_reads stands before it",
    ),
];

/// Orderings that no model passes on lines of their own, with the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    ("fence(Ordering::Release)", "`Version::begin`, whose place is where it is called"),
    ("Some(next) => self.0.store(next, Ordering::Release)", "`Version::end`, the same"),
    ("self.0.store(0, Ordering::Release)", "no model makes 2^31 changes; nobody reads then"),
    ("(at.load(Ordering::Relaxed), Ordering::SeqCst)", "what signs in uses it, further down"),
    ("&READERS[..USED.load(Ordering::SeqCst)]", "a process that was forked has one thread"),
    ("place.0.store(number + number % 2, Ordering::SeqCst)", "the same"),
];

/// Runs the models whose names contain a text; what they say, if they pass.
fn models(text: &str, variables: &[(&str, &str)]) -> Option<String> {
    let mut run = Command::new(env::current_exe().unwrap());
    run.args([text, "--nocapture", "--skip", "faults", "--test-threads", "1"]);
    run.env("RUST_BACKTRACE", "0").env_remove("RKV_LOOM_MORE").envs(variables.iter().copied());
    let done = run.output().unwrap();
    done.status.success().then(|| String::from_utf8(done.stdout).unwrap())
}

fn source(file: &str) -> String {
    fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// What stands at a place, `file:line`.
fn line(place: &str) -> String {
    let (file, line) = place.split_once(':').unwrap();
    let line: usize = line.parse().unwrap();
    source(file).lines().nth(line - 1).unwrap().trim().to_owned()
}

/// Enough to get everywhere.
const FEW_RUNS: [(&str, &str); 3] = [
    ("RKV_LOOM_PLACES", "1"),
    ("LOOM_MAX_PERMUTATIONS", "2000"),
    ("LOOM_CHECKPOINT_INTERVAL", "2000"),
];

/// What is said not to be needed takes all runs of all models: not every time.
fn is_long() -> bool {
    env::var_os("RKV_LOOM_MORE").is_some()
}

/// Every place with an ordering that the models pass, and the models that pass it.
fn ordered_places() -> BTreeMap<String, Vec<String>> {
    let listed = Command::new(env::current_exe().unwrap()).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in names.filter(|name| name.starts_with("models::") && !name.contains("faults")) {
        // In those of the tree orderings mean nothing.
        if name.contains("tree") {
            continue;
        }
        let said = models(name, &FEW_RUNS).expect("the models pass");
        for place in said.lines().filter_map(|line| line.split("ordered at ").nth(1)) {
            places.entry(place.to_owned()).or_default().push(name.to_owned());
        }
    }
    places
}

/// The lines of a file before its tests that have an ordering, with their places.
fn ordered_lines(file: &str) -> Vec<(String, String)> {
    let text = source(file);
    let code = text.split("mod tests").next().unwrap().lines().enumerate();
    let lines = code.filter(|(_, line)| {
        let mut named = line.split("Ordering::").skip(1);
        !line.trim().starts_with("//") && named.any(|name| !name.starts_with("Relaxed"))
    });
    lines.map(|(at, line)| (format!("{file}:{}", at + 1), line.trim().to_owned())).collect()
}

/// What no model passes could be anything, and no model would notice.
#[test]
fn b09_every_ordering_is_passed() {
    let places = ordered_places();
    let folder = format!("{}/src/grace", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<_> =
        files.map(|name| format!("src/grace/{}", name.to_str().unwrap())).collect();
    files.push("src/tree/version.rs".to_owned());
    let lines: Vec<_> = files.iter().flat_map(|file| ordered_lines(file)).collect();
    assert!(lines.len() > 25, "{lines:?}");
    let is_listed = |text: &str| ELSEWHERE.iter().any(|(listed, _)| text.contains(listed));
    let wrong: Vec<_> = lines
        .iter()
        .filter(|(place, text)| places.contains_key(place) == is_listed(text))
        .collect();
    assert!(wrong.is_empty(), "no model passes these, or one does: {wrong:#?}");
}

#[test]
fn b09_every_ordering_is_needed() {
    let (mut found, mut wrong) = (0, Vec::new());
    for (place, names) in ordered_places() {
        let text = line(&place);
        let excused = NOT_NEEDED.iter().any(|(not_needed, _)| text.contains(not_needed));
        // Those of an announcement are those of its version, which has models of its own.
        let announces = text.ends_with(".begin();") || text.ends_with(".end();");
        if (excused && !is_long()) || (announces && !place.contains("version.rs")) {
            continue;
        }
        let by = names.iter().find(|name| models(name, &[("RKV_LOOM_WEAK", &place)]).is_none());
        println!("{place}: {text}: {}", by.map_or("not found", |by| by));
        found += usize::from(by.is_some());
        if by.is_some() == excused {
            wrong.push(format!("{place}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "no model needs these, or one does:\n{}", wrong.join("\n"));
    assert!(found > 15, "the models pass few orderings: {found}");
}

/// Functions whose announcements no model needs, with the reason.
const OTHERS_SUFFICE: &[(&str, &str)] = &[
    ("add_root", "a root that is not found was not there at some moment; its row was free before"),
    (
        "hide_root",
        "the same, and `publish` announces a change of the row; who is below a root that \
      is cleared tells what was there at some moment",
    ),
];

/// A change that is announced.
struct Announced {
    function: String,
    /// Each `begin`, and the next `end` of the same version.
    places: String,
}

fn announced(file: &str) -> Vec<Announced> {
    let text = source(file);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(version) = line.strip_suffix(".begin();") else { continue };
        let end = format!("{version}.end();");
        let end = at + lines[at..].iter().position(|line| *line == end).unwrap();
        let function = lines[..at].iter().rev().find_map(|line| line.split("fn ").nth(1)).unwrap();
        let name = function.split(['(', '<']).next().unwrap().to_owned();
        let places = format!("{file}:{},{file}:{}", at + 1, end + 1);
        found.push(Announced { function: name, places });
    }
    found
}

#[test]
fn b09_every_announcement_is_needed() {
    let mut wrong = Vec::new();
    for file in ["src/index/radix/publish.rs", "src/tree/child_table/mod.rs"] {
        let all = announced(file);
        assert!(all.len() > 1);
        for Announced { function, places } in all {
            let excused = OTHERS_SUFFICE.iter().any(|(name, _)| *name == function);
            if excused && !is_long() {
                continue;
            }
            let faults = [("RKV_LOOM_SILENT", &*places)];
            let found = ["models::table", "models::tree"]
                .iter()
                .any(|text| models(text, &faults).is_none());
            println!("{places}, {function}: {}", if found { "found" } else { "not found" });
            if found == excused {
                wrong.push(function);
            }
        }
    }
    assert!(wrong.is_empty(), "no model needs these, or one does: {wrong:?}");
}
