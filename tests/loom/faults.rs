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
