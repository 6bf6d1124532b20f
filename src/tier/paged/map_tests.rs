//! The map against one that is as simple as can be.
use super::map::{Level, Map, NONE, Name, NoRecord};
use crate::group::GROUP_LIMIT;
use crate::index::Namespace;
use crate::token::PageDigest;
use std::collections::BTreeMap;

/// One group, in one pool.
const ONE: [u8; GROUP_LIMIT] = [0; GROUP_LIMIT];

/// The pages of a level that may go next.
fn next_to_go(map: &Map, level: Level) -> Box<dyn Iterator<Item = u32> + '_> {
    match level {
        Level::Host => Box::new(map.next_in_host(0)),
        Level::Disk => Box::new(map.next_on_disk()),
    }
}

/// A page of a tree of prefixes: what was chosen at each step from the beginning.
type Path = Vec<u8>;

#[derive(Debug, Clone, Default, PartialEq)]
struct Page {
    host: Option<u32>,
    disk: Option<u64>,
    used: u64,
}

fn digest(path: &[u8]) -> PageDigest {
    let mut bytes = [0; 32];
    bytes[..path.len()].copy_from_slice(path);
    // Half of all names begin in the same place.
    bytes[31] = path.len() as u8;
    bytes[8] = bytes[0] & 1;
    PageDigest(bytes)
}

fn name(path: &[u8]) -> Name {
    Name { digest: digest(path), group: 0 }
}

fn parent(path: &[u8]) -> Option<PageDigest> {
    (path.len() > 1).then(|| digest(&path[..path.len() - 1]))
}

fn is_at(page: &Page, level: Level) -> bool {
    match level {
        Level::Host => page.host.is_some(),
        Level::Disk => page.disk.is_some(),
    }
}

/// Leaves at a level by when they were used.
fn leaves(model: &BTreeMap<Path, Page>, level: Level) -> Vec<(u64, Path)> {
    let there = |path: &Path| model.get(path).is_some_and(|page| is_at(page, level));
    let has_child = |path: &Path| {
        (0..4).any(|step| {
            let mut child = path.clone();
            child.push(step);
            there(&child)
        })
    };
    let mut found: Vec<_> = model
        .iter()
        .filter(|(path, page)| is_at(page, level) && !has_child(path))
        .map(|(path, page)| (page.used, path.clone()))
        .collect();
    found.sort();
    found
}

/// T10: places, parents and children, and who goes first, are those of a list that is gone through.
#[test]
fn t10_the_map_is_what_a_plain_list_is() {
    let mut rng = fastrand::Rng::with_seed(3);
    for pages in [6, 40, 400] {
        let (mut map, mut model) = (Map::new(pages, ONE).unwrap(), BTreeMap::<Path, Page>::new());
        let (mut slots, mut numbers, mut clock) = (0, 0, 0);
        let places = |model: &BTreeMap<Path, Page>| model.len();
        for round in 0..6000 {
            let path: Path = (0..rng.usize(1..6)).map(|_| rng.u8(0..4)).collect();
            let known = map.find(name(&path)).filter(|&at| {
                let record = map.get(at).unwrap();
                record.host().is_some() || record.disk().is_some()
            });
            assert_eq!(known.is_some(), model.contains_key(&path), "{path:?} in round {round}");
            match rng.u8(0..10) {
                0..=3 if places(&model) < pages || known.is_some() => {
                    let at = map.make(name(&path), parent(&path), &Namespace::default()).unwrap();
                    let page = model.entry(path.clone()).or_default();
                    if known.is_none() {
                        page.used = clock;
                        map.touch(at);
                    }
                    if rng.bool() && page.host.is_none() {
                        slots += 1;
                        page.host = Some(slots);
                        map.set_host(at, slots).unwrap();
                    } else if page.disk.is_none() {
                        numbers += 1;
                        page.disk = Some(numbers);
                        map.set_disk(at, (numbers, 0)).unwrap();
                        if rng.bool() {
                            map.set_committed(at);
                        }
                    }
                }
                4..=5 => {
                    let level = if rng.bool() { Level::Host } else { Level::Disk };
                    let first = leaves(&model, level).first().cloned();
                    let found = next_to_go(&map, level).next();
                    assert_eq!(found.is_some(), first.is_some());
                    let (Some(at), Some((used, _))) = (found, first) else { continue };
                    let gone = map.get(at).unwrap().name();
                    let path = model.keys().find(|path| name(path) == gone).unwrap().clone();
                    let page = model.get_mut(&path).unwrap();
                    assert_eq!(page.used, used, "the one that was used longest ago goes");
                    match level {
                        Level::Host => {
                            page.host = None;
                            map.leave_host(at);
                        }
                        Level::Disk => {
                            page.disk = None;
                            map.leave_disk(at);
                        }
                    }
                    model.retain(|_, page| page.host.is_some() || page.disk.is_some());
                }
                6 => {
                    // Bytes that were lost, perhaps in the middle of a prefix.
                    let Some(at) = known else { continue };
                    if model[&path].host.is_some() {
                        map.leave_host(at);
                        model.get_mut(&path).unwrap().host = None;
                    }
                    model.retain(|_, page| page.host.is_some() || page.disk.is_some());
                }
                7 => {
                    clock += 1;
                    map.tick();
                }
                _ => {
                    let Some(at) = known else { continue };
                    map.touch(at);
                    model.get_mut(&path).unwrap().used = clock;
                }
            }
            for (path, page) in model.iter().filter(|_| round % 16 == 0) {
                let record = map.get(map.find(name(path)).unwrap()).unwrap();
                assert_eq!((record.host(), record.disk()), (page.host, page.disk));
            }
            if round % 64 == 0 {
                map.check();
                for level in [Level::Host, Level::Disk] {
                    let expected: Vec<u64> =
                        leaves(&model, level).into_iter().map(|(used, _)| used).collect();
                    assert_eq!(next_to_go(&map, level).count(), expected.len());
                }
            }
        }
        map.check();
        assert!(map.len() <= 2 * pages);
    }
}

/// A record that can't be had changes nothing.
#[test]
fn t10_there_are_no_more_records_than_were_agreed() {
    let mut map = Map::new(2, ONE).unwrap();
    for step in 0..2 {
        let at = map.make(name(&[step, 0]), parent(&[step, 0]), &Namespace::default()).unwrap();
        map.set_host(at, u32::from(step)).unwrap();
    }
    assert_eq!(map.len(), 4);
    assert_eq!(map.make(name(&[3]), None, &Namespace::default()), Err(NoRecord::Full));
    map.check();
    let at = map.find(name(&[0, 0])).unwrap();
    map.leave_host(at);
    assert_eq!((map.len(), map.find(name(&[0]))), (2, None));
    // With room for one, and none for the one before it.
    let at = map.make(name(&[3]), None, &Namespace::default()).unwrap();
    map.set_host(at, NONE - 1).unwrap();
    assert_eq!(
        map.make(name(&[2, 2]), parent(&[2, 2]), &Namespace::default()),
        Err(NoRecord::Full)
    );
    assert_eq!(map.find(name(&[2, 2])), None);
    map.check();
}

/// T10: at most 96 bytes a record, in long prefixes.
#[test]
fn t10_a_record_takes_96_bytes() {
    let count = 1 << 16;
    let mut map = Map::new(count, ONE).unwrap();
    let deep = |at: usize| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(at as u64).to_le_bytes());
        bytes[8..16]
            .copy_from_slice(&(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        PageDigest(bytes)
    };
    for at in 0..count {
        let parent = (at % 256 > 0).then(|| deep(at - 1));
        let record =
            map.make(Name { digest: deep(at), group: 0 }, parent, &Namespace::default()).unwrap();
        map.set_host(record, at as u32).unwrap();
        map.set_disk(record, (at as u64 + 1, 0)).unwrap();
    }
    assert_eq!(map.len(), count);
    let bytes = map.bytes();
    assert!(bytes <= 96 * count, "{} bytes a record", bytes as f64 / count as f64);
}
