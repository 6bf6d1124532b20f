//! The C ABI: thin and mechanical, the only place with `extern "C"`. Each body checks and converts
//! its arguments, calls one verb of [`crate::sequence`] or [`crate::snapshot`], and writes the
//! result.
//!
//! ```text
//! library token page_table cache sequence plan runner journal events tier snapshot spatial
//!    └──────┴───────┴────────┴───────┴──────┴──┬──┴───────┴──────┴─────┴──────┴───────┘
//!                                                 ffi
//! ```
//!
//! One file or folder for each noun of the header, named as in the layers below: what C sees of it
//! is written there and nowhere else, its conversions included. What all of them need of the
//! boundary is in `ffi`. The header is made of this folder, in the order of the modules.
#![allow(non_camel_case_types)] // the names here are the C names
#![allow(clippy::missing_safety_doc)] // the header states each contract
#![allow(clippy::too_many_arguments)]
#![allow(rustdoc::broken_intra_doc_links)] // [position][head]: shapes, for the header's readers

// The order of these modules is the order of the header.
mod ffi;
mod library;
mod token;
mod page_table;
mod cache;
mod sequence;
mod plan;
mod runner;
mod journal;
mod events;
mod tier;
mod snapshot;
mod spatial;

pub use cache::*;
pub use events::*;
pub use ffi::{rkv_shortage, rkv_status};
pub use journal::*;
pub use library::*;
pub use page_table::*;
pub use plan::*;
pub use runner::*;
pub use sequence::*;
pub use snapshot::*;
pub use spatial::*;
pub use tier::*;
pub use token::*;
