//! Rings of Linux.
use super::{Done, Way};
use crate::memory::{OutOfMemory, try_zeros};
use io_uring::{IoUring, Probe, opcode, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Where memory of a place begins: what files past the system's cache want.
const ALIGNMENT: usize = 4096;
/// Names the request that a waker ends.
const WAKER: u64 = u64::MAX;
/// How long a ring that the system refuses to wait for sleeps between looks.
const LOOK: Duration = Duration::from_millis(1);

/// Wakes the thread that waits for a ring.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the wait that goes on, or the next one.
    pub fn wake(&self) {
        // It fails only when the count is at its end, and then it wakes anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// Memory of a request.
struct Place {
    memory: Vec<u8>,
    first: usize,
    /// A request has it.
    is_out: bool,
}

/// A ring for one file.
pub struct Ring {
    ring: IoUring,
    /// Its own: no other file ever gets its number.
    file: OwnedFd,
    /// Of each place.
    bytes: usize,
    places: Vec<Place>,
    /// The first so many have memory that the system knows.
    registered: usize,
    /// Whether it was told of it.
    is_told: bool,
    waker: Waker,
    /// Where the count of wakes is read to.
    wakes: Box<[u8; 8]>,
    /// Whether a request reads that count.
    is_listening: bool,
    /// Requests that the system has not taken yet.
    waiting: usize,
    /// Requests that it has.
    out: usize,
}

// SAFETY: a ring belongs to no thread; its memory is reached through `&mut self` alone.
unsafe impl Send for Ring {}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("out", &self.out).finish_non_exhaustive()
    }
}

fn no_memory(_: OutOfMemory) -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

impl Ring {
    /// A ring with some places of so many bytes each, less than 4 GiB. Refused where the system has
    /// none, doesn't allow it, or knows no reading and writing of this kind.
    pub fn new(file: BorrowedFd<'_>, places: usize, bytes: usize) -> io::Result<Self> {
        let entries = u32::try_from(places + 1).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = IoUring::new(entries)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let known = [opcode::Read::CODE, opcode::Write::CODE];
        if !ring.params().is_feature_nodrop() || !known.iter().all(|&op| probe.is_supported(op)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = file.try_clone_to_owned()?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut made = Vec::new();
        made.try_reserve_exact(places).map_err(OutOfMemory::from).map_err(no_memory)?;
        for _ in 0..places {
            let memory = try_zeros::<u8>(bytes + ALIGNMENT).map_err(no_memory)?;
            let first = memory.as_ptr().align_offset(ALIGNMENT);
            made.push(Place { memory, first, is_out: false });
        }
        Ok(Self {
            ring,
            file,
            bytes,
            places: made,
            registered: 0,
            is_told: false,
            waker: Waker(Arc::new(waker)),
            wakes: Box::new([0; 8]),
            is_listening: false,
            waiting: 0,
            out: 0,
        })
    }

    /// What wakes the thread that waits.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The first bytes of a place that no request has.
    pub fn memory(&mut self, place: usize, bytes: usize) -> &mut [u8] {
        let place = &mut self.places[place];
        assert!(!place.is_out, "a request has this memory");
        &mut place.memory[place.first..place.first + bytes]
    }

    /// Tells the system of the memory, which it then looks up and holds once, and not for each
    /// request: those of 2 MiB have 512 pages. Of as much as it allows, for some users may hold a
    /// few MiB; without it all goes on more slowly. Before Linux 5.9 a fork may part the memory
    /// from what is held, and other bytes are written: checksums are there for that.
    fn register(&mut self) {
        self.is_told = true;
        let mut buffers = Vec::new();
        if buffers.try_reserve_exact(self.places.len()).is_err() {
            return;
        }
        buffers.extend(self.places.iter_mut().map(|place| {
            let memory = &mut place.memory[place.first..][..self.bytes];
            libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() }
        }));
        let mut count = buffers.len();
        while count > 0 {
            // SAFETY: the memory is there until the ring has been dropped, and no request writes to
            // it but those of its place.
            match unsafe { self.ring.submitter().register_buffers(&buffers[..count]) } {
                Ok(()) => return self.registered = count,
                Err(_) => count -= count.div_ceil(4),
            }
        }
    }

    /// Begins a request with the memory of a place, which no other one has; it is handed over by
    /// the next call of `hand_over` or `wait`.
    pub fn start(&mut self, place: usize, way: Way, range: Range<usize>, at: u64) {
        let length = u32::try_from(range.len()).expect("a place has less than 4 GiB");
        if !self.is_told {
            self.register();
        }
        let memory = self.memory(place, range.end)[range].as_mut_ptr();
        let file = types::Fd(self.file.as_raw_fd());
        let number = u16::try_from(place).ok().filter(|_| place < self.registered);
        let entry = match (way, number) {
            (Way::Read, None) => opcode::Read::new(file, memory, length).offset(at).build(),
            (Way::Write, None) => opcode::Write::new(file, memory, length).offset(at).build(),
            (Way::Read, Some(number)) => {
                opcode::ReadFixed::new(file, memory, length, number).offset(at).build()
            }
            (Way::Write, Some(number)) => {
                opcode::WriteFixed::new(file, memory, length, number).offset(at).build()
            }
        };
        self.places[place].is_out = true;
        self.push(entry.user_data(place as u64));
    }

    /// Hands over what was started, so that it goes on while the caller prepares more. What the
    /// system does not take now the next wait hands over.
    pub fn hand_over(&mut self) {
        let _ = self.ring.submit();
        self.count_taken();
    }

    fn push(&mut self, entry: io_uring::squeue::Entry) {
        // SAFETY: its memory is a place that is out, or the count of wakes: nobody looks at it
        // until the request has ended, and it is not freed before, see drop.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("there is room for a request of each place and for the waker's");
        self.waiting += 1;
    }

    /// Hands over what was started, and waits until a request has ended or somebody wakes. Adds
    /// those that have. After an error nothing more can be started; those that were handed over
    /// end nevertheless, and so does dropping the ring.
    pub fn wait(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        if !self.is_listening {
            let (file, wakes) = (types::Fd(self.waker.0.as_raw_fd()), self.wakes.as_mut_ptr());
            self.is_listening = true;
            self.push(opcode::Read::new(file, wakes, 8).build().user_data(WAKER));
        }
        done.try_reserve(self.places.len()).map_err(OutOfMemory::from).map_err(no_memory)?;
        loop {
            let submitted = self.ring.submit();
            self.count_taken();
            let is_taken = match submitted {
                Ok(_) => true,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::EAGAIN | libc::EBUSY) => false,
                    _ => return Err(error),
                },
            };
            // What ended already is taken before anything is waited for.
            if self.reap(|ended| done.push(ended)) {
                return Ok(());
            }
            match is_taken {
                true => self.wait_for_one(),
                false => std::thread::sleep(LOOK),
            }
        }
    }

    /// Waits until a request has ended, or somewhat less. By poll(): under valgrind no thread would
    /// go on while one waits in the ring's own call.
    fn wait_for_one(&self) {
        // SAFETY: the ring has its descriptor for as long as it is borrowed.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        if poll(&mut [PollFd::new(&ring, PollFlags::IN)], None).is_err() {
            std::thread::sleep(LOOK);
        }
    }

    /// What the queue no longer has is the system's.
    fn count_taken(&mut self) {
        let left = self.ring.submission().len();
        self.out += self.waiting - left;
        self.waiting = left;
    }

    /// Takes what has ended, for a visitor; whether there was anything.
    fn reap(&mut self, mut visit: impl FnMut(Done)) -> bool {
        let mut any = false;
        for ended in self.ring.completion() {
            any = true;
            self.out -= 1;
            if ended.user_data() == WAKER {
                self.is_listening = false;
                continue;
            }
            let place = ended.user_data() as usize;
            self.places[place].is_out = false;
            let result = usize::try_from(ended.result())
                .map_err(|_| io::Error::from_raw_os_error(-ended.result()));
            visit(Done { place, result });
        }
        any
    }
}

impl Drop for Ring {
    /// Waits for what the system has: it writes to the memory of the places until then. Nobody asks
    /// how that went, and there may be no memory to note it.
    fn drop(&mut self) {
        self.count_taken();
        self.waker.wake();
        while self.out > 0 {
            let submitted = self.ring.submit();
            self.count_taken();
            match self.reap(drop) {
                true => {}
                false if submitted.is_ok() => self.wait_for_one(),
                false => std::thread::sleep(LOOK),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn file() -> std::fs::File {
        let path = std::env::temp_dir().join(format!("ring-{}", std::process::id()));
        let mut made = std::fs::File::options();
        let file = made.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    /// Many requests at once come back with their own bytes; a wake ends a wait. With memory that
    /// the system knows, of some places, and of none.
    #[test]
    fn requests_come_back_in_their_places() {
        for registered in [None, Some(2), Some(0)] {
            come_back_in_their_places(registered);
        }
    }

    fn come_back_in_their_places(registered: Option<usize>) {
        let mut file = file();
        let Ok(mut ring) = Ring::new(file.as_fd(), 4, 8192) else { return };
        ring.register();
        ring.registered = registered.unwrap_or(ring.registered);
        file.write_all(&[9; 100]).unwrap();
        for place in 0..4 {
            ring.memory(place, 4096).fill(place as u8 + 1);
            ring.start(place, Way::Write, 0..4096, place as u64 * 4096);
            ring.hand_over();
        }
        let mut done = Vec::new();
        while done.len() < 4 {
            ring.wait(&mut done).unwrap();
        }
        assert!(done.iter().all(|done| *done.result.as_ref().unwrap() == 4096));
        done.clear();
        for place in 0..4 {
            ring.start(place, Way::Read, 10..20, (3 - place as u64) * 4096 + 5);
        }
        while done.len() < 4 {
            ring.wait(&mut done).unwrap();
        }
        for place in 0..4 {
            assert_eq!(ring.memory(place, 20)[10..], [4 - place as u8; 10]);
        }
        done.clear();
        ring.start(0, Way::Read, 0..10, 1 << 20);
        ring.wait(&mut done).unwrap();
        assert_eq!(*done[0].result.as_ref().unwrap(), 0, "nothing lies behind the end");
        done.clear();
        let waker = ring.waker();
        let thread = std::thread::spawn(move || waker.wake());
        ring.wait(&mut done).unwrap();
        assert!(done.is_empty());
        thread.join().unwrap();
        // Dropped with a request that nobody waited for.
        ring.start(1, Way::Read, 0..10, 0);
    }
}
