//! The C interface in Rust: constants, structs, functions.
use std::fmt::Write;

use crate::header::{Field, Function, Header};

/// The Rust type of a C one.
pub fn rust_type(kind: &str) -> String {
    if let Some(front) = kind.strip_suffix('*') {
        let front = front.trim();
        // `const void *const *`: what stands before the last star is itself constant.
        return match front.strip_suffix("const") {
            Some(inner) => format!("*const {}", rust_type(inner.trim())),
            None => match front.strip_prefix("const ") {
                Some(inner) if !inner.contains('*') => format!("*const {}", rust_type(inner)),
                _ => format!("*mut {}", rust_type(front)),
            },
        };
    }
    match kind.strip_prefix("const ").unwrap_or(kind) {
        "uint8_t" => "u8",
        "uint32_t" => "u32",
        "int32_t" | "rkv_status" => "i32",
        "uint64_t" => "u64",
        "int64_t" => "i64",
        "size_t" => "usize",
        "float" => "f32",
        "double" => "f64",
        "char" => "std::ffi::c_char",
        "void" => "std::ffi::c_void",
        other => other,
    }
    .to_owned()
}

fn field_type(field: &Field) -> String {
    let element = rust_type(&field.kind);
    match field.length {
        Some(length) => format!("[{element}; {length}]"),
        None => element,
    }
}

fn signature(function: &Function) -> String {
    let mut text = String::from("(");
    for (at, parameter) in function.parameters.iter().enumerate() {
        write!(text, "a{at}: {}, ", rust_type(&parameter.kind)).unwrap();
    }
    text.push(')');
    if function.result != "void" {
        write!(text, " -> {}", rust_type(&function.result)).unwrap();
    }
    text
}

pub fn write(header: &Header) -> String {
    let mut text = String::new();
    for (name, value) in &header.constants {
        let kind = if name.starts_with("RKV_STATUS_") { "i32" } else { "u32" };
        writeln!(text, "pub const {name}: {kind} = {value};").unwrap();
    }
    for (name, kind) in &header.aliases {
        writeln!(text, "pub type {name} = {};", rust_type(kind)).unwrap();
    }
    for callback in &header.callbacks {
        let signature = signature(callback);
        let name = &callback.name;
        writeln!(text, "pub type {name} = Option<unsafe extern \"C\" fn{signature}>;").unwrap();
    }
    for item in &header.structs {
        let name = &item.name;
        if item.fields.is_empty() {
            writeln!(text, "#[repr(C)]\npub struct {name} {{ _opaque: [u8; 0] }}").unwrap();
            continue;
        }
        writeln!(text, "#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {name} {{").unwrap();
        for field in &item.fields {
            writeln!(text, "    pub {}: {},", field.name, field_type(field)).unwrap();
        }
        writeln!(text, "}}").unwrap();
        // All of it, padding too: the library refuses what it does not know.
        writeln!(text, "impl {name} {{\n    pub fn zeroed() -> Self {{").unwrap();
        writeln!(text, "        // SAFETY: numbers, and pointers which may be null.").unwrap();
        writeln!(text, "        unsafe {{ std::mem::zeroed() }}\n    }}\n}}").unwrap();
        if item.fields.iter().any(|field| field.name == "struct_size") {
            writeln!(text, "impl Sized32 for {name} {{\n    fn sized() -> Self {{").unwrap();
            writeln!(text, "        let struct_size = size_of::<Self>() as u32;").unwrap();
            writeln!(text, "        Self {{ struct_size, ..Self::zeroed() }}").unwrap();
            writeln!(text, "    }}\n}}").unwrap();
        }
    }
    writeln!(text, "unsafe extern \"C\" {{").unwrap();
    for function in &header.functions {
        writeln!(text, "    pub fn {}{};", function.name, signature(function)).unwrap();
    }
    writeln!(text, "}}").unwrap();
    text
}
