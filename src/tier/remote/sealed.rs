//! What a value looks like in the store, and what it is found by.
use super::super::Key;
use crate::token::PageDigest;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What the input of a key begins with, and its version.
const KEY_MAGIC: [u8; 8] = *b"rkvkey01";
/// What the input of a piece's key begins with.
const PIECE_MAGIC: [u8; 8] = *b"rkvpce01";
/// What a value begins with, and its version.
const MAGIC: [u8; 8] = *b"rkvval01";
/// Bytes before those of the page.
pub(super) const HEAD_BYTES: usize = 64;

/// What all keys of a cache have in common: for what model and layout, and how large its pages are.
#[derive(Debug, Clone)]
pub struct KeySpace(Sha256);

impl KeySpace {
    /// Of a fingerprint and pages of so many positions and bytes.
    pub fn new(fingerprint: &[u8; 32], page_size: usize, page_bytes: usize) -> Self {
        let mut hash = Sha256::new_with_prefix(KEY_MAGIC);
        hash.update(fingerprint);
        hash.update((page_size as u64).to_le_bytes());
        hash.update((page_bytes as u64).to_le_bytes());
        Self(hash)
    }

    /// The key of a page of a group. Tokens, all that stands before, and the namespace are in its
    /// digest.
    pub fn key(&self, group: u8, digest: &PageDigest) -> Key {
        let mut hash = self.0.clone();
        hash.update([group, 0, 0, 0, 0, 0, 0, 0]);
        hash.update(digest.0);
        hash.finalize().into()
    }
}

impl KeySpace {
    /// The key of a list that goes on after what a digest names.
    pub fn key_after(&self, digest: &PageDigest, tokens: &[u32]) -> Key {
        let mut hash = self.0.clone();
        hash.update([255, 0, 0, 0, 0, 0, 0, 0]);
        hash.update(digest.0);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        hash.finalize().into()
    }
}

/// The key of a piece of a large value.
pub(super) fn piece_key(head: &Key, id: &[u8; 16], index: usize) -> Key {
    let mut hash = Sha256::new_with_prefix(PIECE_MAGIC);
    hash.update(head);
    hash.update(id);
    hash.update((index as u64).to_le_bytes());
    hash.finalize().into()
}

/// The checksum of a value under a key.
fn checksum(key: &Key, body: &[u8]) -> u64 {
    let seed = u64::from_le_bytes(key[..8].try_into().expect("eight bytes"));
    xxh3_64_with_seed(body, seed)
}

fn head(key: &Key, body: &[u8]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..16].copy_from_slice(&(body.len() as u64).to_le_bytes());
    head[16..48].copy_from_slice(key);
    head[48..56].copy_from_slice(&checksum(key, body).to_le_bytes());
    let all = xxh3_64(&head[..56]);
    head[56..].copy_from_slice(&all.to_le_bytes());
    head
}

/// Writes the head of a value whose body is there already.
pub(super) fn seal(key: &Key, value: &mut [u8]) {
    let (into, body) = value.split_at_mut(HEAD_BYTES);
    into.copy_from_slice(&head(key, body));
}

/// The body of a value, if it is one that was sealed under this key, of a length.
pub(super) fn open<'a>(key: &Key, value: &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (found, body) = value.split_at_checked(HEAD_BYTES)?;
    (body.len() == bytes && found == head(key, body)).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T13: whatever changes in a value, it is none any more.
    #[test]
    fn t13_a_value_is_opened_as_it_was_sealed_and_under_its_key_alone() {
        let key = [7; 32];
        let mut value = vec![0; HEAD_BYTES];
        value.extend((0..100).map(|at| at as u8));
        seal(&key, &mut value);
        assert_eq!(open(&key, &value, 100), Some(&value[HEAD_BYTES..]));
        assert_eq!(open(&key, &value, 99), None);
        assert_eq!(open(&key, &value[..value.len() - 1], 99), None);
        assert_eq!(open(&key, &value[..value.len() - 1], 100), None);
        assert_eq!(open(&[8; 32], &value, 100), None);
        assert_eq!(open(&key, &[], 0), None);
        for at in 0..8 * value.len() {
            value[at / 8] ^= 1 << (at % 8);
            assert_eq!(open(&key, &value, 100), None, "bit {at}");
            value[at / 8] ^= 1 << (at % 8);
        }
    }

    /// T07: model, geometry, group and content each make another key.
    #[test]
    fn t07_whatever_differs_is_in_the_key() {
        let digest = PageDigest([3; 32]);
        let keys = [
            KeySpace::new(&[1; 32], 16, 4096).key(0, &digest),
            KeySpace::new(&[2; 32], 16, 4096).key(0, &digest),
            KeySpace::new(&[1; 32], 32, 4096).key(0, &digest),
            KeySpace::new(&[1; 32], 16, 8192).key(0, &digest),
            KeySpace::new(&[1; 32], 16, 4096).key(1, &digest),
            KeySpace::new(&[1; 32], 16, 4096).key(0, &PageDigest([4; 32])),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{at}");
        }
        assert_eq!(keys[0], KeySpace::new(&[1; 32], 16, 4096).key(0, &digest));
    }
}
