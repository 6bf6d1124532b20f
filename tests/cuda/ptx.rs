//! Kernels as nvcc made them: their PTX as C++ over the words of the emulator, an instruction a
//! line, so that operands of inline assembly, and what the compiler moved, are run too.
//!
//! attn_sm90 is not among them: its products change registers behind the compiler's back.
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
    /// Names that blocks of assembly declare, and what they are called in C++.
    scopes: Vec<HashMap<String, String>>,
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

fn label(name: &str) -> String {
    name.replace('$', "at_")
}

impl Body {
    fn translate(&mut self, text: &str) {
        let mut rest = text.trim_start();
        loop {
            if let Some(after) = rest.strip_prefix('{') {
                self.scopes.push(HashMap::new());
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
                    writeln!(self.statements, "{}:;", label(rest[..end].trim())).unwrap();
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
                self.scope_count += 1;
                let unique = format!("{name}_{}", self.scope_count);
                writeln!(self.declarations, "{} {unique};", kind.name()).unwrap();
                self.kinds.insert(unique.clone(), kind);
                self.scopes.last_mut().expect("a scope").insert(name.to_owned(), unique);
            }
        }
    }

    /// Its name in C++ and its kind.
    fn register(&self, name: &str) -> (String, Kind) {
        if let Some(unique) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
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

    fn instruction(&self, opcode: &str, o: &[String]) -> String {
        let words: Vec<&str> = opcode.split('.').collect();
        let ty = *words.last().unwrap();
        let is_float = ty == "f32";
        let v = |at: usize| self.value(&o[at], ty);
        let unsigned = |at: usize| self.value(&o[at], &ty.replace('s', "u"));
        let set = |value: String| self.set(&o[0], ty, &value);
        let operator = |sign: &str| set(format!("{} {sign} {}", unsigned(1), unsigned(2)));
        let has = |word: &str| words.contains(&word);
        match words[0] {
            "mov" if o[0].starts_with('{') => {
                let (parts, bits) = (list(&o[0]), if ty == "b64" { 32 } else { 16 });
                let part = if ty == "b64" { "b32" } else { "b16" };
                self.set(&parts[0], part, &v(1))
                    + &self.set(&parts[1], part, &format!("{} >> {bits}", v(1)))
            }
            "mov" if o[1].starts_with('{') => {
                let (parts, bits) = (list(&o[1]), if ty == "b64" { 32 } else { 16 });
                let part = if ty == "b64" { "b32" } else { "b16" };
                let half = |at: usize| {
                    format!("static_cast<{}>({})", value_type(ty), self.value(&parts[at], part))
                };
                set(format!("{} | {} << {bits}", half(0), half(1)))
            }
            "mov" | "cvta" => set(v(1)),
            "add" => operator("+"),
            "sub" => operator("-"),
            "mul" if has("wide") => {
                let wide = ty.replace("32", "64");
                let factor = |at: usize| format!("static_cast<{}>({})", value_type(&wide), v(at));
                self.set(&o[0], &wide, &format!("{} * {}", factor(1), factor(2)))
            }
            "mul" if has("hi") => set(format!("multiply_high({}, {})", v(1), v(2))),
            "mul" if ty == "f16x2" => {
                let word = |at: usize| self.value(&o[at], "b32");
                self.set(&o[0], "b32", &format!("F16::multiply({}, {})", word(1), word(2)))
            }
            "mul" => operator("*"),
            "mad" if has("lo") => {
                set(format!("{} * {} + {}", unsigned(1), unsigned(2), unsigned(3)))
            }
            "fma" if ty == "bf16x2" => {
                let word = |at: usize| self.value(&o[at], "b32");
                let value = format!("ptx::fma_bf16x2({}, {}, {})", word(1), word(2), word(3));
                self.set(&o[0], "b32", &value)
            }
            "fma" => set(format!("fmaf({}, {}, {})", v(1), v(2), v(3))),
            "div" => set(format!("{} / {}", v(1), v(2))),
            "rem" => set(format!("{} % {}", v(1), v(2))),
            "rcp" => set(format!("1.0f / {}", v(1))),
            "ex2" => set(format!("exp2f({})", v(1))),
            "lg2" => set(format!("log2f({})", v(1))),
            "neg" if is_float => set(format!("-{}", v(1))),
            "neg" => set(format!("0 - {}", unsigned(1))),
            "not" if ty == "pred" => set(format!("!{}", v(1))),
            "not" => set(format!("~{}", v(1))),
            "and" => operator("&"),
            "or" => operator("|"),
            "xor" => operator("^"),
            "shl" => set(format!("ptx::shift_left({}, {})", v(1), self.value(&o[2], "u32"))),
            "shr" => set(format!("ptx::shift_right({}, {})", v(1), self.value(&o[2], "u32"))),
            "min" | "max" if is_float => set(format!("f{}f({}, {})", words[0], v(1), v(2))),
            "min" | "max" => set(format!("std::{}({}, {})", words[0], v(1), v(2))),
            "setp" => {
                let (a, b) = (v(1), v(2));
                let sign = |name: &str| match name {
                    "eq" => "==",
                    "ne" => "!=",
                    "lt" => "<",
                    "le" => "<=",
                    "gt" => ">",
                    "ge" => ">=",
                    _ => panic!("{opcode}"),
                };
                let value = match words[1].strip_suffix('u').filter(|_| is_float) {
                    Some(name) => format!("!ptx::is_ordered({a}, {b}) || {a} {} {b}", sign(name)),
                    None if is_float => {
                        format!("ptx::is_ordered({a}, {b}) && {a} {} {b}", sign(words[1]))
                    }
                    None => format!("{a} {} {b}", sign(words[1])),
                };
                self.set(&o[0], "pred", &value)
            }
            "selp" => set(format!("{} ? {} : {}", self.value(&o[3], "pred"), v(1), v(2))),
            "cvt" if ty == "f16" => {
                self.set(&o[0], "f32", &format!("F16::widen({})", self.value(&o[1], "b16")))
            }
            // The first one becomes the upper half.
            "cvt" if has("bf16x2") || has("f16x2") => {
                let format = if has("bf16x2") { "Bf16" } else { "F16" };
                self.set(&o[0], "b32", &format!("{format}::pack({}, {})", v(2), v(1)))
            }
            "cvt" => self.set(&o[0], words[1], &v(1)),
            "prmt" => {
                set(format!("ptx::permute({}, {}, {})", v(1), v(2), self.value(&o[3], "u32")))
            }
            "bfi" => {
                let place = |at: usize| self.value(&o[at], "u32");
                let ty = value_type(ty);
                set(format!(
                    "ptx::insert_bits<{ty}>({}, {}, {}, {})",
                    v(1),
                    v(2),
                    place(3),
                    place(4)
                ))
            }
            "ld" | "st" => self.access(&words, o),
            "shfl" => {
                let to = o[0].split('|').next().unwrap();
                let (value, lane) = (v(1), self.value(&o[2], "s32"));
                let word = if has("bfly") { "shuffle_xor" } else { "shuffle_from" };
                let value = match word {
                    "shuffle_from" => format!("{word}(static_cast<int>({value}), {lane} & 31)"),
                    _ => format!("{word}({value}, {lane})"),
                };
                self.set(to, ty, &value)
            }
            "vote" if has("any") => set(format!("any_lane({})", v(1))),
            "bar" if has("warp") => "sync_warp();".to_owned(),
            "bar" if opcode == "bar.sync" && o == ["0"] => "sync_block();".to_owned(),
            "bra" => format!("goto {};", label(&o[0])),
            "ret" => "return;".to_owned(),
            "cp" if has("commit_group") => "copy_async_commit();".to_owned(),
            "cp" if has("wait_group") => format!("copy_async_wait<{}>();", o[0]),
            // 16 bytes, of which so many are read; the others become zeros.
            "cp" if has("cg") && o[2] == "16" => format!(
                "copy_async16({}, reinterpret_cast<const void *>({}), {} == 16);",
                self.address(&o[0], "u32"),
                self.address(&o[1], "u64"),
                self.value(&o[3], "u32")
            ),
            "ldmatrix" if has("m8n8") && has("x4") => {
                let word = if has("trans") { "load_matrix4_transposed" } else { "load_matrix4" };
                let sets: String = list(&o[0])
                    .iter()
                    .enumerate()
                    .map(|(at, to)| self.set(to, "b32", &format!("r[{at}]")))
                    .collect();
                format!("{{ uint32_t r[4]; {word}(r, {}); {sets} }}", self.address(&o[1], "u32"))
            }
            "mma" if has("m16n8k16") && has("row") && has("col") => {
                let format = if has("bf16") { "Bf16" } else { "F16" };
                let all = |at: usize, ty: &str| {
                    let values: Vec<_> =
                        list(&o[at]).iter().map(|name| self.value(name, ty)).collect();
                    values.join(", ")
                };
                let sets: String = list(&o[0])
                    .iter()
                    .enumerate()
                    .map(|(at, to)| self.set(to, "f32", &format!("c[{at}]")))
                    .collect();
                format!(
                    "{{ float c[4] = {{{}}}; const uint32_t a[4] = {{{}}}; \
                     {format}::multiply_add(c, a, {}); {sets} }}",
                    all(3, "f32"),
                    all(1, "b32"),
                    all(2, "b32")
                )
            }
            _ => panic!("the translator does not know {opcode} {o:?}"),
        }
    }

    fn access(&self, words: &[&str], o: &[String]) -> String {
        let ty = *words.last().unwrap();
        let count = words.iter().find_map(|word| word.strip_prefix('v')?.parse().ok()).unwrap_or(1);
        let several = format!("<{}, {count}>", value_type(ty));
        let space = words.iter().find(|word| ["param", "global", "shared"].contains(word));
        let space = *space.unwrap_or_else(|| panic!("the space of {words:?}"));
        let width = if space == "shared" { "u32" } else { "u64" };
        if words[0] == "st" {
            let from = if count == 1 { vec![o[1].clone()] } else { list(&o[1]) };
            let values: Vec<_> = from.iter().map(|name| self.value(name, ty)).collect();
            let to = self.address(&o[0], width);
            let values = values.join(", ");
            return format!("ptx::store_{space}{several}({to}, {{{{{values}}}}});");
        }
        let from = self.address(&o[1], width);
        match space {
            "param" => {
                let from = format!(
                    "ptx::load_bytes<ptx::Several{several}>(reinterpret_cast<const void *>({from}))"
                );
                self.load(o, ty, count, &from)
            }
            space => self.load(o, ty, count, &format!("ptx::load_{space}{several}({from})")),
        }
    }
}
