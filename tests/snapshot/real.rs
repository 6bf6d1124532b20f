//! The library, driven by the same operations. Snapshots are boxes that readers look into, so that
//! one that went too early is seen by AddressSanitizer.
use super::ops::{Answer, Config, Counts, Op};
use radixkv::capi::*;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{CStr, c_void};
use std::ptr;

/// A struct of the ABI that is zero but for its size.
pub fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

fn message() -> String {
    let mut text = [0u8; 200];
    // SAFETY: the buffer has the room that is stated.
    unsafe { rkv_last_error_message(text.as_mut_ptr().cast(), text.len()) };
    CStr::from_bytes_until_nul(&text).unwrap().to_string_lossy().into_owned()
}

#[track_caller]
pub fn ok(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok, "{}", message());
}

fn namespace(ns: u8) -> rkv_namespace {
    rkv_namespace { epoch: u64::from(ns), ..sized() }
}

pub fn list(ids: &[u32]) -> rkv_tokens {
    rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
}

/// A pin that is out.
struct Pin {
    cache: *mut rkv_snapshot_cache,
    id: rkv_pin_id,
    data: *mut u64,
    snapshot: u64,
}

pub struct Real {
    config: Config,
    cache: Cell<*mut rkv_snapshot_cache>,
    made: Cell<u64>,
    pins: RefCell<Vec<Pin>>,
    /// Released: the cache is there as long as it is the present one.
    released: RefCell<Vec<rkv_pin_id>>,
    armed: RefCell<VecDeque<Op>>,
    /// What lookups of trimmable entries found, of several that would do.
    pub choices: RefCell<VecDeque<u64>>,
    pub log: RefCell<Vec<Answer>>,
    /// Snapshots without a destructor, which are nobody's.
    orphans: RefCell<Vec<*mut u64>>,
}

unsafe extern "C-unwind" fn destroyed(data: *mut c_void, _: u64, user_data: *mut c_void) {
    // SAFETY: user_data is the Real that outlives the cache, data a box that it gave away.
    let (real, snapshot) = unsafe { (&*user_data.cast::<Real>(), Box::from_raw(data.cast())) };
    real.log.borrow_mut().push(Answer::Destroyed(*snapshot));
    let op = real.armed.borrow_mut().pop_front();
    if let Some(op) = op {
        real.perform(&op);
    }
}

impl Real {
    /// Boxed, since destructors get its address.
    pub fn new(config: Config) -> Box<Self> {
        Box::new(Self {
            config,
            cache: Cell::new(create(config)),
            made: Cell::new(0),
            pins: RefCell::default(),
            released: RefCell::default(),
            armed: RefCell::default(),
            choices: RefCell::default(),
            log: RefCell::default(),
            orphans: RefCell::default(),
        })
    }

    pub fn perform(&self, op: &Op) {
        let answer = match op {
            Op::Insert { .. } => self.insert(op),
            Op::Match { ns, tokens, trimmable } => self.lookup(*ns, tokens, *trimmable),
            Op::Probe { ns, tokens } => {
                let (namespace, tokens, mut found) = (namespace(*ns), list(tokens), 0);
                // SAFETY: all pointers lead to live values.
                ok(unsafe {
                    rkv_snapshot_cache_probe(self.cache.get(), &namespace, &tokens, &mut found)
                });
                Answer::Probed(found)
            }
            Op::Release { pin } => self.release(*pin),
            Op::ReleaseAgain { pin } => self.release_again(*pin),
            Op::Remove { ns, tokens } => {
                let (namespace, tokens, mut removed) = (namespace(*ns), list(tokens), false);
                // SAFETY: all pointers lead to live values.
                ok(unsafe {
                    rkv_snapshot_cache_remove(self.cache.get(), &namespace, &tokens, &mut removed)
                });
                Answer::Removed(removed)
            }
            Op::Clear => {
                // SAFETY: the handle is alive.
                ok(unsafe { rkv_snapshot_cache_clear(self.cache.get()) });
                Answer::Done
            }
            Op::Arm(op) => {
                self.armed.borrow_mut().push_back((**op).clone());
                Answer::Done
            }
            Op::Recreate => {
                let old = self.cache.replace(create(self.config));
                // SAFETY: only pins use the old handle from here on.
                unsafe { rkv_snapshot_cache_destroy(old) };
                Answer::Done
            }
        };
        self.log.borrow_mut().push(answer);
    }

    fn insert(&self, op: &Op) -> Answer {
        let Op::Insert { ns, tokens, bytes, next, destructor, trimmable } = op else {
            unreachable!("an insert");
        };
        self.made.set(self.made.get() + 1);
        let data = Box::into_raw(Box::new(self.made.get()));
        if !*destructor {
            self.orphans.borrow_mut().push(data);
        }
        let (namespace, tokens) = (namespace(*ns), list(tokens));
        let args = rkv_snapshot_cache_insert_args {
            flags: if *trimmable { RKV_SNAPSHOT_INSERT_TRIMMABLE } else { 0 },
            space: &namespace,
            tokens: &tokens,
            data: data.cast(),
            size_bytes: *bytes,
            destructor: destructor.then_some(destroyed),
            user_data: ptr::from_ref(self).cast_mut().cast(),
            has_next_token: u32::from(next.is_some()),
            next_token: next.unwrap_or(0),
            ..sized()
        };
        let mut result = sized::<rkv_snapshot_cache_insert_result>();
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_snapshot_cache_insert(self.cache.get(), &args, &mut result) });
        Answer::Inserted {
            stored: result.stored == 1,
            replaced: result.replaced == 1,
            evicted: result.evicted_count,
        }
    }

    fn lookup(&self, ns: u8, tokens: &[u32], trimmable: bool) -> Answer {
        let flags = if trimmable { RKV_SNAPSHOT_MATCH_TRIMMABLE } else { 0 };
        let (namespace, tokens) = (namespace(ns), list(tokens));
        let (cache, mut found) = (self.cache.get(), sized::<rkv_snapshot_cache_match_result>());
        // SAFETY: all pointers lead to live values; a match's data is a box's until the release.
        unsafe {
            ok(rkv_snapshot_cache_match(cache, &namespace, &tokens, flags, &mut found));
            if found.pin == 0 {
                assert!(found.data.is_null() && found.token_count == 0 && found.full_hit == 0);
                assert!(found.common_token_count == 0);
                return Answer::Miss;
            }
            let (data, id) = (found.data.cast::<u64>(), found.pin);
            let snapshot = *data;
            if trimmable {
                self.choices.borrow_mut().push_back(snapshot);
            }
            self.pins.borrow_mut().push(Pin { cache, id, data, snapshot });
            Answer::Hit {
                snapshot,
                bytes: found.size_bytes,
                tokens: found.token_count,
                common: found.common_token_count,
                full: found.full_hit == 1,
                next: (found.has_next_token == 1).then_some(found.next_token),
            }
        }
    }

    fn release(&self, pin: u16) -> Answer {
        let count = self.pins.borrow().len();
        if count == 0 {
            return Answer::Done;
        }
        let pin = self.pins.borrow_mut().remove(pin as usize % count);
        self.released.borrow_mut().push(pin.id);
        // SAFETY: the pin is out, so its cache is there.
        ok(unsafe { rkv_snapshot_cache_release(pin.cache, pin.id) });
        Answer::Released
    }

    fn release_again(&self, pin: u16) -> Answer {
        let count = self.released.borrow().len();
        if count == 0 {
            return Answer::Done;
        }
        let pin = self.released.borrow()[pin as usize % count];
        // SAFETY: the handle is alive.
        match unsafe { rkv_snapshot_cache_release(self.cache.get(), pin) } {
            rkv_status::StalePin => Answer::Stale,
            other => panic!("a pin is released twice: {other:?}"),
        }
    }

    /// What can be counted; all invariants hold, and all readers have what they got.
    pub fn counts(&self, with_nodes: bool) -> Counts {
        let mut stats = sized::<rkv_snapshot_cache_stats>();
        // SAFETY: the handle is alive; what is pinned is there.
        unsafe {
            ok(rkv_snapshot_cache_check(self.cache.get()));
            ok(rkv_snapshot_cache_read_stats(self.cache.get(), &mut stats));
            for pin in self.pins.borrow().iter() {
                assert_eq!(*pin.data, pin.snapshot, "a snapshot changed under its reader");
            }
        }
        assert!(stats.node_count < 2 * stats.entry_count.max(1), "{} nodes", stats.node_count);
        Counts {
            entries: stats.entry_count,
            entry_bytes: stats.entry_bytes,
            pinned_entries: stats.pinned_entry_count,
            pins: stats.pin_count,
            detached: stats.detached_count,
            detached_bytes: stats.detached_bytes,
            nodes: if with_nodes { stats.node_count } else { 0 },
            namespaces: stats.namespace_count,
            lookups: stats.lookup_count,
            hits: stats.hit_count,
            full_hits: stats.full_hit_count,
            lookup_tokens: stats.lookup_token_count,
            hit_tokens: stats.hit_token_count,
            stored: stats.stored_count,
            replaced: stats.replaced_count,
            rejected: stats.rejected_count,
            evicted: stats.evicted_count,
            removed: stats.removed_count,
        }
    }

    pub fn index_bytes(&self) -> u64 {
        let mut stats = sized::<rkv_snapshot_cache_stats>();
        // SAFETY: the handle is alive.
        ok(unsafe { rkv_snapshot_cache_read_stats(self.cache.get(), &mut stats) });
        stats.index_bytes
    }

    /// Destroys the cache and releases the pins; the numbers of all snapshots that then went.
    pub fn end(&self) -> Vec<u64> {
        self.armed.borrow_mut().clear();
        self.log.borrow_mut().clear();
        // SAFETY: only pins use the handle from here on.
        unsafe { rkv_snapshot_cache_destroy(self.cache.replace(ptr::null_mut())) };
        while !self.pins.borrow().is_empty() {
            self.release(0);
        }
        let number = |answer: &Answer| match answer {
            Answer::Destroyed(snapshot) => *snapshot,
            other => panic!("{other:?} at the end"),
        };
        self.log.borrow().iter().map(number).collect()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if !self.cache.get().is_null() {
            self.end();
        }
        for data in self.orphans.take() {
            // SAFETY: from Box::into_raw, and nobody reads it any more.
            drop(unsafe { Box::from_raw(data) });
        }
    }
}

fn create(config: Config) -> *mut rkv_snapshot_cache {
    let Config { entry_limit, byte_limit } = config;
    let (mut made, mut cache) = (sized::<rkv_snapshot_cache_config>(), ptr::null_mut());
    (made.entry_limit, made.byte_limit) = (entry_limit, byte_limit);
    // SAFETY: all pointers lead to live values.
    ok(unsafe { rkv_snapshot_cache_create(&made, &mut cache) });
    cache
}
