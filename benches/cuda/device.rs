//! Memory full of random numbers, time between events, and graphs.
use cudarc::driver::sys;
use radixkv::attention::Dtype;
use std::ops::Range;
use std::ptr;

fn check(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

/// Makes the device current for good; returns its name.
pub fn enter() -> String {
    let (mut device, mut context, mut name) = (0, ptr::null_mut(), [0; 128]);
    // SAFETY: the driver was found before; a buffer and its size.
    unsafe {
        check(sys::cuDeviceGet(&mut device, 0));
        check(sys::cuDevicePrimaryCtxRetain(&mut context, device));
        check(sys::cuCtxPushCurrent_v2(context));
        check(sys::cuDeviceGetName(name.as_mut_ptr(), 128, device));
        std::ffi::CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    }
}

/// Bytes of random numbers. No power of two: what lies 4 GiB apart is not the same, so that an
/// offset of 32 bits that overflows reads something else.
const PIECE_BYTES: usize = (4 << 20) - 48;

pub struct Memory {
    address: u64,
    bytes: usize,
}

impl Memory {
    /// Numbers below 1 in size. A few megabytes of them, again and again: enough for no two heads
    /// of a tile to be alike.
    pub fn random(elements: usize, dtype: Dtype) -> Self {
        let bytes = (elements * dtype.bytes()).max(16);
        let mut random = fastrand::Rng::with_seed(elements as u64);
        let piece: Vec<u8> = (0..bytes.min(PIECE_BYTES) / 2)
            .flat_map(|_| {
                let bits = (random.f32() * 2.0 - 1.0).to_bits();
                match dtype {
                    // Sign, exponents from 2^-7 up to 1, any mantissa.
                    Dtype::Fp8E4m3 => [random.u8(..) & 0xb7, random.u8(..) & 0xb7],
                    _ => ((bits >> 16) as u16).to_ne_bytes(),
                }
            })
            .collect();
        let mut address = 0;
        // SAFETY: pieces inside what was allocated.
        unsafe {
            check(sys::cuMemAlloc_v2(&mut address, bytes));
            for at in (0..bytes).step_by(piece.len().max(1)) {
                let count = piece.len().min(bytes - at);
                check(sys::cuMemcpyHtoD_v2(address + at as u64, piece.as_ptr().cast(), count));
            }
        }
        Self { address, bytes }
    }

    /// Overwrites all of it with NaN.
    pub fn poison(&self) {
        // SAFETY: as many bytes as there are.
        check(unsafe { sys::cuMemsetD8_v2(self.address, 0xff, self.bytes) });
    }

    /// Waits for everything, and reads.
    pub fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.bytes);
        let mut bytes = vec![0; range.len()];
        let from = self.address + range.start as u64;
        // SAFETY: inside; a buffer as long.
        unsafe {
            check(sys::cuStreamSynchronize(ptr::null_mut()));
            check(sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, bytes.len()));
        }
        bytes
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn address(&self) -> *mut u8 {
        ptr::without_provenance_mut(self.address as usize)
    }

    pub fn read(&self) -> *const u8 {
        self.address().cast_const()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `random`.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Pinned memory of the host.
pub struct Pinned(*mut std::ffi::c_void);

impl Pinned {
    pub fn new(bytes: usize) -> Self {
        let mut start = ptr::null_mut();
        // SAFETY: writes a pointer.
        check(unsafe { sys::cuMemHostAlloc(&mut start, bytes, 0) });
        Self(start)
    }

    pub fn start(&self) -> *mut u8 {
        self.0.cast()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`.
        let _ = unsafe { sys::cuMemFreeHost(self.0) };
    }
}

/// One copy between memory of the device and of the host; returns when it has arrived.
///
/// # Safety
/// So many bytes are at `host`.
pub unsafe fn copy_once(memory: &Memory, host: *mut u8, bytes: usize, to_device: bool) {
    assert!(bytes <= memory.bytes);
    // SAFETY: the caller's contract.
    unsafe {
        let stream = ptr::null_mut();
        check(match to_device {
            true => sys::cuMemcpyHtoDAsync_v2(memory.address, host.cast(), bytes, stream),
            false => sys::cuMemcpyDtoHAsync_v2(host.cast(), memory.address, bytes, stream),
        });
        check(sys::cuStreamSynchronize(stream));
    }
}

pub struct Timer {
    events: [sys::CUevent; 2],
}

impl Timer {
    pub fn new() -> Self {
        let mut events = [ptr::null_mut(); 2];
        for event in &mut events {
            // SAFETY: writes a handle.
            check(unsafe { sys::cuEventCreate(event, 0) });
        }
        Self { events }
    }

    /// Microseconds that the device takes for what is launched.
    pub fn time(&self, launch: impl FnOnce()) -> f64 {
        let [begin, end] = self.events;
        let mut milliseconds = 0f32;
        // SAFETY: live handles, the default stream.
        unsafe {
            check(sys::cuEventRecord(begin, ptr::null_mut()));
            launch();
            check(sys::cuEventRecord(end, ptr::null_mut()));
            check(sys::cuEventSynchronize(end));
            check(sys::cuEventElapsedTime(&mut milliseconds, begin, end));
        }
        f64::from(milliseconds) * 1000.0
    }
}

/// A stream to capture on: the default one cannot be.
pub fn capturing_stream() -> sys::CUstream {
    let mut stream = ptr::null_mut();
    let flag = sys::CUstream_flags::CU_STREAM_DEFAULT as u32;
    // SAFETY: writes a handle.
    check(unsafe { sys::cuStreamCreate(&mut stream, flag) });
    stream
}

pub struct Graph {
    executable: sys::CUgraphExec,
}

impl Graph {
    pub fn capture(stream: sys::CUstream, put: impl FnOnce()) -> Self {
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream; writes handles.
        unsafe {
            check(sys::cuStreamBeginCapture_v2(stream, mode));
            put();
            check(sys::cuStreamEndCapture(stream, &mut graph));
            check(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
            check(sys::cuGraphDestroy(graph));
        }
        Self { executable }
    }

    /// On the default stream.
    pub fn launch(&self) {
        // SAFETY: a live handle.
        check(unsafe { sys::cuGraphLaunch(self.executable, ptr::null_mut()) });
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`.
        let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
    }
}

/// Terabytes a second, read and written, of a large copy inside the device.
pub fn copy_bandwidth() -> f64 {
    const BYTES: usize = 1 << 30;
    let (from, to) =
        (Memory::random(BYTES / 2, Dtype::Bf16), Memory::random(BYTES / 2, Dtype::Bf16));
    let timer = Timer::new();
    let mut times: Vec<f64> = (0..12)
        .map(|_| {
            timer.time(|| {
                // SAFETY: inside both.
                check(unsafe {
                    sys::cuMemcpyDtoDAsync_v2(to.address, from.address, BYTES, ptr::null_mut())
                });
            })
        })
        .collect();
    times.sort_by(f64::total_cmp);
    2.0 * BYTES as f64 / times[times.len() / 2] / 1e6
}
