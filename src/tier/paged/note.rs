//! What is written beside a page's bytes: all that makes it a record again after a restart.
use super::map::Name;
use crate::group::GROUP_LIMIT;
use crate::index::{NAMESPACE_WORDS, Namespace};
use crate::memory::OutOfMemory;
use crate::token::PageDigest;

/// What a note begins with, and its version.
const MAGIC: u32 = u32::from_le_bytes(*b"rkp1");
const WORDS: usize = 5 + NAMESPACE_WORDS + 16;

/// Bytes of a note.
pub(super) const NOTE_BYTES: usize = 4 * WORDS;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub namespace: Namespace,
    pub name: Name,
    /// The page before it.
    pub parent: Option<PageDigest>,
    /// Of the page's bytes.
    pub checksum: u64,
}

impl Note {
    pub fn encode(&self) -> Result<Box<[u8]>, OutOfMemory> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(NOTE_BYTES)?;
        let mut put = |word: u32| bytes.extend_from_slice(&word.to_le_bytes());
        put(MAGIC);
        put(u32::from(self.name.group));
        put(self.parent.is_some() as u32);
        put(self.checksum as u32);
        put((self.checksum >> 32) as u32);
        self.namespace.words().into_iter().for_each(put);
        bytes.extend_from_slice(&self.name.digest.0);
        bytes.extend_from_slice(&self.parent.unwrap_or_default().0);
        Ok(bytes.into_boxed_slice())
    }

    /// The note that was written so; none if it was not written by this version: bytes from
    /// outside.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        if words.len() != WORDS || !rest.is_empty() {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes(words[at]);
        let mut space = [0; NAMESPACE_WORDS];
        for (at, into) in space.iter_mut().enumerate() {
            *into = word(5 + at);
        }
        let namespace = Namespace::from_words(&space);
        let digest = |from: usize| {
            PageDigest(bytes[from..from + 32].try_into().expect("there are so many bytes"))
        };
        let [group, has_parent] = [word(1), word(2)];
        let is_ours = word(0) == MAGIC && group < GROUP_LIMIT as u32 && has_parent <= 1;
        let parent = digest(NOTE_BYTES - 32);
        (is_ours && namespace.words() == space).then(|| Self {
            namespace,
            name: Name { digest: digest(NOTE_BYTES - 64), group: group as u8 },
            parent: (has_parent == 1).then_some(parent),
            checksum: u64::from(word(3)) | u64::from(word(4)) << 32,
        })
    }
}

/// From a note, the name of its page and that of the page without which nobody can fetch it: the
/// one before it, or of another group the one of the first group that it hangs on.
pub(crate) fn chain(note: &[u8]) -> Option<(Name, Option<Name>)> {
    let Note { name, parent, .. } = Note::decode(note)?;
    let needed = if name.group == 0 { parent } else { Some(name.digest) };
    Some((name, needed.map(|digest| Name { digest, group: 0 })))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Of a page that goes on from another one.
    pub(crate) fn note_of(page: u8, parent: Option<u8>) -> Box<[u8]> {
        let digest = |page| PageDigest([page; 32]);
        let name = Name { digest: digest(page), group: 0 };
        let (namespace, parent) = (Namespace::default(), parent.map(digest));
        Note { namespace, name, parent, checksum: 0 }.encode().unwrap()
    }

    /// Of a page of another group, which hangs on that one.
    pub(crate) fn note_beside(page: u8) -> Box<[u8]> {
        let name = Name { digest: PageDigest([page; 32]), group: 1 };
        Note { namespace: Namespace::default(), name, parent: None, checksum: 0 }.encode().unwrap()
    }

    /// T07: whatever keeps prefixes apart comes back from the disk; what is no note is none.
    #[test]
    fn t07_a_note_comes_back_as_it_was() {
        let namespace = Namespace { lora: Some(7), epoch: 9, salt: [3; 32], image: Some([5; 16]) };
        for parent in [None, Some(PageDigest([4; 32]))] {
            let name = Name { digest: PageDigest([8; 32]), group: 0 };
            let note = Note { namespace, name, parent, checksum: u64::MAX - 5 };
            let mut bytes = note.encode().unwrap();
            assert_eq!(bytes.len(), NOTE_BYTES);
            assert_eq!(Note::decode(&bytes), Some(note));
            assert_eq!(Note::decode(&bytes[4..]), None);
            for at in [0, 4, 8] {
                bytes[at] ^= 0x7e;
                assert_eq!(Note::decode(&bytes), None);
                bytes[at] ^= 0x7e;
            }
        }
    }
}
