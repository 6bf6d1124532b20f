//! A record as words: what stands in the ring, complete in itself.
//!
//! ```text
//!   stored   kind and group · pages · items · parent · position (2) · [namespace] · pages ·
//!            [pages of group 0] · tokens · items
//!   removed  kind, reason and group · pages · pages
//!   cleared  kind · 0 · namespace
//! ```
use crate::index::{NAMESPACE_WORDS, Namespace};
use crate::token::{Keys, Part, TEXT_ID_LIMIT, TokenKind, is_text, visit_parts};

/// Pages of a record at most.
pub(super) const RECORD_PAGES: usize = 64;
/// Words of a record at most, unless a single page takes more.
pub(super) const RECORD_WORDS: usize = 2048;
/// Words of the largest record: enough for any of one page, and for many pages of text.
pub fn largest_record(page_size: usize) -> usize {
    RECORD_WORDS.max(HEAD_WORDS + NAMESPACE_WORDS + 2 + page_size * (1 + ITEM_WORDS))
}

const HEAD_WORDS: usize = 6;
const REMOVED_HEAD_WORDS: usize = 2;
const CLEARED_HEAD_WORDS: usize = 2;
/// Words of a record that says of a namespace that it was cleared.
pub(super) const CLEARED_WORDS: usize = CLEARED_HEAD_WORDS + NAMESPACE_WORDS;
const ITEM_WORDS: usize = 9;

const STORED: u32 = 1;
const REMOVED: u32 = 2;
const CLEARED: u32 = 4;
/// Where the reason and the group stand beside the kind.
const REASON_SHIFT: u32 = 8;
const GROUP_SHIFT: u32 = 24;
/// The record has a namespace other than the default one.
const NAMED: u32 = 1 << 16;

/// Why pages left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Evicted to make room for something else.
    Capacity,
    /// Evicted because the caller asked for it.
    Caller,
    /// The cache was destroyed.
    Destroyed,
    /// Cleared before.
    Invalidated,
    /// A path had more states than it keeps.
    Limit,
}

const REASONS: [Reason; 5] =
    [Reason::Capacity, Reason::Caller, Reason::Destroyed, Reason::Invalidated, Reason::Limit];

/// Pages that came in, of one prefix and one after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored<'a> {
    pub namespace: &'a Namespace,
    /// The page of group 0 before the first; 0 at the beginning of a prefix.
    pub parent: u32,
    /// The position in the prefix at which the first begins.
    pub first_position: u64,
    pub group: usize,
    pub pages: &'a [u32],
    /// The pages of group 0 with the same positions.
    pub spine: &'a [u32],
}

/// A record of pages that came in, to be written.
pub(super) struct Draft<'a> {
    pub stored: Stored<'a>,
    pub keys: Keys<'a>,
    /// Positions of an image that stand before the first key.
    pub open: u32,
}

impl Draft<'_> {
    fn head_words(&self) -> usize {
        let named = *self.stored.namespace != Namespace::default();
        HEAD_WORDS + if named { NAMESPACE_WORDS } else { 0 }
    }

    /// Words that it takes.
    pub fn words(&self) -> usize {
        let mut items = 0;
        visit_parts(self.keys, self.open, &mut |_| items += 1);
        let pages = self.stored.pages.len() * if self.stored.group == 0 { 1 } else { 2 };
        self.head_words() + pages + self.keys.keys.len() + items * ITEM_WORDS
    }

    /// Writes it into as many words.
    pub fn write(&self, into: &mut [u32]) {
        let Stored { namespace, parent, first_position, group, pages, spine } = self.stored;
        let spine = if group == 0 { &[] } else { spine };
        let head = self.head_words();
        let named = head > HEAD_WORDS;
        let keys = self.keys.keys;
        let (spine_at, keys_at) = (head + pages.len(), head + pages.len() + spine.len());
        let items_at = keys_at + keys.len();
        let items = (into.len() - items_at) / ITEM_WORDS;
        into[0] = STORED | (group as u32) << GROUP_SHIFT | if named { NAMED } else { 0 };
        (into[1], into[2], into[3]) = (pages.len() as u32, items as u32, parent);
        (into[4], into[5]) = (first_position as u32, (first_position >> 32) as u32);
        if named {
            into[HEAD_WORDS..head].copy_from_slice(&namespace.words());
        }
        into[head..spine_at].copy_from_slice(pages);
        into[spine_at..keys_at].copy_from_slice(spine);
        into[keys_at..items_at].copy_from_slice(keys);
        if items > 0 {
            for token in into[keys_at..items_at].iter_mut().filter(|token| !is_text(**token)) {
                *token = TEXT_ID_LIMIT;
            }
            let mut places = into[items_at..].chunks_exact_mut(ITEM_WORDS);
            visit_parts(self.keys, self.open, &mut |part| {
                write_part(places.next().expect("room was made for it"), part);
            });
        }
    }
}

fn write_part(into: &mut [u32], part: Part) {
    let Part { kind, start, positions, offset } = part;
    let (number, values) = match kind {
        TokenKind::Coord { bin } => (1, [bin, 0, 0, 0, 0]),
        TokenKind::Size { width_bin, height_bin } => (2, [width_bin, height_bin, 0, 0, 0]),
        TokenKind::Image { digest, positions } => {
            let word = |at: usize| u32::from_le_bytes(digest[4 * at..][..4].try_into().unwrap());
            (3, [positions, word(0), word(1), word(2), word(3)])
        }
    };
    into[..4].copy_from_slice(&[number, start as u32, positions as u32, offset]);
    into[4..].copy_from_slice(&values);
}

fn read_part(from: &[u32]) -> Part {
    let kind = match from[0] {
        1 => TokenKind::Coord { bin: from[4] },
        2 => TokenKind::Size { width_bin: from[4], height_bin: from[5] },
        _ => {
            let mut digest = [0; 16];
            for (four, word) in digest.chunks_exact_mut(4).zip(&from[5..]) {
                four.copy_from_slice(&word.to_le_bytes());
            }
            TokenKind::Image { digest, positions: from[4] }
        }
    };
    Part { kind, start: from[1] as usize, positions: from[2] as usize, offset: from[3] }
}

pub(super) fn removed_words(pages: usize) -> usize {
    REMOVED_HEAD_WORDS + pages
}

pub(super) fn write_removed(into: &mut [u32], group: usize, pages: &[u32], reason: Reason) {
    let kind = REMOVED | (reason as u32) << REASON_SHIFT | (group as u32) << GROUP_SHIFT;
    (into[0], into[1]) = (kind, pages.len() as u32);
    into[REMOVED_HEAD_WORDS..].copy_from_slice(pages);
}

/// A record, read where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its number.
    pub number: u64,
    /// The group of the pages.
    pub group: usize,
    /// The pages that it is about.
    pub pages: &'a [u32],
    /// What happened to them.
    pub what: What<'a>,
    /// All of it, as it lies in the ring.
    words: &'a [u32],
}

/// Writes into as many words that a namespace was cleared.
pub(super) fn write_cleared(into: &mut [u32], namespace: &Namespace) {
    (into[0], into[1]) = (CLEARED, 0);
    into[CLEARED_HEAD_WORDS..].copy_from_slice(&namespace.words());
}

/// What happened to pages.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    /// They came in, one after another in a prefix.
    Stored {
        /// Their namespace.
        namespace: Namespace,
        /// The page of group 0 before the first; 0 at the beginning of a prefix.
        parent: u32,
        /// The position in the prefix at which the first begins.
        first_position: u64,
        /// Of a group beside the first, the pages of group 0 with the same positions; else none.
        spine: &'a [u32],
        /// An id for each position of the pages, 2^31 where it is not of a text token.
        tokens: &'a [u32],
        /// What those are.
        parts: Parts<'a>,
    },
    /// They left, the first of them first.
    Removed(Reason),
    /// All that a namespace had can't be found any more. No page is named.
    Cleared(Namespace),
}

/// What is not text in a record.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a>(&'a [u32]);

impl<'a> Parts<'a> {
    /// How many.
    pub fn count(self) -> usize {
        self.0.len() / ITEM_WORDS
    }

    /// In the order of their positions.
    pub fn iter(self) -> impl Iterator<Item = Part> + 'a {
        self.0.chunks_exact(ITEM_WORDS).map(read_part)
    }
}

impl<'a> Record<'a> {
    /// The words that it is made of: a copy of them is read like the record itself.
    pub fn words(&self) -> &'a [u32] {
        self.words
    }

    /// Reads the words of a record.
    pub fn read(number: u64, page_size: usize, words: &'a [u32]) -> Self {
        let (count, group) = (words[1] as usize, (words[0] >> GROUP_SHIFT) as usize);
        if words[0] & 0xff == REMOVED {
            let reason = REASONS[(words[0] >> REASON_SHIFT & 0xff) as usize];
            return Self {
                number,
                group,
                pages: &words[REMOVED_HEAD_WORDS..],
                what: What::Removed(reason),
                words,
            };
        }
        if words[0] & 0xff == CLEARED {
            let (name, _) = words[CLEARED_HEAD_WORDS..].split_first_chunk().expect("it is there");
            let what = What::Cleared(Namespace::from_words(name));
            return Self { number, group, pages: &[], what, words };
        }
        let (namespace, head) = if words[0] & NAMED == 0 {
            (Namespace::default(), HEAD_WORDS)
        } else {
            let (name, _) = words[HEAD_WORDS..].split_first_chunk().expect("the name is there");
            (Namespace::from_words(name), HEAD_WORDS + NAMESPACE_WORDS)
        };
        let (pages, rest) = words[head..].split_at(count);
        let (spine, rest) = rest.split_at(if group == 0 { 0 } else { count });
        let (tokens, items) = rest.split_at(count * page_size);
        let first_position = u64::from(words[4]) | u64::from(words[5]) << 32;
        let (parent, parts) = (words[3], Parts(items));
        let what = What::Stored { namespace, parent, first_position, spine, tokens, parts };
        Self { number, group, pages, what, words }
    }
}
