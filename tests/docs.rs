//! The program in README.md compiles as it stands and prints what its comments say. The fragments
//! of C in docs/ compile in what stands around them in tests/docs.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod native;

/// What stands in fences of C.
fn fragments(page: &str) -> impl Iterator<Item = &str> {
    page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap())
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs");
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_program_of_the_readme_runs() {
    let readme = fs::read_to_string(native::root().join("README.md")).unwrap();
    let program = fragments(&readme).next().unwrap();
    let source = folder().join("readme.c");
    fs::write(&source, program).unwrap();

    let compiler = native::compilers(false)[0];
    let printed = native::run(&native::build(&[source], "readme", compiler, false, "c99"));
    let expected: Vec<_> = program
        .lines()
        .filter_map(|line| line.trim().strip_prefix("request(cache, prompt, "))
        .map(|line| line.split("/* ").nth(1).unwrap().strip_suffix(" */").unwrap())
        .collect();
    assert_eq!(expected.len(), 3, "the README calls request() three times");
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_oldest_rust_is_named() {
    let version = env!("CARGO_PKG_RUST_VERSION");
    for page in ["README.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(native::root().join(page)).unwrap();
        let named = text.split("[Rust](https://rustup.rs) ").nth(1).unwrap();
        assert!(named.starts_with(&format!("{version} or later")), "{page}");
    }
}

/// A function of the header: its name, its parameters, and what is said of it in one line.
fn functions() -> Vec<[String; 3]> {
    let header = fs::read_to_string(native::root().join("include/radixkv.h")).unwrap();
    let parts: Vec<_> = header.split("RKV_API").collect();
    let made = parts.windows(2).filter_map(|around| {
        let said = around[0].rsplit_once("/**")?.1.replace("\n *", " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let (head, parameters) = around[1].split_once(')')?.0.split_once('(')?;
        let name = head.rsplit([' ', '*', '\n']).next()?;
        Some([name, parameters, &said].map(str::to_owned))
    });
    made.collect()
}

#[test]
fn who_does_not_ask_by_null_and_zero_is_named() {
    let page = fs::read_to_string(native::root().join("docs/ABI.md")).unwrap();
    let rule = page.split("- **Buffers**").nth(1).unwrap().split("\n\n").next().unwrap();
    let mut fills = 0;
    for [name, parameters, said] in functions() {
        let is_filler = parameters
            .split(',')
            .any(|one| one.trim().starts_with("size_t ") && one.ends_with("capacity"));
        fills += u32::from(is_filler);
        if is_filler && !said.contains("(NULL, 0) asks") {
            assert!(rule.contains(&format!("`{name}()`")), "{name}");
        }
    }
    assert!(fills > 20, "{fills}");
}

#[test]
fn who_waits_for_a_remote_store_or_the_disk_says_so() {
    let all = functions();
    let tiers = [("cache", "destroy"), ("cache", "detach_tiers")];
    let snapshots = [("snapshot_cache", "destroy"), ("snapshot_cache", "detach")];
    let page = fs::read_to_string(native::root().join("docs/snapshot.md")).unwrap();
    let rule = page.split("No call waits for the disk, except ").nth(1).unwrap();
    let waits = rule.split('.').next().unwrap();
    for (of, verb) in tiers.into_iter().chain(snapshots) {
        let name = format!("rkv_{of}_{verb}");
        let [.., said] = all.iter().find(|it| it[0] == name).unwrap();
        let cost = said.split("@par Cost").nth(1).unwrap();
        for what in ["until requests to the disk", "calls to a remote store", "a last commit"] {
            assert!(cost.contains(what), "{name}: {what}");
        }
        assert!(of == "cache" || waits.contains(verb), "{name}");
    }
}

/// With every warning as an error, and to objects: only what makes code sees that a status which
/// must be looked at is not. What stands around a fragment may have a main(): then it is run.
#[test]
fn the_fragments_of_the_pages_compile() {
    let compiler = native::compilers(false)[0];
    let mut runs = Vec::new();
    for page in native::files(&native::root().join("docs"), "md") {
        let name = page.file_stem().unwrap().to_str().unwrap();
        let around = native::root().join("tests/docs").join(name).with_extension("c");
        let frame = fs::read_to_string(&around).unwrap_or_default();
        for (number, fragment) in fragments(&fs::read_to_string(&page).unwrap()).enumerate() {
            let file = format!("{name}-{}.inc", number + 1);
            assert!(frame.contains(&file), "{}: nothing around {file}", around.display());
            fs::write(folder().join(file), fragment).unwrap();
        }
        if frame.is_empty() {
            continue;
        }
        let object = folder().join(name).with_extension("o");
        let mut command = native::compiler(compiler, false, "c99");
        command.arg("-I").arg(folder()).arg("-c").arg(&around).arg("-o").arg(&object);
        native::check(&command.output().unwrap(), &page);
        if frame.contains("\nint main(") {
            let program = native::build(&[object], &format!("docs-{name}"), compiler, false, "c99");
            native::run(&program);
            runs.push(name.to_owned());
        }
    }
    assert_eq!(runs, ["external", "journal", "tiers"]);
}

/// What llama-server is built without is said on its page.
#[test]
fn what_llama_server_is_built_without_is_named() {
    let read = |path: &str| fs::read_to_string(native::root().join(path)).unwrap();
    let (script, page) = (read("scripts/llama_server.sh"), read("docs/llama-server.md"));
    for (option, word) in
        [("-DLLAMA_OPENSSL=OFF", "HTTPS"), ("-DLLAMA_USE_PREBUILT_UI=OFF", "page")]
    {
        assert!(!script.contains(option) || page.contains(word), "{option}: {word}");
    }
}

/// A number of the code, by its name.
fn constant(path: &str, name: &str) -> usize {
    let text = fs::read_to_string(native::root().join(path)).unwrap();
    let line = text.lines().find(|line| line.contains(&format!("const {name}: "))).unwrap();
    let number = line.split("= ").nth(1).unwrap().trim_end_matches(';');
    match number.strip_prefix("1 << ") {
        Some(bits) => 1 << bits.parse::<u32>().unwrap(),
        None => number.parse().unwrap(),
    }
}

/// When pages that are about to go are stored is said in the numbers of the code.
#[test]
fn tiers_say_when_pages_are_copied_ahead() {
    let page = fs::read_to_string(native::root().join("docs/tiers.md")).unwrap();
    let ahead = page.split("## When to store").nth(1).unwrap().split("\n## ").next().unwrap();
    for name in ["COLD_LEAST", "COLD_MOST"] {
        let number = constant("src/tier/paged/stores.rs", name);
        assert!(ahead.contains(&number.to_string()), "{name} {number}");
    }
}

#[test]
fn the_page_of_the_index_counts_lookups_as_the_code_does() {
    let page = fs::read_to_string(native::root().join("docs/index.md")).unwrap();
    assert_eq!(constant("src/index/way.rs", "LOOKAHEAD"), 12, "say the new number there");
    assert!(page.contains("where they go on, 12, before each"));
    let code = fs::read_to_string(native::root().join("src/index/way.rs")).unwrap();
    assert!(code.contains("SHORT: Pace = Pace { ahead: 8, together: 2, every: 2 }"));
    let short = "8 are on their way at a time, and go a node further\ndown before every second";
    assert!(page.contains(short));
}

/// Portions, as pages tell of them.
#[test]
fn portions_have_the_sizes_that_pages_say() {
    let page = |name: &str| fs::read_to_string(native::root().join("docs").join(name)).unwrap();
    let slice = constant("src/store/shared.rs", "SLICE");
    assert!(page("index.md").contains(&format!("one pass over all nodes, {slice} at a time")));
    assert!(page("TESTING.md").contains(&format!("in slices, {slice} pages each")));
    assert_eq!(constant("src/store/group_cache.rs", "CLASSED"), 4096, "say the new number there");
    assert!(page("groups.md").contains("told in a call of its last 4,096"));
}

#[test]
fn steps_that_are_too_large_for_a_gpu_have_a_status() {
    let header = fs::read_to_string(native::root().join("include/radixkv.h")).unwrap();
    for call in ["rkv_runner_append_prefill", "rkv_runner_prepare_plan"] {
        let before = header.split(&format!("enum rkv_status {call}(")).next().unwrap();
        let comment = before.rsplit("/**").next().unwrap();
        assert!(comment.contains("RKV_STATUS_UNSUPPORTED"), "{call}");
    }
}

/// Where results are not bit for bit those of other steps is said where that is used.
#[test]
fn the_pages_say_how_branches_are_rounded() {
    for (page, text) in [
        ("docs/runner.md", "is the same up to rounding, not bit for bit"),
        ("examples/engine/README.md", "is rounded as where it lay in the draft"),
        ("examples/engine/README.md", "as with `--speculate-branches` of more than one"),
    ] {
        let written = fs::read_to_string(native::root().join(page)).unwrap();
        let words: Vec<_> = written.split_whitespace().collect();
        assert!(words.join(" ").contains(text), "{page}: {text}");
    }
}

/// What no call can refuse is said where it is met.
#[test]
fn the_pages_say_what_nothing_refuses() {
    for (page, text) in [
        ("external.md", "inserts nothing of what it computed before"),
        ("groups.md", "inserts nothing of what it computed before"),
        ("groups.md", "computes nothing until its children have copied"),
        ("continuations.md", "computes nothing until its children have copied"),
        ("tiers.md", "Fetch before you carry out what `rkv_sequence_read_copies()` names"),
        ("tiers.md", "All zero, the default, is a fingerprint like any other"),
        ("external.md", "Without a lock nothing is refused."),
        ("external.md", "With the last one left out of them one is left to compute"),
        ("groups.md", "where all matched, ask for one token less"),
        ("runner.md", "Nobody looks whether those positions are one branch"),
    ] {
        let written = fs::read_to_string(native::root().join("docs").join(page)).unwrap();
        let words: Vec<_> = written.split_whitespace().collect();
        assert!(words.join(" ").contains(text), "{page}: {text}");
    }
}

/// A snapshot that was fetched says nothing of a full hit, and the sample goes on with it.
#[test]
fn a_snapshot_that_is_taken_may_be_all_of_the_prompt() {
    let page = fs::read_to_string(native::root().join("docs/snapshot.md")).unwrap();
    let mut samples = fragments(&page).filter(|sample| sample.contains("rkv_snapshot_cache_take("));
    assert!(samples.next().unwrap().contains("found.full_hit = "));
}

/// Who attaches something says whose it is.
#[test]
fn who_attaches_a_directory_sets_the_fingerprint() {
    for (page, call) in
        [("tiers.md", "rkv_cache_attach_tiers("), ("snapshot.md", "rkv_snapshot_cache_attach(")]
    {
        let page = fs::read_to_string(native::root().join("docs").join(page)).unwrap();
        let samples: Vec<_> = fragments(&page).filter(|sample| sample.contains(call)).collect();
        assert!(!samples.is_empty(), "no sample of {call}");
        assert!(samples.iter().all(|sample| sample.contains("config.fingerprint")), "{call}");
    }
    let header = fs::read_to_string(native::root().join("include/radixkv.h")).unwrap();
    let words: Vec<_> = header.split([' ', '\n', '*']).filter(|word| !word.is_empty()).collect();
    assert_eq!(words.join(" ").matches("which is a fingerprint like any other").count(), 2);
}

/// Names that C++ had in series before this one.
#[test]
fn the_cpp_headers_name_no_call_that_is_gone() {
    for header in native::files(&native::root().join("include/radixkv"), "hpp") {
        let text = fs::read_to_string(&header).unwrap();
        for gone in [" erase()", " audit()"] {
            assert!(!text.contains(gone), "{}:{gone}", header.display());
        }
    }
}

/// A later library fills in the size of its own elements.
#[test]
fn who_gives_a_list_says_how_large_its_elements_are() {
    let page = fs::read_to_string(native::root().join("docs/groups.md")).unwrap();
    for name in ["config.group", "config.pool"] {
        let given = |sample: &&str| sample.contains(&format!("{name}s = "));
        let samples: Vec<_> = fragments(&page).filter(given).collect();
        assert!(!samples.is_empty(), "{name}s");
        for sample in samples {
            assert!(sample.contains(&format!("{name}_size = ")), "{name}s without {name}_size");
        }
    }
}

/// The engine's README and its code name the same fields of a request that are refused.
#[test]
fn fields_that_the_engine_refuses_are_named() {
    let engine = native::root().join("examples/engine");
    let code: String = native::files(&engine.join("http"), "cpp")
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut refused = BTreeSet::new();
    for call in
        ["refuse_unsupported(", "refuse_unless("].iter().flat_map(|&f| code.split(f).skip(1))
    {
        if !call.starts_with("const Json& body") {
            let arguments = call.split(");").next().unwrap();
            refused.extend(arguments.split('"').skip(1).step_by(2));
        }
    }
    // Of values that change nothing.
    for value in ["type", "text", "none"] {
        assert!(refused.remove(value), "{value}");
    }
    let page = fs::read_to_string(engine.join("README.md")).unwrap();
    for name in &refused {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in the README");
    }
    let list = page.split("Fields that would change the output").nth(1).unwrap();
    let (list, _) = list.split_once("Any other field").unwrap();
    let mut named: BTreeSet<_> = list.split('`').skip(1).step_by(2).collect();
    assert!(named.remove("max_tokens"));
    assert!(named.len() > 20 && named.is_subset(&refused), "{named:?} {refused:?}");
}
