//! The kernels' machine code: no spills, no local memory, the instructions that were meant, and the
//! registers, shared memory and lengths of loops that `kernels/resources.txt` records.
//! `RKV_BLESS=1` rewrites that file.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

const TABLE: &str = "kernels/resources.txt";

/// What one kernel takes on one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Resources {
    registers: usize,
    stack: usize,
    local: usize,
    shared: usize,
}

/// (kernel, architecture)
type Key = (String, String);

/// The images that the library has, unless it was built without kernels or there is no
/// disassembler; then everybody is told.
fn images() -> Vec<&'static str> {
    let images: Vec<_> =
        env!("RKV_KERNEL_IMAGES").split(':').filter(|path| !path.is_empty()).collect();
    let reason = if images.is_empty() {
        "SKIP kernels: built without nvcc (make cuda-toolchain), so there is no machine code\n"
    } else if cuobjdump().output().is_err() {
        "SKIP kernels: there is no cuobjdump beside nvcc\n"
    } else {
        return images;
    };
    // Not through the captured standard error: it is to be seen.
    std::io::stderr().write_all(reason.as_bytes()).unwrap();
    Vec::new()
}

fn cuobjdump() -> Command {
    let home = Path::new(env!("RKV_CUDA_HOME")).join("bin");
    let mut command = Command::new(home.join("cuobjdump"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(home).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(all).unwrap());
    command
}

fn dump(option: &str, image: &str) -> String {
    let output = cuobjdump().arg(option).arg(image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn architecture(line: &str) -> Option<&str> {
    line.strip_prefix("arch = ")
}

fn resources() -> BTreeMap<Key, Resources> {
    let mut found = BTreeMap::new();
    for image in images() {
        let (mut arch, mut name) = ("", "");
        let text = dump("--dump-resource-usage", image);
        for line in text.lines().map(str::trim) {
            if let Some(now) = architecture(line) {
                arch = now;
            } else if let Some(now) = line.strip_prefix("Function ") {
                name = now.trim_end_matches(':');
            } else if line.starts_with("REG:") {
                let value = |key: &str| {
                    let mut words = line.split_whitespace();
                    let word = words.find_map(|word| word.strip_prefix(key));
                    word.unwrap_or_else(|| panic!("{key} in {line}")).parse().unwrap()
                };
                let resources = Resources {
                    registers: value("REG:"),
                    stack: value("STACK:"),
                    local: value("LOCAL:"),
                    shared: value("SHARED:"),
                };
                found.insert((name.to_owned(), arch.to_owned()), resources);
            }
        }
    }
    found
}

/// The machine code of every kernel.
fn code() -> &'static BTreeMap<Key, String> {
    static CODE: OnceLock<BTreeMap<Key, String>> = OnceLock::new();
    CODE.get_or_init(|| {
        let mut found = BTreeMap::new();
        for image in images() {
            let text = dump("-sass", image);
            let mut arch = String::new();
            for part in text.split("\t\tFunction : ") {
                let name = part.lines().next().unwrap_or_default();
                if name.starts_with("rkv_") {
                    found.insert((name.to_owned(), arch.clone()), part.to_owned());
                }
                let last = part.lines().rev().find_map(architecture);
                arch = last.map_or(arch, str::to_owned);
            }
        }
        found
    })
}

/// Instructions of the loop over tiles of keys: of the shortest one that has half of the products
/// of matrices. None where there are no products.
fn loop_length(code: &str) -> Option<usize> {
    // Lines with an address, which others than instructions do not have.
    let instructions: Vec<(usize, &str)> = code
        .lines()
        .filter_map(|line| {
            let (address, rest) = line.trim().strip_prefix("/*")?.split_once("*/")?;
            let words = rest.split("/*").next()?.trim();
            let address = usize::from_str_radix(address, 16).ok()?;
            (!words.is_empty()).then_some((address, words))
        })
        .collect();
    let products = |part: &[(usize, &str)]| {
        let multiplies = |words: &str| words.contains("HMMA.") || words.contains("HGMMA.");
        part.iter().filter(|(_, words)| multiplies(words)).count()
    };
    let all = products(&instructions);
    let target = |words: &str| {
        let word = words.contains("BRA").then(|| words.split("0x").last())??;
        usize::from_str_radix(word.split(|c: char| !c.is_ascii_hexdigit()).next()?, 16).ok()
    };
    let loops = instructions.iter().enumerate().filter_map(|(end, &(address, words))| {
        let to = target(words).filter(|&to| to < address)?;
        let begin = instructions.partition_point(|&(at, _)| at < to);
        let body = &instructions[begin..=end];
        (all > 0 && 2 * products(body) >= all).then_some(body.len())
    });
    loops.min()
}

fn nvcc_version() -> String {
    let nvcc = Path::new(env!("RKV_CUDA_HOME")).join("bin/nvcc");
    let output = Command::new(nvcc).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let word = text.split_whitespace().find(|word| word.starts_with("V1")).unwrap();
    word.to_owned()
}

fn table_of(found: &BTreeMap<Key, Resources>) -> String {
    let mut text = format!(
        "# Kernel, architecture, registers of a thread, bytes of shared memory, instructions of\n\
         # the loop over tiles of keys, with what masks and soft caps would take; nvcc {}.\n\
         # No kernel spills, or has memory of its own; attn_sm90 moves registers from the threads\n\
         # that load to those that compute. Written by: RKV_BLESS=1 cargo test --test kernels\n",
        nvcc_version()
    );
    let table = radixkv::gpu::kernel_table();
    for ((name, arch), resources) in found {
        let of_launch = table.iter().find(|kernel| kernel.0 == *name);
        let shared = of_launch.map_or(0, |(_, _, shared)| *shared);
        let code = code().get(&(name.clone(), arch.clone()));
        let length = code.and_then(|code| loop_length(code));
        let length = length.map_or("-".to_owned(), |length| length.to_string());
        text += &format!("{name} {arch} {} {shared} {length}\n", resources.registers);
    }
    text
}

#[test]
fn kernels_take_what_is_recorded_and_spill_nothing() {
    let found = resources();
    if found.is_empty() {
        return;
    }
    for (key, Resources { stack, local, shared, .. }) in &found {
        assert_eq!((stack, local), (&0, &0), "{key:?} spills, or indexes an array at run time");
        // What blocks share is asked for when they are launched. 1024 bytes are the system's.
        assert!(*shared <= 1024, "{key:?} has static shared memory");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let table = table_of(&found);
    if std::env::var_os("RKV_BLESS").is_some() {
        fs::write(path, table).unwrap();
        return;
    }
    let blessed = fs::read_to_string(path).unwrap();
    if blessed.lines().nth(1) != table.lines().nth(1) {
        let reason = format!("SKIP kernels: {TABLE} is of another nvcc: registers not compared\n");
        std::io::stderr().write_all(reason.as_bytes()).unwrap();
        return;
    }
    // Other architectures may have been built than those that are recorded; these are as recorded.
    let arch_of = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_owned();
    let recorded: BTreeSet<String> = blessed.lines().map(arch_of).collect();
    let blessed: Vec<&str> = blessed.lines().collect();
    let is_new = |line: &&str| recorded.contains(&arch_of(line)) && !blessed.contains(line);
    let changed: Vec<_> = table.lines().filter(is_new).collect();
    assert!(changed.is_empty(), "not as in {TABLE}:\n{}", changed.join("\n"));
}

/// Matrix instructions, loads of matrices or of boxes, and copies that no thread waits for, in
/// every attention kernel; loads and stores of 16 bytes where data is moved; local memory nowhere.
#[test]
fn the_intended_instructions_are_there() {
    for ((name, arch), code) in code() {
        check_instructions(name, arch, code);
        let loops = loop_length(code).is_some();
        assert_eq!(
            loops,
            name.starts_with("rkv_attend_"),
            "{name} for {arch}: the loop over tiles"
        );
    }
    let seen = code().len();
    assert!(images().is_empty() || seen > 40, "only {seen} kernels were found");
}

fn check_instructions(name: &str, arch: &str, code: &str) {
    let has = |word: &str| code.contains(word);
    let mut wanted = match name {
        // Products of four warps, copies of boxes and of rows, barriers that wait for bytes, and
        // registers that move. What is widened comes through registers.
        _ if name.starts_with("rkv_attend_sm90_") => {
            let from = if name.contains("e4m3") { "STS.128" } else { "UTMALDG.4D" };
            vec!["HGMMA.64x", from, "LDGSTS.E", "SYNCS.ARRIVE.TRANS64", "USETMAXREG"]
        }
        _ if name.starts_with("rkv_attend_") => vec!["HMMA.16816.F32", "LDSM.16.M88.4", "LDGSTS.E"],
        _ if name.starts_with("rkv_page_") => vec!["LDG.E.128", "STG.E.128"],
        _ if name.starts_with("rkv_kv_write_") => vec!["LDG.E.128"],
        _ => vec![],
    };
    if name.starts_with("rkv_attend_") {
        wanted.push("MUFU.EX2");
    }
    for word in wanted {
        assert!(has(word), "{name} for {arch} has no {word}");
    }
    // From 9.0 on launches may begin early: what was launched before has ended when memory is
    // looked at, whatever the compiler moved.
    let is_chained = name.starts_with("rkv_attend_")
        || name.starts_with("rkv_merge_partials_")
        || name.starts_with("rkv_kv_write_");
    if is_chained && !matches!(arch, "sm_80" | "sm_89") {
        let (before, _) = code.split_once("ACQBULK").unwrap_or_else(|| panic!("{name}: no wait"));
        for word in ["LDG", "STG", "UTMALDG", "RED.", "ATOM"] {
            assert!(!before.contains(word), "{name} for {arch}: {word} before the wait");
        }
        assert!(has("PREEXIT"), "{name} for {arch} lets nothing in");
    }
    // How much of a step there is, and what a block is to do of it, are loaded together: a load
    // that waits for the other would cost every block the latency of memory once more. (Blocks of
    // attn_sm90 take many items, and look each up while they compute the one before.)
    let before_end = code.split(" EXIT").next().unwrap_or_default();
    let loads = |word: &str| before_end.matches(word).count();
    if name.starts_with("rkv_attend_") && !name.starts_with("rkv_attend_sm90_") {
        assert!(loads("LDG.E.128") >= 2 && loads("LDG.E") >= 3, "{name} for {arch}: an item late");
    }
    if name.starts_with("rkv_attend_sm90_") {
        // Where the compiler cannot follow the registers of products, it waits after each of them.
        let (products, waits) =
            (code.matches("HGMMA.").count(), code.matches("WARPGROUP.DEPBAR").count());
        assert!(products >= 4 * waits, "{name}: {products} products, {waits} waits for them");
        // Weights are made while the values of the tile before are multiplied: between the wait for
        // logits, one product pending, and the wait for that one lie the exponentials of a thread's
        // share of a tile, a half of its keys, and as many of each way to take a soft cap.
        // Of latent values the place of the tile before is let go of there instead: another group's
        // products run beside the exponentials.
        let keys = match name.rsplit('_').next() {
            Some("512") => 0,
            Some("64") => 112,
            Some("256") if name.contains("e4m3") => 64,
            Some("256") => 80,
            _ => 128,
        };
        let after = code.split("WARPGROUP.DEPBAR.LE gsb0, 0x1").nth(1).expect("a loop");
        let meanwhile = after.split("WARPGROUP.DEPBAR.LE gsb0, 0x0").next().unwrap_or_default();
        let exponentials = meanwhile.matches("MUFU.EX2").count();
        assert!(
            exponentials >= keys / 2 * 3,
            "{name}: {exponentials} exponentials beside a product"
        );
        assert!(meanwhile.contains("SYNCS.ARRIVE"), "{name}: no place is let go of");
    }
    for word in ["LDL", "STL"] {
        let found = code.split_whitespace().any(|token| token.split('.').next() == Some(word));
        assert!(!found, "{name} for {arch} has {word}: local memory");
    }
}
