//! The reference: it knows blocks, and neither trees nor tokens.

const NONE: usize = usize::MAX;

/// A plain least-recently-used list of blocks. A block stands for a page together with all before.
///
/// That it is leaf-first as the library is needs no tree: a request touches its blocks from the
/// deepest to the first, so a block is never older than what extends it, and within one request the
/// deepest goes first. The library gives new pages a later time than the pages before them; nothing
/// happens between the two, so the order is the same.
pub struct BlockLru {
    capacity: usize,
    pub len: usize,
    older: Vec<usize>,
    newer: Vec<usize>, // NONE: not cached
    pub evicted: usize,
}

impl BlockLru {
    /// `block_count` blocks, and the ring's head behind them: newer than it is the oldest block.
    pub fn new(capacity: usize, block_count: usize) -> Self {
        let (mut older, mut newer) = (vec![NONE; block_count + 1], vec![NONE; block_count + 1]);
        (older[block_count], newer[block_count]) = (block_count, block_count);
        Self { capacity, len: 0, older, newer, evicted: 0 }
    }

    fn remove(&mut self, block: usize) {
        let (older, newer) = (self.older[block], self.newer[block]);
        (self.newer[older], self.older[newer]) = (newer, older);
        self.newer[block] = NONE;
        self.len -= 1;
    }

    pub fn touch(&mut self, blocks: &[u32]) {
        for &block in blocks.iter().rev() {
            let (block, head) = (block as usize, self.newer.len() - 1);
            if self.newer[block] != NONE {
                self.remove(block);
            }
            let newest = self.older[head];
            (self.older[block], self.newer[block]) = (newest, head);
            (self.newer[newest], self.older[head]) = (block, block);
            self.len += 1;
        }
    }

    pub fn matched(&self, blocks: &[u32]) -> usize {
        blocks.iter().take_while(|&&block| self.newer[block as usize] != NONE).count()
    }

    /// Evicts until `needed` pages are free. Does nothing and says so where not even the eviction
    /// of all but the `locked` newest blocks would do.
    pub fn make_room(&mut self, needed: usize, locked: usize) -> bool {
        if needed + locked > self.capacity {
            return false;
        }
        while self.capacity - self.len < needed {
            let oldest = self.newer[self.newer.len() - 1];
            self.remove(oldest);
            self.evicted += 1;
        }
        true
    }
}
