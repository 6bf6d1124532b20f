//! The store on disk: what was put is found again, whatever happens to process and disk.
mod crash;
mod folder;
mod jumps;
mod runs;
mod sim;
mod story;
mod support;

mod bytes;
mod clock;
mod deferred;
mod owner;
mod damage;
mod killed;
mod removed;
mod restart;
mod ring;
mod room;
mod straight;
mod troubles;
