//! An engine in the small: KV memory whose bytes say what was computed into them, and a cache with
//! tiers of which the lowest is a store of the network library.
use radixkv::capi::*;
use radixkv_net::*;
use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

pub const PAGE_SIZE: usize = 16;
pub const PAGE_BYTES: usize = 32 << 10;
const PAGES: usize = 96;

#[track_caller]
pub fn ok(status: rkv_status) {
    let mut text = [0u8; 512];
    // SAFETY: so many bytes are there.
    unsafe { rkv_last_error_message(text.as_mut_ptr().cast(), text.len()) };
    assert_eq!(status, rkv_status::Ok, "{}", String::from_utf8_lossy(&text));
}

pub fn sized<T: Copy>() -> T {
    // SAFETY: structs of the header are integers and pointers; the first field is the size.
    unsafe {
        let mut made: T = std::mem::zeroed();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

/// A store of the network library.
pub struct Store(*mut rkv_net_store);

impl Store {
    pub fn new(url: &str, endpoint: Option<&str>, prefix: &str, ca_file: Option<&str>) -> Self {
        let [url, prefix] = [url, prefix].map(|text| CString::new(text).unwrap());
        let [endpoint, ca_file] =
            [endpoint, ca_file].map(|text| text.map(|text| CString::new(text).unwrap()));
        let mut config: rkv_net_store_config = sized();
        config.url = url.as_ptr();
        config.prefix = prefix.as_ptr();
        config.endpoint = endpoint.as_ref().map_or(null(), |text| text.as_ptr());
        config.ca_file = ca_file.as_ref().map_or(null(), |text| text.as_ptr());
        let mut made = null_mut();
        // SAFETY: everything is there during the call.
        let status = unsafe { rkv_net_store_create(&config, &mut made) };
        assert_eq!(status, rkv_net_status::Ok);
        Self(made)
    }

    pub fn remote(&self) -> rkv_remote_store {
        let mut made: rkv_remote_store = sized();
        // SAFETY: both libraries have the same struct under this name, as the header says.
        let status = unsafe { rkv_net_store_describe(self.0, (&raw mut made).cast()) };
        assert_eq!(status, rkv_net_status::Ok);
        made
    }

    pub fn last_failure(&self) -> String {
        let mut text = [0u8; 512];
        // SAFETY: so many bytes are there.
        let needed =
            unsafe { rkv_net_store_last_failure(self.0, text.as_mut_ptr().cast(), text.len()) };
        assert!(needed > 0);
        let end = text.iter().position(|&byte| byte == 0).unwrap();
        String::from_utf8_lossy(&text[..end]).into_owned()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: it came from create; engines that have it are gone.
        unsafe { rkv_net_store_destroy(self.0) };
    }
}

pub struct Engine {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
    kv: Vec<u8>,
    /// How long a request waits.
    pub deadline_ms: u64,
}

/// What a page of a prompt holds when it was computed.
fn computed(tokens: &[u32], page: usize) -> Vec<u8> {
    let before = &tokens[..(page + 1) * PAGE_SIZE];
    let mut state = before.iter().fold(7u64, |sum, &id| {
        (sum ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    });
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    while bytes.len() < PAGE_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// Pages that it found in the device's memory.
    pub had: usize,
    /// Pages that were fetched.
    pub fetched: usize,
    /// Pages that it computed.
    pub computed: usize,
    /// How long the fetch took.
    pub waited: Duration,
}

impl Engine {
    /// With nothing in it.
    pub fn new(store: &Store, timeout_ms: u32) -> Self {
        let (mut table, mut cache) = (null_mut(), null_mut());
        // SAFETY: everything is there during the calls.
        unsafe {
            let mut config: rkv_page_table_config = sized();
            ok(rkv_page_table_config_init(&mut config, size_of_val(&config)));
            (config.page_size, config.page_count) = (PAGE_SIZE as u32, PAGES as u32 + 1);
            ok(rkv_page_table_create(&config, &mut table));
            let mut config: rkv_cache_config = sized();
            ok(rkv_cache_config_init(&mut config, size_of_val(&config)));
            config.journal_bytes = 1 << 20;
            ok(rkv_cache_create(table, &config, &mut cache));
            let remote = store.remote();
            let mut config: rkv_tier_config = sized();
            ok(rkv_tier_config_init(&mut config, size_of_val(&config)));
            config.page_bytes = PAGE_BYTES as u64;
            config.host_bytes = 64 * PAGE_BYTES as u64;
            config.fingerprint = [5; 32];
            config.worker_count = 4;
            (config.remote, config.remote_timeout_ms) = (&remote, timeout_ms);
            ok(rkv_cache_attach_tiers(cache, &config));
        }
        let kv = vec![0; (PAGES + 1) * PAGE_BYTES];
        Self { table, cache, kv, deadline_ms: u64::MAX }
    }

    pub fn stats(&self) -> rkv_tier_stats {
        let mut stats: rkv_tier_stats = sized();
        // SAFETY: as above.
        ok(unsafe { rkv_cache_read_tier_stats(self.cache, &mut stats) });
        stats
    }

    /// One step: copies are carried out. The fetch that has ended, if one has.
    fn step(&mut self) -> Option<rkv_fetch_end> {
        // SAFETY: pages and slots are as long as that; a slot is the copy's until it is complete.
        unsafe {
            let mut jobs: [rkv_copy_job; 64] = std::mem::zeroed();
            let mut end: rkv_fetch_end = std::mem::zeroed();
            let mut got: rkv_cache_poll_result = sized();
            let [job, end_size] = [size_of::<rkv_copy_job>(), size_of::<rkv_fetch_end>()];
            ok(rkv_cache_poll(
                self.cache,
                jobs.as_mut_ptr(),
                job,
                64,
                &mut end,
                end_size,
                1,
                &mut got,
            ));
            for job in &jobs[..got.job_count as usize] {
                let from = job.page as usize * PAGE_BYTES;
                let page = &mut self.kv[from..from + PAGE_BYTES];
                let host = std::slice::from_raw_parts_mut(job.host.cast::<u8>(), PAGE_BYTES);
                match job.direction {
                    RKV_COPY_LOAD => page.copy_from_slice(host),
                    _ => host.copy_from_slice(page),
                }
                ok(rkv_cache_complete(self.cache, &job.job, 1, true));
            }
            (got.end_count > 0).then_some(end)
        }
    }

    fn info(&self, sequence: rkv_sequence_id) -> rkv_sequence_info {
        let mut info: rkv_sequence_info = sized();
        // SAFETY: as above.
        ok(unsafe { rkv_sequence_read_info(self.cache, sequence, &mut info) });
        info
    }

    /// Steps until something is so.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&rkv_tier_stats) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so(&self.stats()) {
            assert!(Instant::now() < end, "{what}: {:?}", self.said());
            self.step();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Some numbers, for a message.
    pub fn said(&self) -> String {
        let rkv_tier_stats { remote, host, .. } = self.stats();
        format!(
            "asked {} found {} read {} written {} known {} damaged {} failed {} late {} skipped {} \
             dropped {} waiting {} pauses {} slow {}; host {} stored {}",
            remote.asked_page_count,
            remote.found_page_count,
            remote.read_page_count,
            remote.written_page_count,
            remote.known_page_count,
            remote.damaged_page_count,
            remote.failed_page_count,
            remote.late_page_count,
            remote.skipped_page_count,
            remote.dropped_page_count,
            remote.waiting_page_count,
            remote.pause_count,
            remote.slow_call_count,
            host.page_count,
            host.stored_page_count
        )
    }

    /// A prompt of whole pages and a token, from its beginning to its end. Whatever it need not
    /// compute is what computing would have given.
    pub fn run(&mut self, tokens: &[u32]) -> Ran {
        let mut list: rkv_tokens = sized();
        (list.ids, list.count) = (tokens.as_ptr(), tokens.len());
        let mut args: rkv_sequence_begin_args = sized();
        args.tokens = &list;
        let (mut begun, mut fetch): (rkv_sequence_info, rkv_sequence_fetch_result) =
            (sized(), sized());
        // SAFETY: as above.
        ok(unsafe { rkv_sequence_begin(self.cache, &args, &mut begun) });
        let id = begun.sequence;
        let start = Instant::now();
        // The tiers' thread has to have looked at the journal.
        for _ in 0..100 {
            // SAFETY: as above.
            ok(unsafe { rkv_sequence_fetch(self.cache, id, self.deadline_ms, 0, &mut fetch) });
            let is_paused = self.stats().remote.is_paused != 0;
            if fetch.is_open != 0 || is_paused || self.stats().followed_number > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut brought = 0;
        if fetch.is_open != 0 {
            brought = loop {
                if let Some(end) = self.step() {
                    assert_eq!(end.sequence, id);
                    break end.brought_page_count as usize;
                }
                assert!(start.elapsed() < Duration::from_secs(60), "{}", self.said());
                std::thread::sleep(Duration::from_micros(200));
            };
        }
        let waited = start.elapsed();
        let info = self.info(id);
        let (mut row, mut count) = (vec![0u32; PAGES], 0);
        // SAFETY: as above.
        ok(unsafe {
            rkv_page_table_read_row(self.table, info.slot, 0, row.as_mut_ptr(), PAGES, &mut count)
        });
        let pages = tokens.len() / PAGE_SIZE;
        let cached = info.cached_position_count as usize / PAGE_SIZE;
        for (page, &at) in row.iter().enumerate().take(pages) {
            let from = at as usize * PAGE_BYTES;
            let there = &mut self.kv[from..from + PAGE_BYTES];
            let expected = computed(tokens, page);
            if page < cached {
                assert!(there == expected, "page {page} of {} is not what it was", tokens[0]);
            } else {
                there.copy_from_slice(&expected);
            }
        }
        let mut done: rkv_sequence_publish_result = sized();
        // SAFETY: as above.
        unsafe {
            if info.copy_count > 0 {
                ok(rkv_sequence_confirm_copies(self.cache, id));
            }
            ok(rkv_sequence_publish(self.cache, id, tokens.len() as u64, &mut done));
            ok(rkv_sequence_release(self.cache, id));
        }
        let had = begun.cached_position_count as usize / PAGE_SIZE;
        Ran { had, fetched: brought, computed: pages - cached, waited }
    }

    /// Takes everything from the device's memory.
    pub fn evict(&mut self) {
        let mut count = 0;
        // SAFETY: as above.
        ok(unsafe { rkv_cache_evict(self.cache, usize::MAX, null_mut(), 0, &mut count) });
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: they came from create.
        unsafe {
            rkv_cache_destroy(self.cache);
            rkv_page_table_destroy(self.table);
        }
    }
}

/// A prompt of so many whole pages and a token.
pub fn prompt(family: u32, pages: usize) -> Vec<u32> {
    (0..pages * PAGE_SIZE + 1).map(|at| family << 16 | at as u32).collect()
}
