//! Memory of the device, memory that it can read while the host goes on, and events.
use super::arguments::{Address, Plain};
use super::driver::{Context, check};
use super::stream::{OwnStream, Stream};
use crate::error::Error;
use cudarc::driver::sys;
use std::ops::Range;
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

    /// Zeroed. Not on the default stream, which cannot be used while somebody captures a blocking
    /// one; nor is the device waited for: that would spoil whatever is being captured.
    pub(super) fn zeroed(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let made = Self::new(context, bytes)?;
        let _entered = context.enter()?;
        let own = OwnStream::new(context)?;
        // SAFETY: as many bytes as were allocated, and the stream lives until it is done.
        let put = unsafe { sys::cuMemsetD8Async(made.address, 0, bytes, own.stream().raw()) };
        check(put, "cuMemsetD8Async")?;
        own.wait()?; // the engine's streams could overtake it
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
/// and freeing would wait for them; it doubles at least, so that is no more than what it has. Where
/// the device lacks memory for that it grows by a quarter, so that is five times as much at most,
/// but for the last steps before memory ends.
#[derive(Debug, Default)]
pub(super) struct GrowingBuffer {
    current: Option<DeviceBuffer>,
    outgrown: Vec<DeviceBuffer>,
}

impl GrowingBuffer {
    /// Makes room for `bytes`, and for more when it grows; what lay there is lost then.
    pub(super) fn reserve(&mut self, context: &Arc<Context>, bytes: usize) -> Result<(), Error> {
        match self.bytes() >= bytes.max(1) {
            true => Ok(()),
            false => self.reserve_liked(context, bytes, bytes.next_power_of_two()),
        }
    }

    /// The same for `liked` bytes. Where the device lacks memory for that, for a quarter more than
    /// what is needed, so that what it outgrows stays in proportion; else for what is needed.
    pub(super) fn reserve_liked(
        &mut self,
        context: &Arc<Context>,
        needed: usize,
        liked: usize,
    ) -> Result<(), Error> {
        let doubled = liked.max(2 * self.bytes());
        let mut made = self.prepare(context, liked, true);
        for less in [needed + needed / 4, needed] {
            if matches!(made, Err(Error::DeviceMemory(_))) && less < doubled {
                made = self.prepare(context, less, false);
            }
        }
        self.take(made?);
        Ok(())
    }

    /// Whether doubling takes more than what is needed for `bytes`.
    pub(super) fn doubles_for(&self, bytes: usize) -> bool {
        (self.bytes() + 1..2 * self.bytes()).contains(&bytes)
    }

    /// What is to be taken so that there is room for `bytes`, and no more if it is the first or not
    /// to double; None: there is room. Until it is taken nothing changes.
    pub(super) fn prepare(
        &self,
        context: &Arc<Context>,
        bytes: usize,
        doubles: bool,
    ) -> Result<Option<DeviceBuffer>, Error> {
        match self.bytes() >= bytes.max(1) {
            true => Ok(None),
            false => {
                let bytes = bytes.max(if doubles { 2 * self.bytes() } else { 0 }).max(512);
                DeviceBuffer::new(context, bytes).map(Some)
            }
        }
    }

    /// Takes what was prepared.
    pub(super) fn take(&mut self, made: Option<DeviceBuffer>) {
        if let Some(made) = made {
            self.outgrown.extend(self.current.replace(made));
        }
    }

    pub(super) fn address(&self) -> Address {
        self.current.as_ref().map_or(0, DeviceBuffer::address)
    }

    pub(super) fn bytes(&self) -> usize {
        self.current.as_ref().map_or(0, DeviceBuffer::bytes)
    }

    /// With what it outgrew.
    pub(super) fn bytes_held(&self) -> usize {
        self.bytes() + self.outgrown.iter().map(DeviceBuffer::bytes).sum::<usize>()
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
// SAFETY: as above, also by several at a time: the driver sees to that.
unsafe impl Sync for Event {}

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

/// Arrays, as they will lie on the device: each at a multiple of 16 bytes.
#[derive(Debug, Default)]
pub(super) struct Blob {
    bytes: Vec<u8>,
    /// What is to be sent, ascending: what lies between was not put there.
    ranges: Vec<Range<usize>>,
}

/// Fewer bytes between two arrays are sent too: a copy of its own would take longer. An estimate.
const GAP_MAX: usize = 16 << 10;

impl Blob {
    /// Keeps the bytes, which are as good as any where nothing is put.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Where an array begins that is put behind `end`.
    pub(super) fn aligned(end: usize) -> usize {
        end.next_multiple_of(16)
    }

    /// Puts an array behind the last one; returns where it begins.
    pub(super) fn push<T: Plain>(&mut self, of: &[T]) -> usize {
        self.put_behind(self.len(), of).start
    }

    /// Puts an array behind `end`; returns where it lies.
    pub(super) fn put_behind<T: Plain>(&mut self, end: usize, of: &[T]) -> Range<usize> {
        let at = Self::aligned(end);
        self.put(at, of);
        at..at + size_of_val(of)
    }

    /// Puts an array behind those that were put before.
    pub(super) fn put<T: Plain>(&mut self, at: usize, of: &[T]) {
        debug_assert!(at >= self.len() && at == Self::aligned(at), "arrays lie one behind another");
        if of.is_empty() {
            return;
        }
        // SAFETY: `Plain` types have no padding, so every byte of them is initialised.
        let bytes = unsafe { std::slice::from_raw_parts(of.as_ptr().cast(), size_of_val(of)) };
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        match self.ranges.last_mut() {
            Some(last) if at - last.end <= GAP_MAX => last.end = end,
            _ => self.ranges.push(at..end),
        }
    }

    /// Up to the end of the last array that is not empty.
    pub(super) fn len(&self) -> usize {
        self.ranges.last().map_or(0, |last| last.end)
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
            for range in &blob.ranges {
                let (from, bytes) = (piece.start.add(range.start), range.len());
                ptr::copy_nonoverlapping(blob.bytes[range.clone()].as_ptr(), from, bytes);
                let (to, from) = (to + range.start as u64, from.cast_const().cast());
                let sent = sys::cuMemcpyHtoDAsync_v2(to, from, bytes, stream.raw());
                check(sent, "cuMemcpyHtoDAsync")?;
            }
        }
        event.record(stream)
    }
}
