//! What is written beside a snapshot's bytes: all that makes it an entry again after a restart.
use crate::memory::{OutOfMemory, TryGrow, try_to_vec};
use crate::snapshot::NewSnapshot;
use crate::snapshot::spot::{Exact, Spot};
use crate::token::all_text;
use crate::tree::{NAMESPACE_WORDS, Namespace};
use smallvec::SmallVec;

/// What a note begins with, and its version.
const MAGIC: u32 = u32::from_le_bytes(*b"rkn2");
/// Words before those of varying number: magic, flags, next token, parts, tokens. The namespace, if
/// it has a name, parts and tokens follow.
const HEAD: usize = 5;

/// In the flags: there is a next token; the entry can be trimmed; the namespace has a name.
const HAS_NEXT: u32 = 1;
const TRIMMABLE: u32 = 2;
const HAS_NAME: u32 = 4;

/// Bytes of each part of a state; few have more than two.
pub(super) type Sizes = SmallVec<[u64; 2]>;

/// A copy.
pub(super) fn sizes(parts: &[u64]) -> Result<Sizes, OutOfMemory> {
    let mut copy = Sizes::new();
    copy.try_reserve_exact(parts.len()).map_err(|_| OutOfMemory)?;
    copy.extend_from_slice(parts);
    Ok(copy)
}

/// An entry without its state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) namespace: Namespace,
    pub(super) tokens: Vec<u32>,
    pub(super) next_token: Option<u32>,
    pub(super) is_trimmable: bool,
    /// Bytes of each part of the state.
    pub(super) parts: Sizes,
}

impl Note {
    pub(super) fn new(new: &NewSnapshot<'_>, parts: &[u64]) -> Result<Self, OutOfMemory> {
        let NewSnapshot { namespace, tokens, next_token, is_trimmable, .. } = *new;
        let (tokens, parts) = (try_to_vec(tokens)?, sizes(parts)?);
        Ok(Self { namespace: *namespace, tokens, next_token, is_trimmable, parts })
    }

    /// The entry, of which an index counts so many bytes.
    pub(super) fn entry(&self, bytes: u64) -> NewSnapshot<'_> {
        let Self { namespace, tokens, next_token, is_trimmable, .. } = self;
        let (next_token, is_trimmable) = (*next_token, *is_trimmable);
        NewSnapshot { namespace, tokens, bytes, next_token, is_trimmable }
    }

    /// Its list, which leads to a spot or did.
    pub(super) fn list(&self, spot: Spot) -> Exact<'_> {
        Exact { namespace: &self.namespace, tokens: &self.tokens, spot }
    }

    /// Bytes of the state.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, &part| sum.saturating_add(part))
    }

    /// Bytes of the note as it is written.
    pub(super) fn encoded_len(&self) -> usize {
        4 * (HEAD + self.name_words() + 2 * self.parts.len() + self.tokens.len())
    }

    fn name_words(&self) -> usize {
        if self.namespace.is_default() { 0 } else { NAMESPACE_WORDS }
    }

    pub(super) fn encode(&self) -> Result<Box<[u8]>, OutOfMemory> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.encoded_len())?;
        let mut put = |word: u32| bytes.extend_from_slice(&word.to_le_bytes());
        put(MAGIC);
        let has_name = self.name_words() > 0;
        let flags = [
            (self.next_token.is_some(), HAS_NEXT),
            (self.is_trimmable, TRIMMABLE),
            (has_name, HAS_NAME),
        ];
        put(flags.into_iter().map(|(is_set, flag)| is_set as u32 * flag).sum());
        put(self.next_token.unwrap_or(0));
        put(self.parts.len() as u32);
        put(self.tokens.len() as u32);
        if has_name {
            self.namespace.words().into_iter().for_each(&mut put);
        }
        for part in &self.parts {
            put(*part as u32);
            put((part >> 32) as u32);
        }
        let at = bytes.len();
        bytes.resize(at + 4 * self.tokens.len(), 0);
        let (into, _) = bytes[at..].as_chunks_mut::<4>();
        // In one piece: of a long list it is nearly all.
        into.iter_mut().zip(&self.tokens).for_each(|(into, id)| *into = id.to_le_bytes());
        Ok(bytes.into_boxed_slice())
    }

    /// The note that was written so. `None` if it was not written by this version, or is none at
    /// all: bytes from outside.
    /// Memory of `spare`, whose tokens are of no use any more, may be its own.
    pub(super) fn decode(bytes: &[u8], spare: Vec<u32>) -> Result<Option<Self>, OutOfMemory> {
        let word = |four: &[u8]| u32::from_le_bytes(four.try_into().expect("four bytes"));
        let (words, tail) = bytes.as_chunks::<4>();
        if words.len() < HEAD || !tail.is_empty() || word(&words[0]) != MAGIC {
            return Ok(None);
        }
        let (head, rest) = words.split_at(HEAD);
        let [flags, next, parts, tokens] = std::array::from_fn(|at| word(&head[1 + at]));
        let has_name = flags & HAS_NAME != 0;
        let name_words = if has_name { NAMESPACE_WORDS } else { 0 };
        let (parts, tokens) = (parts as usize, tokens as usize);
        if flags > HAS_NEXT + TRIMMABLE + HAS_NAME || rest.len() != name_words + 2 * parts + tokens
        {
            return Ok(None);
        }
        let (name, rest) = rest.split_at(name_words);
        let mut namespace = Namespace::default();
        if has_name {
            let mut space = [0; NAMESPACE_WORDS];
            space.iter_mut().zip(name).for_each(|(into, four)| *into = word(four));
            namespace = Namespace::from_words(&space);
            if namespace.is_default() || namespace.words() != space {
                return Ok(None);
            }
        }
        let (words, ids) = rest.split_at(2 * parts);
        let mut parts = Sizes::new();
        parts.try_reserve_exact(words.len() / 2).map_err(|_| OutOfMemory)?;
        for pair in words.chunks_exact(2) {
            parts.push(word(&pair[0]) as u64 | (word(&pair[1]) as u64) << 32);
        }
        let mut tokens = spare;
        tokens.clear();
        tokens.try_extend(ids.iter().map(|four| word(four)))?;
        let next_token = (flags & HAS_NEXT != 0).then_some(next);
        let is_trimmable = flags & TRIMMABLE != 0;
        let is_entry = !tokens.is_empty() && all_text(&tokens);
        Ok(is_entry.then_some(Self { namespace, tokens, next_token, is_trimmable, parts }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Note {
        let namespace = Namespace { lora: Some(7), epoch: 9, salt: [3; 32], image: Some([5; 16]) };
        let parts = smallvec::smallvec![0, 1, u64::MAX, 5_000_000_000];
        let tokens = vec![1, 2, 3, 0];
        Note { namespace, tokens, next_token: Some(0), is_trimmable: true, parts }
    }

    #[test]
    fn a_note_comes_back_as_it_was() {
        let nameless = Note { namespace: Namespace::default(), ..note() };
        for note in [note(), nameless] {
            let bytes = note.encode().unwrap();
            assert_eq!(bytes.len(), note.encoded_len());
            assert_eq!(Note::decode(&bytes, vec![]), Ok(Some(note)));
        }
    }

    #[test]
    fn bytes_that_are_no_note_are_none() {
        let bytes = note().encode().unwrap();
        for length in 0..bytes.len() {
            assert_eq!(Note::decode(&bytes[..length], vec![]), Ok(None), "{length} bytes");
        }
        // Numbers of parts and tokens that the bytes don't have, and a flag that is none.
        for at in [0, 4, 5, 4 * (HEAD - 1), 4 * (HEAD - 2), 4 * HEAD] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x7e;
            assert_eq!(Note::decode(&bytes, vec![]), Ok(None), "byte {at}");
        }
    }
}
