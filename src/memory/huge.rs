//! Memory mapped for good, on huge pages where the system has some.
use super::OutOfMemory;
use std::ptr::NonNull;

/// A huge page, of the size that all systems have.
const HUGE: usize = 1 << 21;
/// An ordinary page, or less.
const SMALL: usize = 1 << 12;

/// Which pages memory shall lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Ordinary ones.
    Small,
    /// Huge ones, as far as there are any.
    HugeIfAny,
    /// Huge ones only.
    Huge,
}

/// Memory that nobody else has; all of it was written to.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    huge: usize,
}

// SAFETY: the memory is the mapping's alone, whichever thread has that.
unsafe impl Send for Mapping {}
// SAFETY: a mapping itself never changes; who writes to its memory says why that is sound.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps so many bytes, rounded up to huge pages, and writes to each page.
    pub fn new(bytes: usize, pages: Pages) -> Result<Self, OutOfMemory> {
        let len = bytes.max(1).checked_next_multiple_of(HUGE).ok_or(OutOfMemory)?;
        if pages != Pages::Small
            && let Some(start) =
                map(len, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | libc::MAP_POPULATE)
        {
            // Pages that an administrator has set aside. A control group that has none of them
            // refuses them when they are touched, not before, and with a signal.
            let set_aside = Self { start, len, huge: len };
            if matches!(set_aside.populate(), Ok(()) | Err(libc::EINVAL)) {
                return Ok(set_aside);
            }
        }
        let room = len.checked_add(HUGE).ok_or(OutOfMemory)?;
        let all = map(room, 0).ok_or(OutOfMemory)?;
        // A huge page begins at a multiple of its size.
        let before = all.as_ptr().align_offset(HUGE);
        // SAFETY: `room` has a huge page more than `len`, so this lies within the new mapping; its
        // ends are whole pages that nobody uses.
        let start = unsafe {
            let start = all.add(before);
            unmap(all, before);
            unmap(start.add(len), HUGE - before);
            start
        };
        let mut mapping = Self { start, len, huge: 0 };
        let advice = match pages {
            Pages::Small => libc::MADV_NOHUGEPAGE,
            Pages::HugeIfAny | Pages::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: the range is the mapping's. Where the system has no such pages it says so, and
        // nothing changes.
        unsafe { libc::madvise(start.as_ptr().cast(), len, advice) };
        mapping.touch()?;
        if pages != Pages::Small {
            mapping.huge = huge_bytes(start.as_ptr().addr(), len).unwrap_or(0);
        }
        Ok(mapping)
    }

    /// Has the system give all pages now; else the number of its error. EINVAL: Linux before 5.14
    /// doesn't know how.
    fn populate(&self) -> Result<(), i32> {
        // SAFETY: the range is the mapping's.
        let populated = unsafe {
            libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_POPULATE_WRITE)
        };
        if populated == 0 {
            return Ok(());
        }
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
    }

    /// The same, by writing to each where the system doesn't know how.
    fn touch(&self) -> Result<(), OutOfMemory> {
        match self.populate() {
            Ok(()) => return Ok(()),
            Err(libc::ENOMEM) => return Err(OutOfMemory),
            Err(_) => {}
        }
        for at in (0..self.len).step_by(SMALL) {
            // SAFETY: within the mapping, which nobody else has yet.
            unsafe { self.start.add(at).write_volatile(0) };
        }
        Ok(())
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Those that lay on huge pages when it was made.
    pub fn huge_bytes(&self) -> usize {
        self.huge
    }

    /// What is at a place.
    pub fn at(&self, place: usize) -> NonNull<u8> {
        assert!(place < self.len);
        // SAFETY: within the mapping.
        unsafe { self.start.add(place) }
    }

    /// The place of what lies in it. None for other memory.
    pub fn place_of(&self, memory: NonNull<u8>) -> Option<usize> {
        let place = memory.as_ptr().addr().wrapping_sub(self.start.as_ptr().addr());
        (place < self.len).then_some(place)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody uses the memory of a mapping that goes.
        unsafe { unmap(self.start, self.len) };
    }
}

/// New memory.
fn map(len: usize, flags: i32) -> Option<NonNull<u8>> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: an anonymous mapping at a place that the system chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

/// # Safety
/// The range is whole pages of a mapping, which nobody uses from now on.
unsafe fn unmap(start: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: the caller's contract.
        unsafe { libc::munmap(start.as_ptr().cast(), len) };
    }
}

/// Bytes of a range that lie on huge pages, as the system says. None when it doesn't.
fn huge_bytes(start: usize, len: usize) -> Option<usize> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let (mut inside, mut found) = (false, 0);
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let ends = range.map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16)));
        if let Some([Ok(from), Ok(to)]) = ends {
            inside = from < start + len && start < to;
        } else if let Some(size) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
            found += size.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10;
        }
    }
    // A neighbour may be in one entry with it.
    Some(found.min(len))
}

#[cfg(test)]
mod tests {
    use super::{HUGE, Mapping, Pages};

    #[test]
    fn a_mapping_is_there_whether_or_not_pages_are_huge() {
        for pages in [Pages::Small, Pages::HugeIfAny, Pages::Huge] {
            let mapping = Mapping::new(HUGE + 1, pages).unwrap();
            assert_eq!(mapping.len(), 2 * HUGE);
            assert!(mapping.huge_bytes() <= mapping.len());
            assert_eq!(mapping.huge_bytes() % HUGE, 0);
            assert!(pages != Pages::Small || mapping.huge_bytes() == 0);
            for place in [0, 1, HUGE, 2 * HUGE - 1] {
                let memory = mapping.at(place);
                assert_eq!(mapping.place_of(memory), Some(place));
                // SAFETY: within the mapping, which nobody else has.
                unsafe { memory.write(7) };
            }
            // SAFETY: the address is not looked at, only compared.
            let behind = unsafe { mapping.at(mapping.len() - 1).add(1) };
            assert_eq!(mapping.place_of(behind), None);
        }
    }

    #[test]
    fn too_much_memory_is_refused() {
        assert!(Mapping::new(usize::MAX, Pages::HugeIfAny).is_err());
        assert!(Mapping::new(usize::MAX - 2 * HUGE, Pages::Huge).is_err());
        assert!(Mapping::new(1 << 56, Pages::Small).is_err());
    }

    /// Pages that are set aside may be larger by default: a mapping takes none that it doesn't tell
    /// of.
    #[test]
    fn set_aside_pages_are_as_large_as_they_are_taken_for() {
        let mapping = Mapping::new(HUGE, Pages::HugeIfAny).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.at(0).as_ptr().addr());
        // Not there, where the system made one of it and a neighbour: then it is no such page.
        let mut own = maps.lines().skip_while(|line| !line.starts_with(&start));
        if let Some(size) = own.find_map(|line| line.strip_prefix("KernelPageSize:")) {
            let size: usize = size.trim().strip_suffix(" kB").unwrap().parse().unwrap();
            assert!(size << 10 <= HUGE, "pages of {size} KiB");
        }
    }
}
