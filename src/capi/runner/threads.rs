//! The engine's threads.
use crate::capi::ffi::call_back;
use crate::cpu::{ParallelFor as Run, Threads};
use crate::memory::{OutOfMemory, try_box};
use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

/// Runs one task of many. `index` is below the count.
pub type rkv_parallel_task = Option<unsafe extern "C" fn(task: *mut c_void, index: usize)>;

/// Calls run(task, i) once for each i below `task_count`, in any order, on any threads, and returns
/// when all calls have returned. A single thread may do it all; what it does not call, as a pool
/// does that is shutting down, the thread that computes does once it returned. It must not throw,
/// longjmp or end its thread: the process would end, see Callbacks at the top. Neither it, nor what
/// its threads do meanwhile, may call anything with the plan that is computed: that may wait for
/// rkv_plan_set(), which waits until the plan was computed.
pub type rkv_parallel_for = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        task_count: usize,
        run: rkv_parallel_task,
        task: *mut c_void,
    ),
>;

type ParallelFor = unsafe extern "C-unwind" fn(*mut c_void, usize, rkv_parallel_task, *mut c_void);

struct EngineThreads {
    parallel_for: ParallelFor,
    user_data: *mut c_void,
}
// SAFETY: the header asks that parallel_for may be called from any thread with its user data.
unsafe impl Send for EngineThreads {}
// SAFETY: as above.
unsafe impl Sync for EngineThreads {}

/// Runs a task by its index.
type Body<'a> = dyn Fn(usize) + Sync + 'a;

/// The tasks of one call, and the panic of one of them: none may cross the engine's code.
struct Tasks<'a> {
    body: &'a Body<'a>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// # Safety
/// `tasks` leads to the `Tasks` of a call that has not returned.
unsafe extern "C" fn run_task(tasks: *mut c_void, index: usize) {
    // SAFETY: the caller's contract; tasks are only read.
    let tasks = unsafe { &*tasks.cast::<Tasks<'_>>() };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (tasks.body)(index))) {
        let mut panic = tasks.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        panic.get_or_insert(payload);
    }
}

impl EngineThreads {
    fn run(&self, count: usize, body: &Body<'_>) {
        let tasks = Tasks { body, panic: Mutex::new(None) };
        let pointer = (&raw const tasks).cast_mut().cast::<c_void>();
        call_back("rkv_runner_config.parallel_for", || {
            // SAFETY: the contract of rkv_parallel_for: when it returns, so have all its tasks.
            unsafe { (self.parallel_for)(self.user_data, count, Some(run_task), pointer) };
        });
        let panic = tasks.panic.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

/// Threads that the engine lends.
pub(crate) fn engine_threads(
    count: usize,
    parallel_for: ParallelFor,
    user_data: *mut c_void,
) -> Result<Threads, OutOfMemory> {
    let engine = EngineThreads { parallel_for, user_data };
    let run: Run = try_box(move |count: usize, body: &Body<'_>| engine.run(count, body))?;
    Ok(Threads::Engine { count, parallel_for: run })
}
