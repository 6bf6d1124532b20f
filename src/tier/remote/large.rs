//! Values that are larger than a call should carry: pieces, and a head that names them.
//!
//! The head has an identity of the bytes, and so have the keys of the pieces: two who write
//! different bytes under one key never mix them. It is written after the pieces, so who finds it
//! finds those, unless the store gave some up; then the head goes too.
use super::super::{Key, Source, Target};
use super::calls::{Call, Inner, Remote, bytes_of_source, room};
use super::queue::{GetPieces, PutLarge, Read, ReadEnd, RemoteEvent, Write};
use super::sealed::{HEAD_BYTES, open, piece_key, seal};
use super::{Answer, Item};
use crate::memory::OutOfMemory;
use std::time::Instant;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a piece, but for the last.
const PIECE: usize = 4 << 20;

/// What is known of a large value beside its bytes.
pub struct LargePlan {
    /// The key of its head.
    pub key: Key,
    /// What the head says, of a length that readers know.
    pub note: Box<[u8]>,
    /// A value of no bytes under another key, for those who don't know this one.
    pub mark: Key,
}

/// Names the pieces of a large value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeHead {
    /// The key of the head.
    pub key: Key,
    /// Of the bytes: what a head begins with.
    pub id: [u8; 16],
}

/// A place in the parts of something.
#[derive(Default)]
struct Cursor {
    part: usize,
    at: usize,
}

impl Cursor {
    fn read(&mut self, source: &dyn Source, mut into: &mut [u8]) {
        while !into.is_empty() {
            let left = &source.part(self.part)[self.at..];
            let (now, rest) = into.split_at_mut(left.len().min(into.len()));
            now.copy_from_slice(&left[..now.len()]);
            self.pass(now.len(), left.len());
            into = rest;
        }
    }

    fn write(&mut self, target: &mut dyn Target, mut from: &[u8]) {
        while !from.is_empty() {
            let left = &mut target.part(self.part)[self.at..];
            let (now, rest) = from.split_at(left.len().min(from.len()));
            let length = left.len();
            left[..now.len()].copy_from_slice(now);
            self.pass(now.len(), length);
            from = rest;
        }
    }

    fn pass(&mut self, count: usize, left: usize) {
        self.at += count;
        if count == left {
            (self.part, self.at) = (self.part + 1, 0);
        }
    }
}

impl Remote {
    /// Starts to read the pieces of a value of a target's length, unless that has not begun by
    /// `last`.
    pub fn get_pieces(
        &self,
        head: LargeHead,
        target: Box<dyn Target>,
        last: Instant,
    ) -> Result<(), OutOfMemory> {
        let until = self.inner.end();
        self.read(Read::Pieces(GetPieces { head, target, until, last }))
    }

    /// How many calls bring so many bytes.
    pub fn pieces(bytes: u64) -> u64 {
        bytes.div_ceil(PIECE as u64)
    }

    /// Starts to write a large value, unless its head is there. A thread of the store asks for the
    /// plan. False while the store is left alone.
    pub fn put_large(
        &self,
        plan: Box<dyn FnOnce() -> Option<LargePlan> + Send>,
        source: Box<dyn Source>,
    ) -> Result<bool, OutOfMemory> {
        let bytes = bytes_of_source(&*source);
        self.write(Write::Large(PutLarge { number: 0, plan, source, bytes }))
    }
}

impl Inner {
    pub(super) fn get_pieces(&self, pieces: GetPieces, scratch: &mut Vec<u8>) {
        let GetPieces { head, mut target, .. } = pieces;
        let end = self.read_pieces(&head, &mut *target, scratch);
        let mut queue = self.queue();
        if matches!(end, ReadEnd::Damaged | ReadEnd::Gone) {
            // Whoever computes it writes all of it anew.
            queue.add_removal(head.key, false);
            self.to_write.notify_one();
        }
        let stats = &mut queue.stats;
        stats.gone += u64::from(end == ReadEnd::Gone);
        stats.damaged += u64::from(end == ReadEnd::Damaged);
        queue.end_read(RemoteEvent::Read { target, end });
    }

    fn read_pieces(
        &self,
        head: &LargeHead,
        target: &mut dyn Target,
        scratch: &mut Vec<u8>,
    ) -> ReadEnd {
        let mut left: usize = (0..target.parts()).map(|at| target.part(at).len()).sum();
        let mut cursor = Cursor::default();
        for index in 0.. {
            if left == 0 {
                break;
            }
            let length = left.min(PIECE);
            let key = piece_key(&head.key, &head.id, index);
            let Ok(mut places) = room(scratch, std::iter::once(length + HEAD_BYTES)) else {
                return ReadEnd::Failed;
            };
            let mut items = [Item::new(key, places.next().expect("there is one"))];
            if self.queue().is_closed {
                return ReadEnd::Failed;
            }
            let get: Call = |store, items, time| store.get(items, time);
            self.call(get, &mut items, self.timeout);
            let [item] = items;
            match item.answer {
                Answer::Failed => return ReadEnd::Failed,
                Answer::Missing => return ReadEnd::Gone,
                Answer::Done => {}
            }
            let is_whole = item.length == item.bytes.len();
            let Some(body) = open(&key, item.bytes, length).filter(|_| is_whole) else {
                return ReadEnd::Damaged;
            };
            cursor.write(target, body);
            left -= length;
            let stats = &mut self.queue().stats;
            (stats.read, stats.read_bytes) = (stats.read + 1, stats.read_bytes + length as u64);
        }
        ReadEnd::Good
    }

    pub(super) fn put_large(&self, large: PutLarge, scratch: &mut Vec<u8>) {
        let PutLarge { plan, source, bytes, .. } = large;
        let plan = if self.is_wanted(&*source) { plan() } else { None };
        let written = plan.as_ref().and_then(|plan| self.put_pieces(plan, &*source, scratch));
        // What it came from may be used again.
        drop(source);
        self.queue().waiting_bytes -= bytes as u64;
        if let (Some(plan), Some(id)) = (plan, written)
            && self.put_value(&plan.key, &[&id, &plan.note], scratch)
        {
            self.put_value(&plan.mark, &[], scratch);
        }
    }

    /// Whether a source is still to be given to others; counts it if not.
    fn is_wanted(&self, source: &dyn Source) -> bool {
        let is_wanted = source.is_wanted();
        if !is_wanted {
            self.queue().stats.skipped += 1;
        }
        is_wanted
    }

    /// Writes the pieces, and says what they are; none if the head is there, or a call failed.
    fn put_pieces(
        &self,
        plan: &LargePlan,
        source: &dyn Source,
        scratch: &mut Vec<u8>,
    ) -> Option<[u8; 16]> {
        let mut asked = [plan.key, plan.mark].map(|key| Item::new(key, &mut []));
        self.call(|store, items, time| store.has(items, time), &mut asked, self.timeout);
        let [head, mark] = asked.map(|item| item.answer);
        match head {
            Answer::Missing => {}
            Answer::Failed => return None,
            Answer::Done => {
                self.queue().stats.known += 1;
                // Without its mark nobody finds it who does not know its length.
                if mark == Answer::Missing {
                    self.put_value(&plan.mark, &[], scratch);
                }
                return None;
            }
        }
        let mut hash = Xxh3::new();
        (0..source.parts()).for_each(|at| hash.update(source.part(at)));
        let id = hash.digest128().to_le_bytes();
        let (mut left, mut cursor) = (bytes_of_source(source), Cursor::default());
        for index in 0.. {
            // Each takes a while. Pieces without a head are found by nobody.
            if !self.is_wanted(source) {
                return None;
            }
            if left == 0 {
                break;
            }
            let length = left.min(PIECE);
            let key = piece_key(&plan.key, &id, index);
            if !self.put_with(&key, length, scratch, |body| cursor.read(source, body)) {
                return None;
            }
            left -= length;
        }
        Some(id)
    }

    fn put_value(&self, key: &Key, parts: &[&[u8]], scratch: &mut Vec<u8>) -> bool {
        let length = parts.iter().map(|part| part.len()).sum();
        self.put_with(key, length, scratch, |mut body| {
            for part in parts {
                let (now, rest) = std::mem::take(&mut body).split_at_mut(part.len());
                now.copy_from_slice(part);
                body = rest;
            }
        })
    }

    /// Writes a value of a length. Whether it was written.
    fn put_with(
        &self,
        key: &Key,
        length: usize,
        scratch: &mut Vec<u8>,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Ok(mut places) = room(scratch, std::iter::once(length + HEAD_BYTES)) else {
            self.queue().stats.failed += 1;
            return false;
        };
        let place = places.next().expect("there is one");
        fill(&mut place[HEAD_BYTES..]);
        seal(key, place);
        let mut items = [Item::new(*key, place)];
        if self.queue().is_closed {
            return false;
        }
        self.call(|store, items, time| store.put(items, time), &mut items, self.timeout);
        let is_done = items[0].answer == Answer::Done;
        let stats = &mut self.queue().stats;
        stats.written += u64::from(is_done);
        stats.written_bytes += if is_done { items[0].bytes.len() as u64 } else { 0 };
        is_done
    }
}
