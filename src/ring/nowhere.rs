//! Where there is no io_uring.
use super::{Done, Way};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// None can be made.
#[derive(Debug)]
pub enum Ring {}

/// None can be made.
#[derive(Debug, Clone)]
pub enum Waker {}

impl Ring {
    /// Refuses.
    pub fn new(_: BorrowedFd<'_>, _: usize, _: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// There is none.
    pub fn waker(&self) -> Waker {
        match *self {}
    }

    /// There is none.
    pub fn memory(&mut self, _: usize, _: usize) -> &mut [u8] {
        match *self {}
    }

    /// There is none.
    pub fn start(&mut self, _: usize, _: Way, _: Range<usize>, _: u64) {
        match *self {}
    }

    /// There is none.
    pub fn hand_over(&mut self) {
        match *self {}
    }

    /// There is none.
    pub fn wait(&mut self, _: &mut Vec<Done>) -> io::Result<()> {
        match *self {}
    }
}

impl Waker {
    /// There is none.
    pub fn wake(&self) {
        match *self {}
    }
}
