//! The images that are known: a number for each (digest, length), for as long as somebody uses it.
//!
//! Equality of images is equality of digest and length; the number only stands for them. A number
//! is given out again when no position of the index and no sequence holds it, so the counts must be
//! exact: `check` of the cache compares them with a recount.
use super::keys;
use super::list::{Item, TokenKind};
use crate::error::Error;
use crate::error::text;
use std::collections::{BTreeMap, VecDeque};

/// Digest and length: what makes two images the same.
pub(super) type Content = ([u8; 16], u32);

#[derive(Debug)]
struct Entry {
    content: Content,
    /// Positions in the index, and holds of sequences. Zero: the number is free.
    uses: u64,
}

/// Interned images. Ordered maps, since a hash map would stop the scheduler to rehash.
#[derive(Debug, Default)]
pub struct Images {
    numbers: BTreeMap<Content, u32>,
    entries: Vec<Entry>,
    /// Free numbers, the longest free first.
    free: VecDeque<u32>,
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

    /// The key of an image that is known.
    pub fn find(&self, digest: [u8; 16], positions: u32) -> Option<u32> {
        self.numbers.get(&(digest, positions)).map(|&number| keys::image(number))
    }

    /// Digest and positions of an image that is known.
    pub(super) fn content(&self, number: u32) -> Option<Content> {
        let entry = self.entries.get(number as usize).filter(|entry| entry.uses > 0);
        entry.map(|entry| entry.content)
    }

    /// The key of an image, which is known from now on.
    fn hold(&mut self, digest: [u8; 16], positions: u32) -> Result<u32, Error> {
        let content = (digest, positions);
        if let Some(&number) = self.numbers.get(&content) {
            self.entries[number as usize].uses += 1;
            return Ok(keys::image(number));
        }
        let entry = Entry { content, uses: 1 };
        let number = match self.free.pop_front() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None if self.entries.len() < keys::IMAGE_LIMIT as usize => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
            None => return Err(Error::memory("another image number")),
        };
        self.numbers.insert(content, number);
        Ok(keys::image(number))
    }

    /// Holds the images of a list, all or none, and gives their keys in order; undo with `release`.
    pub fn hold_all(&mut self, items: &[Item]) -> Result<Vec<u32>, Error> {
        let mut held = Vec::new();
        for item in items {
            if let TokenKind::Image { digest, positions } = item.kind {
                match self.hold(digest, positions) {
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
            self.entries[number as usize].uses += 1;
        }
    }

    /// Takes back what `add_uses` of the same keys counted, or `hold_all`.
    pub fn release(&mut self, keys: &[u32]) {
        for number in keys.iter().filter_map(|&key| keys::image_number(key)) {
            let entry = &mut self.entries[number as usize];
            entry.uses -= 1;
            if entry.uses == 0 {
                self.numbers.remove(&entry.content);
                self.free.push_back(number);
            }
        }
    }

    /// Compares the counts with a recount of all keys that hold images.
    pub fn check(&self, keys: impl Iterator<Item = u32>) -> Result<(), Error> {
        let mut counted = vec![0; self.entries.len()];
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
