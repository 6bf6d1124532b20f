//! Namespaces.
use std::ptr::null;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::c::*;

/// What separates prefixes that must not share pages: prefixes of different namespaces never meet,
/// and two namespaces are the same when all their fields are. Without fields it is the default
/// one, as None is. `radixkv.namespace_of()` makes one from an engine's extra keys.
///
/// lora_id: the adapter, any number below 2^64, 0 included; None for the base model.
/// epoch: version of the weights or of the adapter; raise it when they change.
/// image_digest: 16 bytes, see `image_digest()`, of an image on which all KV depends.
/// salt: 32 bytes that separate tenants, e.g. a digest of the tenant's name and a secret.
///
/// Raises ValueError for bytes of another length.
#[pyclass(frozen, eq, hash, module = "radixkv")]
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// The adapter, or None for the base model.
    #[pyo3(get)]
    lora_id: Option<u64>,
    /// Version of the weights or of the adapter.
    #[pyo3(get)]
    epoch: u64,
    digest: Option<[u8; 16]>,
    bytes: [u8; 32],
}

fn exactly<const N: usize>(bytes: &[u8], name: &str) -> PyResult<[u8; N]> {
    bytes.try_into().map_err(|_| {
        PyValueError::new_err(format!("{name}: {N} bytes are needed, {} are there", bytes.len()))
    })
}

#[pymethods]
impl Namespace {
    #[new]
    #[pyo3(signature = (*, lora_id=None, epoch=0, image_digest=None, salt=None))]
    fn new(
        lora_id: Option<u64>,
        epoch: u64,
        image_digest: Option<&[u8]>,
        salt: Option<&[u8]>,
    ) -> PyResult<Self> {
        let digest = image_digest.map(|bytes| exactly(bytes, "image_digest")).transpose()?;
        let bytes = salt.map(|bytes| exactly(bytes, "salt")).transpose()?.unwrap_or_default();
        Ok(Namespace { lora_id, epoch, digest, bytes })
    }

    /// 16 bytes, or None.
    #[getter]
    fn image_digest(&self) -> Option<&[u8]> {
        self.digest.as_ref().map(|digest| &digest[..])
    }

    /// 32 bytes, zero by default.
    #[getter]
    fn salt(&self) -> &[u8] {
        &self.bytes
    }

    /// For pickle and copy.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((), Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("lora_id", self.lora_id)?;
        named.set_item("epoch", self.epoch)?;
        named.set_item("image_digest", self.image_digest().map(|it| PyBytes::new(py, it)))?;
        named.set_item("salt", PyBytes::new(py, &self.bytes))?;
        Ok(((), named))
    }

    fn __repr__(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let digest = self.digest.map_or("None".into(), |digest| hex(&digest));
        let lora = self.lora_id.map_or("None".into(), |id| id.to_string());
        format!(
            "Namespace(lora_id={lora}, epoch={}, image_digest={digest}, salt={})",
            self.epoch,
            hex(&self.bytes)
        )
    }
}

impl Namespace {
    fn c(&self) -> rkv_namespace {
        let mut flags = 0;
        if self.lora_id.is_some() {
            flags |= RKV_NAMESPACE_LORA;
        }
        if self.digest.is_some() {
            flags |= RKV_NAMESPACE_IMAGE;
        }
        rkv_namespace {
            flags,
            lora_id: self.lora_id.unwrap_or(0),
            epoch: self.epoch,
            image_digest: self.digest.unwrap_or_default(),
            salt: self.bytes,
            ..rkv_namespace::sized()
        }
    }

    pub fn from_c(space: &rkv_namespace) -> Self {
        Namespace {
            lora_id: (space.flags & RKV_NAMESPACE_LORA != 0).then_some(space.lora_id),
            epoch: space.epoch,
            digest: (space.flags & RKV_NAMESPACE_IMAGE != 0).then_some(space.image_digest),
            bytes: space.salt,
        }
    }
}

/// An argument that is a namespace or None.
pub struct Space(Option<rkv_namespace>);

impl Space {
    #[inline]
    pub fn of(space: Option<&Bound<'_, Namespace>>) -> Space {
        Space(space.map(|space| space.get().c()))
    }

    #[inline]
    pub fn c(&self) -> *const rkv_namespace {
        self.0.as_ref().map_or(null(), |space| space)
    }

    pub fn namespace(&self) -> Namespace {
        self.0.as_ref().map_or_else(Namespace::default, Namespace::from_c)
    }
}

/// Namespaces that are cleared at once: what each of the chosen fields is; all without any.
#[derive(Clone, PartialEq, Eq)]
pub struct Scope {
    lora_id: Option<Option<u64>>,
    digest: Option<Option<[u8; 16]>>,
    bytes: Option<[u8; 32]>,
    epoch: Option<u64>,
}

impl Scope {
    /// RKV_CLEAR_ flags choose the fields.
    pub fn of(flags: u32, like: &Namespace) -> Scope {
        let has = |flag: u32| flags & flag != 0;
        Scope {
            lora_id: has(RKV_CLEAR_LORA).then_some(like.lora_id),
            digest: has(RKV_CLEAR_IMAGE).then_some(like.digest),
            bytes: has(RKV_CLEAR_SALT).then_some(like.bytes),
            epoch: has(RKV_CLEAR_EPOCH).then_some(like.epoch),
        }
    }

    pub fn covers(&self, space: &Namespace) -> bool {
        self.lora_id.is_none_or(|id| id == space.lora_id)
            && self.digest.is_none_or(|digest| digest == space.digest)
            && self.bytes.is_none_or(|bytes| bytes == space.bytes)
            && self.epoch.is_none_or(|epoch| epoch == space.epoch)
    }
}
