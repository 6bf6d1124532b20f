//! Memory of the device, memory that it can read while the host goes on, and events.
use super::arguments::{Address, Plain};
use super::driver::{Context, check};
use super::stream::Stream;
use crate::error::Error;
use cudarc::driver::sys;
use std::ptr;
use std::sync::Arc;

/// Memory of the device. Freeing it waits for the device: it is done when what owns it ends.
#[derive(Debug)]
pub(super) struct DeviceBuffer {
    context: Arc<Context>,
    address: Address,
    bytes: usize,
}

impl DeviceBuffer {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let _entered = context.enter()?;
        let mut address = 0;
        // SAFETY: writes an address.
        check(unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) }, "cuMemAlloc")?;
        Ok(Self { context: context.clone(), address, bytes })
    }

    /// Zeroed.
    pub(super) fn zeroed(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let made = Self::new(context, bytes)?;
        let _entered = context.enter()?;
        // SAFETY: as many bytes as were allocated.
        check(unsafe { sys::cuMemsetD8_v2(made.address, 0, bytes) }, "cuMemsetD8")?;
        // Streams that don't wait for the default one could overtake it.
        // SAFETY: waits.
        check(unsafe { sys::cuCtxSynchronize() }, "cuCtxSynchronize")?;
        Ok(made)
    }

    pub(super) fn address(&self) -> Address {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: allocated by `new`, in this context.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Device memory that grows. What it outgrew is kept until the end, for kernels may use it still
/// and freeing would wait for them; it doubles, so that is less than what it has.
#[derive(Debug, Default)]
pub(super) struct GrowingBuffer {
    current: Option<DeviceBuffer>,
    outgrown: Vec<DeviceBuffer>,
}

impl GrowingBuffer {
    /// Makes room for `bytes`; what lay there is lost when it grows. Returns whether it did.
    pub(super) fn reserve(&mut self, context: &Arc<Context>, bytes: usize) -> Result<bool, Error> {
        if self.current.as_ref().is_some_and(|current| current.bytes() >= bytes) {
            return Ok(false);
        }
        let made = DeviceBuffer::new(context, bytes.next_power_of_two().max(512))?;
        self.outgrown.extend(self.current.replace(made));
        Ok(true)
    }

    pub(super) fn address(&self) -> Address {
        self.current.as_ref().map_or(0, DeviceBuffer::address)
    }

    pub(super) fn bytes(&self) -> usize {
        self.current.as_ref().map_or(0, DeviceBuffer::bytes)
    }
}

/// Something that a stream reaches.
#[derive(Debug)]
pub(super) struct Event {
    context: Arc<Context>,
    event: sys::CUevent,
}
// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let _entered = context.enter()?;
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: writes a handle.
        check(unsafe { sys::cuEventCreate(&mut event, flags) }, "cuEventCreate")?;
        Ok(Self { context: context.clone(), event })
    }

    /// Marks what the stream was given so far.
    pub(super) fn record(&self, stream: Stream) -> Result<(), Error> {
        // SAFETY: the stream is alive, as the engine promised.
        check(unsafe { sys::cuEventRecord(self.event, stream.raw()) }, "cuEventRecord")
    }

    /// Makes a stream wait for what was marked; the host goes on.
    pub(super) fn hold(&self, stream: Stream) -> Result<(), Error> {
        // SAFETY: as above.
        check(unsafe { sys::cuStreamWaitEvent(stream.raw(), self.event, 0) }, "cuStreamWaitEvent")
    }

    /// Whether the device is past it; true when it was never recorded.
    fn is_reached(&self) -> Result<bool, Error> {
        // SAFETY: a live handle.
        let result = unsafe { sys::cuEventQuery(self.event) };
        if result == sys::CUresult::CUDA_ERROR_NOT_READY {
            return Ok(false);
        }
        check(result, "cuEventQuery").map(|()| true)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: created by `new`. The driver keeps it until the device is past it.
            let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
        }
    }
}

/// Host memory that the device reads by itself.
#[derive(Debug)]
struct Pinned {
    context: Arc<Context>,
    start: *mut u8,
    bytes: usize,
}
// SAFETY: memory, owned.
unsafe impl Send for Pinned {}

impl Pinned {
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let mut start = ptr::null_mut();
        // SAFETY: writes a pointer.
        check(unsafe { sys::cuMemHostAlloc(&mut start, bytes, 0) }, "cuMemHostAlloc")?;
        Ok(Self { context: context.clone(), start: start.cast(), bytes })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: allocated by `new`.
            let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
        }
    }
}

/// Values on their way to the device. A piece of pinned memory is used again only when the device
/// has read it; where it has not, another piece is taken: the host never waits.
#[derive(Debug, Default)]
pub(super) struct Staging {
    pieces: Vec<(Pinned, Event)>,
}

/// Values side by side, as they will lie on the device: each array at a multiple of 16 bytes.
#[derive(Debug, Default)]
pub(super) struct Blob {
    bytes: Vec<u8>,
}

impl Blob {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds an array; returns where it begins.
    pub(super) fn push<T: Plain>(&mut self, of: &[T]) -> usize {
        let at = self.bytes.len().next_multiple_of(16);
        self.bytes.resize(at, 0);
        // SAFETY: `Plain` types have no padding, so every byte of them is initialised.
        let bytes = unsafe { std::slice::from_raw_parts(of.as_ptr().cast(), size_of_val(of)) };
        self.bytes.extend_from_slice(bytes);
        at
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Staging {
    /// Sends values to the device, in the order of the stream. The context is current.
    pub(super) fn send(
        &mut self,
        context: &Arc<Context>,
        blob: &Blob,
        to: Address,
        stream: Stream,
    ) -> Result<(), Error> {
        let needed = blob.len();
        let mut free = None;
        for (at, (piece, event)) in self.pieces.iter().enumerate() {
            if piece.bytes >= needed && event.is_reached()? {
                free = Some(at);
                break;
            }
        }
        let at = match free {
            Some(at) => at,
            None => {
                let bytes = needed.next_power_of_two().max(512);
                self.pieces.push((Pinned::new(context, bytes)?, Event::new(context)?));
                self.pieces.len() - 1
            }
        };
        let (piece, event) = &self.pieces[at];
        // SAFETY: the piece is large enough, the device is past its last use, `to` has room: that
        // is the callers' business.
        unsafe {
            ptr::copy_nonoverlapping(blob.bytes.as_ptr(), piece.start, needed);
            let from = piece.start.cast_const().cast();
            check(sys::cuMemcpyHtoDAsync_v2(to, from, needed, stream.raw()), "cuMemcpyHtoDAsync")?;
        }
        event.record(stream)
    }
}
