//! Events: what comes into a cache and leaves it, as bytes that routers read.
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::c::*;
use crate::cache::Cache;
use crate::handle::{Closable, Handle, Raw, long};
use crate::space::{Namespace, Space};
use crate::status::check;

/// Turns the journal of a cache into batches of KV events, as vLLM publishes them. It begins with
/// AllBlocksCleared and all that is held, each block after the one before it; then comes what
/// changes. Needs `journal_bytes`.
///
/// wide_hashes: blocks are named by whole digests, 32 bytes, instead of 64-bit numbers.
/// data_parallel_rank: stands in each batch; None for none.
/// placeholder_token_id: stands for positions that are not text.
/// medium: where the pages are.
///
/// A context manager: leaving it closes the encoder. Raises InvalidState without a journal;
/// InvalidArgument.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct EventEncoder {
    handle: Closable<rkv_event_encoder>,
    /// Room for a payload, and records that were lost.
    room: Mutex<(Vec<u8>, u64)>,
}

/// Room to begin with: enough for pages of up to 4096 positions.
const ROOM: usize = 1 << 16;
/// Room for a batch of several events, at most: what does not fit comes with the next one.
const MOST: usize = 1 << 24;

fn text(given: Option<&str>, name: &str) -> PyResult<Option<CString>> {
    let refused = |_| PyValueError::new_err(format!("{name}: has a NUL"));
    given.map(|text| CString::new(text).map_err(refused)).transpose()
}

fn pointer(text: &Option<CString>) -> *const std::ffi::c_char {
    text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

#[pymethods]
impl EventEncoder {
    #[new]
    #[pyo3(signature = (
        cache, *, wide_hashes=false, data_parallel_rank=None, placeholder_token_id=0, medium="GPU"
    ))]
    fn new(
        py: Python<'_>,
        cache: &Bound<'_, Cache>,
        wide_hashes: bool,
        data_parallel_rank: Option<u32>,
        placeholder_token_id: u32,
        medium: &str,
    ) -> PyResult<Self> {
        let cache = cache.get().handle.get(py)?;
        let medium = text(Some(medium), "medium")?;
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let config = rkv_event_encoder_config {
            flags: flag(wide_hashes, RKV_EVENTS_WIDE_HASHES)
                | flag(data_parallel_rank.is_some(), RKV_EVENTS_DATA_PARALLEL),
            data_parallel_rank: data_parallel_rank.unwrap_or(0),
            placeholder_token_id,
            medium: pointer(&medium),
            ..rkv_event_encoder_config::sized()
        };
        let mut made = null_mut();
        // SAFETY: a live handle, and a text that outlives the call.
        check(py, unsafe { rkv_event_encoder_create(cache.raw(), &config, &mut made) })?;
        let handle = Closable::new(Handle::new(made));
        Ok(EventEncoder { handle, room: Mutex::new((vec![0; ROOM], 0)) })
    }

    /// Gives the encoder up. The last call that runs in another thread ends it.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.handle.close(py);
    }

    /// The rkv_event_encoder pointer, for C code in the same process. Good until it is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.address(py)
    }

    /// Records of the journal that were overwritten before they were read. After each loss
    /// everything is told anew.
    #[getter]
    fn lost_record_count(&self, py: Python<'_>) -> PyResult<u64> {
        self.handle.check_process(py)?;
        // Another thread may be in the middle of a batch, for long.
        Ok(long(py, true, || self.room.lock().unwrap_or_else(PoisonError::into_inner).1))
    }

    /// What a namespace is called from the next event on: the name of its adapter, else its id; and
    /// its `cache_salt`, "" for none, else its digest where something beside the adapter sets it
    /// apart. Name it before the first request in it.
    #[pyo3(signature = (space, *, lora_name=None, cache_salt=None))]
    fn name_namespace(
        &self,
        py: Python<'_>,
        space: Option<&Bound<'_, Namespace>>,
        lora_name: Option<&str>,
        cache_salt: Option<&str>,
    ) -> PyResult<()> {
        let encoder = self.handle.get(py)?;
        let (lora, salt) = (text(lora_name, "lora_name")?, text(cache_salt, "cache_salt")?);
        let space = Space::of(space);
        let call = Raw((space.c(), pointer(&lora), pointer(&salt)));
        let status = long(py, true, || {
            let (space, lora, salt) = call.get();
            // SAFETY: a live handle, and texts that outlive the call.
            unsafe { rkv_event_encoder_name_namespace(encoder.raw(), space, lora, salt) }
        });
        check(py, status)
    }

    /// The next batch, a MessagePack payload of `size_limit` bytes, and 16 MiB, at most unless one
    /// event has more; b"" when there is nothing to tell, or records were lost again before all
    /// that is held was read: then `lost_record_count` has grown, and the next call begins once
    /// more. `timestamp` is in seconds.
    #[pyo3(signature = (timestamp, *, size_limit=65536))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        timestamp: f64,
        size_limit: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let encoder = self.handle.get(py)?;
        let (status, payload) = long(py, true, || {
            let mut kept = self.room.lock().unwrap_or_else(PoisonError::into_inner);
            let (room, lost) = &mut *kept;
            let mut size = size_limit.clamp(1, MOST);
            loop {
                if room.len() < size {
                    room.resize(size, 0);
                }
                let mut batch = rkv_event_batch::sized();
                let raw = Raw((room.as_mut_ptr(), &raw mut batch));
                let (into, out) = raw.get();
                // SAFETY: a live handle, room as stated.
                let status =
                    unsafe { rkv_event_encoder_encode(encoder.raw(), timestamp, into, size, out) };
                if status == RKV_STATUS_BUFFER_TOO_SMALL {
                    size = batch.byte_count as usize;
                    continue;
                }
                *lost += batch.lost_record_count;
                break (status, room[..batch.byte_count as usize].to_vec());
            }
        });
        check(py, status)?;
        Ok(PyBytes::new(py, &payload))
    }

    /// Has all that is held told once more, for subscribers who came late. Before that
    /// AllBlocksCleared comes, or with a rank BlockRemoved of what was told.
    fn repeat(&self, py: Python<'_>) -> PyResult<()> {
        let encoder = self.handle.get(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_event_encoder_repeat(encoder.raw()) });
        check(py, status)
    }
}
