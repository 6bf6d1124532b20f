//! The boundary itself, which every noun uses: pointers from C, arrays and structs that grow, what
//! is behind a handle, and how a failure becomes a status.
mod elements;
mod event_fd;
pub(crate) mod fork;
mod guard;
mod handle;
mod many;
mod numbers;
mod pointer;
mod status;

pub(crate) use elements::*;
pub(crate) use event_fd::wake_of;
pub(crate) use guard::*;
pub(crate) use handle::*;
pub(crate) use many::*;
pub(crate) use numbers::*;
pub(crate) use pointer::*;
pub use status::*;
