//! The model test: random operations, the library, and the specification beside it. Several tests
//! include this; each says how calls are made (`calls.rs` is the plain way).
pub mod abi;
pub mod batches;
pub mod caching;
#[allow(dead_code)] // for tests that make calls just so
pub mod calls;
pub mod children;
pub mod clearing;
pub mod compare;
pub mod driver;
pub mod generate;
pub mod harness;
pub mod inherit;
pub mod journal;
pub mod lookups;
pub mod naive;
pub mod namespaces;
pub mod ops;
pub mod pages;
pub mod prompt;
pub mod published;
pub mod requests;
pub mod rows;
pub mod sequences;
pub mod shrink;
pub mod spaces;
pub mod tokens;
