//! The CUDA driver, which may not be there: found once, at the first question for it.
use crate::error::Error;
use cudarc::driver::sys;
use std::ffi::CStr;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::{Arc, OnceLock};

/// Every function of the driver that this crate calls. A driver without one of them is too old; to
/// ask here is what keeps cudarc from panicking later.
const FUNCTIONS: &[&CStr] = &[
    c"cuInit",
    c"cuGetErrorName",
    c"cuDeviceGet",
    c"cuDeviceGetCount",
    c"cuDeviceGetAttribute",
    c"cuDevicePrimaryCtxRetain",
    c"cuDevicePrimaryCtxRelease_v2",
    c"cuCtxPushCurrent_v2",
    c"cuCtxPopCurrent_v2",
    c"cuLibraryLoadData",
    c"cuLibraryUnload",
    c"cuLibraryGetKernel",
    c"cuKernelGetFunction",
    c"cuFuncSetAttribute",
    c"cuFuncGetAttribute",
    c"cuLaunchKernel",
    c"cuLaunchKernelEx",
    c"cuOccupancyMaxActiveBlocksPerMultiprocessor",
    c"cuTensorMapEncodeTiled",
    c"cuMemAlloc_v2",
    c"cuMemFree_v2",
    c"cuMemsetD8Async",
    c"cuMemHostAlloc",
    c"cuMemFreeHost",
    c"cuMemcpyHtoDAsync_v2",
    c"cuMemcpyDtoHAsync_v2",
    c"cuEventCreate",
    c"cuEventDestroy_v2",
    c"cuEventRecord",
    c"cuEventQuery",
    c"cuStreamCreate",
    c"cuStreamDestroy_v2",
    c"cuStreamSynchronize",
    c"cuStreamWaitEvent",
    c"cuStreamIsCapturing",
    c"cuThreadExchangeStreamCaptureMode",
];

/// What a call of the driver says. `what` is its name.
pub(super) fn check(result: sys::CUresult, what: &str) -> Result<(), Error> {
    let code = result as u32;
    if code == 0 {
        return Ok(());
    }
    let mut name = ptr::null();
    // SAFETY: the driver is there, for it answered; `name` receives a static string, or nothing.
    let known = unsafe { sys::cuGetErrorName(result, &mut name) } as u32 == 0 && !name.is_null();
    let name = if known {
        // SAFETY: a NUL-terminated string that lives as long as the driver.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    } else {
        "an unknown error".to_owned()
    };
    if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return Err(Error::DeviceMemory(format!("{what}: {name} ({code})").into()));
    }
    Err(Error::Device { code, text: format!("{what}: {name} ({code})").into() })
}

/// Finds the driver and initialises it. The answer is kept: a driver does not come later.
fn find() -> Result<(), Error> {
    static FOUND: OnceLock<Result<(), Error>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let look = || {
                // SAFETY: loads the driver's library, whose initialisers are the system's business.
                if !unsafe { sys::is_culib_present() } {
                    return Err(Error::unsupported(
                        "config.backend: there is no CUDA driver (libcuda.so) on this machine",
                    ));
                }
                for name in FUNCTIONS {
                    // SAFETY: only looked up, never called through this type.
                    let found = unsafe {
                        sys::culib().get::<unsafe extern "C" fn()>(name.to_bytes_with_nul())
                    };
                    if found.is_err() {
                        return Err(Error::unsupported(format!(
                            "config.backend: the CUDA driver is too old, it has no {}",
                            name.to_string_lossy()
                        )));
                    }
                }
                // SAFETY: no flags are defined.
                let started = check(unsafe { sys::cuInit(0) }, "cuInit");
                started.map_err(|error| Error::unsupported(format!("config.backend: {error}")))
            };
            catch_unwind(look).unwrap_or_else(|_| {
                Err(Error::unsupported("config.backend: the CUDA driver cannot be loaded"))
            })
        })
        .clone()
}

/// A device's primary context: the one that the CUDA runtime and the frameworks over it use.
#[derive(Debug)]
pub(super) struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
}
// SAFETY: contexts may be used from any thread; each call makes it current for itself.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn new(ordinal: usize) -> Result<Arc<Self>, Error> {
        find()?;
        let mut count = 0;
        // SAFETY: writes a number.
        check(unsafe { sys::cuDeviceGetCount(&mut count) }, "cuDeviceGetCount")?;
        if ordinal >= count as usize {
            return Err(Error::unsupported(format!(
                "config.device {ordinal}: this machine has {count} CUDA devices"
            )));
        }
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: the ordinal is one of a device; both write what they are given.
        unsafe {
            check(sys::cuDeviceGet(&mut device, ordinal as i32), "cuDeviceGet")?;
            check(sys::cuDevicePrimaryCtxRetain(&mut context, device), "cuDevicePrimaryCtxRetain")?;
        }
        Ok(Arc::new(Self { device, context }))
    }

    pub(super) fn attribute(&self, which: sys::CUdevice_attribute) -> Result<usize, Error> {
        let mut value = 0;
        // SAFETY: writes a number.
        let result = unsafe { sys::cuDeviceGetAttribute(&mut value, which, self.device) };
        check(result, "cuDeviceGetAttribute")?;
        Ok(value as usize)
    }

    /// Makes it the thread's current context until the guard goes. Until then this thread may also
    /// allocate, free and ask for events while streams are captured: otherwise the driver would
    /// refuse that, to every thread, and what cannot be freed would be lost.
    pub(super) fn enter(&self) -> Result<Entered, Error> {
        // SAFETY: retained, so alive.
        check(unsafe { sys::cuCtxPushCurrent_v2(self.context) }, "cuCtxPushCurrent")?;
        let mut entered = Entered { mode: None, _thread: std::marker::PhantomData };
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: reads a mode, and writes the one that was there.
        let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        check(exchanged, "cuThreadExchangeStreamCaptureMode")?;
        entered.mode = Some(mode);
        Ok(entered)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once by `new`. What the driver says of a context that died does not
        // matter any more.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// While it lives, a context is the thread's current one.
#[derive(Debug)]
pub(super) struct Entered {
    /// What the thread's mode of capturing was.
    mode: Option<sys::CUstreamCaptureMode>,
    // Not Send: the context was pushed on this thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(mut mode) = self.mode {
            // SAFETY: puts back what `enter` found on this thread.
            let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        }
        let mut popped = ptr::null_mut();
        // SAFETY: pushed by `enter` on this thread.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    }
}
