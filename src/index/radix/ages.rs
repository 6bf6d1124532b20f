//! When the parts of a segment were used last.
//!
//! Usually all at once, and then the node's own time says it. Where nodes were merged, or a
//! sequence made its node longer, the front was used earlier than the end. Eviction must still see
//! that: once the end is gone, the front takes its turn by its own time.
//!
//! A text that is published token by token has as many parts as pages, so a part takes one byte
//! where it can, two most of the time. Each part says how far before the next one it ends, in pages
//! and in time; the last one, before the segment's end. So the parts are read from the back, taking
//! some off at either end leaves the others as they are, and what is behind them may grow.
use crate::grace::Array;
use crate::memory::OutOfMemory;

/// Where a part ends, and when it was used last: an end of pages, and a time.
pub(super) type End = (usize, u64);

/// Most bytes of a part.
const PART: usize = 16;
/// In the last byte of a part: it ends one page before the next one. Else pages are told too.
const ONE_PAGE: u8 = 1 << 6;
/// In a byte: there is more of the number before it.
const MORE: u8 = 1 << 7;

/// The parts of a segment before its last one, from the front; each was used before the next.
/// No reader sees them: it is an array since that takes one word in the node.
#[derive(Debug, Default)]
pub(super) struct Ages(Option<Array<u8>>);

/// A part as it is written, at the end of this.
struct Written {
    bytes: [u8; PART],
    start: usize,
}

impl Written {
    /// So many pages and so much time before the next one.
    fn new(pages: usize, time: u64) -> Self {
        assert!(pages > 0 && time > 0, "a part ends before the next one, and is older");
        let mut written = Self { bytes: [0; PART], start: PART };
        let one_page = if pages == 1 { ONE_PAGE } else { 0 };
        written.put(time & 0x3f, time >> 6, one_page);
        written.put_rest(time >> 6);
        if pages > 1 {
            written.put(pages as u64 & 0x7f, pages as u64 >> 7, 0);
            written.put_rest(pages as u64 >> 7);
        }
        written
    }

    fn put(&mut self, low: u64, rest: u64, flag: u8) {
        self.start -= 1;
        self.bytes[self.start] = low as u8 | flag | if rest > 0 { MORE } else { 0 };
    }

    fn put_rest(&mut self, mut rest: u64) {
        while rest > 0 {
            self.put(rest & 0x7f, rest >> 7, 0);
            rest >>= 7;
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Reads the last part of some bytes: pages and time before the next one, and the bytes before it.
fn last_part(bytes: &[u8]) -> Option<(usize, u64, &[u8])> {
    let (&last, mut rest) = bytes.split_last()?;
    let time = u64::from(last & 0x3f) | more(last, 6, &mut rest);
    if last & ONE_PAGE != 0 {
        return Some((1, time, rest));
    }
    let (&low, before) = rest.split_last().expect("a part is whole");
    rest = before;
    let pages = u64::from(low & 0x7f) | more(low, 7, &mut rest);
    Some((pages as usize, time, rest))
}

/// The rest of a number of which a byte had the lowest bits.
fn more(mut byte: u8, mut shift: u32, rest: &mut &[u8]) -> u64 {
    let mut number = 0;
    while byte & MORE != 0 {
        let (&next, before) = rest.split_last().expect("a part is whole");
        (byte, *rest) = (next, before);
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
    }
    number
}

impl Ages {
    fn written(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// The parts from the last one to the first, of a segment that ends so; each with how many
    /// bytes are written before it.
    fn backwards(&self, mut end: End) -> impl Iterator<Item = (End, usize)> + '_ {
        let mut bytes = self.written();
        std::iter::from_fn(move || {
            let (pages, time, rest) = last_part(bytes)?;
            bytes = rest;
            // What is broken is seen by `check`, and harms nobody here.
            end = (end.0.saturating_sub(pages), end.1.saturating_sub(time));
            Some((end, bytes.len()))
        })
    }

    /// The last part of a segment that ends so.
    pub(super) fn last(&self, end: End) -> Option<End> {
        self.backwards(end).next().map(|(part, _)| part)
    }

    /// When a page of a segment that ends so was used last.
    pub(super) fn time_of(&self, page: usize, end: End) -> u64 {
        let behind = self.backwards(end).take_while(|(part, _)| part.0 > page);
        behind.last().map_or(end.1, |((_, time), _)| time)
    }

    /// Whether all parts lie within a segment that ends so, each older than the next.
    pub(super) fn fit(&self, end: End) -> bool {
        let mut next = end;
        self.backwards(end).all(|(part, _)| {
            let fits = 0 < part.0 && part.0 < next.0 && 0 < part.1 && part.1 < next.1;
            next = part;
            fits
        })
    }

    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Array::bytes)
    }

    /// Whether the whole segment was used at once last.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The whole segment was used at once. Returns how much memory that freed.
    #[inline(never)]
    pub(super) fn clear(&mut self) -> usize {
        self.0.take().map_or(0, |parts| parts.bytes())
    }

    fn with_room(written: &[u8], room: usize) -> Result<Self, OutOfMemory> {
        if room == 0 {
            return Ok(Self(None));
        }
        let mut made = Array::with_capacity(room)?;
        made.extend_from_slice(written);
        Ok(Self(Some(made)))
    }

    /// Makes room for a part more.
    pub(super) fn try_reserve(&mut self) -> Result<(), OutOfMemory> {
        let (len, capacity) = (self.written().len(), self.0.as_ref().map_or(0, Array::capacity));
        if capacity - len < PART {
            *self = Self::with_room(self.written(), len + len / 16 + PART)?;
        }
        Ok(())
    }

    /// The segment, whose end was the first one, ends at the second one now. Room was made.
    pub(super) fn push(&mut self, before: End, end: End) {
        let parts = self.0.as_mut().expect("room was made for the part");
        parts.extend_from_slice(Written::new(end.0 - before.0, end.1 - before.1).bytes());
    }

    /// Keeps the first bytes.
    fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Some(parts) if len > 0 => parts.truncate(len),
            _ => self.0 = None,
        }
    }

    /// Forgets the last part: the segment ends where it does.
    pub(super) fn pop(&mut self) {
        let before = last_part(self.written()).map_or(0, |(_, _, rest)| rest.len());
        self.truncate(before);
    }

    /// The segment lost so many pages of those behind the last part, and kept some.
    pub(super) fn shorten(&mut self, count: usize) {
        let Some((pages, time, rest)) = last_part(self.written()) else {
            return;
        };
        // It takes no more room than before.
        let (part, before) = (Written::new(pages - count, time), rest.len());
        let parts = self.0.as_mut().expect("it has a part");
        parts.truncate(before);
        parts.extend_from_slice(part.bytes());
    }

    /// The parts that the first `count` pages of a segment that ends so have before their last one.
    pub(super) fn front(&self, count: usize, end: End) -> Result<Self, OutOfMemory> {
        let Some((part, before)) = self.backwards(end).find(|(part, _)| part.0 < count) else {
            return Ok(Self(None));
        };
        // It ended before another one, which is cut.
        let time = self.time_of(count - 1, end);
        let last = Written::new(count - part.0, time - part.1);
        let mut made = Self::with_room(&self.written()[..before], before + last.bytes().len())?;
        made.0.as_mut().expect("there is room").extend_from_slice(last.bytes());
        Ok(made)
    }

    /// Cuts off the first `count` pages of a segment that ends so.
    pub(super) fn drop_front(&mut self, count: usize, end: End) {
        let behind = self.backwards(end).take_while(|(part, _)| part.0 > count);
        let cut = behind.last().map_or(self.written().len(), |(_, before)| before);
        let left = self.written().len() - cut;
        if let Some(parts) = &mut self.0 {
            let (_, parts) = parts.hidden_mut();
            parts.copy_within(cut.., 0);
        }
        self.truncate(left);
    }

    /// The parts of a segment that ends so, and of one behind it that ends at `end`, counted from
    /// its own beginning. The first part of that one was used no earlier.
    pub(super) fn joined(
        front: &Self,
        (len, time): End,
        behind: &Self,
        end: End,
    ) -> Result<Self, OutOfMemory> {
        let (pages, own) = behind.backwards(end).last().map_or(end, |(part, _)| part);
        let mut bytes = front.written();
        let seam = if time < own {
            Some(Written::new(pages, own - time))
        } else {
            // One part: the last of the front ends before that.
            last_part(bytes).map(|(more, age, rest)| {
                bytes = rest;
                Written::new(pages + more, age)
            })
        };
        let seam = seam.as_ref().map_or(&[][..], Written::bytes);
        let room = bytes.len() + seam.len() + behind.written().len();
        let mut joined = Self::with_room(bytes, room)?;
        if let Some(parts) = &mut joined.0 {
            parts.extend_from_slice(seam);
            parts.extend_from_slice(behind.written());
        }
        debug_assert!(joined.fit((len + end.0, end.1)));
        Ok(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts as a list, from the front, and the end of the segment.
    struct Listed {
        parts: Vec<End>,
        end: End,
    }

    fn agree(ages: &Ages, listed: &Listed) {
        let mut parts: Vec<End> = ages.backwards(listed.end).map(|(part, _)| part).collect();
        parts.reverse();
        assert_eq!(parts, listed.parts);
        assert!(ages.fit(listed.end));
        assert_eq!(ages.last(listed.end), listed.parts.last().copied());
        for page in [0, listed.end.0 / 2, listed.end.0 - 1] {
            let owner = listed.parts.iter().find(|part| part.0 > page).unwrap_or(&listed.end);
            assert_eq!(ages.time_of(page, listed.end), owner.1);
        }
    }

    /// Every number of pages and of time comes back, at each limit of what a byte holds.
    #[test]
    fn parts_are_read_as_they_were_written() {
        let limits = |bits: u32| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1];
        let times = (1..64).flat_map(limits).chain([u64::MAX]);
        for time in times.filter(|&time| time > 0) {
            for pages in [1, 2, 127, 128, 129, 1 << 14, (1 << 32) - 1] {
                let part = Written::new(pages, time);
                let behind = [&[0xff, 0x80][..], part.bytes()].concat();
                assert_eq!(last_part(&behind), Some((pages, time, &behind[..2])));
            }
        }
    }

    /// Segments that grow, are cut, lose pages at their ends, and are joined again.
    #[test]
    fn parts_follow_what_becomes_of_a_segment() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut ages, mut listed) = (Ages::default(), Listed { parts: vec![], end: (1, 1) });
            for _ in 0..400 {
                match random.u8(..10) {
                    0..6 => {
                        let (pages, time) = (listed.end.0 + random.usize(1..4), listed.end.1);
                        let most = 1 << random.u32(0..40);
                        let end = (pages, time + random.u64(1..=most));
                        ages.try_reserve().unwrap();
                        ages.push(listed.end, end);
                        listed.parts.push(listed.end);
                        listed.end = end;
                    }
                    6 => {
                        let last = listed.parts.last().map_or(0, |part| part.0);
                        let lost = random.usize(..listed.end.0 - last);
                        ages.shorten(lost);
                        listed.end.0 -= lost;
                    }
                    7 if !listed.parts.is_empty() => {
                        ages.pop();
                        listed.end = listed.parts.pop().unwrap();
                    }
                    8 if listed.end.0 > 1 => {
                        let count = random.usize(1..listed.end.0);
                        let time = ages.time_of(count - 1, listed.end);
                        let front = ages.front(count, listed.end).unwrap();
                        let parts = &listed.parts;
                        let before = parts.iter().copied().filter(|part| part.0 < count);
                        agree(&front, &Listed { parts: before.collect(), end: (count, time) });
                        ages.drop_front(count, listed.end);
                        let behind = parts.iter().filter(|part| part.0 > count);
                        let behind: Vec<_> = behind.map(|part| (part.0 - count, part.1)).collect();
                        let end = (listed.end.0 - count, listed.end.1);
                        agree(&ages, &Listed { parts: behind, end });
                        ages = Ages::joined(&front, (count, time), &ages, end).unwrap();
                    }
                    _ => {}
                }
                agree(&ages, &listed);
            }
        }
    }
}
