//! Threads of the library's own.
//!
//! A call that wants help takes a place and waits there for helpers only as long as there is work.
//! Threads without work look at all places for a while, for the next call comes soon; then they
//! sleep. Once the threads are there nothing allocates memory: a call for which there is none would
//! end the process. That is why these are not std's threads, nor a library's.
use super::place::{Place, Work};
use crate::error::Error;
use crate::error::text;
use crate::memory::{Arc, OutOfMemory};
use std::ffi::c_void;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// Calls that have helpers at a time. What comes on top is computed by the calling thread alone.
const PLACES: usize = 8;

/// How often a thread without work looks for some before it sleeps: some ten microseconds.
const LOOKS: usize = 64;

/// Bytes of a thread's stack: as many as std gives.
#[cfg(not(miri))]
const STACK_BYTES: usize = 2 << 20;

/// Where a thread sleeps.
#[derive(Default)]
struct Bed {
    is_asleep: AtomicBool,
    is_woken: Mutex<bool>,
    wake: Condvar,
}

impl Bed {
    fn wake(&self) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_one();
    }

    /// Sleeps until it is woken. Somebody may have been about to wake the thread when it last
    /// decided to stay awake; then it wakes at once.
    fn sleep(&self) {
        let mut is_woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_woken {
            is_woken = self.wake.wait(is_woken).unwrap_or_else(PoisonError::into_inner);
        }
        *is_woken = false;
    }
}

/// What the threads know.
#[derive(Default)]
struct Common {
    places: [Place; PLACES],
    /// One for each thread.
    beds: Vec<Bed>,
    /// Threads that began.
    begun: AtomicUsize,
    is_over: AtomicBool,
}

impl Common {
    fn new(count: usize) -> Result<Arc<Self>, OutOfMemory> {
        let mut beds = Vec::new();
        beds.try_reserve_exact(count)?;
        beds.resize_with(count, Bed::default);
        Arc::new(Self { beds, ..Self::default() })
    }

    /// What each thread does until all is over. Its number is above 0, which is the caller's.
    fn help(&self, number: usize) {
        let bed = &self.beds[number - 1];
        let mut looks = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            if self.places.iter().any(|place| place.help(number)) {
                looks = 0;
            } else if looks < LOOKS {
                looks += 1;
                std::thread::yield_now();
            } else {
                // Whoever wants help says so and then looks for sleepers; here it is the other way
                // round, so one of the two sees the other.
                bed.is_asleep.store(true, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                let is_wanted = self.places.iter().any(Place::wants_help);
                if !is_wanted && !self.is_over.load(Ordering::SeqCst) {
                    bed.sleep();
                }
                bed.is_asleep.store(false, Ordering::SeqCst);
                looks = 0;
            }
        }
    }

    /// Wakes as many threads as are wanted, if they sleep.
    fn wake(&self, wanted: usize) {
        fence(Ordering::SeqCst);
        let is_asleep = |bed: &&Bed| {
            bed.is_asleep.load(Ordering::Relaxed) && bed.is_asleep.swap(false, Ordering::SeqCst)
        };
        self.beds.iter().filter(is_asleep).take(wanted).for_each(Bed::wake);
    }
}

/// Threads that help calls. When this is dropped they have ended: otherwise code that is unloaded,
/// or a process that ends, would pull the rug from under them.
pub(super) struct OwnThreads {
    common: Arc<Common>,
    handles: Vec<Handle>,
    /// A child of fork() has this memory and not the threads.
    process: u32,
}

impl OwnThreads {
    /// So many threads.
    pub(super) fn new(count: usize) -> Result<Self, Error> {
        let mut handles = Vec::new();
        handles.try_reserve_exact(count).map_err(OutOfMemory::from)?;
        let mut made = Self { common: Common::new(count)?, handles, process: std::process::id() };
        for _ in 0..count {
            // Those that were started end when `made` is dropped.
            made.handles.push(start(&made.common)?);
        }
        Ok(made)
    }

    /// Calls `work` with 0 on this thread, and with their numbers on up to `wanted` others; returns
    /// when all are done. Each number is used by one thread at a time. Not all that are wanted need
    /// come: `work` is done when one call of it returns.
    pub(super) fn everywhere(&self, wanted: usize, work: &Work<'_>) {
        let place = self.common.places.iter().find_map(|place| place.open(wanted, work));
        let Some(place) = place else { return work(0) };
        self.common.wake(wanted);
        work(0);
        place.close();
    }
}

impl Drop for OwnThreads {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.common.is_over.store(true, Ordering::SeqCst);
        self.common.beds.iter().for_each(Bed::wake);
        for Handle(handle) in self.handles.drain(..) {
            // SAFETY: started by `start`, and joined once.
            unsafe { libc::pthread_join(handle, std::ptr::null_mut()) };
        }
    }
}

/// A thread that is to be joined.
struct Handle(libc::pthread_t);

// SAFETY: on some systems it is a pointer, but any thread may join.
unsafe impl Send for Handle {}
// SAFETY: shared, it is not used.
unsafe impl Sync for Handle {}

/// Starts a thread, without memory from the allocator: std's threads take some.
fn start(common: &Common) -> Result<Handle, Error> {
    extern "C" fn run(common: *mut c_void) -> *mut c_void {
        // SAFETY: it was a reference, and what it leads to is dropped after the threads.
        let common = unsafe { &*common.cast::<Common>().cast_const() };
        let number = common.begun.fetch_add(1, Ordering::Relaxed) + 1;
        name_thread(number);
        common.help(number);
        std::ptr::null_mut()
    }
    let common = (&raw const *common).cast_mut().cast::<c_void>();
    let mut handle = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the attributes are initialised before they are used; `run` has the right type, and
    // `common` outlives the thread, which `OwnThreads` joins before it drops it.
    let failure = with_attributes(|attributes| unsafe {
        libc::pthread_create(handle.as_mut_ptr(), attributes, run, common)
    });
    match failure {
        // SAFETY: pthread_create() succeeded, so it wrote the handle.
        0 => Ok(Handle(unsafe { handle.assume_init() })),
        code => Err(Error::memory(text!("threads: pthread_create() says {code}"))),
    }
}

/// The stack's size is std's: some systems give only a few pages by default.
#[cfg(not(miri))]
fn with_attributes(create: impl FnOnce(*const libc::pthread_attr_t) -> i32) -> i32 {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: initialised first, destroyed last.
    unsafe {
        match libc::pthread_attr_init(attributes.as_mut_ptr()) {
            0 => {}
            failure => return failure,
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES);
        let failure = create(attributes.as_ptr());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        failure
    }
}

/// Miri lets only std set attributes.
#[cfg(miri)]
fn with_attributes(create: impl FnOnce(*const libc::pthread_attr_t) -> i32) -> i32 {
    create(std::ptr::null())
}

/// For debuggers and profilers.
#[cfg(target_os = "linux")]
fn name_thread(number: usize) {
    let mut name = [0u8; 16];
    // A name that doesn't fit is cut, and a zero stays at the end.
    let _ = write!(&mut name[..15], "radixkv-{number}");
    // SAFETY: this thread's own handle, and a string that ends with a zero.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr().cast()) };
}

#[cfg(not(target_os = "linux"))]
fn name_thread(_: usize) {}

#[cfg(test)]
mod tests {
    use super::{Common, OwnThreads, PLACES};
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Barrier, Mutex};
    use std::time::Duration;

    const ROUNDS: usize = if cfg!(miri) { 3 } else { 2000 };

    /// Each number adds to a place of its own: two threads with one number would be a race.
    fn add_up(threads: &OwnThreads, count: usize, tasks: usize) {
        let (next, sums) = (AtomicUsize::new(0), [const { Mutex::new(0) }; 8]);
        threads.everywhere(count - 1, &|number| {
            let mut sum = sums[number].try_lock().expect("a number is one thread's");
            while next.fetch_add(1, Relaxed) < tasks {
                *sum += 1;
            }
        });
        assert_eq!(sums.map(|sum| sum.into_inner().unwrap()).iter().sum::<usize>(), tasks);
    }

    #[test]
    fn all_tasks_are_done_once_whoever_comes() {
        let threads = OwnThreads::new(3).unwrap();
        for round in 0..ROUNDS {
            add_up(&threads, 4, round % 50);
            if round % 500 == 0 {
                // Long enough for all to fall asleep.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn all_that_are_wanted_come() {
        let threads = OwnThreads::new(2).unwrap();
        for _ in 0..ROUNDS.min(200) {
            // Nobody passes before all three are there, asleep or not.
            let (barrier, came) = (Barrier::new(3), AtomicUsize::new(0));
            threads.everywhere(2, &|_| {
                if came.fetch_add(1, Relaxed) < 3 {
                    barrier.wait();
                }
            });
        }
    }

    #[test]
    fn more_calls_at_once_than_there_are_places() {
        let threads = OwnThreads::new(2).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..PLACES + 2 {
                scope.spawn(|| (0..ROUNDS / 10 + 1).for_each(|_| add_up(&threads, 3, 20)));
            }
        });
    }

    #[test]
    fn a_panic_is_the_callers_once_all_are_done() {
        let threads = OwnThreads::new(2).unwrap();
        for unlucky in [0, 1, 2] {
            let (barrier, ended) = (Barrier::new(3), AtomicUsize::new(0));
            let came = AtomicUsize::new(0);
            let call = catch_unwind(AssertUnwindSafe(|| {
                threads.everywhere(2, &|_| {
                    let at = came.fetch_add(1, Relaxed);
                    if at < 3 {
                        barrier.wait();
                        ended.fetch_add(1, Relaxed);
                        if at == unlucky {
                            resume_unwind(Box::new("as the test wants it")); // prints nothing
                        }
                    }
                });
            }));
            assert!(call.is_err());
            assert_eq!(ended.load(Relaxed), 3);
            add_up(&threads, 3, 100);
        }
    }

    #[test]
    fn threads_without_work_end_at_once() {
        (0..ROUNDS.min(100)).for_each(|count| drop(OwnThreads::new(count % 4).unwrap()));
        assert_eq!(Common::new(3).unwrap().beds.len(), 3);
    }
}
