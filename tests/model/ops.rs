//! The operations, as data. Each names live objects by an index that is taken modulo their number,
//! so that any list of operations means something, also after some were dropped.
use super::prompt::Prompt;
use std::fmt;

/// How the page table and the cache are built.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub page_size: usize,
    /// Physical pages, page 0 included.
    pub page_count: usize,
    pub slot_count: usize,
    /// Longest row in pages; 0 as many as there are pages.
    pub row_page_limit: usize,
    /// RKV_CACHE_WHOLE_PAGES.
    pub whole_pages: bool,
    /// RKV_INDEX_BLOCK_HASH.
    pub block_hash: bool,
    /// Limits of what is retained; 0 for the defaults.
    pub retained_sequences: usize,
    pub retained_pages: usize,
    /// Bytes of the journal's ring; 0 for none.
    pub journal_bytes: usize,
}

/// Index of an object, modulo the number of objects.
pub type Pick = u16;

/// What is wrong with an insert that must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    PageZero,
    PageOutOfRange,
    PageFree,
    PageTwice,
    PageCachedElsewhere,
    PageOfSequence,
    TooFewPages,
    TokenIndexTooSmall,
    TokenIndexTooLarge,
    PageIndexTooSmall,
    PageIndexTooLarge,
    IndexWithoutNode,
    OtherPrefix,
    ForeignNode,
}

/// The items of a call over many; none for one that is refused: it has no tokens, or a sequence
/// that is not alive.
#[derive(Clone)]
pub struct Items(pub Vec<Option<Op>>);

/// Items, in the words in which they print themselves.
#[allow(dead_code)] // only tests with cases written by hand use it
pub fn items<const N: usize>(items: [Option<Op>; N]) -> Items {
    Items(items.into())
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "items({:?})", self.0)
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    // The cache.
    Match {
        ns: u8,
        prompt: Prompt,
        lock: bool,
    },
    /// A match with one page less of room than it needs.
    MatchTooSmall {
        ns: u8,
        prompt: Prompt,
    },
    Probe {
        ns: u8,
        prompt: Prompt,
    },
    /// What can be asked of a token list without a cache.
    ReadTokens {
        prompt: Prompt,
    },
    /// Allocates the pages, inserts, and gives the duplicates back unless they are kept.
    Insert {
        ns: u8,
        prompt: Prompt,
        keep: bool,
    },
    /// Goes on from the node of an earlier match, with more tokens.
    InsertResumed {
        earlier: Pick,
        more: Prompt,
        keep: bool,
    },
    /// Publishes pages of a row that the caller filled; they stay mapped there.
    InsertRow {
        row: Pick,
        ns: u8,
        prompt: Prompt,
    },
    /// An insert that must be refused, resumed from an earlier match where the fault needs it.
    InsertWrong {
        wrong: Wrong,
        earlier: Pick,
        ns: u8,
        prompt: Prompt,
    },
    Lock {
        node: Pick,
    },
    Unlock {
        lock: Pick,
    },
    /// With an id that is no lock's any more, or never was.
    UnlockStale {
        lock: Pick,
    },
    Evict {
        count: u16,
        reported: bool,
    },
    /// Room for fewer pages than are wanted.
    EvictSmallBuffer {
        count: u16,
        capacity: u16,
    },
    /// Clears the namespaces that are like one in what the RKV_CLEAR_ flags say.
    Clear {
        ns: u8,
        flags: u16,
    },
    /// Destroys the cache and makes a new one on the same page table.
    RecreateCache,
    // Sequences.
    Begin {
        ns: u8,
        prompt: Prompt,
        reserve: u16,
        /// Positions that get pages at once; 0 for all.
        first: u16,
    },
    /// Pages for all but this many positions.
    Allocate {
        sequence: Pick,
        back: u16,
    },
    /// Pages for more positions than there are.
    AllocateBeyond {
        sequence: Pick,
        more: u16,
    },
    ConfirmCopies {
        sequence: Pick,
    },
    Append {
        sequence: Pick,
        prompt: Prompt,
    },
    /// Keeps all but this many positions.
    Truncate {
        sequence: Pick,
        back: u16,
    },
    /// Keeps more positions than there are.
    TruncateBeyond {
        sequence: Pick,
        more: u16,
    },
    /// All but this many positions are computed.
    Publish {
        sequence: Pick,
        back: u16,
    },
    /// More positions are said to be computed than there are.
    PublishBeyond {
        sequence: Pick,
        more: u16,
    },
    Release {
        sequence: Pick,
    },
    /// All sequence verbs on an id that is not live.
    DeadSequence {
        sequence: Pick,
    },
    // Calls of one verb, all of them by its batch verb.
    BeginMany(Items),
    AppendMany(Items),
    /// Publishes, some of more positions than there are.
    PublishMany(Items),
    ReleaseMany(Items),
    /// Matches, some with too little room.
    MatchMany(Items),
    ProbeMany(Items),
    // Parents and children.
    Retain {
        sequence: Pick,
    },
    /// Any parent, live, retained or none. Namespace 0 is the parent's own.
    Continue {
        parent: Pick,
        ns: u8,
        prompt: Prompt,
        reserve: u16,
        first: u16,
        running: bool,
        /// The same prompt is given to begin with when there is no parent.
        all: bool,
    },
    /// Into `count + 1` children.
    Fork {
        parent: Pick,
        count: u16,
        reserve: u16,
    },
    Drop {
        sequence: Pick,
    },
    DropRetained {
        pages: u16,
    },
    // The page table.
    AllocateSlot,
    Erase {
        slot: Pick,
    },
    AllocatePages {
        count: u16,
    },
    FreePages {
        first: Pick,
        count: u16,
    },
    /// Any page numbers, with one that cannot be freed among them, as it may be.
    FreeAny {
        pages: [u16; 2],
    },
    Map {
        row: Pick,
        first: Pick,
        count: u16,
    },
    /// Any slot, index and page.
    MapAny {
        slot: u16,
        index: u16,
        page: u16,
    },
    /// Maps the pages of a locked match into a row.
    MapMatch {
        row: Pick,
        ns: u8,
        prompt: Prompt,
    },
    Reserve {
        slot: Pick,
        positions: u16,
    },
    CanReserve {
        slot: Pick,
        positions: u16,
    },
    /// Capacity, row range, slot mapping and batch arrays of some rows.
    ReadRows {
        first: Pick,
        count: u16,
        seed: u16,
    },
}
