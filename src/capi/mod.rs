//! The C ABI: thin and mechanical, the only place with `extern "C"`. Each body checks and converts
//! its arguments, calls one verb of [`crate::sequence`] or [`crate::snapshot`], and writes the
//! result.
#![allow(non_camel_case_types)] // the names here are the C names
#![allow(clippy::missing_safety_doc)] // the header states each contract
#![allow(clippy::too_many_arguments)]
#![allow(rustdoc::broken_intra_doc_links)] // [position][head]: shapes, for the header's readers

// The order of these modules is the order of the header.
mod version;
mod status;
mod log;
mod token;
mod namespace;
mod page_digest;
mod page_table;
mod batch;
mod cache;
mod clear;
mod lookup;
mod lookup_many;
mod insert;
mod lock;
mod node;
mod introspection;
mod sequence;
mod sequence_many;
mod plan;
mod kv;
mod threads;
mod runner;
mod attention;
mod continuation;
mod journal;
mod journal_buffers;
mod snapshot;
mod snapshot_entry;

mod callback;
mod elements;
mod fork;
mod guard;
mod handle;
mod many;
mod pointer;
mod snapshot_handle;

pub use attention::*;
pub use batch::*;
pub use cache::*;
pub use clear::*;
pub use continuation::*;
pub use insert::*;
pub use introspection::*;
pub use journal::*;
pub use kv::*;
pub use lock::*;
pub use log::*;
pub use lookup::*;
pub use lookup_many::*;
pub use namespace::*;
pub use node::*;
pub use page_digest::*;
pub use page_table::*;
pub use plan::*;
pub use runner::*;
pub use sequence::*;
pub use sequence_many::*;
pub use snapshot::*;
pub use snapshot_entry::*;
pub use status::*;
pub use threads::*;
pub use token::*;
pub use version::*;
