//! Events in their encoded form, which wait for room in a batch.
use crate::memory::{OutOfMemory, TryGrow};
use std::collections::VecDeque;
use std::io::{self, Write};

/// What an event does to blocks, for counting.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Effect {
    pub stored: usize,
    pub removed: usize,
}

#[derive(Debug)]
struct Event {
    end: usize,
    effect: Effect,
}

/// Bytes of events, one after another.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    events: VecDeque<Event>,
    /// Where the first of them begins.
    begin: usize,
}

/// Grows, and says so where it can't.
struct Growing<'a>(&'a mut Vec<u8>);

impl Write for Growing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An error of a kind alone takes no memory.
        self.0.try_extend_from_slice(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Outbox {
    /// Adds an event, or nothing where there is no memory.
    pub fn push(
        &mut self,
        effect: Effect,
        encode: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), OutOfMemory> {
        self.events.try_reserve(1)?;
        let before = self.bytes.len();
        if encode(&mut Growing(&mut self.bytes)).is_err() {
            self.bytes.truncate(before);
            return Err(OutOfMemory);
        }
        self.events.push_back(Event { end: self.bytes.len(), effect });
        Ok(())
    }

    /// The event that waits longest.
    pub fn first(&self) -> Option<(&[u8], Effect)> {
        let event = self.events.front()?;
        Some((&self.bytes[self.begin..event.end], event.effect))
    }

    /// Drops that one.
    pub fn drop_first(&mut self) {
        let Some(event) = self.events.pop_front() else { return };
        self.begin = event.end;
        if self.events.is_empty() {
            self.bytes.clear();
            self.begin = 0;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
