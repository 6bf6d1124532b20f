//! Calls: what is launched for them.
use super::CudaBackend;
use super::arguments::{
    Address, AttentionArguments, Divisor, HopperArguments, KvPlace, KvWriteArguments,
    MergeArguments,
};
use super::arrays::{Extents, Sent};
use super::hopper::Maps;
use super::shapes::{Family, dtype_name, kv_name};
use super::step::{NewStep, PlanOnDevice};
use super::stream::Stream;
use crate::attention::{Batch, Capacity, Dtype, Geometry, KvLayer, KvStrides, Params, Row, Tensor};
use crate::error::Error;

/// Threads of a block of every kernel but attention.
pub(super) const HELPER_THREADS: usize = 128;
/// Bytes of shared memory of those that merge, as `kernels/merge.cuh` says.
pub(super) const MERGE_SHARED: usize = HELPER_THREADS * 4 * size_of::<f32>();
/// Their blocks on a multiprocessor at most; results beyond are taken in turn.
const MERGE_BLOCKS: usize = 2048 / HELPER_THREADS;

/// Kernels count keys in 32 bits, and look up to two tiles beyond the last one.
const POSITIONS_MAX: usize = i32::MAX as usize - 1024;

const TOO_LARGE: &str =
    "plan: on CUDA a row has fewer than 2^31 positions, a step fewer heads of queries";

const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// K and V of the new positions.
#[derive(Debug, Clone, Copy)]
pub struct NewKv {
    /// `[new positions][KV head][element]`
    pub k: Tensor<*const u8>,
    /// Like `k`; None where values are the beginnings of keys.
    pub v: Option<Tensor<*const u8>>,
}

/// A step of a plan.
#[derive(Debug, Clone, Copy)]
pub struct StepOfPlan<'a> {
    /// Its number, by which the plan knows whether it was sent.
    pub number: u64,
    /// Rows.
    pub batch: &'a Batch,
    /// The rows' slots.
    pub slots: &'a [u32],
}

/// Arguments of [`CudaBackend::append_prefill`]. All addresses are the device's.
#[derive(Debug, Clone, Copy)]
pub struct AppendPrefill<'a> {
    /// What is computed. Into a graph: this step, and then every one that is sent before a launch.
    pub step: StepOfPlan<'a>,
    /// Scale, window and so on.
    pub params: Params,
    /// A logit for each query head that takes part in the denominator only; may be null.
    pub sinks: *const f32,
    /// Of fp8 a scale for each KV head, of keys and of values; may both be null.
    pub head_scales: [*const f32; 2],
    /// `[new positions of all rows][query head][element]`
    pub q: Tensor<*const u8>,
    /// None: they are written already.
    pub kv: Option<NewKv>,
    /// Like `q`.
    pub out: Tensor<*mut u8>,
    /// `[new positions][query head]`; may be null.
    pub lse: *mut f32,
    /// KV memory.
    pub layer: KvLayer<*mut u8>,
    /// Pages that it has.
    pub page_count: usize,
    /// The stream is being captured, see [`CudaBackend::is_captured`]; then q, k, v, out and lse
    /// have room for all positions that the plan has reserved.
    pub is_captured: bool,
}

pub(super) fn address<T>(pointer: *const T) -> Address {
    pointer.addr() as Address
}

impl CudaBackend {
    /// Refuses a tensor that kernels cannot read 16 bytes at a time.
    pub fn check_tensor(&self, tensor: &Tensor<*mut u8>, name: &str) -> Result<(), Error> {
        let unit = 16 / tensor.dtype.bytes();
        let aligned = tensor.address.addr().is_multiple_of(16)
            && tensor.position_stride.is_multiple_of(unit)
            && tensor.head_stride.is_multiple_of(unit);
        if aligned {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{name}: on CUDA it begins at a multiple of 16 bytes, and so does every head of it"
        )))
    }

    /// The same for KV memory.
    pub fn check_layer(&self, layer: &KvLayer<*mut u8>, name: &str) -> Result<(), Error> {
        if self.heads.are_alike() && layer.v_strides != layer.strides {
            return Err(Error::unsupported(format!(
                "{name}: on CUDA K and V of one head dim have the same strides"
            )));
        }
        let unit = 16 / layer.dtype.bytes();
        let whole = |strides: &KvStrides| {
            let KvStrides { page, position, head } = *strides;
            [page, position, head].iter().all(|stride| stride.is_multiple_of(unit))
        };
        let aligned = [layer.k, layer.v].iter().all(|start| start.addr().is_multiple_of(16))
            && whole(&layer.strides)
            && whole(&layer.v_strides);
        if aligned {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{name}: on CUDA it begins at a multiple of 16 bytes, and so does every head of it"
        )))
    }

    /// Whether what is put on a stream goes to a graph.
    pub fn is_captured(&self, stream: Stream) -> Result<bool, Error> {
        let _entered = self.context.enter()?;
        stream.is_captured()
    }

    /// Makes room for every step within a capacity, so that calls can go into graphs. On failure
    /// the next step is sent as ever.
    pub fn reserve(&self, capacity: &Capacity, plan: &mut PlanOnDevice) -> Result<(), Error> {
        let Geometry { query_heads, v_head_dim, page_size, .. } = self.geometry;
        if capacity.positions.saturating_mul(query_heads) > POSITIONS_MAX {
            return Err(Error::unsupported(TOO_LARGE));
        }
        let _entered = self.context.enter()?;
        plan.reserve(capacity, page_size, &self.machine(capacity.trees), v_head_dim)
    }

    fn check_size(&self, batch: &Batch) -> Result<(), Error> {
        let longest = batch.rows().iter().map(Row::key_count).max().unwrap_or(0);
        let blocks = batch.query_count() * self.geometry.query_heads;
        if longest.max(blocks) > POSITIONS_MAX {
            return Err(Error::unsupported(TOO_LARGE));
        }
        Ok(())
    }

    /// Sends the arrays of a step, unless they were sent.
    ///
    /// # Safety
    /// On the stream nobody else uses what the plan has on the device.
    pub unsafe fn upload(
        &self,
        step: &StepOfPlan<'_>,
        plan: &mut PlanOnDevice,
        stream: Stream,
    ) -> Result<(), Error> {
        self.check_size(step.batch)?;
        let _entered = self.context.enter()?;
        stream.check_not_captured()?;
        plan.follow(stream)?;
        let sent = self.send(step, plan, stream);
        plan.finish(stream, sent)
    }

    fn send(
        &self,
        step: &StepOfPlan<'_>,
        plan: &mut PlanOnDevice,
        stream: Stream,
    ) -> Result<(), Error> {
        if plan.has(step.number) {
            return Ok(());
        }
        let step = NewStep {
            number: step.number,
            batch: step.batch,
            slots: step.slots,
            machine: self.machine(plan.may_have_trees(step.batch)),
            v_head_dim: self.geometry.v_head_dim,
            update_mirror: self.kernels.get("rkv_update_mirror"),
        };
        plan.send(&step, stream)
    }

    /// Writes K and V of the new positions into their pages, then attends to all positions. Into a
    /// graph: launches all that any step which was reserved can need, and nothing else.
    ///
    /// # Safety
    /// The addresses lead to memory of the device of the shapes that the batch, the geometry and
    /// the strides say; on the stream nobody else uses what this writes. A graph is launched only
    /// while all of that and the plan are there, after a step was sent.
    pub unsafe fn append_prefill(
        &self,
        call: &AppendPrefill<'_>,
        plan: &mut PlanOnDevice,
        stream: Stream,
    ) -> Result<(), Error> {
        self.check_size(call.step.batch)?;
        let _entered = self.context.enter()?;
        let mut begun = false;
        if call.is_captured {
            let sizes = plan.to_capture(call.step.number)?.clone();
            // SAFETY: the caller's contract; the arrays have room for all that was reserved.
            let launched = unsafe { self.launch(call, plan, &sizes, stream, &mut begun) };
            // A call that failed behind its first kernel is in the graph too.
            if begun {
                plan.note_captured(call.params.view.window.is_some());
            }
            return launched;
        }
        plan.follow(stream)?;
        let sent = self.send(&call.step, plan, stream);
        let launched = sent.and_then(|()| {
            // SAFETY: the caller's contract, and the arrays that were sent fit the batch.
            unsafe { self.launch(call, plan, plan.step(), stream, &mut begun) }
        });
        plan.finish(stream, launched)
    }

    /// Sets `begun` when the first kernel is on the stream.
    ///
    /// # Safety
    /// That of `append_prefill`, and the plan's arrays have room for `sizes`.
    unsafe fn launch(
        &self,
        call: &AppendPrefill<'_>,
        plan: &PlanOnDevice,
        sizes: &Extents,
        stream: Stream,
        begun: &mut bool,
    ) -> Result<(), Error> {
        let sent = plan.sent();
        // SAFETY: the caller's contract.
        unsafe {
            if let Some(new) = call.kv {
                self.write_kv(call, &new, sizes.queries, &sent, stream)?;
                *begun = true;
            }
            self.attend(call, plan, &sizes.items, (&sent, begun), stream)?;
            self.merge(call, sizes.merged, &sent, stream)
        }
    }

    fn place(&self, strides: &KvStrides) -> KvPlace {
        KvPlace {
            page_stride: strides.page as i64,
            position_stride: strides.position as i64,
            head_stride: strides.head as i64,
            page_size: Divisor::new(self.geometry.page_size as u32),
            reserved: 0,
        }
    }

    /// (scale of K, of V) as stored, where heads have none of their own.
    fn scales(&self, call: &AppendPrefill<'_>) -> (f32, f32) {
        let [of_k, of_v] = call.head_scales;
        match self.kv_dtype {
            Dtype::Fp8E4m3 if of_k.is_null() && of_v.is_null() => {
                (call.params.k_scale, call.params.v_scale)
            }
            _ => (1.0, 1.0),
        }
    }

    /// # Safety
    /// That of `append_prefill`.
    unsafe fn write_kv(
        &self,
        call: &AppendPrefill<'_>,
        new: &NewKv,
        queries: usize,
        sent: &Sent,
        stream: Stream,
    ) -> Result<(), Error> {
        let Geometry { kv_heads, head_dim, v_head_dim, .. } = self.geometry;
        // Nothing is read of K for a V that is none.
        let (v, v_head_dim) = new.v.map_or((new.k, 0), |v| (v, v_head_dim));
        let (k_scale, v_scale) = self.scales(call);
        let head_pieces = head_dim.max(v_head_dim) / 8;
        let query_pieces = kv_heads * head_pieces;
        let arguments = KvWriteArguments {
            k: address(new.k.address),
            v: address(v.address),
            k_pages: address(call.layer.k),
            v_pages: address(call.layer.v),
            queries: sent.queries,
            query_count: sent.query_count,
            pages: sent.pages,
            k_scales: address(call.head_scales[0]),
            v_scales: address(call.head_scales[1]),
            k_position_stride: new.k.position_stride as i64,
            k_head_stride: new.k.head_stride as i64,
            v_position_stride: v.position_stride as i64,
            v_head_stride: v.head_stride as i64,
            kv: self.place(&call.layer.strides),
            v_kv: self.place(&call.layer.v_strides),
            query_max: queries as i32,
            head_dim: head_dim as i32,
            v_head_dim: v_head_dim as i32,
            k_scale,
            v_scale,
            query_pieces: Divisor::new(query_pieces as u32),
            head_pieces: Divisor::new(head_pieces as u32),
            reserved: 0,
        };
        let name = format!("rkv_kv_write_{}_{}", dtype_name(self.dtype), kv_name(self.kv_dtype));
        let blocks = (queries * query_pieces).div_ceil(HELPER_THREADS);
        let kernel = self.kernels.get(&name);
        // SAFETY: the caller's contract.
        unsafe { kernel.launch([blocks, 1, 1], HELPER_THREADS, 0, &arguments, stream) }
    }

    /// # Safety
    /// That of `append_prefill`.
    unsafe fn attend(
        &self,
        call: &AppendPrefill<'_>,
        plan: &PlanOnDevice,
        items: &[usize],
        (sent, begun): (&Sent, &mut bool),
        stream: Stream,
    ) -> Result<(), Error> {
        let Params { scale, soft_cap, view, .. } = call.params;
        let (k_scale, v_scale) = self.scales(call);
        // Both may be small: 0 would be no factor of the -infinity of what is not seen.
        let whole = (scale * k_scale).max(f32::MIN_POSITIVE);
        // None whose factor is 0, or loses digits: logits are far below such a cap.
        let soft_cap = soft_cap.filter(|&cap| whole / cap >= f32::MIN_POSITIVE);
        let mut arguments = AttentionArguments {
            q: address(call.q.address),
            out: address(call.out.address),
            lse: address(call.lse),
            k: address(call.layer.k),
            v: address(call.layer.v),
            sinks: address(call.sinks),
            k_scales: address(call.head_scales[0]),
            v_scales: address(call.head_scales[1]),
            items: 0,
            item_count: 0,
            queries: sent.queries,
            order: sent.order,
            pages: sent.pages,
            tree_masks: sent.trees,
            partial_out: sent.partial_out,
            partial_lse: sent.partial_lse,
            q_position_stride: call.q.position_stride as i64,
            q_head_stride: call.q.head_stride as i64,
            out_position_stride: call.out.position_stride as i64,
            out_head_stride: call.out.head_stride as i64,
            kv: self.place(&call.layer.strides),
            v_kv: self.place(&call.layer.v_strides),
            query_heads: self.geometry.query_heads as i32,
            group: Divisor::new(self.geometry.group() as u32),
            scale_log2: whole * LOG2_E,
            soft_cap_in: soft_cap.map_or(0.0, |cap| whole / cap),
            soft_cap_out: soft_cap.map_or(0.0, |cap| cap * LOG2_E),
            v_scale,
            // To kernels 0 is none; a query always sees itself.
            window: view.window.map_or(0, |window| window.clamp(1, i32::MAX as u32) as i32),
            close_heads: 0,
        };
        // The kernel for plain masks is another program, which may round otherwise.
        let masks = plan.may_have_masks();
        let plain = soft_cap.is_none() && view.window.is_none() && !masks && !self.batch_invariant;
        for (tile, (shape, &items)) in self.shapes.iter().zip(items).enumerate() {
            if items == 0 {
                continue;
            }
            (arguments.items, arguments.item_count) = sent.items(tile);
            let mut kernel = self.kernels.get(&shape.name(self.dtype, self.kv_dtype, plain));
            if !*begun {
                kernel = kernel.behind_others();
            }
            let threads = shape.threads();
            let shared = shape.shared_bytes(self.kv_dtype.bytes());
            if shape.family() == Family::Mma {
                let kv_heads = self.geometry.kv_heads;
                let close = shape.close_heads(kv_heads);
                arguments.close_heads = close;
                let grid = [items << close, kv_heads >> close, 1];
                // SAFETY: the caller's contract.
                unsafe { kernel.launch_after(grid, threads, shared, &arguments, stream)? };
                *begun = true;
                continue;
            }
            // Blocks take items one after another; their kernel counts them in 31 bits.
            let all_items = items.saturating_mul(self.geometry.kv_heads);
            if all_items > i32::MAX as usize {
                return Err(Error::unsupported("step: 2^31 items of attention"));
            }
            let blocks = all_items.min(self.multiprocessors);
            let maps = Maps::of(shape, &call.layer, &self.geometry, call.page_count)?;
            let all = HopperArguments {
                k: maps.k,
                v: maps.v,
                attention: arguments,
                taken: sent.taken,
                box_positions: maps.box_positions,
                position_first: maps.position_first.into(),
                blocks: blocks as u32,
                reserved: [0; 5],
            };
            // SAFETY: the caller's contract; the maps are of the layer's memory.
            unsafe { kernel.launch_after([blocks, 1, 1], threads, shared, &all, stream)? };
            *begun = true;
        }
        Ok(())
    }

    /// Blocks of a launch that merges so many results.
    pub(super) fn merge_blocks(&self, results: usize) -> usize {
        results.min(self.multiprocessors * MERGE_BLOCKS)
    }

    /// # Safety
    /// That of `append_prefill`.
    unsafe fn merge(
        &self,
        call: &AppendPrefill<'_>,
        entries: usize,
        sent: &Sent,
        stream: Stream,
    ) -> Result<(), Error> {
        if entries == 0 {
            return Ok(());
        }
        let blocks = self.merge_blocks(entries * self.geometry.query_heads);
        let arguments = MergeArguments {
            out: address(call.out.address),
            lse: address(call.lse),
            sinks: address(call.sinks),
            partial_out: sent.partial_out,
            partial_lse: sent.partial_lse,
            queries: sent.merged,
            indptr: sent.merge_indptr,
            partials: sent.partials,
            entry_count: sent.merged_count,
            out_position_stride: call.out.position_stride as i64,
            out_head_stride: call.out.head_stride as i64,
            entry_max: entries as i32,
            blocks: blocks as i32,
            query_heads: self.geometry.query_heads as i32,
            head_dim: self.geometry.v_head_dim as i32,
            heads: Divisor::new(self.geometry.query_heads as u32),
            reserved: 0,
        };
        let name = format!("rkv_merge_partials_{}", dtype_name(self.dtype));
        let kernel = self.kernels.get(&name);
        let (grid, threads) = ([blocks, 1, 1], HELPER_THREADS);
        // SAFETY: the caller's contract; there is something to merge, so something was attended to.
        unsafe { kernel.launch_after(grid, threads, MERGE_SHARED, &arguments, stream) }
    }
}
