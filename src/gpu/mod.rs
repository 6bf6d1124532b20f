//! Attention on an NVIDIA GPU: kernels that were built ahead of time, launched through the driver.
//!
//! ```text
//!   driver    found at run time, or not          memory    buffers, pinned staging, events
//!   images    machine code, whose                step      a plan's arrays on the device
//!   kernels   loaded images, launches            mirror    page rows, sent as they change
//!   shapes    which kernels exist                arrays    where those lie
//!   hopper    the kernel of Hopper's own         copy      pages, in every layer
//!   call      what is launched for a step        tier      pages to host memory, and from there
//!   states    merged
//! ```
//!
//! Everything happens on the engine's stream, in its order, but for what goes to host memory;
//! nothing waits for the device but that, and what creates and ends things. What the driver refuses
//! is an error that carries its code, and leaves the host as it was.
mod arguments;
mod arrays;
mod call;
mod copy;
mod driver;
mod hopper;
mod images;
mod kernels;
mod memory;
mod mirror;
mod shapes;
mod states;
mod step;
mod stream;
mod tier;

pub use call::{AppendPrefill, NewKv, StepOfPlan};
pub use images::Images;
pub use shapes::{Heads, heads, heads_of_sm90};
pub use states::MergeStates;
pub use step::PlanOnDevice;
pub use stream::Stream;

use crate::attention::{Dtype, Geometry, KvLayer, Machine, Tile, View};
use crate::error::Error;
use copy::Copying;
use cudarc::driver::sys::CUdevice_attribute;
use driver::Context;
use kernels::Kernels;
use memory::{DeviceBuffer, Event};
use parking_lot::Mutex;
use shapes::{Family, Shape};
use std::sync::{Arc, Weak};
use tier::TierCopying;

/// Which GPU, and which kernels.
#[derive(Debug, Clone, Copy)]
pub struct CudaConfig {
    /// Ordinal of the device.
    pub device: usize,
    /// The kernels.
    pub images: Images,
    /// Whether attn_sm90 is used where it can run; None: it is, unless RADIXKV_ATTN_SM90 is 0.
    pub sm90: Option<bool>,
    /// Bytes of the device through which pages go to host memory and come back; a page at least.
    /// None: 16 MiB.
    pub staging_bytes: Option<usize>,
}

/// Memory of the device that belongs to a runner.
#[derive(Debug)]
pub struct DeviceMemory(DeviceBuffer);

impl DeviceMemory {
    /// Its first byte, as the device sees it.
    pub fn address(&self) -> *mut u8 {
        std::ptr::without_provenance_mut(self.0.address() as usize)
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// The CUDA backend for one geometry and number format.
#[derive(Debug)]
pub struct CudaBackend {
    context: Arc<Context>,
    kernels: Kernels,
    geometry: Geometry,
    heads: Heads,
    dtype: Dtype,
    kv_dtype: Dtype,
    shapes: Vec<Shape>,
    tiles: Vec<Tile>,
    multiprocessors: usize,
    batch_invariant: bool,
    view: View,
    copying: Mutex<Copying>,
    /// The ends of what was launched for each plan. What a plan that is gone had launched is over:
    /// to free its memory was to wait for it.
    plans: Mutex<Vec<Weak<Event>>>,
    staging_bytes: Option<usize>,
    tier: Mutex<Option<TierCopying>>,
}

/// Kernels besides attention, for these formats, and their bytes of shared memory.
fn helpers(dtype: Dtype, kv_dtype: Dtype) -> [(String, usize); 8] {
    let (q, kv) = (shapes::dtype_name(dtype), shapes::kv_name(kv_dtype));
    [
        (format!("rkv_kv_write_{q}_{kv}"), 0),
        (format!("rkv_merge_partials_{q}"), call::MERGE_SHARED),
        (format!("rkv_merge_states_{q}"), call::MERGE_SHARED),
        ("rkv_page_copy".to_owned(), 0),
        ("rkv_page_gather".to_owned(), 0),
        ("rkv_page_scatter".to_owned(), 0),
        ("rkv_move_positions".to_owned(), 0),
        ("rkv_update_mirror".to_owned(), 0),
    ]
}

impl CudaBackend {
    /// Whether these shapes and formats can be computed here: by the kernels, with this build, on
    /// this machine. `latent`: values are the beginnings of keys; `batch_invariant`: fewer kernels
    /// are used. The error says what cannot.
    pub fn supports(
        config: &CudaConfig,
        geometry: &Geometry,
        latent: bool,
        (dtype, kv_dtype): (Dtype, Dtype),
        batch_invariant: bool,
    ) -> Result<(), Error> {
        // Whether this device and driver take the kernels only loading them says.
        Self::new(config, *geometry, latent, (dtype, kv_dtype), batch_invariant).map(drop)
    }

    /// What of that is refused without a look at the kernels.
    pub fn check(
        config: &CudaConfig,
        geometry: &Geometry,
        latent: bool,
        dtype: Dtype,
        kv_dtype: Dtype,
    ) -> Result<(), Error> {
        Self::device(config, geometry, latent, dtype, kv_dtype).map(drop)
    }

    fn device(
        config: &CudaConfig,
        geometry: &Geometry,
        latent: bool,
        dtype: Dtype,
        kv_dtype: Dtype,
    ) -> Result<Arc<Context>, Error> {
        shapes::check(geometry, latent, dtype, kv_dtype)?;
        if config.images.is_empty() {
            return Err(Error::unsupported(
                "config.backend: this build has no CUDA kernels, see rkv_features()",
            ));
        }
        let context = Context::new(config.device)?;
        check_capability(&context)?;
        Ok(context)
    }

    /// Whether the kernels can do it for queries that see so far back.
    pub fn supports_view(view: View) -> Result<(), Error> {
        let refused = match view {
            View { chunk: Some(_), .. } => "is a CHUNK group",
            View { sinks: 1.., .. } => "has sinks",
            _ => return Ok(()),
        };
        Err(Error::unsupported(format!("config.group {refused}, which CUDA kernels do not take")))
    }

    /// The same for queries that never see farther back: their work is divided over no more.
    pub fn with_view(self, view: View) -> Self {
        Self { view, ..self }
    }

    /// A backend on a device.
    pub fn new(
        config: &CudaConfig,
        geometry: Geometry,
        latent: bool,
        (dtype, kv_dtype): (Dtype, Dtype),
        batch_invariant: bool,
    ) -> Result<Self, Error> {
        let context = Self::device(config, &geometry, latent, dtype, kv_dtype)?;
        let Geometry { head_dim, v_head_dim, .. } = geometry;
        let heads = Heads { head_dim, v_head_dim, latent };
        let room = context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let mut wanted = helpers(dtype, kv_dtype).to_vec();
        let mut chosen = Vec::new();
        // It would round otherwise than attn_mma does for fewer rows.
        let hopper = match batch_invariant {
            true => None,
            false => hopper::shape(config, &context, heads, kv_dtype)?,
        };
        let most = hopper.map_or(usize::MAX, |_| shapes::ROWS_BESIDE_HOPPER);
        let common = shapes::shapes(heads).filter(|shape| shape.rows() <= most);
        for shape in common.chain(hopper) {
            let shared = shape.shared_bytes(kv_dtype.bytes());
            if shared > room {
                continue;
            }
            for plain in [false, true] {
                wanted.push((shape.name(dtype, kv_dtype, plain), shared));
            }
            chosen.push(*shape);
        }
        if chosen.is_empty() {
            return Err(Error::unsupported(format!(
                "config.device: {room} bytes of shared memory are too few for head_dim {head_dim}"
            )));
        }
        let multiprocessors =
            context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        assert!(
            chosen.len() <= arguments::TILES_MAX,
            "kernels know the number of each shape's items"
        );
        let kernels = Kernels::load(&context, config.images, hopper.is_some(), &wanted)?;
        let mut tiles = Vec::new();
        for shape in &chosen {
            tiles.push(shape.tile(blocks_of(&context, &kernels, shape, (dtype, kv_dtype))?));
        }
        Ok(Self {
            kernels,
            context,
            geometry,
            heads,
            dtype,
            kv_dtype,
            tiles,
            shapes: chosen,
            multiprocessors,
            batch_invariant,
            view: View::default(),
            copying: Mutex::default(),
            plans: Mutex::default(),
            staging_bytes: config.staging_bytes,
            tier: Mutex::default(),
        })
    }

    /// Whether tiles of many rows go to attn_sm90.
    pub fn uses_sm90(&self) -> bool {
        self.shapes.iter().any(|shape| shape.family() == Family::Hopper)
    }

    /// Positions that the device copies at a time for attn_sm90; 0 where a layer's strides or
    /// pages let it copy none: for tests, because results are the same.
    pub fn positions_of_box(
        &self,
        layer: &KvLayer<*mut u8>,
        page_count: usize,
    ) -> Result<usize, Error> {
        let _entered = self.context.enter()?;
        let Some(shape) = self.shapes.iter().find(|shape| shape.family() == Family::Hopper) else {
            return Ok(0);
        };
        let maps = hopper::Maps::of(shape, layer, &self.geometry, page_count)?;
        Ok(maps.box_positions as usize)
    }

    /// Zeroed memory of the device.
    pub fn allocate(&self, bytes: usize) -> Result<DeviceMemory, Error> {
        DeviceBuffer::zeroed(&self.context, bytes).map(DeviceMemory)
    }

    /// What a plan needs on the device.
    pub fn new_plan(&self) -> Result<PlanOnDevice, Error> {
        let plan = PlanOnDevice::new(&self.context)?;
        let mut plans = self.plans.lock();
        plans.retain(|used| used.strong_count() > 0);
        plans.push(Arc::downgrade(plan.used()));
        Ok(plan)
    }

    /// Makes a stream wait for what calls of a plan put on another one: before what comes to it
    /// beside the plan's arrays and kernels.
    pub fn follow(&self, plan: &mut PlanOnDevice, stream: Stream) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        stream.check_not_captured()?;
        plan.follow(stream)
    }

    /// Marks the end of that as the end of a call of the plan; returns what came of it.
    pub fn finish(
        &self,
        plan: &mut PlanOnDevice,
        stream: Stream,
        done: Result<(), Error>,
    ) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        plan.finish(stream, done)
    }

    /// What a step is divided for; attn_sm90, the last shape, takes no tree masks.
    fn machine(&self, trees: bool) -> Machine<'_> {
        let count = self.tiles.len() - usize::from(trees && self.uses_sm90());
        Machine {
            tiles: &self.tiles[..count],
            multiprocessors: self.multiprocessors,
            kv_heads: self.geometry.kv_heads,
            group: self.geometry.group(),
            batch_invariant: self.batch_invariant,
            // Rows of which each sees another part of what they share.
            cascade: self.view == View::default(),
            view: self.view,
        }
    }
}

/// Blocks of a shape that a multiprocessor holds at a time: of the kernel that it holds fewer of,
/// for a plan does not know whether there will be other masks than the causal one.
fn blocks_of(
    context: &Context,
    kernels: &Kernels,
    shape: &Shape,
    (dtype, kv_dtype): (Dtype, Dtype),
) -> Result<usize, Error> {
    let _entered = context.enter()?;
    let shared = shape.shared_bytes(kv_dtype.bytes());
    let mut fewest = usize::MAX;
    for plain in [false, true] {
        let kernel = kernels.get(&shape.name(dtype, kv_dtype, plain));
        fewest = fewest.min(kernel.blocks(shape.threads(), shared)?);
    }
    Ok(fewest)
}

/// mma.sync of bf16 and cp.async begin with compute capability 8.0.
fn check_capability(context: &Context) -> Result<(), Error> {
    let major =
        context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    if major < 8 {
        return Err(Error::unsupported(format!(
            "config.device: compute capability {major}.x is below 8.0"
        )));
    }
    Ok(())
}

/// Names, threads and shared memory of all kernels, and sizes of their arguments: for tests, which
/// compare them with the kernels.
pub fn kernel_table() -> Vec<(String, usize, usize)> {
    let mut table = Vec::new();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for kv_dtype in [dtype, Dtype::Fp8E4m3] {
            for heads in heads() {
                let hopper = shapes::hopper_shape(heads, kv_dtype);
                for shape in shapes::shapes(heads).chain(hopper) {
                    for plain in [false, true] {
                        let shared = shape.shared_bytes(kv_dtype.bytes());
                        if !plain || shape.has_plain(kv_dtype) {
                            let name = shape.name(dtype, kv_dtype, plain);
                            table.push((name, shape.threads(), shared));
                        }
                    }
                }
            }
            let helpers = helpers(dtype, kv_dtype);
            table.extend(helpers.map(|(name, shared)| (name, call::HELPER_THREADS, shared)));
        }
    }
    table.sort();
    table.dedup();
    table
}

/// Sizes of the structs that kernels take, by name: for tests.
pub fn argument_sizes() -> Vec<(&'static str, usize)> {
    arguments::sizes()
}
