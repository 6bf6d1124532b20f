//! The bytes of one run, read from front to back; at their end everything is zero.

/// A reader of bytes.
pub struct Input<'a> {
    data: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self { data }
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.data.split_first() {
            Some((&first, rest)) => {
                self.data = rest;
                first
            }
            None => 0,
        }
    }

    /// A number below `limit`, which is at most 256.
    pub fn below(&mut self, limit: usize) -> usize {
        self.byte() as usize % limit.max(1)
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// True once in about `count` times.
    pub fn rarely(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// One of a list, or None of an empty one.
    pub fn pick<'b, T>(&mut self, list: &'b [T]) -> Option<&'b T> {
        if list.is_empty() {
            return None;
        }
        let at = self.below(list.len());
        list.get(at)
    }
}
