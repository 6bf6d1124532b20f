//! What a run of requests came across.

/// What a run came across.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub begun: u64,
    pub hits: u64,
    pub partial: u64,
    pub states: u64,
    pub saved: u64,
    pub remapped: u64,
    pub slid: u64,
    pub appended: u64,
    pub refused: u64,
    pub evicted: u64,
    pub cleared: u64,
    pub forked: u64,
    /// Went on from a request that ran.
    pub followed: u64,
    pub inherited: u64,
    pub retained: u64,
    pub looked_up: u64,
    pub inserted: u64,
    pub taken_back: u64,
    /// Was not taken back, since a window had slid too far.
    pub kept_back: u64,
    pub accepted: u64,
    pub donated: u64,
    pub dropped: u64,
    pub group_remapped: u64,
    pub out_of_memory: u64,
}

impl Seen {
    /// That a run of so many steps came across everything. Drafts are seldom accepted, and tokens
    /// seldom kept: in few steps, as under AddressSanitizer, perhaps never.
    #[allow(dead_code)] // of the tests
    pub fn assert_all(mut self, steps: u64) {
        if steps < 48_000 {
            (self.accepted, self.kept_back) = (self.accepted.max(1), self.kept_back.max(1));
        }
        assert!(self.counts().into_iter().all(|count| *count > 0), "{self:?}");
    }

    pub fn counts(&mut self) -> [&mut u64; 24] {
        [
            &mut self.cleared,
            &mut self.forked,
            &mut self.followed,
            &mut self.inherited,
            &mut self.retained,
            &mut self.begun,
            &mut self.hits,
            &mut self.partial,
            &mut self.states,
            &mut self.saved,
            &mut self.remapped,
            &mut self.slid,
            &mut self.appended,
            &mut self.refused,
            &mut self.evicted,
            &mut self.looked_up,
            &mut self.inserted,
            &mut self.taken_back,
            &mut self.kept_back,
            &mut self.accepted,
            &mut self.donated,
            &mut self.dropped,
            &mut self.group_remapped,
            &mut self.out_of_memory,
        ]
    }
}
