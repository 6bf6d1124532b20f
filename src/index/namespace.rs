//! What keeps prefixes apart that have equal tokens but different KV, or different owners.

/// A namespace. Two are the same when every field is; no hash decides it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Namespace {
    /// LoRA adapter; none is the base model.
    pub lora: Option<u64>,
    /// Digest of an image on which all KV depends.
    pub image: Option<[u8; 16]>,
    /// What separates tenants.
    pub salt: [u8; 32],
    /// Version of weights or adapter.
    pub epoch: u64,
}
