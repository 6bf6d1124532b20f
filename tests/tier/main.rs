//! The store on disk: what was put is found again, whatever happens to process and disk.
mod support;

mod bytes;
mod owner;
mod restart;
mod room;
