//! A page that waits to be given to the store that caches share.
use super::super::Source;
use super::disk::Written;
use crate::index::Namespace;
use crate::memory::Arc;
use crate::store::Shared;

/// A slot that waits to be written, unless its namespace is cleared meanwhile.
pub(super) struct Offered {
    pub(super) page: Written,
    pub(super) shared: Arc<Shared>,
    pub(super) namespace: Namespace,
    /// The latest clear when the store was attached.
    pub(super) since: u64,
}

impl Source for Offered {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, index: usize) -> &[u8] {
        self.page.part(index)
    }

    fn are_intact(&self, bytes: &[u8]) -> bool {
        self.page.are_intact(bytes)
    }

    fn is_wanted(&self) -> bool {
        // A thread of the store's asks, which goes on with others'.
        let state = self.shared.read_if_whole();
        state.is_some_and(|state| !state.cleared_since(self.since)(&self.namespace))
    }
}
