//! What keeps prefixes apart that have equal tokens but different KV, or different owners.
use crate::token::PageDigest;
use sha2::{Digest, Sha256};

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

/// The default one, which most calls mean: it is known by its address.
pub(crate) static DEFAULT: Namespace =
    Namespace { lora: None, image: None, salt: [0; 32], epoch: 0 };

/// What the input of a namespace's digest begins with.
const MAGIC: [u8; 8] = *b"rkvname1";

/// Words that a namespace takes.
pub(crate) const WORDS: usize = 18;

impl Namespace {
    /// Whether it is the default one.
    pub fn is_default(&self) -> bool {
        let Self { lora, image, salt, epoch } = self;
        lora.is_none() && image.is_none() && *epoch == 0 && *salt == [0; 32]
    }

    /// Whether it is the default one, and known to be by its address.
    #[inline(always)]
    pub(super) fn is_known_default(&self) -> bool {
        std::ptr::eq(self, &DEFAULT)
    }

    /// The digest that stands before the first page: SHA-256 over the fields that are set, each
    /// with its number and its length, as `docs/block_hash.md` describes.
    pub fn digest(&self) -> PageDigest {
        let lora = self.lora.map(u64::to_le_bytes);
        let epoch = self.epoch.to_le_bytes();
        let fields: [Option<&[u8]>; 4] = [
            lora.as_ref().map(|bytes| &bytes[..]),
            self.image.as_ref().map(|bytes| &bytes[..]),
            (self.salt != [0; 32]).then_some(&self.salt[..]),
            (self.epoch != 0).then_some(&epoch[..]),
        ];
        let mut hash = Sha256::new_with_prefix(MAGIC);
        hash.update((fields.iter().flatten().count() as u32).to_le_bytes());
        for (number, bytes) in (1_u32..).zip(fields) {
            if let Some(bytes) = bytes {
                hash.update(number.to_le_bytes());
                hash.update((bytes.len() as u32).to_le_bytes());
                hash.update(bytes);
            }
        }
        PageDigest(hash.finalize().into())
    }

    /// The namespace as words; two are the same when their words are.
    pub(crate) fn words(&self) -> [u32; WORDS] {
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
    /// The namespace that has these words.
    pub(crate) fn from_words(words: &[u32; WORDS]) -> Self {
        let mut bytes = [0; 4 * WORDS];
        for (four, word) in bytes.chunks_exact_mut(4).zip(words) {
            four.copy_from_slice(&word.to_le_bytes());
        }
        let flag = |at: usize| bytes[at] != 0;
        let number = |at: usize| u64::from_le_bytes(part(&bytes, at));
        Self {
            lora: flag(0).then(|| number(4)),
            image: flag(12).then(|| part(&bytes, 16)),
            salt: part(&bytes, 32),
            epoch: number(64),
        }
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the length is N")
}
