//! A plan on the device: the arrays of its step, sent once, in the order of the stream.
use super::arguments::{self, MirrorArguments, Query, TreeMask};
use super::arrays::{Arrays, Extents, Places, Sent};
use super::driver::Context;
use super::kernels::Kernel;
use super::memory::{Blob, Event, GrowingBuffer, Staging};
use super::mirror::{Growth, Mirror};
use super::stream::Stream;
use crate::attention::{Batch, Bounds, Capacity, Machine, Work};
use crate::error::Error;
use std::sync::Arc;

/// What a plan has on the device for one runner; its memory is reused from step to step.
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
    /// What there is in the step that was sent.
    step: Extents,
    places: Places,
    queries: Vec<Query>,
    /// For each query, if the step or the capacity has trees.
    trees: Vec<TreeMask>,
    items: Vec<arguments::Item>,
    has_regions: bool,
    reserved: Option<Reserved>,
    /// The end of what was launched last, and on which stream.
    used: Arc<Event>,
    stream: Option<Stream>,
}

/// The largest step, and what it can need.
#[derive(Debug)]
struct Reserved {
    capacity: Capacity,
    room: Extents,
    /// Some graph has addresses of this plan: nothing moves any more.
    is_captured: bool,
    /// Some graph's call has a window, which contexts do not take.
    has_window: bool,
}

/// A step to be sent.
#[derive(Debug)]
pub(super) struct NewStep<'a> {
    pub number: u64,
    pub batch: &'a Batch,
    /// The rows' slots.
    pub slots: &'a [u32],
    pub machine: Machine<'a>,
    pub v_head_dim: usize,
    /// Brings the page rows up to date.
    pub update_mirror: Kernel,
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
            step: Extents::default(),
            places: Places::default(),
            queries: Vec::new(),
            trees: Vec::new(),
            items: Vec::new(),
            has_regions: false,
            reserved: None,
            used: Arc::new(Event::new(context)?),
            stream: None,
        })
    }

    /// Reached by the device at the end of what was launched last.
    pub(super) fn used(&self) -> &Arc<Event> {
        &self.used
    }

    /// Whether this step was sent already.
    pub fn has(&self, number: u64) -> bool {
        self.number == Some(number)
    }

    /// Whether a captured graph has addresses of it.
    pub fn is_captured(&self) -> bool {
        self.reserved.as_ref().is_some_and(|reserved| reserved.is_captured)
    }

    /// What was reserved is good for one capacity of the plan: for another one it is forgotten, and
    /// steps are sent as if there had been none.
    pub fn reserved_for(&mut self, capacity: Option<&Capacity>) {
        let is_other = |reserved: &Reserved| Some(&reserved.capacity) != capacity;
        if self.reserved.as_ref().is_some_and(is_other) && !self.is_captured() {
            self.reserved = None;
            self.forget();
        }
    }

    /// Makes room for every step within a capacity: from then on nothing moves. A step that was
    /// sent is sent anew.
    pub(super) fn reserve(
        &mut self,
        capacity: &Capacity,
        page_size: usize,
        machine: &Machine<'_>,
        v_head_dim: usize,
    ) -> Result<(), Error> {
        if self.is_captured() {
            return Err(Error::state("plan: a captured graph has its addresses"));
        }
        let bounds = Bounds::of(capacity, page_size, machine)?;
        let room = Extents::of_bounds(capacity, &bounds);
        let places = Places::of(&room);
        let entries = Mirror::entries_for(capacity.rows, capacity.pages);
        // What must change of the rows: a run for each row, and at most all of their pages.
        let update = Mirror::update_bytes(capacity.rows, capacity.pages);
        // Kernels count entries, and partial results, in 32 bits.
        let floats = v_head_dim * machine.kv_heads * machine.group;
        let partial_bytes = room.partials.checked_mul(floats * size_of::<f32>());
        let largest = entries.max(room.partials).max(places.end() / size_of::<arguments::Item>());
        let (Some(partial_bytes), true) = (partial_bytes, largest <= i32::MAX as usize) else {
            return Err(Error::unsupported("capacity: its arrays have 2^31 entries"));
        };
        let context = &self.context;
        let needed = [
            (&self.rows, entries * size_of::<u32>()),
            (&self.arrays, places.end() + update),
            (&self.partial_lse, partial_bytes / v_head_dim),
            (&self.partial_out, partial_bytes),
        ];
        // All or nothing: what cannot be used is not kept either.
        let prepare = |doubles| -> Result<[_; 4], Error> {
            let [rows, arrays, lse, out] =
                needed.map(|(buffer, bytes)| move || buffer.prepare(context, bytes, doubles));
            Ok([rows()?, arrays()?, lse()?, out()?])
        };
        let doubles = needed.iter().any(|(buffer, bytes)| buffer.doubles_for(*bytes));
        let made = match prepare(true) {
            // There may be enough for what is needed alone.
            Err(Error::DeviceMemory(_)) if doubles => prepare(false),
            made => made,
        };
        let [rows, arrays, partial_lse, partial_out] = made?;
        self.forget();
        self.rows.take(rows);
        self.arrays.take(arrays);
        self.partial_lse.take(partial_lse);
        self.partial_out.take(partial_out);
        let (is_captured, has_window) = (false, false);
        self.reserved = Some(Reserved { capacity: *capacity, room, is_captured, has_window });
        Ok(())
    }

    /// Makes `stream` wait for what was launched on another one.
    pub(super) fn follow(&mut self, stream: Stream) -> Result<(), Error> {
        if self.stream.is_some_and(|before| !before.is_same(stream)) {
            self.used.hold(stream)?;
        }
        Ok(())
    }

    /// Marks the end of a call, and of one that failed too: what it had launched goes on. Returns
    /// what came of it.
    pub(super) fn finish(&mut self, stream: Stream, done: Result<(), Error>) -> Result<(), Error> {
        let marked = self.used.record(stream);
        match marked {
            Ok(()) => self.stream = Some(stream),
            // Nobody can wait until it is sent.
            Err(_) => self.forget(),
        }
        done.and(marked)
    }

    /// What a call into a graph launches for: every step that was reserved. The step at hand was
    /// sent, for a graph sends nothing.
    pub(super) fn to_capture(&self, number: u64) -> Result<&Extents, Error> {
        let Some(reserved) = &self.reserved else {
            return Err(Error::state(
                "plan: args.stream is being captured, but rkv_runner_reserve_plan() was not \
                 called",
            ));
        };
        if !self.has(number) {
            return Err(Error::state(
                "plan: args.stream is being captured, but rkv_runner_prepare_plan() was not called \
                 before",
            ));
        }
        Ok(&reserved.room)
    }

    /// Says that something of such a call is in the graph.
    pub(super) fn note_captured(&mut self, has_window: bool) {
        if let Some(reserved) = &mut self.reserved {
            reserved.is_captured = true;
            reserved.has_window |= has_window;
        }
    }

    /// What a call launches for: the step that was sent.
    pub(super) fn step(&self) -> &Extents {
        &self.step
    }

    /// Divides the work of a step and sends its arrays. The context is current.
    pub(super) fn send(&mut self, step: &NewStep<'_>, stream: Stream) -> Result<(), Error> {
        let has_window = self.reserved.as_ref().is_some_and(|reserved| reserved.has_window);
        if has_window && step.batch.rows().iter().any(|row| row.is_context) {
            return Err(Error::state(
                "plan: a captured call has a window, and some row of the step is a context",
            ));
        }
        self.number = None;
        let sent = self.try_send(step, stream);
        match sent {
            Ok(()) => self.number = Some(step.number),
            Err(_) => self.forget(),
        }
        sent
    }

    /// Forgets what the device has: the next step is sent as the first one is.
    pub(super) fn forget(&mut self) {
        self.number = None;
        self.mirror.forget();
    }

    fn try_send(&mut self, step: &NewStep<'_>, stream: Stream) -> Result<(), Error> {
        let NewStep { batch, slots, machine, v_head_dim, update_mirror, .. } = *step;
        let cascade = self.reserved.as_ref().is_none_or(|reserved| reserved.capacity.cascade);
        let machine = Machine { cascade: machine.cascade && cascade, ..machine };
        self.work.divide(batch, &machine)?;
        if let Some(Growth { needed, liked }) = self.mirror.update(batch, slots)? {
            let [needed, liked] = [needed, liked].map(|entries| entries * size_of::<u32>());
            self.rows.reserve_liked(&self.context, needed, liked)?;
            self.mirror.limit(self.rows.bytes() / size_of::<u32>());
        }
        self.fill(batch, slots);
        self.step.of_work(self.queries.len(), self.trees.len(), &self.work);
        let room = self.reserved.as_ref().map_or(&self.step, |reserved| &reserved.room);
        self.places = Places::of(room);
        let lanes = room.partials * machine.kv_heads * machine.group;
        let arrays = Arrays {
            step: &self.step,
            queries: &self.queries,
            trees: &self.trees,
            items: &self.items,
            work: &self.work,
        };
        self.places.fill(&mut self.blob, room, &arrays);
        let runs = self.blob.put_behind(self.places.end(), &self.mirror.runs);
        let values = self.blob.put_behind(runs.end, &self.mirror.values);
        self.partial_lse.reserve(&self.context, lanes * size_of::<f32>())?;
        self.partial_out.reserve(&self.context, lanes * v_head_dim * size_of::<f32>())?;
        self.arrays.reserve(&self.context, self.blob.len())?;
        let arrays = self.arrays.address();
        self.staging.send(&self.context, &self.blob, arrays, stream)?;
        if self.mirror.runs.is_empty() {
            return Ok(());
        }
        let arguments = MirrorArguments {
            rows: self.rows.address(),
            runs: arrays + runs.start as u64,
            values: arrays + values.start as u64,
            reserved: 0,
        };
        // SAFETY: the arrays are those that were just sent, and the rows have room for them.
        unsafe { update_mirror.launch([self.mirror.runs.len(), 1, 1], 128, 0, &arguments, stream) }
    }

    /// The arrays in the form that kernels take.
    fn fill(&mut self, batch: &Batch, slots: &[u32]) {
        self.fill_trees(batch);
        self.queries.clear();
        self.has_regions = !batch.regions().is_empty();
        for (row, &slot) in batch.rows().iter().zip(slots) {
            let page_begin = self.mirror.begin_of(slot);
            let regions = &batch.regions()[row.regions.clone()];
            let mut next = 0;
            for position in (0..row.count).map(|query| row.position(query)) {
                while regions.get(next).is_some_and(|region| region.end <= position) {
                    next += 1;
                }
                let inside = regions.get(next).filter(|region| region.start <= position);
                let (region_begin, region_end) =
                    inside.map_or((0, 0), |region| (region.start, region.end.min(row.key_count())));
                self.queries.push(Query {
                    position: position as i32,
                    page_begin,
                    // By which the kernel that writes K and V knows that there are none.
                    region_begin: if row.is_context { -1 } else { region_begin as i32 },
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
            // Of groups of rows the order is another one, behind that of the batch.
            in_order: i32::from(item.order_begin < batch.query_count()),
        }));
    }

    /// Whether a step has tree masks, or is sent as if it had some: of a reserved plan all are.
    pub(super) fn may_have_trees(&self, batch: &Batch) -> bool {
        let reserved = self.reserved.as_ref().is_some_and(|reserved| reserved.capacity.trees);
        reserved || !batch.trees().is_empty()
    }

    /// Writes down what queries see by tree masks, wherever kernels look for them.
    fn fill_trees(&mut self, batch: &Batch) {
        self.trees.clear();
        if !self.may_have_trees(batch) {
            return;
        }
        for row in batch.rows() {
            let of_row = self.trees.len();
            self.trees.extend(batch.trees()[row.tree.clone()].iter().map(|&seen| TreeMask {
                begin: row.start as i32,
                count: seen.count_ones() as i32,
                seen,
            }));
            self.trees.resize(of_row + row.count, TreeMask::default());
        }
    }

    /// Where the step's arrays lie.
    pub(super) fn sent(&self) -> Sent {
        let partial = [self.partial_out.address(), self.partial_lse.address()];
        self.places.sent(self.arrays.address(), self.rows.address(), partial)
    }

    /// Whether some row may have regions or a tree: then the kernels for them are launched. Of a
    /// reserved plan they always are, so that results are the same in a graph and outside of it.
    pub(super) fn may_have_masks(&self) -> bool {
        let has_some = self.has_regions || !self.trees.is_empty();
        let may = |reserved: &Reserved| reserved.capacity.regions || reserved.capacity.trees;
        self.reserved.as_ref().map_or(has_some, may)
    }

    /// Bytes that it has on the device, those that it outgrew among them.
    pub fn bytes(&self) -> usize {
        let buffers = [&self.rows, &self.arrays, &self.partial_out, &self.partial_lse];
        buffers.iter().map(|buffer| buffer.bytes_held()).sum()
    }
}
