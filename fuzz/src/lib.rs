//! What the fuzz targets do with their bytes. Each function takes any bytes, turns them into calls
//! of the C ABI, and panics when the library breaks its contract; the tests replay saved inputs
//! through the same functions.

mod abi;
mod arguments;
mod groups;
mod input;
mod operations;
mod prompt;
mod snapshot;
mod tokens;

pub use arguments::{FUNCTIONS, arguments, never_succeeded};
pub use groups::groups;
pub use operations::operations;
pub use tokens::tokens;
