//! Streams: the engine's, used as it is, never owned, never waited for; and one of our own.
use super::driver::{Context, check};
use crate::error::Error;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// CU_STREAM_PER_THREAD: each thread means another stream by it.
const OF_EACH_THREAD: usize = 2;

/// A CUstream; null is the legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(*mut c_void);
// SAFETY: a handle that any thread may use.
unsafe impl Send for Stream {}

impl Stream {
    /// # Safety
    /// A stream of the device's primary context, or null; it lives until the calls on it returned.
    pub unsafe fn new(stream: *mut c_void) -> Self {
        Self(stream)
    }

    /// Whether both are surely one stream, in which things happen in order by themselves.
    pub(super) fn is_same(self, other: Self) -> bool {
        self == other && self.0.addr() != OF_EACH_THREAD
    }

    pub(super) fn raw(self) -> sys::CUstream {
        self.0.cast()
    }

    /// Whether what is put on it goes to a graph instead. Refuses a stream on which nothing can be
    /// put now: what is asked here does no harm to a capture, and to put something there would. The
    /// context is current.
    pub(super) fn is_captured(self) -> Result<bool, Error> {
        use sys::CUstreamCaptureStatus::*;
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive; writes the status.
        let asked = unsafe { sys::cuStreamIsCapturing(self.raw(), &mut status) };
        if asked == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT {
            return Err(Error::state(
                "stream is the legacy default stream, which cannot be used while a blocking stream \
                 is being captured",
            ));
        }
        check(asked, "cuStreamIsCapturing")?;
        match status {
            CU_STREAM_CAPTURE_STATUS_NONE => Ok(false),
            CU_STREAM_CAPTURE_STATUS_ACTIVE => Ok(true),
            CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                Err(Error::state("stream is being captured, and the capture is invalid by now"))
            }
        }
    }

    /// Refuses such a stream: what is sent is good for one step only.
    pub(super) fn check_not_captured(self) -> Result<(), Error> {
        if self.is_captured()? {
            return Err(Error::state("stream is being captured into a graph, which sends nothing"));
        }
        Ok(())
    }
}

/// A stream that waits for no other one by itself.
#[derive(Debug)]
pub(super) struct OwnStream {
    context: Arc<Context>,
    stream: Stream,
}

impl OwnStream {
    /// The context is current.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes a handle.
        check(unsafe { sys::cuStreamCreate(&mut stream, flags) }, "cuStreamCreate")?;
        Ok(Self { context: context.clone(), stream: Stream(stream.cast()) })
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    /// Waits for what was put on it. The context is current.
    pub(super) fn wait(&self) -> Result<(), Error> {
        // SAFETY: a live handle.
        check(unsafe { sys::cuStreamSynchronize(self.stream.raw()) }, "cuStreamSynchronize")
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: created by `new`.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream.raw()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M04: who used it last may be another thread, whose stream it is not.
    #[test]
    fn m04_the_stream_of_each_thread_is_never_surely_the_same() {
        let stream = |handle: usize| Stream(ptr::without_provenance_mut(handle));
        assert!(stream(0).is_same(stream(0)));
        assert!(stream(0x7000).is_same(stream(0x7000)));
        assert!(!stream(0x7000).is_same(stream(0x7010)));
        assert!(!stream(2).is_same(stream(2)));
    }
}
