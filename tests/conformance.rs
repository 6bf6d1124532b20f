//! docs/conformance.md tells the truth: every id is there, every listed test exists and names its
//! id, and every C test that carries an id is listed.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The groups of the specification and how many behaviours each has.
const GROUPS: [(char, usize); 11] = [
    ('K', 26),
    ('B', 12),
    ('S', 9),
    ('C', 11),
    ('H', 7),
    ('M', 10),
    ('J', 8),
    ('G', 16),
    ('E', 5),
    ('P', 7),
    ('T', 18),
];
const NOT_BUILT: &str = "not built yet: ";

/// What the page says about one behaviour.
#[derive(Default)]
struct Entry {
    title: String,
    not_built: Option<String>,
    /// Files, and the functions named in each; none means the file as a whole.
    tests: BTreeMap<String, Vec<String>>,
}

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads the list: `- **K01** title`, then `  - ` items that go on in deeper indented lines.
fn parse(page: &str) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    let mut id = String::new();
    let mut file = String::new();
    for line in page.lines() {
        if let Some((name, title)) = line.strip_prefix("- **").and_then(|l| l.split_once("** ")) {
            id = name.to_owned();
            let entry = Entry { title: title.to_owned(), ..Entry::default() };
            assert!(entries.insert(id.clone(), entry).is_none(), "{id} is listed twice");
        } else if line.starts_with("  ") && !id.is_empty() {
            let entry: &mut Entry = entries.get_mut(&id).unwrap();
            if let Some(topic) =
                line.trim().strip_prefix("- ").and_then(|l| l.strip_prefix(NOT_BUILT))
            {
                entry.not_built = Some(topic.to_owned());
            }
            for name in line.split('`').skip(1).step_by(2) {
                if name.contains('/') {
                    file = name.to_owned();
                    entry.tests.entry(file.clone()).or_default();
                } else {
                    entry.tests.get_mut(&file).expect("a file first").push(name.to_owned());
                }
            }
        } else if line.starts_with('#') {
            id.clear();
        }
    }
    entries
}

fn expected_ids() -> BTreeSet<String> {
    GROUPS
        .iter()
        .flat_map(|&(group, count)| (1..=count).map(move |number| format!("{group}{number:02}")))
        .collect()
}

/// Whether text mentions an id in any case, as a word of its own or as the start of a name.
fn mentions(text: &str, id: &str) -> bool {
    let (text, id) = (text.to_ascii_lowercase(), id.to_ascii_lowercase());
    text.match_indices(&id).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + id.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_alphanumeric())
            && !after.is_some_and(|c| c.is_ascii_alphanumeric())
    })
}

/// A function with the comment above it, up to the closing brace in the column it starts in.
fn function<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let definition = source.match_indices(&format!("{name}(")).map(|(at, _)| at).find(|&at| {
        let line = source[..at].rfind('\n').map_or(0, |i| i + 1);
        let head = &source[line..at];
        let before = source[..at].chars().next_back();
        before.is_some_and(|c| c == ' ' || c == '*') && is_definition(head)
    })?;
    let line = source[..definition].rfind('\n').map_or(0, |i| i + 1);
    let indent = &source[line..line + source[line..].len() - source[line..].trim_start().len()];
    let end = if source[line..].trim_start().starts_with("def ") {
        // Of Python: up to the next line that stands no deeper.
        let mut ends = source[definition..].match_indices('\n').map(|(at, _)| definition + at);
        let deeper = |at: usize| {
            let rest = &source[at + 1..];
            rest.starts_with('\n') || rest.starts_with(&format!("{indent} "))
        };
        // A list of parameters may end at the function's own column.
        let body = |at: usize| deeper(at) || source[at + 1..].starts_with(&format!("{indent})"));
        ends.find(|&at| !body(at)).unwrap_or(source.len())
    } else {
        let close = format!("\n{indent}}}");
        definition + source[definition..].find(&close)? + close.len()
    };
    // Back over comments and attributes that stand directly above.
    let above = source[..line].trim_end_matches('\n');
    let start = above.rfind("\n\n").map_or(0, |i| i + 2);
    let gap = line - above.len();
    Some(if gap > 1 { &source[line..end] } else { &source[start..end] })
}

fn is_definition(head: &str) -> bool {
    ["static void ", "void ", "fn ", "func ", "def ", "int ", "TEST("]
        .iter()
        .any(|keyword| head.trim_start().starts_with(keyword) || head.contains(" fn "))
}

#[test]
fn every_id_is_listed() {
    let entries = parse(&read("docs/conformance.md"));
    let listed: BTreeSet<_> = entries.keys().cloned().collect();
    let expected = expected_ids();
    assert_eq!(expected.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new(), "missing");
    assert_eq!(listed.difference(&expected).collect::<Vec<_>>(), Vec::<&String>::new(), "unknown");
    for (id, entry) in &entries {
        let words = entry.title.split_whitespace().count();
        assert!((1..=6).contains(&words), "{id}: a title of about five words");
        match &entry.not_built {
            Some(topic) => assert!(
                !topic.is_empty() && entry.tests.is_empty(),
                "{id}: either tests or the part that is to come"
            ),
            None => assert!(!entry.tests.is_empty(), "{id}: no test"),
        }
    }
}

#[test]
fn every_listed_test_exists_and_names_its_id() {
    for (id, entry) in parse(&read("docs/conformance.md")) {
        for (path, functions) in &entry.tests {
            let source = read(path);
            if functions.is_empty() {
                assert!(mentions(&source, &id), "{path} does not mention {id}");
            }
            for name in functions {
                let text = function(&source, name)
                    .unwrap_or_else(|| panic!("{id}: {path} has no function {name}"));
                assert!(mentions(text, &id), "{path}: {name} does not mention {id}");
            }
        }
    }
}

/// A C test called `k05_...` is listed under K05.
#[test]
fn every_c_test_is_listed() {
    let entries = parse(&read("docs/conformance.md"));
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")).unwrap() {
        let path = format!("tests/c/{}", file.unwrap().file_name().into_string().unwrap());
        for line in read(&path).lines() {
            let Some(name) =
                line.strip_prefix("static void ").and_then(|l| l.strip_suffix("(void) {"))
            else {
                continue;
            };
            let id = name.split('_').next().unwrap().to_ascii_uppercase();
            if let Some(entry) = entries.get(&id) {
                let listed =
                    entry.tests.get(&path).is_some_and(|all| all.iter().any(|n| n == name));
                assert!(listed, "docs/conformance.md: {id} lacks {path}: {name}");
            }
        }
    }
}

#[test]
fn functions_are_found_with_their_comments() {
    let source =
        "/* K01 */\nstatic void a(void) {\n    b();\n}\n\n/* K02 */\n\nstatic void b(void) {\n}\n";
    assert_eq!(function(source, "a"), Some("/* K01 */\nstatic void a(void) {\n    b();\n}"));
    // A comment that stands apart belongs to nobody.
    assert_eq!(function(source, "b"), Some("static void b(void) {\n}"));
    assert_eq!(function(source, "c"), None);
    let python = "def a() -> None:\n    b()\n\n    # P01\n\n\n\
        # P02\ndef b(\n    c: int,\n) -> None:\n    pass\n";
    assert!(mentions(function(python, "a").unwrap(), "P01"));
    assert!(!mentions(function(python, "a").unwrap(), "P02"));
    assert!(function(python, "b").unwrap().ends_with("pass"));
    assert!(mentions("static void k01_x(void)", "K01") && mentions("// K01, K02", "K02"));
    assert!(!mentions("k011_x", "K01") && !mentions("ak01", "K01"));
}
