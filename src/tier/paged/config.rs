//! How pages are kept below the device.
use super::super::remote::RemoteConfig;
use super::super::{FoundRecords, LowerStore, Wake};
use crate::memory::{Arc, Slots};

/// When a page is copied to host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagePolicy {
    /// As soon as it is published.
    Through,
    /// When so many sequences have asked for what follows it.
    AfterUses(u8),
    /// When it is about to be evicted.
    OnEviction,
}

impl PagePolicy {
    pub(super) fn counts_uses(self) -> bool {
        matches!(self, Self::AfterUses(_))
    }
}

/// Where host memory is.
#[derive(Debug)]
pub enum HostMemory {
    /// So many bytes of the library's own, at most.
    Own(u64),
    /// Slots of the engine's, each of a page's bytes.
    Given(Arc<Slots>),
}

/// The pages of a pool.
#[derive(Debug)]
pub struct TierPool {
    /// Bytes of a page, in all layers of a group together.
    pub page_bytes: usize,
    /// Where their host memory is.
    pub host: HostMemory,
}

/// What is below the device.
pub struct TierConfig {
    /// By pool.
    pub pools: Vec<TierPool>,
    /// What is below host memory, and what it has already.
    pub disk: Option<(Box<dyn LowerStore>, FoundRecords)>,
    /// What is below that, shared with others.
    pub remote: Option<RemoteConfig>,
    /// When pages are copied to host memory.
    pub policy: PagePolicy,
    /// Nothing that was fetched is visible before all ranks have agreed how much.
    pub agrees: bool,
    /// Called when there is something to poll for after there was nothing.
    pub wake: Option<Wake>,
}
