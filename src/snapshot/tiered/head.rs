//! What stands before a state in a store that caches share, and what both are read into.
use super::note::{Note, Sizes};
use super::value::Loaded;
use crate::memory::{try_to_vec, try_zeros};
use crate::snapshot::Namespace;
use crate::tier::{Key, Target};
use std::any::Any;

/// Parts of a state that a head has room for.
pub(super) const PARTS: usize = 124;
/// Bytes of a head: what identifies the bytes, and the note.
pub(super) const HEAD: usize = 16 + NOTE;
const NOTE: usize = 16 + 8 * PARTS;
/// What a note begins with, and its version.
const MAGIC: u32 = u32::from_le_bytes(*b"rks1");
const HAS_NEXT: u32 = 1;
const TRIMMABLE: u32 = 2;
/// A head that is read.
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) key: Key,
    pub(super) bytes: Box<[u8]>,
}

/// A state that is read.
pub(super) struct Body {
    pub(super) number: u64,
    pub(super) state: Loaded,
}

impl Target for Head {
    fn parts(&self) -> usize {
        1
    }

    fn part(&mut self, _: usize) -> &mut [u8] {
        &mut self.bytes
    }

    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8])) {
        to(&mut self.bytes);
    }

    /// Who looks for a state goes on without it then.
    fn may_be_waited_for(&self) -> bool {
        false
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl Target for Body {
    fn parts(&self) -> usize {
        self.state.parts()
    }

    fn part(&mut self, index: usize) -> &mut [u8] {
        Target::part(&mut self.state, index)
    }

    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8])) {
        self.state.lend(to);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// The part of a head that is the cache's; none for a state of too many parts.
pub(super) fn encode(note: &Note) -> Option<Box<[u8]>> {
    if note.parts.len() > PARTS {
        return None;
    }
    let mut bytes = try_zeros::<u8>(NOTE).ok()?;
    let flags = note.next_token.is_some() as u32 * HAS_NEXT + note.is_trimmable as u32 * TRIMMABLE;
    let words = [MAGIC, flags, note.next_token.unwrap_or(0), note.parts.len() as u32];
    for (into, word) in bytes.chunks_exact_mut(4).zip(words) {
        into.copy_from_slice(&word.to_le_bytes());
    }
    for (into, part) in bytes[16..].chunks_exact_mut(8).zip(&note.parts) {
        into.copy_from_slice(&part.to_le_bytes());
    }
    Some(bytes.into_boxed_slice())
}

/// The note of a state of these tokens; none for bytes of another version.
pub(super) fn decode(bytes: &[u8], namespace: &Namespace, tokens: &[u32]) -> Option<Note> {
    let word = |at: usize| u32::from_le_bytes(bytes[4 * at..][..4].try_into().expect("four"));
    let [magic, flags, next, parts] = std::array::from_fn(word);
    let is_ours = magic == MAGIC && flags <= HAS_NEXT + TRIMMABLE && parts as usize <= PARTS;
    if !is_ours {
        return None;
    }
    let mut sizes = Sizes::new();
    sizes.try_reserve_exact(parts as usize).ok()?;
    for part in bytes[16..].chunks_exact(8).take(parts as usize) {
        sizes.push(u64::from_le_bytes(part.try_into().expect("eight")));
    }
    Some(Note {
        namespace: *namespace,
        tokens: try_to_vec(tokens).ok()?,
        next_token: (flags & HAS_NEXT != 0).then_some(next),
        is_trimmable: flags & TRIMMABLE != 0,
        parts: sizes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T13: what a head says comes back; bytes that are none of this version's say nothing.
    #[test]
    fn t13_a_head_says_what_it_was_given() {
        let namespace = Namespace { epoch: 9, ..Namespace::default() };
        let sizes = |count: u64| (0..count).map(|at| at << 33).collect::<Sizes>();
        for (next_token, is_trimmable) in [(None, true), (Some(0), false), (Some(7), true)] {
            for parts in [sizes(0), sizes(1), sizes(PARTS as u64)] {
                let note = Note { namespace, tokens: vec![1, 2], next_token, is_trimmable, parts };
                let mut bytes = encode(&note).unwrap();
                assert_eq!(bytes.len(), NOTE);
                assert_eq!(decode(&bytes, &namespace, &[1, 2]), Some(note));
                for at in [0, 5, 13] {
                    bytes[at] ^= 0x80;
                    assert_eq!(decode(&bytes, &namespace, &[1, 2]), None, "byte {at}");
                    bytes[at] ^= 0x80;
                }
            }
        }
        let parts = sizes(PARTS as u64 + 1);
        let many =
            Note { namespace, tokens: vec![1], next_token: None, is_trimmable: false, parts };
        assert_eq!(encode(&many), None);
    }
}
