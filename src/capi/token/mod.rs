//! Tokens, the namespaces that they are in, and digests of their pages.
mod list;
mod namespace;
mod page_digest;

pub use list::*;
pub use namespace::*;
pub use page_digest::*;
