//! What computes: the processor or a GPU.
use super::RunnerConfig;
use crate::attention::{Dtype, Geometry, View};
use crate::cpu::{CpuBackend, Isa, Threads};
use crate::error::Error;
use crate::gpu::{CudaBackend, CudaConfig, Stream};
use crate::memory::try_box;

/// Which backend a runner shall have.
pub enum BackendConfig {
    /// The processor, with these threads.
    Cpu(Threads),
    /// An NVIDIA GPU.
    Cuda(CudaConfig),
}

impl From<Threads> for BackendConfig {
    fn from(threads: Threads) -> Self {
        Self::Cpu(threads)
    }
}

impl From<CudaConfig> for BackendConfig {
    fn from(config: CudaConfig) -> Self {
        Self::Cuda(config)
    }
}

impl BackendConfig {
    /// Whether it can do this for queries that see so far back.
    pub(super) fn supports_view(&self, view: View) -> Result<(), Error> {
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Cuda(_) => CudaBackend::supports_view(view),
        }
    }

    /// Whether it can do this, here and now, as far as making it does not tell by itself.
    pub(super) fn check(
        &self,
        geometry: &Geometry,
        latent: bool,
        dtype: Dtype,
        kv_dtype: Dtype,
    ) -> Result<(), Error> {
        match self {
            Self::Cpu(_) => CpuBackend::supports(geometry, dtype, kv_dtype),
            Self::Cuda(config) => CudaBackend::check(config, geometry, latent, dtype, kv_dtype),
        }
    }

    /// Whether it can do this, here and now.
    pub(super) fn supports(&self, runner: &RunnerConfig, geometry: &Geometry) -> Result<(), Error> {
        let RunnerConfig { dtype, kv_dtype, batch_invariant, latent, .. } = *runner;
        match self {
            Self::Cpu(_) => {
                CpuBackend::supports(geometry, dtype, kv_dtype)?;
                Isa::chosen().map(drop)
            }
            Self::Cuda(config) => {
                let dtypes = (dtype, kv_dtype);
                CudaBackend::supports(config, geometry, latent, dtypes, batch_invariant)
            }
        }
    }
}

/// What a runner computes with.
#[derive(Debug)]
pub(super) enum Backend {
    Cpu(CpuBackend),
    Cuda(Box<CudaBackend>),
}

impl Backend {
    pub(super) fn new(
        config: BackendConfig,
        runner: &RunnerConfig,
        geometry: Geometry,
        view: View,
    ) -> Result<Self, Error> {
        let RunnerConfig { dtype, kv_dtype, batch_invariant, latent, .. } = *runner;
        Ok(match config {
            BackendConfig::Cpu(threads) => Self::Cpu(CpuBackend::new(threads)?),
            BackendConfig::Cuda(config) => {
                let dtypes = (dtype, kv_dtype);
                let made = CudaBackend::new(&config, geometry, latent, dtypes, batch_invariant)?;
                Self::Cuda(try_box(made.with_view(view))?)
            }
        })
    }

    /// Whether what is put on a stream goes to a graph instead.
    pub(super) fn is_captured(&self, stream: Stream) -> Result<bool, Error> {
        match self {
            Self::Cpu(_) => Ok(false),
            Self::Cuda(cuda) => cuda.is_captured(stream),
        }
    }

    /// Threads of the host that compute.
    pub(super) fn threads(&self) -> usize {
        match self {
            Self::Cpu(cpu) => cpu.threads(),
            Self::Cuda(_) => 0,
        }
    }
}
