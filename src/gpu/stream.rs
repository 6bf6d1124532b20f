//! The engine's stream: used as it is, never owned, never waited for.
use super::driver::check;
use crate::error::Error;
use cudarc::driver::sys;
use std::ffi::c_void;

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

    pub(super) fn raw(self) -> sys::CUstream {
        self.0.cast()
    }

    /// Whether what is put on it goes to a graph instead. The context is current.
    pub(super) fn is_captured(self) -> Result<bool, Error> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive; writes the status.
        let asked = unsafe { sys::cuStreamIsCapturing(self.raw(), &mut status) };
        check(asked, "cuStreamIsCapturing")?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Refuses such a stream: what is sent is good for one step only.
    pub(super) fn check_not_captured(self) -> Result<(), Error> {
        if self.is_captured()? {
            return Err(Error::state("stream is being captured into a graph, which sends nothing"));
        }
        Ok(())
    }
}
