//! Attention over the rows of a page table: KV memory, and a backend that computes.
//!
//! ```text
//!   Runner ── KvMemory      the layers' K and V, its own or the engine's
//!     │    └─ backend       writes K and V, attends, copies pages
//!     └────── OfPlan        what it derives from the steps of each plan that it computes
//! ```
//!
//! A runner computes the layers of one group, and any plan over the rows of its page table. So two
//! of them, for layers of different shapes or of different groups, compute one step of one plan.
//!
//! On a GPU a call puts work on the engine's stream and returns; a plan's arrays and the copies
//! that its sequences wait for go with the first call of a step.
mod backend;
mod branch;
mod compute;
mod memory;
mod prepare;
mod tier;

pub use backend::BackendConfig;
pub use branch::Branch;
pub use compute::{LayerStep, States, Strides};
pub use memory::KvPointers;
pub use tier::TierCopy;

use crate::attention::{Dtype, Geometry, KvLayout, View};
use crate::error::Error;
use crate::error::text;
use crate::group::{GroupConfig, GroupKind};
use crate::memory::Arc;
use crate::plan::Ties;
use crate::store::Shared;
use backend::Backend;
use memory::KvMemory;

/// How to build a runner.
#[derive(Debug, Clone, Copy)]
pub struct RunnerConfig {
    /// The group whose layers it computes.
    pub group: usize,
    /// Layers of the model.
    pub layers: usize,
    /// Heads of a query.
    pub query_heads: usize,
    /// Heads of K and V; divides `query_heads`.
    pub kv_heads: usize,
    /// Elements of a head of q and k.
    pub head_dim: usize,
    /// Elements of a head of v and of the result.
    pub v_head_dim: usize,
    /// Of q, k, v and out.
    pub dtype: Dtype,
    /// Of K and V in memory.
    pub kv_dtype: Dtype,
    /// Of memory of its own.
    pub kv_layout: KvLayout,
    /// The same bits for a row whatever else is computed, and by however many threads.
    pub batch_invariant: bool,
    /// V of a position is the first `v_head_dim` elements of its K: memory has K alone. What
    /// multi-head latent attention caches, when the up-projections are absorbed into q and out.
    pub latent: bool,
}

impl RunnerConfig {
    /// The shapes for a page size.
    pub fn geometry(&self, page_size: usize) -> Geometry {
        Geometry {
            query_heads: self.query_heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            v_head_dim: self.v_head_dim,
            page_size,
        }
    }

    /// Whether a backend can do it, here and now.
    pub fn supports(&self, page_size: usize, backend: &BackendConfig) -> Result<(), Error> {
        self.check(page_size, backend)?;
        backend.supports(self, &self.geometry(page_size))
    }

    /// The same as far as making the backend does not tell by itself.
    pub fn check(&self, page_size: usize, backend: &BackendConfig) -> Result<(), Error> {
        let limits = [
            (self.layers, 1 << 16, "layer_count"),
            (self.query_heads, 1 << 16, "query_head_count"),
            (self.kv_heads, 1 << 16, "kv_head_count"),
        ];
        for (value, limit, name) in limits {
            if !(1..=limit).contains(&value) {
                return Err(Error::argument(text!("config.{name} {value} is not in 1..={limit}")));
            }
        }
        if !self.query_heads.is_multiple_of(self.kv_heads) {
            return Err(Error::argument(text!(
                "config.kv_head_count {} does not divide query_head_count {}",
                self.kv_heads,
                self.query_heads
            )));
        }
        if self.latent && self.v_head_dim > self.head_dim {
            return Err(Error::argument(text!(
                "config.v_head_dim {} is more than head_dim {}, of which V is the beginning",
                self.v_head_dim,
                self.head_dim
            )));
        }
        backend.check(&self.geometry(page_size), self.latent, self.dtype, self.kv_dtype)
    }

    /// Whether a backend can do it for a group of a page table, which is returned.
    pub fn check_over(
        &self,
        shared: &Shared,
        backend: &BackendConfig,
    ) -> Result<GroupConfig, Error> {
        shared.check_own_pool()?;
        let (groups, page_size) = {
            let state = shared.read();
            (state.groups(), state.page_table_stats().page_size)
        };
        let (at, list) = (self.group, groups.list());
        let Some(&group) = list.get(at) else {
            let count = list.len();
            return Err(Error::argument(text!(
                "config.group {at} is not one of the {count} there are"
            )));
        };
        if group.kind == GroupKind::State {
            return Err(Error::argument(text!(
                "config.group {at} is a STATE group: its pages hold no K and V"
            )));
        }
        self.check(page_size, backend)?;
        backend.supports_view(view_of(group.kind))?;
        Ok(group)
    }

    /// Bytes of one page, K and V of all layers together, when it lies densely.
    pub fn page_bytes(&self, page_size: usize) -> usize {
        let v_head_dim = if self.latent { 0 } else { self.v_head_dim };
        let elements = page_size * self.kv_heads * (self.head_dim + v_head_dim);
        self.layers * elements * self.kv_dtype.bytes()
    }
}

/// Attention over the rows of one group of a page table.
#[derive(Debug)]
pub struct Runner {
    /// Cut before anything else goes.
    ties: Ties,
    shared: Arc<Shared>,
    config: RunnerConfig,
    group: GroupConfig,
    geometry: Geometry,
    memory: KvMemory,
    backend: Backend,
}

impl Runner {
    /// A runner with KV memory of its own, zeroed.
    pub fn new(
        shared: Arc<Shared>,
        config: RunnerConfig,
        backend: impl Into<BackendConfig>,
    ) -> Result<Arc<Self>, Error> {
        Self::build(shared, config, backend.into(), KvMemory::allocate)
    }

    /// A runner over the engine's memory.
    ///
    /// # Safety
    /// For as long as the runner lives, each layer's `k` and `v` lead to memory for every page of
    /// the page table, with these strides, that nobody writes while a call reads or writes it.
    pub unsafe fn over(
        shared: Arc<Shared>,
        config: RunnerConfig,
        backend: impl Into<BackendConfig>,
        layers: &[KvPointers],
    ) -> Result<Arc<Self>, Error> {
        Self::build(shared, config, backend.into(), |config, geometry, pages, backend| {
            KvMemory::borrow(config, geometry, pages, backend, layers)
        })
    }

    fn build(
        shared: Arc<Shared>,
        config: RunnerConfig,
        backend: BackendConfig,
        memory: impl FnOnce(&RunnerConfig, &Geometry, usize, &Backend) -> Result<KvMemory, Error>,
    ) -> Result<Arc<Self>, Error> {
        let group = config.check_over(&shared, &backend)?;
        let (page_size, pages) = {
            let state = shared.read();
            (state.page_table_stats().page_size, state.pool_stats(group.pool)?.total)
        };
        let geometry = config.geometry(page_size);
        let view = view_of(group.kind);
        let backend = Backend::new(backend, &config, geometry, view)?;
        let memory = memory(&config, &geometry, pages + 1, &backend)?;
        let ties = Ties::default();
        Ok(Arc::new(Self { ties, shared, config, group, geometry, memory, backend })?)
    }

    /// What it stands on.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// How it was built.
    pub fn config(&self) -> &RunnerConfig {
        &self.config
    }

    /// Threads of the host that compute.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Where K and V of a layer lie.
    pub fn kv(&self, layer: usize) -> Result<KvPointers, Error> {
        self.check_layer(layer)?;
        Ok(self.memory.pointers(layer))
    }

    /// The group whose layers it computes.
    pub fn group(&self) -> GroupConfig {
        self.group
    }

    /// Bytes of KV memory of its own.
    pub fn own_bytes(&self) -> usize {
        self.memory.own_bytes()
    }

    /// Bytes of a page that lies densely.
    pub fn page_bytes(&self) -> usize {
        self.config.page_bytes(self.geometry.page_size)
    }

    fn check_layer(&self, layer: usize) -> Result<(), Error> {
        if layer >= self.config.layers {
            let layers = self.config.layers;
            return Err(Error::argument(text!("layer {layer} is not below layer_count {layers}")));
        }
        Ok(())
    }
}

/// How far back the queries of a group see.
fn view_of(kind: GroupKind) -> View {
    match kind {
        GroupKind::Full | GroupKind::State => View::default(),
        GroupKind::Window { window, sinks } => {
            View { window: Some(window), sinks, ..View::default() }
        }
        GroupKind::Chunk { chunk } => View { chunk: Some(chunk), ..View::default() },
    }
}
