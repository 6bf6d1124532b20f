//! Requests to one file that the system carries out side by side, handed over and taken back by one
//! thread: io_uring.
//!
//! A ring has its own memory, a place for each request, and lends a place only while no request has
//! it: so whatever the caller does, the system never writes to what somebody else has. Where there
//! is no such thing, or the system refuses, making a ring is an error, and the caller waits for the
//! file by as many threads.

#[cfg(all(target_os = "linux", not(miri)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(miri))))]
mod nowhere;

#[cfg(all(target_os = "linux", not(miri)))]
pub use linux::{Ring, Waker};
#[cfg(not(all(target_os = "linux", not(miri))))]
pub use nowhere::{Ring, Waker};

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// Whose it was.
    pub place: usize,
    /// Bytes, which may be fewer than asked for.
    pub result: std::io::Result<usize>,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}
