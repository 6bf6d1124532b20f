//! What was counted.

/// Of a remote store, since it was attached unless it says "now".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Values that it was asked for.
    pub asked: u64,
    /// Of those, what it said it has.
    pub found: u64,
    /// Values that were read, and were what was sealed.
    pub read: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Values that were written.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Values that were to be written, and were there already.
    pub known: u64,
    /// Values that were read and were not what was sealed. They were removed.
    pub damaged: u64,
    /// Values that were gone when they were to be read.
    pub gone: u64,
    /// Values about which there was no answer.
    pub failed: u64,
    /// Values that were not asked about because their time was over first.
    pub late: u64,
    /// Values that were not asked about, written or read during a pause.
    pub skipped: u64,
    /// Calls that were made.
    pub calls: u64,
    /// Calls that took longer than they may.
    pub slow_calls: u64,
    /// Nanoseconds in calls.
    pub call_nanoseconds: u64,
    /// The longest.
    pub call_nanoseconds_max: u64,
    /// Pauses that were begun.
    pub pauses: u64,
    /// Values now that wait to be written, or are.
    pub waiting: u64,
    /// Nobody asks now.
    pub is_paused: bool,
}
