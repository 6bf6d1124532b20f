//! Memory of the device, and the streams on it, as an engine has them.
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::{ptr, slice};

fn check(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

/// While it lives, the device's primary context is current, as the CUDA runtime has it for an
/// engine. Streams and memory have to go before: the last context takes along what is left.
#[must_use]
pub struct Entered(sys::CUdevice);

pub fn enter() -> Entered {
    let (mut device, mut context) = (0, ptr::null_mut());
    // SAFETY: the driver was found before.
    unsafe {
        check(sys::cuInit(0));
        check(sys::cuDeviceGet(&mut device, 0));
        check(sys::cuDevicePrimaryCtxRetain(&mut context, device));
        check(sys::cuCtxPushCurrent_v2(context));
    }
    Entered(device)
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: undoes `enter`. A context that died says so: that is no matter any more.
        unsafe {
            let _ = sys::cuCtxPopCurrent_v2(&mut context);
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.0);
        }
    }
}

/// Bytes on the device.
pub struct Memory {
    address: u64,
    bytes: usize,
}

impl Memory {
    pub fn of(bytes: &[u8]) -> Self {
        let mut address = 0;
        // SAFETY: as many bytes as are copied; 1 at least.
        unsafe {
            check(sys::cuMemAlloc_v2(&mut address, bytes.len().max(1)));
            if !bytes.is_empty() {
                check(sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()));
            }
        }
        Self { address, bytes: bytes.len() }
    }

    pub fn of_floats(floats: &[f32]) -> Self {
        let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_ne_bytes()).collect();
        Self::of(&bytes)
    }

    pub fn address(&self) -> *mut u8 {
        ptr::without_provenance_mut(self.address as usize)
    }

    /// Waits for everything, and reads; None when the device failed.
    pub fn try_read(&self) -> Option<Vec<u8>> {
        read(self.address(), self.bytes)
    }

    pub fn read(&self) -> Vec<u8> {
        self.try_read().expect("the device works")
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes);
        // SAFETY: inside.
        check(unsafe {
            sys::cuMemcpyHtoD_v2(self.address + at as u64, bytes.as_ptr().cast(), bytes.len())
        });
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `of`.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Waits for everything, and reads memory of the device; None when that failed.
pub fn read(address: *mut u8, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0xff; count];
    // SAFETY: there is room; the driver knows what is memory of the device.
    let result = unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address as u64, count) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(bytes)
}

/// Memory of the host that the device uses by itself.
pub struct Pinned {
    start: *mut c_void,
    bytes: usize,
}

impl Pinned {
    pub fn of(bytes: &[u8]) -> Self {
        let mut start = ptr::null_mut();
        // SAFETY: as many bytes as are copied.
        unsafe {
            check(sys::cuMemHostAlloc(&mut start, bytes.len(), 0));
            start.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Self { start, bytes: bytes.len() }
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: allocated and written by `of`.
        unsafe { slice::from_raw_parts(self.start.cast(), self.bytes) }
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.start.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `of`.
        let _ = unsafe { sys::cuMemFreeHost(self.start) };
    }
}

/// A stream that does not wait for the default one, or one that does.
pub struct EngineStream(pub sys::CUstream);

impl EngineStream {
    pub fn new() -> Self {
        Self::of(sys::CUstream_flags::CU_STREAM_NON_BLOCKING)
    }

    /// It and the legacy default stream wait for each other.
    pub fn blocking() -> Self {
        Self::of(sys::CUstream_flags::CU_STREAM_DEFAULT)
    }

    fn of(flags: sys::CUstream_flags) -> Self {
        let mut stream = ptr::null_mut();
        // SAFETY: writes a handle.
        check(unsafe { sys::cuStreamCreate(&mut stream, flags as u32) });
        Self(stream)
    }

    /// Waits for what was put on it.
    pub fn synchronize(&self) {
        // SAFETY: a live handle. What failed shows when something is read.
        let _ = unsafe { sys::cuStreamSynchronize(self.0) };
    }
}

impl Drop for EngineStream {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// What was put on a stream while it was captured.
pub struct Graph {
    executable: sys::CUgraphExec,
    graph: sys::CUgraph,
}

/// Begins to capture a stream, for what makes its capture invalid.
pub fn begin_capture(stream: &EngineStream) {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a live stream.
    check(unsafe { sys::cuStreamBeginCapture_v2(stream.0, mode) });
}

/// Calls what no thread may call while a stream is captured.
pub fn invalidate_captures() {
    // SAFETY: waits, or is refused.
    let refused = unsafe { sys::cuCtxSynchronize() };
    assert_ne!(refused, sys::CUresult::CUDA_SUCCESS);
}

/// Ends a capture that became invalid.
pub fn end_invalid_capture(stream: &EngineStream) {
    let mut graph = ptr::null_mut();
    // SAFETY: a live stream; writes a handle.
    let ended = unsafe { sys::cuStreamEndCapture(stream.0, &mut graph) };
    assert_eq!(ended, sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

impl Graph {
    /// Captures what `put` puts on the stream; what `put` returns, if that is an error.
    pub fn capture<E>(
        stream: &EngineStream,
        put: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: a live stream; writes handles.
        unsafe {
            check(sys::cuStreamBeginCapture_v2(stream.0, mode));
            let done = put();
            // Whatever was refused, nothing was called that would make the capture invalid.
            check(sys::cuStreamEndCapture(stream.0, &mut graph));
            check(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
            let made = Self { executable, graph };
            done.map(|()| made)
        }
    }

    pub fn launch(&self, stream: &EngineStream) {
        // SAFETY: live handles.
        check(unsafe { sys::cuGraphLaunch(self.executable, stream.0) });
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`.
        unsafe {
            let _ = sys::cuGraphExecDestroy(self.executable);
            let _ = sys::cuGraphDestroy(self.graph);
        }
    }
}
