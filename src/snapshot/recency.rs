//! In which order entries go: a list that is threaded through an array, every step O(1).
use super::NONE;

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// Of an entry that is not in the list.
const OUT: Link = Link { before: OUT_MARK, after: OUT_MARK };
const OUT_MARK: u32 = NONE - 1;

/// Entries by the time of their last use, oldest first. Links lie apart from the records: a list
/// of a hundred thousand entries then fits the second-level cache.
#[derive(Debug)]
pub(super) struct Recency {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

impl Recency {
    pub(super) fn new() -> Self {
        Self { links: Vec::new(), oldest: NONE, newest: NONE }
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn contains(&self, at: u32) -> bool {
        self.links.get(at as usize).is_some_and(|link| link.before != OUT_MARK)
    }

    /// Puts an entry that is not in the list at its newest end.
    pub(super) fn push(&mut self, at: u32) {
        debug_assert!(!self.contains(at));
        if self.links.len() <= at as usize {
            self.links.resize(at as usize + 1, OUT);
        }
        self.links[at as usize] = Link { before: self.newest, after: NONE };
        match self.newest {
            NONE => self.oldest = at,
            newest => self.links[newest as usize].after = at,
        }
        self.newest = at;
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, at: u32) {
        debug_assert!(self.contains(at));
        let Link { before, after } = std::mem::replace(&mut self.links[at as usize], OUT);
        match before {
            NONE => self.oldest = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.newest = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// From the oldest to the newest. Ends where the list contradicts itself.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let next = |at: &u32| Some(self.links[*at as usize].after).filter(|&after| after != NONE);
        std::iter::successors(self.oldest(), next).take(self.links.len())
    }

    /// Whether every link is answered by its neighbour.
    pub(super) fn is_sound(&self) -> bool {
        let mut before = NONE;
        for at in self.iter() {
            if self.links[at as usize].before != before {
                return false;
            }
            before = at;
        }
        self.newest == before
    }

    pub(super) fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }
}
