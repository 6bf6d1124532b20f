//! Slips that a test plants in the engine, to see that each is noticed.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
    None,
    /// What a page of a request holds changes.
    SpoiledPage,
    /// The library does not hear that a request ended.
    SkippedRelease,
    /// A lock is forgotten.
    SkippedUnlock,
    /// A copy is confirmed and was not carried out.
    SkippedCopy,
    /// A group reads the row of another one.
    OtherGroup,
}

#[allow(dead_code)] // of the tests
pub const SLIPS: [Slip; 5] = [
    Slip::SpoiledPage,
    Slip::SkippedRelease,
    Slip::SkippedUnlock,
    Slip::SkippedCopy,
    Slip::OtherGroup,
];
