//! Page digests against vectors that a description-only reference, in Python, made and checks.
use radixkv::capi::*;
use std::ffi::OsStr;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

/// What a case of the file says.
#[derive(Default)]
struct Case {
    name: String,
    page_size: u32,
    namespace: Option<rkv_namespace>,
    ids: Vec<u32>,
    items: Vec<rkv_token_item>,
    /// In hex.
    pages: Vec<String>,
}

fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page_digest").join(name)
}

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    assert_eq!(hex.len(), 2 * N);
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
}

impl Case {
    fn space(&mut self) -> &mut rkv_namespace {
        self.namespace.get_or_insert_with(sized)
    }

    fn item(&mut self, kind: u32, [bin, height_bin, position_count]: [u32; 3], digest: [u8; 16]) {
        let token_index = self.ids.len() as u64;
        self.items.push(rkv_token_item {
            token_index,
            kind,
            position_count,
            bin,
            height_bin,
            digest,
        });
        self.ids.push(u32::MAX); // not read
    }

    fn line(&mut self, word: &str, values: &[&str]) {
        let number = |at: usize| values[at].parse::<u32>().unwrap();
        match word {
            "case" => self.name = values[0].to_owned(),
            "page_size" => self.page_size = number(0),
            "lora" => {
                self.space().flags |= RKV_NAMESPACE_LORA;
                self.space().lora_id = values[0].parse().unwrap();
            }
            "image" => {
                self.space().flags |= RKV_NAMESPACE_IMAGE;
                self.space().image_digest = bytes(values[0]);
            }
            "salt" => self.space().salt = bytes(values[0]),
            "epoch" => self.space().epoch = values[0].parse().unwrap(),
            "text" => (0..values.len()).for_each(|at| self.ids.push(number(at))),
            "range" => self.ids.extend(number(0)..number(0) + number(1)),
            "coord" => self.item(RKV_TOKEN_COORD, [number(0), 0, 0], [0; 16]),
            "size" => self.item(RKV_TOKEN_SIZE, [number(0), number(1), 0], [0; 16]),
            "picture" => self.item(RKV_TOKEN_IMAGE, [0, 0, number(1)], bytes(values[0])),
            "page" => self.pages.push(values[0].to_owned()),
            // What stands before the first page is no digest of a page; it shows in the others.
            "namespace" => {}
            other => panic!("unknown line: {other}"),
        }
    }

    fn digests(&self, first_page: u64, parent: Option<&str>) -> Vec<String> {
        let tokens = rkv_tokens {
            ids: self.ids.as_ptr(),
            count: self.ids.len(),
            items: self.items.as_ptr(),
            item_size: size_of::<rkv_token_item>() as u32,
            item_count: self.items.len(),
            ..sized()
        };
        let parent = parent.map(|hex| rkv_page_digest { bytes: bytes(hex) });
        let args = rkv_tokens_page_digests_args {
            page_size: self.page_size,
            space: self.namespace.as_ref().map_or(ptr::null(), ptr::from_ref),
            tokens: &tokens,
            parent: parent.as_ref().map_or(ptr::null(), ptr::from_ref),
            first_page,
            ..sized()
        };
        let mut digests = vec![rkv_page_digest { bytes: [0; 32] }; self.pages.len()];
        let mut count = usize::MAX;
        let (into, room) = (digests.as_mut_ptr(), digests.len());
        // SAFETY: all pointers lead to live values, the buffer has the room that is stated.
        let status = unsafe { rkv_tokens_page_digests(&args, into, room, &mut count) };
        assert_eq!(status, rkv_status::Ok, "{}", self.name);
        let hex = |digest: &rkv_page_digest| -> String {
            digest.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        digests[..count].iter().map(hex).collect()
    }
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(file("vectors.txt")).unwrap();
    let mut cases = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.starts_with('#')) {
        let mut case = Case::default();
        for line in block.lines() {
            let words: Vec<_> = line.split(' ').collect();
            case.line(words[0], &words[1..]);
        }
        cases.push(case);
    }
    cases
}

/// H01, G13
#[test]
fn h01_digests_are_those_of_the_vectors() {
    let cases = cases();
    for case in &cases {
        assert_eq!(case.digests(0, None), case.pages, "{}", case.name);
    }
    assert!(cases.len() > 30);
    assert!(cases.iter().map(|case| case.pages.len()).sum::<usize>() > 200);
}

/// H01: from every page on, also from inside an image.
#[test]
fn h01_digests_go_on_from_any_page() {
    for case in cases() {
        for (first, parent) in (1..).zip(&case.pages) {
            assert_eq!(case.digests(first, Some(parent)), case.pages[first as usize..]);
        }
    }
}

/// H01: equal digests are equal pages, over all cases.
#[test]
fn h01_no_two_pages_of_the_vectors_meet() {
    let mut seen = std::collections::BTreeMap::new();
    for case in cases() {
        let space = case
            .namespace
            .map(|space| (space.flags, space.lora_id, space.epoch, space.image_digest, space.salt));
        for (index, digest) in case.pages.iter().enumerate() {
            let end = (index + 1) * case.page_size as usize;
            let before = seen.entry(digest.clone()).or_insert((space, end, case.page_size));
            assert_eq!(*before, (space, end, case.page_size), "{}", case.name);
        }
    }
}

/// Runs Python and returns what it printed; None, and a word about it, where there is none.
fn python(arguments: &[&OsStr]) -> Option<String> {
    let found = ["python3", "python"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success())
    });
    let Some(found) = found else {
        // Written past the harness, which shows the output of failures alone.
        let reason = "SKIPPED: no Python on the PATH; digests were not recomputed with it\n";
        stderr().write_all(reason.as_bytes()).unwrap();
        return None;
    };
    let output = Command::new(found).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}

/// H01: the reference comes to the same digests from the description alone.
#[test]
fn h01_the_reference_agrees() {
    let (script, vectors) = (file("reference.py"), file("vectors.txt"));
    if let Some(text) = python(&[script.as_ref(), "check".as_ref(), vectors.as_ref()]) {
        assert!(text.contains(", 0 wrong"), "{text}");
    }
}

/// H01: what the documentation shows in Python is so.
#[test]
fn h01_the_documentation_agrees() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/block_hash.md");
    let page = std::fs::read_to_string(page).unwrap();
    let code = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let code = format!("{code}\nprint(*[page.hex() for page in page_digests(range(32), 16)])");
    let cases = cases();
    let case = cases.iter().find(|case| case.name == "two_pages_of_text").unwrap();
    if let Some(text) = python(&["-c".as_ref(), code.as_ref()]) {
        assert_eq!(text.trim(), case.pages.join(" "));
    }
    let example = cases.iter().find(|case| case.name.ends_with("the_documentation")).unwrap();
    assert_eq!(example.pages.len(), 2);
    assert!(example.pages.iter().all(|digest| page.contains(&format!("digest    {digest}"))));
}
