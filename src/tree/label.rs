//! The segment of a node: its keys, and with them its pages, contiguous, in one allocation.
//!
//! Dropping some at either end only moves an end: a split at the front of a long segment, or a
//! trim of its tail, copies nothing. What is dropped is freed when it exceeds an eighth of what is
//! left, so that each dropped page pays for a bounded amount of copying and memory follows the live
//! pages.
use crate::grace::Array;
use crate::memory::OutOfMemory;

/// Keys and pages of a segment. `words` holds room for the keys of `capacity` pages, then for the
/// pages. Readers see the keys. Those that they may have seen stay as they are: room is used again
/// only when nobody reads. Without `PAGES` there are keys alone, `page_size` for each place.
#[derive(Debug, Default)]
pub(crate) struct Label<const PAGES: bool = true> {
    /// None: empty.
    words: Option<Array<u32>>,
    start: u32,
    len: u32,
    capacity: u32,
}

/// Keys so few that they are fetched whole, in one with their pages.
const SHORT: usize = 64;

/// Keys, and their pages.
type Parts<'a> = (&'a [u32], &'a [u32]);

impl<const PAGES: bool> Label<PAGES> {
    pub(crate) fn new(page_size: usize, keys: &[u32], pages: &[u32]) -> Result<Self, OutOfMemory> {
        Self::concat(page_size, (keys, pages), (&[], &[]), [0, 0])
    }

    /// Two segments in a row, with room for more before and behind them.
    #[inline(always)]
    fn concat(
        page_size: usize,
        (keys, pages): Parts<'_>,
        (more_keys, more_pages): Parts<'_>,
        [before, behind]: [usize; 2],
    ) -> Result<Self, OutOfMemory> {
        debug_assert!(!PAGES || keys.len() == pages.len() * page_size);
        debug_assert!(!PAGES || more_keys.len() == more_pages.len() * page_size);
        let len = (keys.len() + more_keys.len()) / page_size;
        let capacity = before + len + behind;
        if capacity == 0 {
            return Ok(Self::default());
        }
        let mut words = Array::with_capacity(capacity * (page_size + PAGES as usize))?;
        words.extend_with(before * page_size, 0);
        words.extend_from_slice(keys);
        words.extend_from_slice(more_keys);
        words.show((before + len) * page_size);
        words.extend_with(behind * page_size, 0);
        if PAGES {
            words.extend_with(before, 0);
            words.extend_from_slice(pages);
            words.extend_from_slice(more_pages);
            words.extend_with(behind, 0);
        }
        let (start, len, capacity) = (before as u32, len as u32, capacity as u32);
        Ok(Self { words: Some(words), start, len, capacity })
    }

    /// Pages in the segment.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it is that of a root.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn words(&self) -> &[u32] {
        self.words.as_deref().unwrap_or(&[])
    }

    pub(crate) fn pages(&self) -> &[u32] {
        if !PAGES {
            return &[];
        }
        let words = self.words();
        let start = words.len() - (self.capacity - self.start) as usize;
        &words[start..start + self.len as usize]
    }

    #[inline]
    pub(crate) fn keys(&self, page_size: usize) -> &[u32] {
        let start = self.start as usize * page_size;
        &self.words()[start..start + self.len as usize * page_size]
    }

    /// Has keys and pages fetched, without a look at their memory.
    #[inline(always)]
    pub(crate) fn fetch(&self, page_size: usize) {
        let Some(words) = &self.words else { return };
        let (start, len) = (self.start as usize, self.len as usize);
        let capacity = self.capacity as usize;
        let count = len * page_size;
        if PAGES && len == capacity && count <= SHORT {
            return words.fetch(0, count + len);
        }
        words.fetch(start * page_size, count);
        if PAGES {
            words.fetch(capacity * page_size + start, len);
        }
    }

    /// Where the keys are, for readers: the memory, the place in it of those of the first page, and
    /// how many pages those of all are.
    pub(crate) fn shown(&mut self) -> (Option<&mut Array<u32>>, [u32; 2]) {
        (self.words.as_mut(), [self.start, self.len])
    }

    pub(crate) fn first_page_keys(&self, page_size: usize) -> &[u32] {
        &self.keys(page_size)[..page_size]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.as_ref().map_or(0, Array::bytes)
    }

    /// What `split_front` needs: a copy of the smaller part.
    pub(crate) fn copy_for_split(
        &self,
        page_size: usize,
        count: usize,
    ) -> Result<Self, OutOfMemory> {
        let (keys, pages) = (self.keys(page_size), self.pages());
        let (keys, more_keys) = keys.split_at(count * page_size);
        let (pages, more_pages) = pages.split_at(if PAGES { count } else { 0 });
        if self.has_smaller_front(count) {
            Self::new(page_size, keys, pages)
        } else {
            Self::new(page_size, more_keys, more_pages)
        }
    }

    fn has_smaller_front(&self, count: usize) -> bool {
        count <= self.len() / 2
    }

    /// Takes the first `count` pages off.
    pub(crate) fn split_front(&mut self, page_size: usize, count: usize, copy: Self) -> Self {
        debug_assert!(0 < count && count < self.len());
        if self.has_smaller_front(count) {
            self.start += count as u32;
            self.len -= count as u32;
            self.shrink(page_size);
            copy
        } else {
            let mut front = std::mem::replace(self, copy);
            front.truncate(page_size, count);
            front
        }
    }

    /// Keeps the first `count` pages.
    pub(crate) fn truncate(&mut self, page_size: usize, count: usize) {
        debug_assert!(count <= self.len());
        self.len = count as u32;
        self.shrink(page_size);
    }

    /// Puts `front`, which is of no use afterwards, before this segment, in the room of either of
    /// them where there is enough.
    pub(crate) fn prepend(
        &mut self,
        page_size: usize,
        front: &mut Self,
    ) -> Result<(), OutOfMemory> {
        let (keys, pages) = (self.keys(page_size), self.pages());
        if front.write_behind(page_size, (keys, pages)) {
            *self = std::mem::take(front);
            return Ok(());
        }
        let (keys, pages) = (front.keys(page_size), front.pages());
        if self.write_before(page_size, (keys, pages)) {
            return Ok(());
        }
        let own = (self.keys(page_size), self.pages());
        // What grew at one end is likely to do so again.
        let spare = (front.len() + self.len()) / 8;
        let room = if front.len() > self.len() { [0, spare] } else { [spare, 0] };
        *self = Self::concat(page_size, (keys, pages), own, room)?;
        Ok(())
    }

    /// Puts pages behind this segment. Room grows by an eighth, so that a segment which is extended
    /// page by page is copied a constant number of times.
    pub(crate) fn append(
        &mut self,
        page_size: usize,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<(), OutOfMemory> {
        if !self.write_behind(page_size, (keys, pages)) {
            let own = (self.keys(page_size), self.pages());
            let spare = (self.len() + pages.len()) / 8;
            *self = Self::concat(page_size, own, (keys, pages), [0, spare])?;
        }
        Ok(())
    }

    /// False when there is no room, or a reader may look at it.
    fn write_behind(&mut self, page_size: usize, more: Parts<'_>) -> bool {
        let (end, count) = ((self.start + self.len) as usize, more.0.len() / page_size);
        let fits = (self.capacity as usize) - end >= count;
        let written = fits && self.write(page_size, end, more);
        self.len += if written { count as u32 } else { 0 };
        written
    }

    /// False when there is no room, or a reader may look at it.
    fn write_before(&mut self, page_size: usize, more: Parts<'_>) -> bool {
        let count = (more.0.len() / page_size) as u32;
        let fits = self.start >= count;
        let written = fits && self.write(page_size, (self.start - count) as usize, more);
        if written {
            self.start -= count;
            self.len += count;
        }
        written
    }

    /// Writes pages into the room, unless a reader may look there, and shows them.
    fn write(&mut self, page_size: usize, index: usize, (keys, pages): Parts<'_>) -> bool {
        let (key_at, page_at) = (index * page_size, self.capacity as usize * page_size + index);
        let shown = ((self.start + self.len) as usize * page_size).max(key_at + keys.len());
        let Some(array) = &mut self.words else {
            return false;
        };
        if !array.hide(key_at) {
            return false;
        }
        let (hidden, words) = array.hidden_mut();
        words[key_at - hidden..][..keys.len()].copy_from_slice(keys);
        if PAGES {
            words[page_at - hidden..][..pages.len()].copy_from_slice(pages);
        }
        array.show(shown);
        true
    }

    /// Without memory for a smaller one the larger one stays.
    fn shrink(&mut self, page_size: usize) {
        if self.capacity > self.len + self.len / 8
            && let Ok(smaller) = Self::new(page_size, self.keys(page_size), self.pages())
        {
            *self = smaller;
        }
    }
}

/// The keys of a segment without pages are tokens.
impl Label<false> {
    /// A copy of tokens.
    pub(crate) fn of_tokens(tokens: &[u32]) -> Result<Self, OutOfMemory> {
        Self::new(1, tokens, &[])
    }

    #[inline]
    pub(crate) fn tokens(&self) -> &[u32] {
        self.keys(1)
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.tokens().first().copied()
    }
}

/// Keys that two lists have in common at the start.
///
/// One comparison of everything decides the usual case, a segment that matches whole, at the speed
/// of memcmp; only a difference is searched for, in ever smaller blocks.
#[inline(always)]
pub(crate) fn common_start(left: &[u32], right: &[u32]) -> usize {
    let len = left.len().min(right.len());
    let (left, right) = (&left[..len], &right[..len]);
    if left == right {
        return len;
    }
    let mut at = 0;
    for block in [1024, 64] {
        while at + block <= len && left[at..at + block] == right[at..at + block] {
            at += block;
        }
    }
    let rest = left[at..].iter().zip(&right[at..]).take_while(|(left, right)| left == right);
    at + rest.count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn label(tokens: &[u32]) -> Label<false> {
        Label::of_tokens(tokens).unwrap()
    }

    fn is_tight(label: &Label<false>) -> bool {
        label.capacity <= label.len + label.len / 8
    }

    /// A segment that is cut and put together anywhere, again and again, stays the same list, and
    /// has little room beside it.
    #[test]
    fn cuts_and_joins_keep_the_tokens() {
        let tokens: Vec<u32> = (0..200).collect();
        let mut all = label(&tokens);
        for round in 0..2000 {
            let count = 1 + round * 37 % 199;
            let copy = all.copy_for_split(1, count).unwrap();
            let mut front = all.split_front(1, count, copy);
            assert_eq!((front.tokens(), all.tokens()), tokens.split_at(count));
            assert!(is_tight(&all) && is_tight(&front));
            all.prepend(1, &mut front).unwrap();
            assert_eq!(all.tokens(), tokens);
            assert!(is_tight(&all));
        }
    }

    /// A list that grows token by token, at either end, is copied now and then only.
    #[test]
    fn growing_at_an_end_copies_little() {
        for at_end in [false, true] {
            let (mut all, mut moved) = (label(&[0]), 0);
            for token in 1..4000 {
                let mut other = label(&[token]);
                if at_end {
                    std::mem::swap(&mut all, &mut other);
                }
                let kept = [&all, &other].map(|label| label.words().as_ptr());
                all.prepend(1, &mut other).unwrap();
                moved += usize::from(!kept.contains(&all.words().as_ptr())) * all.len();
            }
            assert!(moved < 4000 * 20, "{moved} tokens were copied");
        }
    }
}
