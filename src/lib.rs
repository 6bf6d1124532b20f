//! placeholder
#![allow(missing_docs)]
pub mod capi;
