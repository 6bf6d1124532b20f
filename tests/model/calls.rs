//! How calls are made: just so. `tests/out_of_memory.rs` makes the same ones otherwise.
use super::abi::{Library, Status};

/// A call, by the name of its function.
pub fn call(_: &str, _: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    made()
}

/// Calls that need no memory.
pub fn call_sure(_: &str, _: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    made()
}

/// Whether what follows can't be compared any more.
pub fn ends_here() -> bool {
    false
}

/// Whether an item that is refused stands before each that goes by a batch verb.
pub const REFUSED_BEFORE: bool = true;
