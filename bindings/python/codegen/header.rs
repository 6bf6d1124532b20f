//! Reads the library's header: not any C, but the plain form that cbindgen writes.

/// A field of a struct, or a parameter.
pub struct Field {
    pub name: String,
    /// As in C, without `struct` and `enum`: `const rkv_tokens *`.
    pub kind: String,
    /// Elements of an array.
    pub length: Option<usize>,
    /// The comment above, one line.
    pub doc: String,
}

pub struct Struct {
    pub name: String,
    pub doc: String,
    /// Empty for what is opaque.
    pub fields: Vec<Field>,
}

pub struct Function {
    pub name: String,
    /// `void` for none.
    pub result: String,
    pub parameters: Vec<Field>,
}

#[derive(Default)]
pub struct Header {
    /// `#define`s and enumerators.
    pub constants: Vec<(String, u64)>,
    pub structs: Vec<Struct>,
    /// Names of numbers: `typedef uint64_t rkv_node_id`.
    pub aliases: Vec<(String, String)>,
    pub callbacks: Vec<Function>,
    pub functions: Vec<Function>,
}

/// Collapses blanks and drops the words that Rust has no use for.
fn plain(text: &str) -> String {
    let words = text.split_whitespace();
    let noise = ["struct", "enum", "RKV_API", "RKV_MUST_CHECK"];
    words.filter(|word| !noise.contains(word)).collect::<Vec<_>>().join(" ")
}

/// `const rkv_tokens *tokens`, `uint8_t salt[32]`.
fn field(text: &str, doc: &str) -> Field {
    let text = plain(text);
    let (text, length) = match text.split_once('[') {
        Some((front, rest)) => {
            (front.to_owned(), Some(rest.trim_end_matches(']').parse().expect("an array's length")))
        }
        None => (text, None),
    };
    let at = text.rfind([' ', '*']).unwrap_or_else(|| panic!("a name in {text:?}")) + 1;
    let (kind, name) = text.split_at(at);
    Field { name: name.into(), kind: kind.trim().into(), length, doc: doc.into() }
}

fn parameters(text: &str) -> Vec<Field> {
    let text = plain(text);
    if text == "void" || text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|parameter| field(parameter, "")).collect()
}

/// `enum rkv_status rkv_x(a, b)` or `typedef void (*rkv_x)(a, b)`.
fn function(text: &str) -> Function {
    let (front, rest) = text.split_once('(').unwrap();
    let (front, rest) = match rest.strip_prefix('*') {
        Some(callback) => {
            let (name, rest) = callback.split_once(")(").unwrap();
            (format!("{} {name}", front.trim_start_matches("typedef")), rest)
        }
        None => (front.to_owned(), rest),
    };
    let named = field(&front, "");
    let inside = rest.trim_end_matches(')');
    Function { name: named.name, result: named.kind, parameters: parameters(inside) }
}

impl Header {
    pub fn parse(text: &str) -> Header {
        let mut header = Header::default();
        let (mut doc, mut statement) = (String::new(), String::new());
        let mut lines = text.lines();
        // What only builds for tests have.
        let mut skipped = false;
        while let Some(line) = lines.next() {
            let line = line.trim();
            if line.starts_with("#if defined(RKV_FAULT_INJECTION)") {
                skipped = true;
            } else if line == "#endif" {
                skipped = false;
            }
            if skipped {
                continue;
            }
            if let Some(definition) = line.strip_prefix("#define ") {
                let (name, value) = definition.trim().split_once(' ').unwrap_or((definition, ""));
                if let (true, Ok(value)) = (name.starts_with("RKV_"), value.parse()) {
                    header.constants.push((name.to_owned(), value));
                }
            } else if line.starts_with("/**") {
                doc.clear();
                for text in lines.by_ref().map(str::trim).take_while(|line| *line != "*/") {
                    let text = text.trim_start_matches('*').trim();
                    doc.push_str(if doc.is_empty() { "" } else { " " });
                    doc.push_str(text);
                }
            } else if line.starts_with("typedef ") && line.ends_with('{') {
                let name = plain(line.trim_start_matches("typedef").trim_end_matches('{'));
                let doc = std::mem::take(&mut doc);
                header.body(&name, doc, &mut lines);
            } else if !line.is_empty() && !line.starts_with(['#', '/', '*']) {
                statement.push_str(line);
                statement.push(' ');
                if line.ends_with(';') {
                    let done = std::mem::take(&mut statement);
                    header.statement(plain(&done).trim_end_matches(';'), &doc);
                } else if statement.contains('{') || statement.contains('}') {
                    statement.clear(); // extern "C"
                }
            }
        }
        assert!(header.functions.len() > 50 && header.structs.len() > 40, "the header was misread");
        header
    }

    /// What stands in the braces of a struct or an enum.
    fn body<'a>(&mut self, name: &str, about: String, lines: &mut impl Iterator<Item = &'a str>) {
        let mut fields = Vec::new();
        let mut doc = String::new();
        let mut in_doc = false;
        for line in lines.map(str::trim) {
            if line.starts_with('}') {
                break;
            } else if line.starts_with("/**") {
                (in_doc, doc) = (true, String::new());
            } else if line == "*/" {
                in_doc = false;
            } else if in_doc {
                doc.push_str(if doc.is_empty() { "" } else { " " });
                doc.push_str(line.trim_start_matches('*').trim());
            } else if let Some((constant, value)) = line.trim_end_matches(',').split_once(" = ") {
                let value = value.parse().expect("an enumerator's number");
                self.constants.push((constant.to_owned(), value));
            } else {
                fields.push(field(line.trim_end_matches(';'), &doc));
            }
        }
        if !fields.is_empty() {
            self.structs.push(Struct { name: name.to_owned(), doc: about, fields });
        }
    }

    fn statement(&mut self, text: &str, doc: &str) {
        if text.contains("(*") && text.starts_with("typedef") {
            self.callbacks.push(function(text));
        } else if text.contains('(') {
            self.functions.push(function(text));
        } else if let Some(definition) = text.strip_prefix("typedef ") {
            let alias = field(definition, doc);
            if alias.kind == alias.name {
                let (name, doc) = (alias.name, doc.to_owned());
                self.structs.push(Struct { name, doc, fields: Vec::new() });
            } else {
                self.aliases.push((alias.name, alias.kind));
            }
        }
    }
}
