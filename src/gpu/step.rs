//! A plan on the device: the arrays of its step, sent once, in the order of the stream.
use super::arguments::{self, Address, MirrorArguments, Query};
use super::driver::Context;
use super::kernels::Kernel;
use super::memory::{Blob, Event, GrowingBuffer, Staging};
use super::mirror::Mirror;
use super::stream::Stream;
use crate::attention::{Batch, Machine, Work};
use crate::error::Error;
use std::ops::Range;
use std::sync::Arc;

/// What a plan has on the device. One for each plan; its memory is reused from step to step.
#[derive(Debug)]
pub struct PlanOnDevice {
    context: Arc<Context>,
    /// The step that was sent last.
    number: Option<u64>,
    work: Work,
    mirror: Mirror,
    rows: GrowingBuffer,
    arrays: GrowingBuffer,
    partial_out: GrowingBuffer,
    partial_lse: GrowingBuffer,
    staging: Staging,
    blob: Blob,
    at: Offsets,
    queries: Vec<Query>,
    items: Vec<arguments::Item>,
    has_regions: bool,
    /// The end of what was launched last, and on which stream.
    used: Event,
    stream: Option<Stream>,
}

/// Where the arrays begin, from the start of the device's copy.
#[derive(Debug, Default)]
struct Offsets {
    queries: usize,
    order: usize,
    items: usize,
    merged: usize,
    merge_indptr: usize,
    partials: usize,
}

/// A step to be sent.
#[derive(Debug)]
pub(super) struct NewStep<'a> {
    pub number: u64,
    pub batch: &'a Batch,
    /// The rows' slots.
    pub slots: &'a [u32],
    pub machine: Machine<'a>,
    pub head_dim: usize,
    /// Brings the page rows up to date.
    pub update_mirror: Kernel,
}

/// A step as kernels take it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub queries: Address,
    pub order: Address,
    pub items: Address,
    pub pages: Address,
    pub merged: Address,
    pub merge_indptr: Address,
    pub partials: Address,
    pub partial_out: Address,
    pub partial_lse: Address,
}

impl PlanOnDevice {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        Ok(Self {
            context: context.clone(),
            number: None,
            work: Work::default(),
            mirror: Mirror::default(),
            rows: GrowingBuffer::default(),
            arrays: GrowingBuffer::default(),
            partial_out: GrowingBuffer::default(),
            partial_lse: GrowingBuffer::default(),
            staging: Staging::default(),
            blob: Blob::default(),
            at: Offsets::default(),
            queries: Vec::new(),
            items: Vec::new(),
            has_regions: false,
            used: Event::new(context)?,
            stream: None,
        })
    }

    /// Whether this step was sent already.
    pub fn has(&self, number: u64) -> bool {
        self.number == Some(number)
    }

    /// Makes `stream` wait for what was launched on another one.
    pub(super) fn follow(&mut self, stream: Stream) -> Result<(), Error> {
        if self.stream.is_some_and(|before| before != stream) {
            self.used.hold(stream)?;
        }
        Ok(())
    }

    /// Marks the end of a call.
    pub(super) fn finish(&mut self, stream: Stream) -> Result<(), Error> {
        self.used.record(stream)?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Divides the work of a step and sends its arrays. The context is current.
    pub(super) fn send(&mut self, step: &NewStep<'_>, stream: Stream) -> Result<(), Error> {
        self.number = None;
        let sent = self.try_send(step, stream);
        if sent.is_ok() {
            self.number = Some(step.number);
        } else {
            self.mirror.forget();
        }
        sent
    }

    fn try_send(&mut self, step: &NewStep<'_>, stream: Stream) -> Result<(), Error> {
        let NewStep { batch, slots, ref machine, head_dim, update_mirror, .. } = *step;
        self.work.divide(batch, machine);
        if let Some(entries) = self.mirror.update(batch, slots) {
            self.rows.reserve(&self.context, entries * size_of::<u32>())?;
        }
        self.fill(batch, slots);
        let work = &self.work;
        self.blob.clear();
        self.at = Offsets {
            queries: self.blob.push(&self.queries),
            order: self.blob.push(&work.order),
            items: self.blob.push(&self.items),
            merged: self.blob.push(&work.merged),
            merge_indptr: self.blob.push(&work.merge_indptr),
            partials: self.blob.push(&work.partials),
        };
        let runs = self.blob.push(&self.mirror.runs);
        let values = self.blob.push(&self.mirror.values);
        let partials = work.partial_count * machine.kv_heads * machine.group;
        self.partial_lse.reserve(&self.context, partials * size_of::<f32>())?;
        let floats = partials * head_dim;
        self.partial_out.reserve(&self.context, floats * size_of::<f32>())?;
        self.arrays.reserve(&self.context, self.blob.len())?;
        let arrays = self.arrays.address();
        self.staging.send(&self.context, &self.blob, arrays, stream)?;
        if self.mirror.runs.is_empty() {
            return Ok(());
        }
        let arguments = MirrorArguments {
            rows: self.rows.address(),
            runs: arrays + runs as u64,
            values: arrays + values as u64,
            reserved: 0,
        };
        // SAFETY: the arrays are those that were just sent, and the rows have room for them.
        unsafe { update_mirror.launch([self.mirror.runs.len(), 1, 1], 128, 0, &arguments, stream) }
    }

    /// The arrays in the form that kernels take.
    fn fill(&mut self, batch: &Batch, slots: &[u32]) {
        self.queries.clear();
        self.has_regions = !batch.regions().is_empty();
        for (row, &slot) in batch.rows().iter().zip(slots) {
            let page_begin = self.mirror.begin_of(slot);
            let regions = &batch.regions()[row.regions.clone()];
            let mut next = 0;
            for position in row.start..row.key_count() {
                while regions.get(next).is_some_and(|region| region.end <= position) {
                    next += 1;
                }
                let inside = regions.get(next).filter(|region| region.start <= position);
                let (region_begin, region_end) =
                    inside.map_or((0, 0), |region| (region.start, region.end.min(row.key_count())));
                self.queries.push(Query {
                    position: position as i32,
                    page_begin,
                    region_begin: region_begin as i32,
                    region_end: region_end as i32,
                });
            }
        }
        self.items.clear();
        self.items.extend(self.work.items.iter().map(|item| arguments::Item {
            order_begin: item.order_begin as i32,
            row_begin: item.row_begin as i32,
            row_count: item.row_count as i32,
            page_begin: self.mirror.begin_of(slots[item.pages_of]),
            key_begin: item.key_begin as i32,
            key_end: item.key_end as i32,
            partial_begin: item.partial_begin.map_or(-1, |partial| partial as i32),
            reserved: 0,
        }));
    }

    /// Where the step's arrays lie.
    pub(super) fn sent(&self) -> Sent {
        let arrays = self.arrays.address();
        Sent {
            queries: arrays + self.at.queries as u64,
            order: arrays + self.at.order as u64,
            items: arrays + self.at.items as u64,
            pages: self.rows.address(),
            merged: arrays + self.at.merged as u64,
            merge_indptr: arrays + self.at.merge_indptr as u64,
            partials: arrays + self.at.partials as u64,
            partial_out: self.partial_out.address(),
            partial_lse: self.partial_lse.address(),
        }
    }

    /// Items of each shape.
    pub(super) fn of_tile(&self) -> &[Range<usize>] {
        &self.work.of_tile
    }

    /// Queries whose result is merged.
    pub(super) fn merged_count(&self) -> usize {
        self.work.merged.len()
    }

    /// Whether some row has regions.
    pub(super) fn has_regions(&self) -> bool {
        self.has_regions
    }

    /// Bytes that it has on the device.
    pub fn bytes(&self) -> usize {
        let buffers = [&self.rows, &self.arrays, &self.partial_out, &self.partial_lse];
        buffers.iter().map(|buffer| buffer.bytes()).sum()
    }
}
