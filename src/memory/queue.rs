//! A queue that never stops to move all that it has: what is done with a lock must not take longer
//! the more there is.
use super::{OutOfMemory, try_box_with};
use std::collections::VecDeque;

/// Items of a block.
const BLOCK: usize = 64;

type Block<T> = [Option<T>; BLOCK];

/// First in, first out. Memory comes and goes in blocks; of those only the addresses move.
#[derive(Debug)]
pub struct Queue<T> {
    blocks: VecDeque<Box<Block<T>>>,
    /// Where in the first block the first item is.
    first: usize,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { blocks: VecDeque::new(), first: 0, len: 0 }
    }
}

impl<T> Queue<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes room for so many more. What others were promised before is among them, so say it too.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let wanted = more.checked_add(self.first + self.len).ok_or(OutOfMemory)?.div_ceil(BLOCK);
        while self.blocks.len() < wanted {
            self.blocks.try_reserve(1)?;
            self.blocks.push_back(try_box_with(|| [const { None }; BLOCK])?);
        }
        Ok(())
    }

    /// Puts one behind all others, for which room was made.
    pub fn push_back(&mut self, item: T) {
        let at = self.first + self.len;
        self.blocks[at / BLOCK][at % BLOCK] = Some(item);
        self.len += 1;
    }

    /// The first one.
    pub fn front(&self) -> Option<&T> {
        self.blocks.front()?[self.first].as_ref()
    }

    /// Takes the first one out. The room that others were promised stays.
    pub fn pop_front(&mut self) -> Option<T> {
        let item = self.blocks.front_mut()?[self.first].take()?;
        self.len -= 1;
        self.first += 1;
        if self.first == BLOCK {
            self.first = 0;
            self.blocks.pop_front();
        }
        Some(item)
    }

    /// All of them, in their order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.blocks.iter_mut().flat_map(|block| block.iter_mut()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside a `VecDeque`, with room that is promised and used later.
    #[test]
    fn items_come_in_their_order_and_promised_room_stays() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut queue, mut model) = (Queue::default(), VecDeque::new());
        let mut promised = 0;
        for step in 0..if cfg!(miri) { 2_000 } else { 100_000 } {
            match random.u8(0..if step / 5000 % 2 == 0 { 4 } else { 6 }) {
                0 | 1 => {
                    queue.try_reserve(promised + 1).unwrap();
                    promised += 1;
                }
                2 | 3 if promised > 0 => {
                    promised -= 1;
                    queue.push_back(step);
                    model.push_back(step);
                }
                _ => assert_eq!(queue.pop_front(), model.pop_front()),
            }
            assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(queue.front(), model.front());
        }
        assert!(queue.iter_mut().eq(model.iter_mut()));
        let blocks = (queue.first + queue.len + promised).div_ceil(BLOCK);
        assert!(queue.blocks.len() <= blocks + 1, "memory goes with what there is");
    }

    #[test]
    fn too_much_room_is_refused() {
        let mut queue = Queue::<u8>::default();
        queue.try_reserve(1).unwrap();
        queue.push_back(1);
        assert!(queue.try_reserve(usize::MAX).is_err());
        assert_eq!((queue.pop_front(), queue.pop_front()), (Some(1), None));
    }
}
