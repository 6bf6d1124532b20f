//! Memory for indexes, got from the system beforehand: on huge pages, where it has some.
//!
//! An index reads a little here and there in much memory, so most of what a lookup waits for is
//! finding out where its pages lie. Huge pages need 512 times fewer translations. And what was
//! touched beforehand costs no fault when it is first used.
//!
//! The reserve is cut into spans, each for objects of one size; a span that has none any more is
//! free for another size. What finds no room comes from the allocator of the process, as all does
//! without a reserve.
use super::OutOfMemory;
use super::huge::{Mapping, Pages};
use parking_lot::Mutex;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a span. Smaller than a huge page, since there is a span for each size in use.
const SPAN: usize = 1 << 16;
/// The largest objects, of which a span has two.
const LARGEST: usize = SPAN / 2;
/// Up to 256 bytes sizes are multiples of this; then there are 16 to a doubling.
const GRAIN: usize = 16;
const CLASSES: usize = 128;
const NONE: u32 = u32::MAX;

static RESERVE: OnceLock<Reserve> = OnceLock::new();
/// Whether the reserve is that of a process of which this is a child. Whoever had its lock may not
/// be here, and of huge pages that were set aside there may be none to copy one to: it stays as it
/// is.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Why nothing was reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is a reserve already.
    Twice,
    /// The system has not so much memory.
    OutOfMemory,
    /// It has huge pages for so many of the bytes only, and they were required.
    NoHugePages(usize),
}

/// What there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReserveStats {
    /// Bytes of the reserve.
    pub reserved: usize,
    /// Of those, on huge pages when they were reserved.
    pub huge: usize,
    /// Bytes of the objects in it, rounded up to their sizes.
    pub used: usize,
}

/// Memory that is handed out piece by piece.
struct Reserve {
    mapping: Mapping,
    spans: Mutex<Spans>,
}

/// A part of the reserve with objects of one size.
#[derive(Clone, Copy)]
struct Span {
    size: u32,
    used: u32,
    /// The first object that was given back, NONE without, and where those begin that never were
    /// used.
    returned: u32,
    fresh: u32,
    /// Its neighbours in a list.
    next: u32,
    previous: u32,
}

impl Span {
    const FREE: Self =
        Self { size: 0, used: 0, returned: NONE, fresh: 0, next: NONE, previous: NONE };

    fn is_full(&self) -> bool {
        self.returned == NONE && (self.fresh + self.size) as usize > SPAN
    }
}

struct Spans {
    list: Vec<Span>,
    /// Those without objects, through `next`.
    free: u32,
    /// Those of each size that have room.
    with_room: [u32; CLASSES],
    used: usize,
}

/// The number and the bytes of the size that an object has.
fn class_of(size: usize) -> (usize, usize) {
    let last = size.max(1) - 1;
    if last < 16 * GRAIN {
        return (last / GRAIN, (last / GRAIN + 1) * GRAIN);
    }
    let shift = last.ilog2() as usize - 4;
    let steps = last >> shift;
    (shift * 16 + steps - 64, (steps + 1) << shift)
}

impl Spans {
    fn new(count: usize) -> Result<Self, OutOfMemory> {
        let mut list = super::try_filled(Span::FREE, count)?;
        for (at, span) in list.iter_mut().enumerate().take(count.saturating_sub(1)) {
            span.next = at as u32 + 1;
        }
        Ok(Self { list, free: 0, with_room: [NONE; CLASSES], used: 0 })
    }

    fn enlist(&mut self, at: u32, class: usize) {
        let next = std::mem::replace(&mut self.with_room[class], at);
        if next != NONE {
            self.list[next as usize].previous = at;
        }
        let span = &mut self.list[at as usize];
        (span.next, span.previous) = (next, NONE);
    }

    fn unlist(&mut self, at: u32, class: usize) {
        let Span { next, previous, .. } = self.list[at as usize];
        match previous {
            NONE => self.with_room[class] = next,
            _ => self.list[previous as usize].next = next,
        }
        if next != NONE {
            self.list[next as usize].previous = previous;
        }
    }

    /// Where in the reserve an object of a size gets room, after `link` said which one follows that
    /// was given back.
    fn take(&mut self, wanted: usize, link: impl FnOnce(usize) -> u32) -> Option<usize> {
        let (class, size) = class_of(wanted);
        let mut at = self.with_room[class];
        if at == NONE {
            at = self.free;
            self.free = self.list.get(at as usize)?.next;
            self.list[at as usize] = Span { size: size as u32, ..Span::FREE };
            self.enlist(at, class);
        }
        let span = &mut self.list[at as usize];
        let start = at as usize * SPAN;
        let object = match span.returned {
            NONE => {
                span.fresh += span.size;
                span.fresh - span.size
            }
            object => {
                span.returned = link(start + object as usize);
                object
            }
        };
        span.used += 1;
        self.used += size;
        if span.is_full() {
            self.unlist(at, class);
        }
        Some(start + object as usize)
    }

    /// Takes back what is at a place. Returns what is to be written there: the object that follows.
    fn put(&mut self, place: usize) -> u32 {
        let at = (place / SPAN) as u32;
        let span = &mut self.list[at as usize];
        let (class, size) = class_of(span.size as usize);
        let was_full = span.is_full();
        let next = std::mem::replace(&mut span.returned, (place % SPAN) as u32);
        span.used -= 1;
        self.used -= size;
        if span.used == 0 {
            if !was_full {
                self.unlist(at, class);
            }
            let free = std::mem::replace(&mut self.free, at);
            self.list[at as usize] = Span { next: free, ..Span::FREE };
        } else if was_full {
            self.enlist(at, class);
        }
        next
    }
}

impl Reserve {
    fn new(bytes: usize, pages: Pages) -> Result<Self, Refused> {
        let mapping = Mapping::new(bytes, pages).map_err(|OutOfMemory| Refused::OutOfMemory)?;
        if pages == Pages::Huge && mapping.huge_bytes() < mapping.len() {
            return Err(Refused::NoHugePages(mapping.huge_bytes()));
        }
        let spans = Spans::new(mapping.len() / SPAN).map_err(|OutOfMemory| Refused::OutOfMemory)?;
        Ok(Self { mapping, spans: Mutex::new(spans) })
    }

    fn take(&self, size: usize) -> Option<NonNull<u8>> {
        if size > LARGEST {
            return None;
        }
        let link = |place| {
            // SAFETY: an object that was given back is nobody's, and the lock is held.
            unsafe { self.mapping.at(place).cast::<u32>().read() }
        };
        let place = self.spans.lock().take(size, link)?;
        Some(self.mapping.at(place))
    }

    /// # Safety
    /// Nobody uses the object any more, if it is one of the reserve's.
    unsafe fn put(&self, object: NonNull<u8>) -> bool {
        let Some(place) = self.mapping.place_of(object) else { return false };
        let mut spans = self.spans.lock();
        let next = spans.put(place);
        // SAFETY: the object is nobody's, has at least a grain, and the lock is held.
        unsafe { object.cast::<u32>().write(next) };
        true
    }

    fn stats(&self) -> ReserveStats {
        let (reserved, huge) = (self.mapping.len(), self.mapping.huge_bytes());
        ReserveStats { reserved, huge, used: self.spans.lock().used }
    }
}

/// Reserves so many bytes, rounded up to huge pages, for all indexes of the process. Once.
pub fn reserve(bytes: usize, pages: Pages) -> Result<(), Refused> {
    if RESERVE.get().is_some() {
        return Err(Refused::Twice);
    }
    let made = Reserve::new(bytes, pages)?;
    RESERVE.set(made).map_err(|_| Refused::Twice)
}

/// Leaves the reserve alone from now on, in a child process.
pub fn leave_reserve() {
    if RESERVE.get().is_some() {
        INHERITED.store(true, Ordering::Relaxed);
    }
}

/// The reserve, where this process made it.
#[inline]
fn own() -> Option<&'static Reserve> {
    RESERVE.get().filter(|_| !INHERITED.load(Ordering::Relaxed))
}

/// What is reserved, and what of it is used.
pub fn reserve_stats() -> ReserveStats {
    own().map_or_else(ReserveStats::default, Reserve::stats)
}

/// Memory of the reserve, aligned to 16 bytes. None when it has no room, or there is none.
#[inline]
pub fn take_reserved(size: usize) -> Option<NonNull<u8>> {
    own()?.take(size)
}

/// Gives memory of the reserve back. False for other memory.
///
/// # Safety
/// Nobody uses the memory any more, if it is the reserve's.
#[inline]
pub unsafe fn put_reserved(object: NonNull<u8>) -> bool {
    let Some(reserve) = RESERVE.get() else { return false };
    if INHERITED.load(Ordering::Relaxed) {
        // What the parent had there stays.
        return reserve.mapping.place_of(object).is_some();
    }
    // SAFETY: the caller's contract.
    unsafe { reserve.put(object) }
}

#[cfg(test)]
mod tests {
    use super::{LARGEST, Pages, Reserve, SPAN, class_of};
    use std::collections::BTreeMap;
    use std::ptr::NonNull;

    #[test]
    fn sizes_hold_their_objects_and_waste_little() {
        let mut before = (0, 0);
        for size in 1..=LARGEST {
            let (class, bytes) = class_of(size);
            assert!(bytes >= size && bytes.is_multiple_of(16) && class < 128, "{size}");
            assert!(bytes - size < 16.max(size / 16 + 1), "{size} gets {bytes}");
            assert_eq!(class_of(bytes), (class, bytes), "{size}");
            let steps = class - before.0;
            assert!(steps <= 1 && (steps == 1) == (bytes > before.1) || size == 1, "{size}");
            before = (class, bytes);
        }
        assert_eq!(before, (127, LARGEST));
    }

    /// Objects of all sizes come and go: none lies on another one, and what all gave back is there
    /// again for objects of any size.
    #[test]
    fn objects_never_overlap_and_all_memory_comes_back() {
        let reserve = Reserve::new(1, Pages::Small).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        // Where each object lies, with its size and what it is filled with.
        let mut objects: BTreeMap<usize, (usize, u8)> = BTreeMap::new();
        let mut refused = 0;
        for step in 0..40_000 {
            let grows = step / 4000 % 2 == 0;
            if objects.is_empty() || random.u8(..) < if grows { 160 } else { 96 } {
                let size = 1 + (1 << random.u32(0..16)) % LARGEST.min(1 + step);
                let Some(object) = reserve.take(size) else {
                    refused += 1;
                    continue;
                };
                let (at, filler) = (object.as_ptr().addr(), random.u8(..));
                assert!(at.is_multiple_of(16));
                let before = objects.range(..at).next_back();
                assert!(before.is_none_or(|(start, (size, _))| start + size <= at));
                assert!(objects.range(at..).next().is_none_or(|(next, _)| at + size <= *next));
                // SAFETY: the object is ours, and has so many bytes.
                unsafe { object.write_bytes(filler, size) };
                objects.insert(at, (size, filler));
            } else {
                let at = *objects.keys().nth(random.usize(..objects.len())).unwrap();
                let (size, filler) = objects.remove(&at).unwrap();
                let object = reserve.mapping.at(at - reserve.mapping.at(0).as_ptr().addr());
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), size) };
                assert!(bytes.iter().all(|byte| *byte == filler), "somebody wrote to it");
                // SAFETY: nobody uses it any more.
                assert!(unsafe { reserve.put(object) });
            }
        }
        assert!(refused > 0, "the reserve was never full");
        let used: usize = objects.values().map(|(size, _)| class_of(*size).1).sum();
        assert_eq!(reserve.stats().used, used);
        for &at in objects.keys() {
            let object = reserve.mapping.at(at - reserve.mapping.at(0).as_ptr().addr());
            // SAFETY: nobody uses it any more.
            assert!(unsafe { reserve.put(object) });
        }
        assert_eq!(reserve.stats().used, 0);
        let largest = (0..).map_while(|_| reserve.take(LARGEST)).count();
        assert_eq!(largest, reserve.stats().reserved / SPAN * 2);
        // SAFETY: it is not the reserve's.
        assert!(!unsafe { reserve.put(NonNull::dangling()) });
    }
}
