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

/// Words that a namespace takes.
pub(super) const WORDS: usize = 18;

impl Namespace {
    /// The namespace as words; two are the same when their words are.
    pub(super) fn words(&self) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            for four in bytes.chunks_exact(4) {
                words[at] = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
                at += 1;
            }
        };
        put(&(self.lora.is_some() as u32).to_le_bytes());
        put(&self.lora.unwrap_or(0).to_le_bytes());
        put(&(self.image.is_some() as u32).to_le_bytes());
        put(&self.image.unwrap_or([0; 16]));
        put(&self.salt);
        put(&self.epoch.to_le_bytes());
        words
    }
}
