//! The C interface of the library, as codegen/declarations.rs reads it from the header.
#![allow(non_camel_case_types, dead_code, clippy::missing_safety_doc)]

/// Structs that begin with their own size.
pub trait Sized32: Sized {
    /// All zero, but for the size.
    fn sized() -> Self;
}

include!(concat!(env!("OUT_DIR"), "/c.rs"));
