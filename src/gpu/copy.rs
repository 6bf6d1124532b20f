//! Copies of pages on the device.
use super::CudaBackend;
use super::arguments::{self, Layer, PageCopyArguments};
use super::call::{HELPER_THREADS, address};
use super::memory::{Blob, Event, GrowingBuffer, Staging};
use super::stream::Stream;
use crate::attention::{KvLayer, PageCopy};
use crate::error::Error;

/// What copies of pages need on the device.
#[derive(Debug, Default)]
pub(super) struct Copying {
    arrays: GrowingBuffer,
    staging: Staging,
    blob: Blob,
    used: Option<(Event, Stream)>,
}

impl CudaBackend {
    /// Copies the first positions of pages to other pages, in every layer.
    ///
    /// # Safety
    /// The pages lie in the memory of every layer; on the stream nobody writes the sources or uses
    /// the targets meanwhile. All calls get the same layers.
    pub unsafe fn copy_pages(
        &self,
        layers: &[KvLayer<*mut u8>],
        copies: &[PageCopy],
        stream: Stream,
    ) -> Result<(), Error> {
        if copies.is_empty() || layers.is_empty() {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        stream.check_not_captured()?;
        // SAFETY: the caller's contract.
        unsafe { self.copying.lock().run(self, layers, copies, stream) }
    }
}

impl Copying {
    /// # Safety
    /// That of [`CudaBackend::copy_pages`].
    unsafe fn run(
        &mut self,
        backend: &CudaBackend,
        layers: &[KvLayer<*mut u8>],
        copies: &[PageCopy],
        stream: Stream,
    ) -> Result<(), Error> {
        let context = &backend.context;
        if let Some((used, _)) = self.used.as_ref().filter(|(_, before)| *before != stream) {
            used.hold(stream)?;
        }
        let list: Vec<arguments::PageCopy> = copies
            .iter()
            .map(|copy| arguments::PageCopy {
                source: copy.source,
                target: copy.target,
                positions: copy.positions as u32,
                reserved: 0,
            })
            .collect();
        let table: Vec<Layer> =
            layers.iter().map(|layer| Layer { k: address(layer.k), v: address(layer.v) }).collect();
        self.blob.clear();
        self.blob.push(&table);
        let list_at = self.blob.push(&list);
        self.arrays.reserve(context, self.blob.len())?;
        let arrays = self.arrays.address();
        self.staging.send(context, &self.blob, arrays, stream)?;
        let bytes = backend.kv_dtype.bytes();
        // Layers of the engine may have strides of their own: a launch for each kind of stride.
        let mut first = 0;
        while first < layers.len() {
            let strides = layers[first].strides;
            let alike = layers[first..].iter().take_while(|l| l.strides == strides).count();
            let arguments = PageCopyArguments {
                layers: arrays + (first * size_of::<Layer>()) as u64,
                copies: arrays + list_at as u64,
                dense: 0,
                page_stride: (strides.page * bytes) as i64,
                position_stride: (strides.position * bytes) as i64,
                head_stride: (strides.head * bytes) as i64,
                kv_heads: backend.geometry.kv_heads as i32,
                row_bytes: (backend.geometry.head_dim * bytes) as i32,
                page_size: backend.geometry.page_size as i32,
                layer_count: alike as i32,
            };
            let kernel = backend.kernels.get("rkv_page_copy");
            let grid = [copies.len(), alike.min(65535), 2];
            // SAFETY: the caller's contract.
            unsafe { kernel.launch(grid, HELPER_THREADS, 0, &arguments, stream)? };
            first += alike.min(65535);
        }
        let event = match self.used.take() {
            Some((event, _)) => event,
            None => Event::new(context)?,
        };
        event.record(stream)?;
        self.used = Some((event, stream));
        Ok(())
    }
}
