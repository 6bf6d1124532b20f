//! A call of another thread that has the tiers for longer than the one that detaches them.
use super::folder::Folder;
use radixkv::capi::*;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null_mut, write_bytes};
use std::time::{Duration, Instant};

const PAGE: usize = 4;
const PAGE_BYTES: usize = 1 << 20;
const PAGES: usize = 32;
const ROUNDS: u32 = 20;

#[track_caller]
fn ok(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok);
}

fn sized<T: Copy>() -> T {
    // SAFETY: structs of the header are integers and pointers; the first field is the size.
    unsafe {
        let mut made: T = std::mem::zeroed();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

struct Engine {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
}
// SAFETY: the calls that threads make here may come from any thread.
unsafe impl Sync for Engine {}

impl Engine {
    fn new(directory: &Path) -> Self {
        let (mut table, mut cache) = (null_mut(), null_mut());
        let directory = CString::new(directory.as_os_str().as_bytes()).unwrap();
        // SAFETY: everything is there during the calls.
        unsafe {
            let mut config: rkv_page_table_config = sized();
            ok(rkv_page_table_config_init(&mut config, size_of_val(&config)));
            // An eighth of the pages is copied at once.
            (config.page_size, config.page_count) = (PAGE as u32, 8 * PAGES as u32 + 1);
            ok(rkv_page_table_create(&config, &mut table));
            let mut config: rkv_cache_config = sized();
            ok(rkv_cache_config_init(&mut config, size_of_val(&config)));
            config.journal_bytes = 1 << 20;
            ok(rkv_cache_create(table, &config, &mut cache));
            let mut config: rkv_tier_config = sized();
            ok(rkv_tier_config_init(&mut config, size_of_val(&config)));
            config.page_bytes = PAGE_BYTES as u64;
            config.host_bytes = 2 * (PAGES * PAGE_BYTES) as u64;
            config.directory = directory.as_ptr();
            config.disk_bytes = 4 * (PAGES * PAGE_BYTES) as u64;
            ok(rkv_cache_attach_tiers(cache, &config));
        }
        Self { table, cache }
    }

    /// The struct is what threads may share, its pointers may not.
    fn cache(&self) -> *mut rkv_cache {
        self.cache
    }

    /// A prompt is published, and its pages are in host memory: the disk has them to write.
    fn store(&self) {
        let tokens: Vec<u32> = (0..(PAGES * PAGE) as u32 + 1).collect();
        // SAFETY: everything is there during the calls; a slot is the copy's until it is complete.
        unsafe {
            let mut list: rkv_tokens = sized();
            (list.ids, list.count) = (tokens.as_ptr(), tokens.len());
            let mut args: rkv_sequence_begin_args = sized();
            args.tokens = &list;
            let mut begun: rkv_sequence_info = sized();
            ok(rkv_sequence_begin(self.cache, &args, &mut begun));
            let mut done: rkv_sequence_publish_result = sized();
            ok(rkv_sequence_publish(self.cache, begun.sequence, tokens.len() as u64, &mut done));
            ok(rkv_sequence_release(self.cache, begun.sequence));
            let (end, mut given) = (Instant::now() + Duration::from_secs(60), 0);
            while given < PAGES {
                assert!(Instant::now() < end, "{given} pages were given out");
                let mut jobs: [rkv_copy_job; 64] = std::mem::zeroed();
                let mut got: rkv_cache_poll_result = sized();
                let (first, size) = (jobs.as_mut_ptr(), size_of::<rkv_copy_job>());
                ok(rkv_cache_poll(self.cache, first, size, 64, null_mut(), 0, 0, &mut got));
                for job in &jobs[..got.job_count as usize] {
                    write_bytes(job.host.cast::<u8>(), job.page as u8, PAGE_BYTES);
                    ok(rkv_cache_complete(self.cache, &job.job, 1, true));
                    given += 1;
                }
            }
            let mut stats: rkv_tier_stats = sized();
            while stats.host.stored_page_count < PAGES as u64 {
                assert!(Instant::now() < end);
                ok(rkv_cache_read_tier_stats(self.cache, &mut stats));
            }
        }
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

/// M06, T14: a flush of another thread lets go of the tiers after the detachment has. When that
/// returns, their directory and their host memory are nobody's all the same.
#[test]
fn m06_what_was_detached_is_gone_though_another_thread_had_it_last() {
    for round in 0..ROUNDS {
        let folder = Folder::new();
        let engine = Engine::new(folder.path());
        engine.store();
        std::thread::scope(|scope| {
            let flushing = &engine;
            // SAFETY: the cache is there until the threads have ended.
            let flush =
                scope.spawn(move || unsafe { rkv_cache_flush_tiers(flushing.cache(), 60_000) });
            std::thread::sleep(Duration::from_millis(1));
            // SAFETY: as above.
            let detached = unsafe { rkv_cache_detach_tiers(engine.cache, 0) };
            let lock = File::options().read(true).write(true).open(folder.path().join("lock"));
            let is_free = lock.unwrap().try_lock().is_ok();
            let _ = flush.join().unwrap();
            assert!(matches!(detached, rkv_status::Ok | rkv_status::Pending), "{detached:?}");
            assert!(is_free, "round {round}: the directory is somebody's when it is detached");
        });
    }
}
