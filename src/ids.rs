//! The ids that cross the ABI: integers that name one thing for its lifetime and nothing
//! afterwards.

/// "The prefix that ends here": cache tag (8 bits), generation (24), slot in the index (32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NodeId(pub u64);

/// Generations of an index slot; the slot is retired when they are used up.
pub(crate) const GENERATION_LIMIT: u32 = 1 << 24;

impl NodeId {
    pub(crate) fn new(tag: u8, generation: u32, slot: u32) -> Self {
        debug_assert!(generation < GENERATION_LIMIT);
        Self((tag as u64) << 56 | (generation as u64) << 32 | slot as u64)
    }

    pub(crate) fn tag(self) -> u8 {
        (self.0 >> 56) as u8
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & (GENERATION_LIMIT - 1)
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// A live sequence: cache tag (8 bits), number among those of its slot (36), slot of the page table
/// (20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SequenceId(pub u64);

/// Numbers of sequences are smaller than this.
pub(crate) const SEQUENCE_LIMIT: u64 = 1 << 36;

/// Slots that a sequence id can name.
pub(crate) const SLOT_LIMIT: u32 = 1 << 20;

/// The last number of a slot. A slot that had it is never taken again: an id can't come back.
pub(crate) const NUMBER_LIMIT: u64 = SEQUENCE_LIMIT - 1;

impl SequenceId {
    pub(crate) fn new(tag: u8, number: u64, slot: u32) -> Self {
        assert!(slot < SLOT_LIMIT && number <= NUMBER_LIMIT);
        Self((tag as u64) << 56 | number << 20 | slot as u64)
    }

    /// The slot of its row.
    pub fn slot(self) -> u32 {
        self.0 as u32 & (SLOT_LIMIT - 1)
    }
}

/// Something that a caller holds: block of numbers (16 bits), number in its slot (24), slot (24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct HandleId(pub u64);

/// A pin on a snapshot.
pub type PinId = HandleId;

/// A caller's lock on a node.
pub type LockId = HandleId;

/// Handles of one kind that a cache can have out at once.
pub(crate) const HANDLE_LIMIT: u32 = 1 << 24;
/// Numbers of a slot.
pub(crate) const HANDLE_NUMBER_LIMIT: u32 = 1 << 24;

impl HandleId {
    pub(crate) fn new(block: u16, number: u32, slot: u32) -> Self {
        debug_assert!(number < HANDLE_NUMBER_LIMIT && slot < HANDLE_LIMIT);
        Self((block as u64) << 48 | (number as u64) << 24 | slot as u64)
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32 & (HANDLE_LIMIT - 1)
    }
}
