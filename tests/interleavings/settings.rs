//! What the calls are made on.
use crate::{PAGE_SIZE, PAGES, SLOTS};
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::IndexKind;
use radixkv::paging::{MorePools, PageTableConfig};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// One group of layers, with either index.
    One(IndexKind),
    /// A window beside the spine, in a pool that is tight.
    Window,
    /// A window in the pool of the spine, and a recurrent state.
    State,
    /// A second FULL group, and a window, in a pool of their own.
    Full,
}

pub const SETTINGS: [Setting; 5] = [
    Setting::One(IndexKind::Radix),
    Setting::One(IndexKind::BlockHash),
    Setting::Window,
    Setting::State,
    Setting::Full,
];

impl From<IndexKind> for Setting {
    fn from(index: IndexKind) -> Self {
        Self::One(index)
    }
}

impl Setting {
    pub fn index(self) -> IndexKind {
        match self {
            Self::One(index) => index,
            _ => IndexKind::Radix,
        }
    }

    pub fn config(self) -> PageTableConfig {
        let window = GroupKind::Window { window: 5, sinks: 0 };
        let (spine, state) = (GroupConfig::default(), GroupKind::State.in_pool(1));
        let (groups, pools): (&[GroupConfig], &[u32]) = match self {
            Self::One(_) => (&[spine], &[]),
            Self::Window => (&[spine, window.in_pool(1)], &[50]),
            Self::State => (&[spine, window.in_pool(0), state], &[20]),
            Self::Full => (&[spine, GroupKind::Full.in_pool(1), window.in_pool(1)], &[140]),
        };
        PageTableConfig {
            page_size: PAGE_SIZE,
            // Of a shared pool every group has a part.
            page_count: if self == Self::State { 2 * PAGES } else { PAGES },
            slot_count: SLOTS,
            groups: Groups::new(groups).unwrap(),
            more_pools: MorePools::new(pools).unwrap(),
            ..PageTableConfig::default()
        }
    }
}
