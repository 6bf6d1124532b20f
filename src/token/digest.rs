//! Content digests of images.
use sha2::{Digest, Sha256};

/// The first 16 bytes of SHA-256.
pub fn image_digest(bytes: &[u8]) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    first
}
