//! What is read goes straight to where it is wanted, where the disk can write there by itself.
use crate::sim::{Fault, SimDisk, When};
use crate::story::open;
use crate::support::*;
use radixkv::tier::{DiskStore, Event, LowerStore, Target};
use std::any::Any;
use std::ops::Range;

const PIECE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Parts that lie in one piece of memory, from so many bytes behind a page on.
struct Memory {
    bytes: Vec<u8>,
    parts: Vec<Range<usize>>,
}

impl Memory {
    fn new(behind: usize, lengths: &[usize]) -> Self {
        let bytes = vec![0xee; lengths.iter().sum::<usize>() + 2 * PAGE];
        let mut at = bytes.as_ptr().align_offset(PAGE) + behind;
        let part = |&length: &usize| {
            at += length;
            at - length..at
        };
        let parts = lengths.iter().map(part).collect();
        Self { bytes, parts }
    }

    fn range(&self) -> Range<usize> {
        let start = self.bytes.as_ptr().addr();
        start..start + self.bytes.len()
    }
}

impl Target for Memory {
    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn part(&mut self, index: usize) -> &mut [u8] {
        &mut self.bytes[self.parts[index].clone()]
    }

    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8])) {
        let mut rest = &mut self.bytes[self.parts[0].start..];
        for part in &self.parts {
            let (now, after) = rest.split_at_mut(part.len());
            to(now);
            rest = after;
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// Reads a record, and returns how many of its bytes were read straight to their memory.
fn read(disk: &SimDisk, store: &DiskStore, number: u64, behind: usize, lengths: &[usize]) -> usize {
    let target = Memory::new(behind, lengths);
    let memory = target.range();
    disk.take_reads();
    assert!(store.get(key(number), Box::new(target)).is_ok());
    let mut events = Vec::new();
    while events.is_empty() {
        std::thread::sleep(std::time::Duration::from_micros(200));
        store.poll(&mut events);
    }
    let Some(Event::Loaded { target, result: Ok(()), .. }) = events.pop() else {
        panic!("record {number} was not read");
    };
    let target = target.into_any().downcast::<Memory>().unwrap();
    let whole = target.parts[0].start..target.parts.last().unwrap().end;
    assert!(target.bytes[whole.clone()] == content(number, whole.len()), "record {number}");
    let beside = target.bytes[..whole.start].iter().chain(&target.bytes[whole.end..]);
    assert!(beside.copied().all(|byte| byte == 0xee), "more than record {number} was written");
    let reads = disk.take_reads().into_iter();
    reads.filter(|(at, _)| memory.contains(at)).map(|(_, bytes)| bytes).sum()
}

/// T05: whole units go straight to memory that begins with a page; all else is copied there.
#[test]
fn t05_what_can_be_read_straight_to_its_memory_is() {
    let disk = SimDisk::new();
    let mut config = radixkv::tier::DiskConfig::new("", 64 * MIB, FINGERPRINT);
    config.workers = 3;
    let store = DiskStore::open_on(Box::new(disk.clone()), config).unwrap().0;
    let worlds: [(usize, &[usize], usize); 9] = [
        (0, &[PIECE], PIECE),
        (0, &[3 * PAGE], 3 * PAGE),
        (0, &[2 * PIECE + PAGE], 2 * PIECE + PAGE),
        // The end of a unit that has more.
        (0, &[PIECE + PIECE / 2 + 9], PIECE + PIECE / 2),
        // A few bytes more are a request more, and copying all is less.
        (0, &[PAGE + 9], 0),
        (16, &[PIECE], 0),
        (1, &[2 * PIECE + 5], 0),
        // A piece of two parts is copied; where the other pieces begin does not matter.
        (0, &[5000, 2 * PIECE], PIECE),
        (0, &[1, 2 * PIECE - 1], PIECE),
    ];
    for (number, (behind, lengths, straight)) in (0..).zip(worlds) {
        keep(&store, number, lengths.iter().sum());
        assert_eq!(read(&disk, &store, number, behind, lengths), straight, "{lengths:?}");
    }
    assert_eq!((store.stats().reads, store.stats().damaged), (9, 0));
}

/// T06: memory that the disk does not write to is filled by a copy.
#[test]
fn t06_memory_that_the_disk_refuses_is_filled_all_the_same() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap().0;
    keep(&store, 1, 10 * PAGE);
    disk.fail(Some((When::Once(0), Fault::NoPlace)));
    assert_eq!(read(&disk, &store, 1, 0, &[10 * PAGE]), 0);
    disk.fail(Some((When::Once(0), Fault::Io)));
    let target = Box::new(Memory::new(0, &[10 * PAGE]));
    assert!(store.get(key(1), target).is_ok());
    let mut events = Vec::new();
    while events.is_empty() {
        store.poll(&mut events);
    }
    assert!(matches!(events[..], [Event::Loaded { result: Err(_), .. }]), "it is tried once");
}
