//! Writing the end of a list from its end on, where the items are found in that order.
use std::mem::MaybeUninit;

/// What a list is to be longer by, of which the end is written.
pub struct FromEnd<'a, T> {
    room: &'a mut [MaybeUninit<T>],
    /// Items before those that are written.
    left: usize,
}

impl<T: Copy> FromEnd<'_, T> {
    /// Puts items before those that were put last.
    #[inline]
    pub fn put(&mut self, items: &[T]) {
        let start = self.left.checked_sub(items.len()).expect("there is room for the items");
        self.room[start..self.left].write_copy_of_slice(items);
        self.left = start;
    }
}

/// Makes a list longer by so many items, for which it has room; `write` puts all of them.
#[inline]
pub fn extend_from_end<T: Copy>(
    list: &mut Vec<T>,
    count: usize,
    write: impl FnOnce(&mut FromEnd<'_, T>),
) {
    let end = list.len() + count;
    let mut room = FromEnd { room: &mut list.spare_capacity_mut()[..count], left: count };
    write(&mut room);
    assert_eq!(room.left, 0, "all items are put");
    // SAFETY: the list has room for them, and each was written: `put` goes down from the last one
    // without a gap, and came to the first.
    unsafe { list.set_len(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_made_longer_from_its_end_on() {
        let mut list = Vec::with_capacity(8);
        list.extend([1, 2]);
        extend_from_end(&mut list, 0, |_| {});
        extend_from_end(&mut list, 5, |end| {
            end.put(&[6, 7]);
            end.put(&[]);
            end.put(&[3, 4, 5]);
        });
        assert_eq!(list, [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    #[should_panic(expected = "all items are put")]
    fn none_is_left_out() {
        extend_from_end(&mut Vec::with_capacity(8), 3, |end| end.put(&[1, 2]));
    }

    #[test]
    #[should_panic(expected = "there is room for the items")]
    fn no_more_than_was_said() {
        extend_from_end(&mut Vec::with_capacity(8), 1, |end| end.put(&[1, 2]));
    }
}
