//! Copies of pages on the device.
use super::CudaBackend;
use super::arguments::{self, Address, Layer, PageCopyArguments, Plain, PositionMoveArguments};
use super::call::{HELPER_THREADS, address};
use super::memory::{Blob, Event, GrowingBuffer, Staging};
use super::shapes::Heads;
use super::stream::Stream;
use crate::attention::{KvLayer, KvStrides, PageCopy, PositionMove};
use crate::error::Error;

/// What copies of pages need on the device.
#[derive(Debug, Default)]
pub(super) struct Copying {
    arrays: GrowingBuffer,
    staging: Staging,
    blob: Blob,
    used: Option<(Event, Stream)>,
}

/// Keys, values or both of neighbouring layers whose strides are alike, which one launch takes.
#[derive(Debug)]
struct Alike {
    /// Of the first one's keys or values; those of the next lie two addresses further.
    layers: Address,
    count: usize,
    /// Keys and values, or one of them.
    kinds: usize,
    /// In bytes.
    strides: [i64; 3],
    /// Of a head of a position.
    row_bytes: usize,
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
        let list = copies.iter().map(|copy| arguments::PageCopy {
            source: copy.source,
            target: copy.target,
            positions: copy.positions as u32,
            reserved: 0,
        });
        let kernel = self.kernels.get("rkv_page_copy");
        self.over_layers(layers, list, stream, |alike, copies_at| {
            let [page_stride, position_stride, head_stride] = alike.strides;
            let arguments = PageCopyArguments {
                layers: alike.layers,
                copies: copies_at,
                dense: 0,
                page_stride,
                position_stride,
                head_stride,
                kv_heads: self.geometry.kv_heads as i32,
                row_bytes: alike.row_bytes as i32,
                page_size: self.geometry.page_size as i32,
                layer_count: alike.count as i32,
            };
            let grid = [copies.len(), alike.count, alike.kinds];
            // SAFETY: the caller's contract.
            unsafe { kernel.launch(grid, HELPER_THREADS, 0, &arguments, stream) }
        })
    }

    /// Moves positions to other places, in every layer, as if one after another.
    ///
    /// # Safety
    /// The places lie in the memory of every layer; on the stream nobody uses them meanwhile. All
    /// calls get the same layers.
    pub unsafe fn move_positions(
        &self,
        layers: &[KvLayer<*mut u8>],
        moves: &[PositionMove],
        stream: Stream,
    ) -> Result<(), Error> {
        let list = moves.iter().map(|moved| arguments::PositionMove {
            source_page: moved.source.0,
            source_position: moved.source.1,
            target_page: moved.target.0,
            target_position: moved.target.1,
        });
        let kernel = self.kernels.get("rkv_move_positions");
        self.over_layers(layers, list, stream, |alike, moves_at| {
            let [page_stride, position_stride, head_stride] = alike.strides;
            let arguments = PositionMoveArguments {
                layers: alike.layers,
                moves: moves_at,
                page_stride,
                position_stride,
                head_stride,
                kv_heads: self.geometry.kv_heads as i32,
                row_bytes: alike.row_bytes as i32,
                move_count: moves.len() as i32,
                reserved: 0,
            };
            let pieces = self.geometry.kv_heads * alike.row_bytes / 16;
            let grid = [pieces.div_ceil(HELPER_THREADS), alike.count, alike.kinds];
            // SAFETY: the caller's contract.
            unsafe { kernel.launch(grid, HELPER_THREADS, 0, &arguments, stream) }
        })
    }

    /// What is copied of layers with these strides of keys and of values: both at once where they
    /// are alike, keys alone where values are in them.
    fn kinds_of_copies(
        &self,
        layers: Address,
        count: usize,
        strides: [KvStrides; 2],
    ) -> impl Iterator<Item = Alike> {
        let bytes = self.kv_dtype.bytes();
        let (dims, kinds) = match self.heads {
            heads if heads.are_alike() => ([Some(heads.head_dim), None], 2),
            Heads { head_dim, latent: true, .. } => ([Some(head_dim), None], 1),
            Heads { head_dim, v_head_dim, .. } => ([Some(head_dim), Some(v_head_dim)], 1),
        };
        dims.into_iter().enumerate().filter_map(move |(which, dim)| {
            let KvStrides { page, position, head } = strides[which];
            dim.map(|dim| Alike {
                layers: layers + (which * size_of::<Address>()) as u64,
                count,
                kinds,
                strides: [page, position, head].map(|elements| (elements * bytes) as i64),
                row_bytes: dim * bytes,
            })
        })
    }

    /// Sends a list and launches over it for all layers that are alike.
    fn over_layers<T: Plain>(
        &self,
        layers: &[KvLayer<*mut u8>],
        list: impl ExactSizeIterator<Item = T>,
        stream: Stream,
        launch: impl Fn(&Alike, Address) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if list.len() == 0 || layers.is_empty() {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        stream.check_not_captured()?;
        let list: Vec<T> = list.collect();
        self.copying.lock().run(self, layers, &list, stream, launch)
    }
}

impl Copying {
    /// Makes a stream wait for what was copied last.
    pub(super) fn hold(&self, stream: Stream) -> Result<(), Error> {
        self.used.as_ref().map_or(Ok(()), |(used, _)| used.hold(stream))
    }

    fn run<T: Plain>(
        &mut self,
        backend: &CudaBackend,
        layers: &[KvLayer<*mut u8>],
        list: &[T],
        stream: Stream,
        launch: impl Fn(&Alike, Address) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some((used, _)) = self.used.as_ref().filter(|(_, before)| !before.is_same(stream)) {
            used.hold(stream)?;
        }
        let event = match self.used.take() {
            Some((event, _)) => event,
            None => Event::new(&backend.context)?,
        };
        let put = self.put(backend, layers, list, stream, launch);
        // Of a call that failed too: what it had launched goes on.
        let marked = event.record(stream);
        self.used = Some((event, stream));
        put.and(marked)
    }

    fn put<T: Plain>(
        &mut self,
        backend: &CudaBackend,
        layers: &[KvLayer<*mut u8>],
        list: &[T],
        stream: Stream,
        launch: impl Fn(&Alike, Address) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = &backend.context;
        let table: Vec<Layer> =
            layers.iter().map(|layer| Layer { k: address(layer.k), v: address(layer.v) }).collect();
        self.blob.clear();
        self.blob.push(&table);
        let list_at = self.blob.push(list);
        self.arrays.reserve(context, self.blob.len())?;
        let arrays = self.arrays.address();
        self.staging.send(context, &self.blob, arrays, stream)?;
        // Layers of the engine may have strides of their own: a launch for each kind of stride.
        let mut first = 0;
        while first < layers.len() {
            let KvLayer { strides, v_strides, .. } = layers[first];
            let is_like = |layer: &&KvLayer<*mut u8>| {
                layer.strides == strides && layer.v_strides == v_strides
            };
            let count = layers[first..].iter().take_while(is_like).count().min(65535);
            let layers_at = arrays + (first * size_of::<Layer>()) as u64;
            for alike in backend.kinds_of_copies(layers_at, count, [strides, v_strides]) {
                launch(&alike, arrays + list_at as u64)?;
            }
            first += count;
        }
        Ok(())
    }
}
