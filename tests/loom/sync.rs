//! What `src/sync.rs` offers, as loom has it, with three things added.
//!
//! *Faults*: an operation is known by its place in the source, `file:line`. Those listed in
//! `RKV_LOOM_WEAK`, with commas, have no ordering, and fences there do nothing; stores listed in
//! `RKV_LOOM_SILENT` do nothing (`faults.rs`).
//!
//! *Order*: in models of much code everybody sees everything at once, since what loom does about
//! reads of old values takes too long.
//!
//! *Memory*: what is freed is overwritten, but stays allocated until the run ends. Whoever reads it
//! then finds no atomic there that loom knows, and the model fails.
use loom::thread::{self, ThreadId};
use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::rc::Rc;
use std::sync::LazyLock;

pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::Ordering;
pub(crate) use loom::thread::yield_now;

/// Loom's macro is older than `const` blocks.
macro_rules! loom_thread_local {
    ($(#[$doc:meta])* static $name:ident: $type:ty = const { $value:expr };) => {
        loom::thread_local! { $(#[$doc])* static $name: $type = $value; }
    };
}
pub(crate) use loom_thread_local as thread_local;

/// Places, with a comma between them.
struct Places(LazyLock<String>);

impl Places {
    fn have(&self, place: &Location<'_>) -> bool {
        let name = || format!("{}:{}", place.file(), place.line());
        !self.0.is_empty() && self.0.split(',').any(|listed| listed == name())
    }
}

static WEAK: Places = Places(LazyLock::new(|| std::env::var("RKV_LOOM_WEAK").unwrap_or_default()));
static SILENT: Places =
    Places(LazyLock::new(|| std::env::var("RKV_LOOM_SILENT").unwrap_or_default()));
/// Whether every place is to be told, once, that has an ordering.
static TELLS: LazyLock<bool> = LazyLock::new(|| std::env::var_os("RKV_LOOM_PLACES").is_some());

std::thread_local! {
    static TOLD: RefCell<BTreeSet<(&'static str, u32)>> = const { RefCell::new(BTreeSet::new()) };
    static MEMORY: RefCell<Memory> = const { RefCell::new(Memory::new()) };
    static IN_ORDER: Cell<bool> = const { Cell::new(false) };
    static TURNS: RefCell<Turns> = const { RefCell::new(Turns { all: Vec::new(), next: 0 }) };
}

/// An ordering as it is at a place.
fn ordering(wanted: Ordering, place: &'static Location<'static>) -> Ordering {
    if wanted == Ordering::Relaxed {
        return wanted;
    }
    if *TELLS && TOLD.with_borrow_mut(|told| told.insert((place.file(), place.line()))) {
        println!("ordered at {}:{}", place.file(), place.line());
    }
    if WEAK.have(place) { Ordering::Relaxed } else { wanted }
}

#[track_caller]
pub(crate) fn fence(order: Ordering) {
    let order = ordering(order, Location::caller());
    if order != Ordering::Relaxed && !IN_ORDER.get() {
        loom::sync::atomic::fence(order);
    }
}

/// What stands for the order in which atomics are used. There are so many that two atomics hardly
/// share one, which only makes for more runs.
struct Turns {
    all: Vec<Rc<loom::sync::atomic::AtomicBool>>,
    next: usize,
}

const TURNS_OF_A_RUN: usize = 64;

/// An atomic. Loom's own are not enough: loom forgets that a thread's write can come before what
/// other threads read when the writer has read the atomic itself in between (its issues 166 and
/// 392). So a thread doesn't read what only it has written, which it knows; and the order of all
/// reads, and of writes by others than the maker, is made to matter, by a write to `turn`.
struct Atomic<A, V> {
    /// None when everybody sees everything at once: then `value` is what is in it.
    inner: Option<A>,
    /// Written when it is made, like the plain memory around it: whoever reads the atomic without
    /// being ordered after that is told.
    made: loom::cell::UnsafeCell<()>,
    turn: Cell<Option<usize>>,
    value: Cell<V>,
    /// Who made it, until another thread writes.
    writer: Cell<Option<ThreadId>>,
}

// SAFETY: loom's threads take turns on one thread of the system.
unsafe impl<A: Sync, V> Sync for Atomic<A, V> {}

impl<A, V: Copy> Atomic<A, V> {
    fn new(inner: fn(V) -> A, value: V) -> Self {
        let inner = (!IN_ORDER.get()).then(|| inner(value));
        let writer = Cell::new(Some(thread::current().id()));
        let made = loom::cell::UnsafeCell::new(());
        Self { inner, made, turn: Cell::new(None), value: Cell::new(value), writer }
    }

    fn is_own(&self) -> bool {
        self.writer.get().is_some_and(|writer| writer == thread::current().id())
    }

    fn take_turn(&self) {
        let turn = TURNS.with_borrow_mut(|turns| {
            let number = self.turn.get().unwrap_or_else(|| {
                turns.next += 1;
                turns.next % turns.all.len()
            });
            self.turn.set(Some(number));
            Rc::clone(&turns.all[number])
        });
        turn.store(true, Ordering::Relaxed);
    }

    fn wrote(&self, value: V) {
        if !self.is_own() {
            self.writer.set(None);
        }
        self.value.set(value);
    }

    fn load(
        &self,
        place: &'static Location<'static>,
        order: Ordering,
        load: fn(&A, Ordering) -> V,
    ) -> V {
        let order = ordering(order, place);
        self.take_turn();
        let inner = self.inner.as_ref().filter(|_| !self.is_own());
        inner.map_or_else(
            || self.value.get(),
            |inner| {
                self.made.with(|_| ());
                load(inner, order)
            },
        )
    }

    fn store(
        &self,
        place: &'static Location<'static>,
        order: Ordering,
        value: V,
        store: fn(&A, V, Ordering),
    ) {
        let order = ordering(order, place);
        if SILENT.have(place) {
            return;
        }
        match &self.inner {
            None => self.take_turn(),
            Some(inner) => {
                if !self.is_own() {
                    self.take_turn();
                }
                store(inner, value, order);
            }
        }
        self.wrote(value);
    }

    /// Reads and writes in one step, or only reads when there is nothing to write.
    ///
    /// Loom takes what is sequentially consistent for acquire and release, except for fences. So
    /// one follows each such step, which orders it before all that is read later: what a reader
    /// that signs in needs of that order.
    fn change(
        &self,
        place: &'static Location<'static>,
        order: Ordering,
        change: impl FnOnce(&A, Ordering) -> Result<V, V>,
        next: impl Fn(V) -> Option<V>,
    ) -> Result<V, V> {
        let order = ordering(order, place);
        if self.inner.is_none() || !self.is_own() {
            self.take_turn();
        }
        let before = if let Some(inner) = &self.inner {
            let before = change(inner, order);
            if order == Ordering::SeqCst {
                loom::sync::atomic::fence(order);
            }
            before
        } else {
            let value = self.value.get();
            next(value).map(|_| value).ok_or(value)
        };
        if let Ok(Some(value)) = before.map(next) {
            self.wrote(value);
        }
        before
    }
}

macro_rules! atomic {
    ($name:ident$(<$generic:ident>)?, $value:ty) => {
        pub(crate) struct $name$(<$generic>)?(
            Atomic<loom::sync::atomic::$name$(<$generic>)?, $value>
        );

        impl$(<$generic>)? std::fmt::Debug for $name$(<$generic>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        #[allow(dead_code)]
        impl$(<$generic>)? $name$(<$generic>)? {
            #[track_caller]
            pub(crate) fn new(value: $value) -> Self {
                Self(Atomic::new(loom::sync::atomic::$name::new, value))
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(Location::caller(), order, |inner, order| inner.load(order))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                let store = |inner: &_, value, order| {
                    loom::sync::atomic::$name::store(inner, value, order);
                };
                self.0.store(Location::caller(), order, value, store);
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                let swap = |inner: &loom::sync::atomic::$name$(<$generic>)?, order| {
                    Ok(inner.swap(value, order))
                };
                let (Ok(before) | Err(before)) =
                    self.0.change(Location::caller(), order, swap, |_| Some(value));
                before
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let exchange = |inner: &loom::sync::atomic::$name$(<$generic>)?, order| {
                    inner.compare_exchange(from, to, order, failure)
                };
                let next = |value| (value == from).then_some(to);
                self.0.change(Location::caller(), success, exchange, next)
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }

        #[allow(dead_code)]
        impl $name {
            #[track_caller]
            pub(crate) fn fetch_add(&self, more: $value, order: Ordering) -> $value {
                let add =
                    |inner: &loom::sync::atomic::$name, order| Ok(inner.fetch_add(more, order));
                let (Ok(before) | Err(before)) =
                    self.0.change(Location::caller(), order, add, |value| Some(value + more));
                before
            }

            #[track_caller]
            pub(crate) fn fetch_sub(&self, less: $value, order: Ordering) -> $value {
                let subtract =
                    |inner: &loom::sync::atomic::$name, order| Ok(inner.fetch_sub(less, order));
                let (Ok(before) | Err(before)) =
                    self.0.change(Location::caller(), order, subtract, |value| Some(value - less));
                before
            }

            #[track_caller]
            pub(crate) fn fetch_max(&self, other: $value, order: Ordering) -> $value {
                let raise =
                    |inner: &loom::sync::atomic::$name, order| Ok(inner.fetch_max(other, order));
                let (Ok(before) | Err(before)) =
                    self.0.change(Location::caller(), order, raise, |value| Some(value.max(other)));
                before
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

/// Is made by one thread; others see it whole or not at all.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    there: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self { there: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.there.load(Ordering::Acquire).then(|| self.value.get()).flatten()
    }

    pub(crate) fn set(&self, made: T) -> Result<(), T> {
        self.value.set(made)?;
        self.there.store(true, Ordering::Release);
        Ok(())
    }
}

/// The memory of one run.
struct Memory {
    live: BTreeMap<usize, Layout>,
    freed: Vec<(*mut u8, Layout)>,
}

impl Memory {
    const fn new() -> Self {
        Self { live: BTreeMap::new(), freed: Vec::new() }
    }
}

/// No atomic of a run has this number.
const FREED: u8 = 0xfd;

/// # Safety
/// As of `std::alloc::alloc`.
pub(crate) unsafe fn alloc(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's contract.
    let memory = unsafe { std::alloc::alloc(layout) };
    MEMORY.with_borrow_mut(|all| all.live.insert(memory.addr(), layout));
    memory
}

/// # Safety
/// As of `std::alloc::dealloc`.
pub(crate) unsafe fn dealloc(memory: *mut u8, layout: Layout) {
    MEMORY.with_borrow_mut(|all| {
        assert_eq!(all.live.remove(&memory.addr()), Some(layout), "freed twice, or otherwise");
        // SAFETY: it is the caller's, who gives it up.
        unsafe { memory.write_bytes(FREED, layout.size()) };
        all.freed.push((memory, layout));
    });
}

/// Begins a run; `in_order` when everybody is to see everything at once.
pub(crate) fn begin_run(in_order: bool) {
    IN_ORDER.set(in_order);
    TURNS.with_borrow_mut(|turns| {
        turns.all = (0..TURNS_OF_A_RUN).map(|_| Rc::new(false.into())).collect();
        turns.next = 0;
    });
}

/// Ends a run: everything must be free.
pub(crate) fn end_run() {
    MEMORY.with_borrow_mut(|all| {
        assert!(all.live.is_empty(), "memory is left: {:?}", all.live.values());
        for (memory, layout) in all.freed.drain(..) {
            // SAFETY: it came from `alloc` and is freed once; no thread of the run is left.
            unsafe { std::alloc::dealloc(memory, layout) };
        }
    });
}
