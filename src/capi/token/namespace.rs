//! What keeps prefixes of different adapters, images, tenants and weights apart.
use crate::capi::ffi::{AbiElement, AbiStruct, Fail, check_flags, read_struct};
use crate::error::Error;
use crate::index::{DEFAULT_NAMESPACE, Namespace};

/// Flag of rkv_namespace: lora_id is set. Without it the namespace is the base model's.
pub const RKV_NAMESPACE_LORA: u32 = 1;
/// Flag of rkv_namespace: image_digest is set.
pub const RKV_NAMESPACE_IMAGE: u32 = 2;

/// A namespace. Prefixes of different namespaces never share a page; two are the same when all
/// fields are. NULL in a call means the namespace with no flag and all zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_namespace {
    /// sizeof(rkv_namespace).
    pub struct_size: u32,
    /// RKV_NAMESPACE_ flags: which of the fields are set.
    pub flags: u32,
    /// LoRA adapter, any number, 0 included. Zero without RKV_NAMESPACE_LORA.
    pub lora_id: u64,
    /// Version of the weights or of the adapter; raise it when they change.
    pub epoch: u64,
    /// Digest of an image on which all KV depends, see rkv_image_digest(). Zero without
    /// RKV_NAMESPACE_IMAGE.
    pub image_digest: [u8; 16],
    /// What separates tenants, e.g. a digest of the tenant's name and a secret. Compared whole.
    pub salt: [u8; 32],
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_namespace {
    const NAME: &'static str = "space";
    const V1: usize = 72;
}
// SAFETY: as above.
unsafe impl AbiElement for rkv_namespace {
    const V1: usize = 72;

    fn sized(self, struct_size: u32) -> Self {
        Self { struct_size, ..self }
    }
}

/// A namespace for C.
pub(crate) fn namespace_of(namespace: &Namespace) -> rkv_namespace {
    let Namespace { lora, image, salt, epoch } = *namespace;
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    rkv_namespace {
        struct_size: 0,
        flags: flag(lora.is_some(), RKV_NAMESPACE_LORA)
            | flag(image.is_some(), RKV_NAMESPACE_IMAGE),
        lora_id: lora.unwrap_or(0),
        epoch,
        image_digest: image.unwrap_or([0; 16]),
        salt,
    }
}

/// The namespace behind a pointer; NULL is the default one.
///
/// # Safety
/// `namespace` is NULL or readable, per the header.
#[inline(always)] // the default one is made where it is used
pub(crate) unsafe fn read_namespace(namespace: *const rkv_namespace) -> Result<Namespace, Fail> {
    match namespace.is_null() {
        true => Ok(Namespace::default()),
        // SAFETY: the caller's contract.
        false => unsafe { read_named(namespace) },
    }
}

/// The same where it is, without a copy of the default one; another is read into `named`.
///
/// # Safety
/// As above.
#[inline(always)] // of every lookup
pub(crate) unsafe fn namespace_at(
    namespace: *const rkv_namespace,
    named: &mut Option<Namespace>,
) -> Result<&Namespace, Fail> {
    match namespace.is_null() {
        true => Ok(&DEFAULT_NAMESPACE),
        // SAFETY: the caller's contract.
        false => Ok(named.insert(unsafe { read_named(namespace)? })),
    }
}

/// The same of a pointer that isn't NULL.
///
/// # Safety
/// As above.
unsafe fn read_named(namespace: *const rkv_namespace) -> Result<Namespace, Fail> {
    // SAFETY: the caller's contract.
    let raw = unsafe { read_struct(namespace)? };
    check_flags(raw.flags, RKV_NAMESPACE_LORA | RKV_NAMESPACE_IMAGE, "space.flags")?;
    let lora = (raw.flags & RKV_NAMESPACE_LORA != 0).then_some(raw.lora_id);
    let image = (raw.flags & RKV_NAMESPACE_IMAGE != 0).then_some(raw.image_digest);
    if lora.is_none() && raw.lora_id != 0 {
        return Err(Error::argument("space.lora_id is set without its flag").into());
    }
    if image.is_none() && raw.image_digest != [0; 16] {
        return Err(Error::argument("space.image_digest is set without its flag").into());
    }
    Ok(Namespace { lora, image, salt: raw.salt, epoch: raw.epoch })
}
