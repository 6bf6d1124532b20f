//! The images that are known: a number for each (digest, length), for as long as somebody uses it.
//!
//! Equality of images is equality of digest and length; the number only stands for them. A number
//! is given out again when no position of the index and no sequence holds it, so the counts must be
//! exact: `check` of the cache compares them with a recount.
use super::keys;
use super::list::{Item, TokenKind};
use crate::error::Error;
use crate::error::text;
use crate::memory::{OrderedMap, Slab, try_filled};
use sha2::{Digest, Sha256};

/// Digest and length: what makes two images the same.
pub(super) type Content = ([u8; 16], u32);

/// The digest of an image: the first 16 bytes of SHA-256.
pub fn image_digest(bytes: &[u8]) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    first
}

/// No number: the end of the list of free ones.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    content: Content,
    /// The number that is free after this one, while this one is.
    next: u32,
    /// Positions in the index, and holds of sequences, fewer than 2^64 by far. Zero: the number is
    /// free.
    uses: u64,
}

/// Interned images. An ordered map, since a hash map would stop the scheduler to rehash; and in
/// chunks, since a list that grows moves.
#[derive(Debug)]
pub struct Images {
    numbers: OrderedMap<Content, u32>,
    /// By number; none is ever taken out.
    entries: Slab<Entry>,
    /// Free numbers: the one that is free longest, which is taken first, and the last one.
    free: u32,
    last_free: u32,
}

impl Default for Images {
    fn default() -> Self {
        let (numbers, entries) = Default::default();
        Self { numbers, entries, free: NONE, last_free: NONE }
    }
}

impl Images {
    /// Different images in use.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether no image is in use.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        self.numbers.bytes() + self.entries.bytes()
    }

    /// The key of an image that is known.
    pub fn find(&self, digest: [u8; 16], positions: u32) -> Option<u32> {
        self.numbers.get(&(digest, positions)).map(|&number| keys::image(number))
    }

    /// Digest and positions of an image that is known.
    pub(super) fn content(&self, number: u32) -> Option<Content> {
        let entry = self.entries.get(number).filter(|entry| entry.uses > 0);
        entry.map(|entry| entry.content)
    }

    /// The key of an image, which is known from now on.
    pub fn hold(&mut self, digest: [u8; 16], positions: u32) -> Result<u32, Error> {
        if let Some(key) = self.hold_known(digest, positions) {
            return Ok(key);
        }
        let content = (digest, positions);
        if self.free == NONE && self.entries.len() as u32 >= keys::IMAGE_LIMIT {
            return Err(Error::memory("another image number"));
        }
        self.numbers.try_reserve(1)?;
        let entry = Entry { content, next: NONE, uses: 1 };
        let number = if self.free == NONE {
            self.entries.try_reserve(1)?;
            self.entries.insert(entry)
        } else {
            let number = self.free;
            self.free = std::mem::replace(&mut self.entries[number], entry).next;
            number
        };
        self.numbers.insert(content, number);
        Ok(keys::image(number))
    }

    /// The key of an image that is known, and stays known until it is released.
    pub fn hold_known(&mut self, digest: [u8; 16], positions: u32) -> Option<u32> {
        let &number = self.numbers.get(&(digest, positions))?;
        self.entries[number].uses += 1;
        Some(keys::image(number))
    }

    /// Takes a number back, for its turn after those that are free already.
    #[cold]
    fn put_back(&mut self, number: u32) {
        self.numbers.remove(&self.entries[number].content);
        self.entries[number].next = NONE;
        if self.free == NONE {
            self.free = number;
        } else {
            self.entries[self.last_free].next = number;
        }
        self.last_free = number;
    }

    /// Holds the images of a list, all or none, and gives their keys in order; undo with `release`.
    #[inline(always)]
    pub fn hold_all(&mut self, items: &[Item]) -> Result<Vec<u32>, Error> {
        let mut held = Vec::new();
        for item in items {
            if let TokenKind::Image { digest, positions } = item.kind {
                let room = held.try_reserve(1).map_err(|_| Error::memory("keys of images"));
                match room.and_then(|()| self.hold(digest, positions)) {
                    Ok(key) => held.push(key),
                    Err(error) => {
                        self.release(&held);
                        return Err(error);
                    }
                }
            }
        }
        Ok(held)
    }

    /// Counts the image positions among keys that entered the index.
    pub fn add_uses(&mut self, keys: &[u32]) {
        for number in keys.iter().filter_map(|&key| keys::image_number(key)) {
            self.entries[number].uses += 1;
        }
    }

    /// Takes back what `add_uses` of the same keys counted, or `hold_all`.
    #[inline(always)]
    pub fn release(&mut self, keys: &[u32]) {
        for number in keys.iter().filter_map(|&key| keys::image_number(key)) {
            let entry = &mut self.entries[number];
            entry.uses -= 1;
            if entry.uses == 0 {
                self.put_back(number);
            }
        }
    }

    /// Compares the counts with a recount of all keys that hold images.
    pub fn check(&self, keys: impl Iterator<Item = u32>) -> Result<(), Error> {
        let mut counted = try_filled(0, self.entries.len())?;
        for number in keys.filter_map(keys::image_number) {
            counted[number as usize] += 1;
        }
        for (number, (entry, counted)) in self.entries.iter().zip(counted).enumerate() {
            if entry.uses != counted {
                return Err(Error::Corrupt(text!(
                    "image_uses: image {number} counts {} uses, {counted} exist",
                    entry.uses
                )));
            }
        }
        Ok(())
    }
}
