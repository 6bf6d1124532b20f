//! Memory that lookups work in, kept for the next one, so that they allocate nothing.
use crate::lock::RwLock;

/// Scratches that are kept of a kind.
const KEPT: usize = 8;

/// Scratches of a kind. They belong to no thread: what is thread-local and has to be freed needs
/// memory when a thread uses it first, and there the standard library takes no for no answer.
pub(super) struct Scratches<T>([RwLock<Option<T>>; KEPT]);

impl<T: Default> Scratches<T> {
    pub(super) const fn new() -> Self {
        Self([const { RwLock::new(None) }; KEPT])
    }

    /// A scratch that nobody uses.
    pub(super) fn take(&self) -> T {
        let mut free = self.0.iter().filter_map(|scratch| scratch.try_write()?.take());
        free.next().unwrap_or_default()
    }

    /// Keeps it for the next, if there is a place.
    pub(super) fn keep(&self, scratch: T) {
        let mut locked = self.0.iter().filter_map(RwLock::try_write);
        if let Some(mut place) = locked.find(|place| place.is_none()) {
            *place = Some(scratch);
        }
    }
}
