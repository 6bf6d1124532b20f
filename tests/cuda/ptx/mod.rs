//! Kernels as nvcc made them: their PTX as C++ over the words of the emulator, an instruction a
//! line, so that operands of inline assembly, and what the compiler moved, are run too.
//!
//! A product of attn_sm90 is over before the next instruction: what may not happen while it runs is
//! seen where the kernels' source is emulated.
mod hopper;
mod instructions;

use std::collections::HashMap;
use std::fmt::Write;

/// A kernel, translated.
pub struct Kernel {
    pub name: String,
    pub threads: usize,
    pub argument_bytes: usize,
    /// Of a function `static void name(const void *params)`.
    pub source: String,
}

/// All kernels of a module.
pub fn translate(module: &str) -> Vec<Kernel> {
    let text: Vec<&str> =
        module.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let text = text.join("\n");
    text.split(".visible .entry ").skip(1).map(kernel).collect()
}

fn kernel(text: &str) -> Kernel {
    let (head, rest) = text.split_once('{').expect("a body");
    let between = |word: &str, end: char| {
        let (_, after) = head.split_once(word).unwrap_or_else(|| panic!("{word} in {head}"));
        after.split(end).next().unwrap().trim().to_owned()
    };
    let name = head.split('(').next().unwrap().trim().to_owned();
    let argument_bytes = between("_param_0[", ']').parse().unwrap();
    let threads = between(".maxntid", ',').parse().unwrap();
    let mut body = Body::default();
    body.translate(rest);
    let source = format!(
        "static void {name}(const void *params) {{\n{}{}}}\n",
        body.declarations, body.statements
    );
    Kernel { name, threads, argument_bytes, source }
}

/// Registers of a kind have a C++ type; what they hold is read as an instruction says.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Float,
    Word,
    Long,
    Half,
    Predicate,
}

impl Kind {
    fn of(ty: &str) -> Self {
        match ty {
            "f32" => Self::Float,
            "b32" | "u32" | "s32" => Self::Word,
            "b64" | "u64" | "s64" => Self::Long,
            "b16" | "u16" | "s16" => Self::Half,
            "pred" => Self::Predicate,
            _ => panic!("registers of type {ty}"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Word => "uint32_t",
            Self::Long => "uint64_t",
            Self::Half => "uint16_t",
            Self::Predicate => "bool",
        }
    }
}

/// The C++ type of values of a PTX type.
fn value_type(ty: &str) -> &'static str {
    match ty {
        "s32" => "int32_t",
        "s64" => "int64_t",
        other => Kind::of(other).name(),
    }
}

#[derive(Default)]
struct Body {
    declarations: String,
    statements: String,
    /// By the name without its number, or by the whole name in a scope.
    kinds: HashMap<String, Kind>,
    /// Blocks of assembly: their number, and what the names that they declare are called in C++.
    scopes: Vec<(usize, HashMap<String, String>)>,
    scope_count: usize,
}

/// What begins with a name up to its end; braces inside are operands.
fn operands(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut now) = (Vec::new(), 0, String::new());
    for c in text.chars() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            found.push(now.trim().to_owned());
            now.clear();
        } else {
            now.push(c);
        }
    }
    found.push(now.trim().to_owned());
    found
}

fn list(operand: &str) -> Vec<String> {
    operands(operand.trim_start_matches('{').trim_end_matches('}'))
}

impl Body {
    fn translate(&mut self, text: &str) {
        let mut rest = text.trim_start();
        loop {
            if let Some(after) = rest.strip_prefix('{') {
                self.scope_count += 1;
                self.scopes.push((self.scope_count, HashMap::new()));
                rest = after;
            } else if let Some(after) = rest.strip_prefix('}') {
                if self.scopes.pop().is_none() {
                    return;
                }
                rest = after;
            } else {
                let end = rest.find([';', ':']).expect("a statement");
                // A colon inside an instruction is one of two: L2::128B.
                if rest.as_bytes()[end] == b':' && !rest[end..].starts_with("::") {
                    let label = self.label(rest[..end].trim());
                    writeln!(self.statements, "{label}:;").unwrap();
                    rest = &rest[end + 1..];
                } else {
                    let end = rest.find(';').expect("a statement");
                    self.statement(rest[..end].trim());
                    rest = &rest[end + 1..];
                }
            }
            rest = rest.trim_start();
        }
    }

    fn statement(&mut self, text: &str) {
        if let Some(declared) = text.strip_prefix(".reg") {
            return self.declare(declared);
        }
        if text.starts_with('.') {
            return;
        }
        let (condition, text) = match text.strip_prefix('@') {
            None => (None, text),
            Some(rest) => {
                let (predicate, rest) = rest.split_once(char::is_whitespace).expect("a predicate");
                let (not, name) = match predicate.strip_prefix('!') {
                    Some(name) => ("!", name),
                    None => ("", predicate),
                };
                (Some(format!("{not}{}", self.register(name).0)), rest.trim())
            }
        };
        let (opcode, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operands = if rest.trim().is_empty() { Vec::new() } else { operands(rest) };
        let line = self.instruction(opcode, &operands);
        match condition {
            Some(condition) => writeln!(self.statements, "if ({condition}) {{ {line} }}"),
            None => writeln!(self.statements, "{line}"),
        }
        .unwrap();
    }

    fn declare(&mut self, declared: &str) {
        let declared = declared.trim().trim_start_matches('.');
        let (ty, names) = declared.split_once(char::is_whitespace).expect("a type");
        let kind = Kind::of(ty);
        for name in names.split(',').map(str::trim) {
            if let Some((name, count)) = name.split_once('<') {
                let count: usize = count.trim_end_matches('>').parse().unwrap();
                let name = name.trim_start_matches('%');
                for number in 0..count {
                    writeln!(self.declarations, "{} {name}{number};", kind.name()).unwrap();
                }
                self.kinds.insert(name.to_owned(), kind);
            } else {
                let (scope, names) = self.scopes.last_mut().expect("a scope");
                let unique = format!("{name}_{scope}");
                writeln!(self.declarations, "{} {unique};", kind.name()).unwrap();
                self.kinds.insert(unique.clone(), kind);
                names.insert(name.to_owned(), unique);
            }
        }
    }

    /// Labels in blocks of assembly are their own.
    fn label(&self, name: &str) -> String {
        match (name.strip_prefix('$'), self.scopes.last()) {
            (None, Some((scope, _))) => format!("{name}_{scope}"),
            (outside, _) => format!("at_{}", outside.unwrap_or(name)),
        }
    }

    /// Its name in C++ and its kind.
    fn register(&self, name: &str) -> (String, Kind) {
        if let Some(unique) = self.scopes.iter().rev().find_map(|(_, names)| names.get(name)) {
            return (unique.clone(), self.kinds[unique]);
        }
        let name = name.strip_prefix('%').unwrap_or_else(|| panic!("{name} is no register"));
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        (name.to_owned(), self.kinds[kind])
    }

    /// The value of an operand, read as `ty`.
    fn value(&self, operand: &str, ty: &str) -> String {
        if let Some(bits) = operand.strip_prefix("0f").or(operand.strip_prefix("0F")) {
            return format!("bits_to_float(0x{bits}u)");
        }
        if operand.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return format!("static_cast<{}>({operand}ll)", value_type(ty));
        }
        let special = match operand {
            "%tid.x" => "thread_index()",
            "%ctaid.x" => "block_x()",
            "%ctaid.y" => "block_y()",
            "%ctaid.z" => "block_z()",
            name if name.contains("shared_memory") => "shared_base()",
            name if name.contains("_param_0") => "reinterpret_cast<uint64_t>(params)",
            _ => "",
        };
        if !special.is_empty() {
            return format!("static_cast<{}>({special})", value_type(ty));
        }
        let (name, kind) = self.register(operand);
        match (kind, ty) {
            (Kind::Float, "f32") | (Kind::Predicate, _) => name,
            (Kind::Float, _) => format!("static_cast<{}>(float_to_bits({name}))", value_type(ty)),
            (_, "f32") => format!("bits_to_float({name})"),
            _ => format!("static_cast<{}>({name})", value_type(ty)),
        }
    }

    /// A value of type `ty` into a register; `_` and predicates that nobody asked for are left out.
    fn set(&self, operand: &str, ty: &str, value: &str) -> String {
        if operand == "_" {
            return format!("{value};");
        }
        let (name, kind) = self.register(operand);
        match (kind, ty) {
            (Kind::Float, "f32") | (Kind::Predicate, _) => format!("{name} = {value};"),
            (Kind::Float, _) => format!("{name} = bits_to_float({value});"),
            (_, "f32") => format!("{name} = float_to_bits({value});"),
            _ => format!("{name} = static_cast<{}>({value});", kind.name()),
        }
    }

    /// `[register + offset]`
    fn address(&self, operand: &str, ty: &str) -> String {
        let inside = operand.trim_start_matches('[').trim_end_matches(']');
        let (base, offset) = inside.split_once('+').unwrap_or((inside, "0"));
        format!("({} + {offset})", self.value(base.trim(), ty))
    }

    fn load(&self, operands: &[String], ty: &str, count: usize, from: &str) -> String {
        let to = if count == 1 { vec![operands[0].clone()] } else { list(&operands[0]) };
        let sets: String = to
            .iter()
            .enumerate()
            .map(|(at, to)| self.set(to, ty, &format!("several.x[{at}]")))
            .collect();
        format!("{{ const auto several = {from}; {sets} }}")
    }
}
