//! Long paths are passed in portions, and with nobody else about that must change nothing: the same
//! random calls on caches whose portions are a node, two and all leave the same trees behind.
use fastrand::Rng;
use radixkv::error::Error;
use radixkv::ids::{LockId, NodeId, SequenceId};
use radixkv::index::{DumpFormat, IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::sequence::{Continuation, Room};
use radixkv::store::{CacheConfig, Found, InsertRequest, Scope, Shared, State};
use radixkv::token::{Item, TokenKind, TokenList};

const PAGE_SIZE: usize = 2;
const SLOTS: u32 = 6;

/// A cache, and what there is of it; the same things in the same order in both.
struct World {
    index: IndexKind,
    /// Prompts have images. Then nothing is cleared: in what order their numbers become free, and
    /// so where keys have their place, is as the portions are.
    images: bool,
    shared: Shared,
    running: Vec<SequenceId>,
    retained: Vec<SequenceId>,
    locks: Vec<LockId>,
}

/// What a call gave, in words that are the same in both worlds.
type Told = Result<String, String>;

/// The error, without ids, which no two caches share.
fn told(error: Error) -> String {
    match error {
        Error::StaleNode(_) | Error::StaleSequence(_) | Error::StaleLock(_) => "stale".into(),
        Error::RetainedSequence(_) => "retained".into(),
        Error::LiveSequence(_) => "live".into(),
        other => other.to_string(),
    }
}

/// The nodes of a dump, in an order of their own, without their ids and the numbers of pages: those
/// depend on how many are evicted at a time.
fn nodes(dump: &str) -> Vec<String> {
    let without = |line: &str, from: &str, until: &str| {
        let (before, rest) = line.split_once(from).unwrap();
        format!("{before}{}", rest.split_once(until).unwrap().1)
    };
    let nodes = dump.lines().filter(|line| line.contains("\"start_page\""));
    let mut nodes: Vec<String> = nodes
        .map(|line| without(&without(line, "\"id\"", "\"start_page\""), "\"pages\"", "]"))
        .map(|line| line.trim_end_matches([',', ' ']).to_owned())
        .collect();
    nodes.sort();
    nodes
}

/// A prompt, most often one that parts from others late: a path of many nodes.
fn prompt(rng: &mut Rng, images: bool) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..rng.u32(1..24)).collect();
    let ends = rng.usize(0..4);
    ids.extend((0..ends).map(|_| 100 + rng.u32(0..3)));
    if images && rng.bool() {
        // An image early, and a long path behind it.
        ids.insert(rng.usize(0..ids.len().min(3)), IMAGE + rng.u32(0..2));
    }
    ids
}

/// This id and the next stand for images, which are longer than a page.
const IMAGE: u32 = 110;

/// What ids stand for: those of an end may be coordinates, after which there is more.
fn items(ids: &[u32]) -> Vec<Item> {
    let others = ids.iter().enumerate().filter(|(_, id)| (102..200).contains(*id));
    let kind = |id: u32| match id {
        IMAGE.. => TokenKind::Image { digest: [id as u8; 16], positions: 3 },
        _ => TokenKind::Coord { bin: id % 5 },
    };
    others.map(|(at, &id)| Item { token_index: at, kind: kind(id) }).collect()
}

/// The position at which each token begins, and where the last one ends.
fn starts(ids: &[u32]) -> Vec<usize> {
    let items = items(ids);
    let mut starts = vec![0];
    for at in 0..ids.len() {
        let item = items.iter().find(|item| item.token_index == at);
        let is_image = item.is_some_and(|item| matches!(item.kind, TokenKind::Image { .. }));
        starts.push(starts[at] + if is_image { 3 } else { 1 });
    }
    starts
}

impl World {
    fn new((index, images): (IndexKind, bool), pages: u32, slice: usize) -> Self {
        let config = PageTableConfig {
            page_size: PAGE_SIZE as u32,
            page_count: pages,
            slot_count: SLOTS,
            ..PageTableConfig::default()
        };
        let shared = Shared::with_slices(config, slice, None).unwrap();
        shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
        let (running, retained, locks) = Default::default();
        Self { index, images, shared, running, retained, locks }
    }

    /// The deepest node of a prompt.
    fn node(&self, ids: &[u32]) -> Result<Option<NodeId>, Error> {
        let mut state = self.shared.write();
        let list = TokenList { ids, items: &items(ids) };
        let found = state.find(&Namespace::default(), list)?;
        let (matched, _) = state.take_match(found, false)?;
        let id = state.node_id(matched.node)?;
        Ok((id > 0).then_some(NodeId(id)))
    }

    fn begin(&mut self, ids: &[u32]) -> Result<String, Error> {
        let list = TokenList { ids, items: &items(ids) };
        let info = self.shared.begin(&Namespace::default(), list, 0)?;
        self.running.push(info.id);
        Ok(format!("{} {} {}", info.cached_positions, info.shared_pages, info.pages))
    }

    fn lookup(&mut self, ids: &[u32], lock: bool) -> Result<String, Error> {
        let take = |state: &mut State, found: Found, known: usize| {
            let (matched, lock) = state.take_match(found, lock)?;
            let pages = [known, 0].map(|first| {
                let mut pages = vec![0; matched.pages];
                let into = |start: usize, part: &[u32]| {
                    pages[start..start + part.len()].copy_from_slice(part);
                };
                state.visit_path(matched.node, first, into).unwrap();
                pages
            });
            assert_eq!(pages[0][known..], pages[1][known..]);
            let told = format!("{} {}", matched.positions, matched.pages);
            Ok::<_, Error>((lock, pages[1].clone(), told))
        };
        let items = items(ids);
        let list = TokenList { ids, items: &items };
        let ((lock, pages, told), known) =
            self.shared.turn().lookup(&Namespace::default(), list, take)?;
        assert_eq!(known, pages[..known.len()]);
        self.locks.extend(lock);
        Ok(told)
    }

    fn insert(&mut self, ids: &[u32], from: Option<NodeId>) -> Result<String, Error> {
        let starts = starts(ids);
        let count = starts[ids.len()] / PAGE_SIZE;
        let pages = self.shared.allocate_pages(count)?;
        let from_page = match from {
            Some(node) => self.shared.read().node_info(node)?.end_position / PAGE_SIZE,
            None => 0,
        };
        let items = items(ids);
        let request = InsertRequest {
            groups: &[],
            namespace: &Namespace::default(),
            tokens: TokenList { ids, items: &items },
            pages: &pages,
            from,
            from_token: starts.partition_point(|&start| start < from_page * PAGE_SIZE),
            from_page,
            lock: true,
            moved: None,
        };
        let mut published = pages.clone();
        let mut turn = self.shared.turn();
        // A page that is new is a portion of the block-hash index, and a moment of its own.
        let portions = if self.index == IndexKind::BlockHash { from_page + 1..count } else { 0..0 };
        let mut claimed = 0;
        for count in portions {
            let ids = &ids[..starts.partition_point(|&start| start < count * PAGE_SIZE)];
            let before = items.partition_point(|item| item.token_index < ids.len());
            let tokens = TokenList { ids, items: &items[..before] };
            let part = InsertRequest { tokens, lock: false, ..request };
            claimed += turn.insert(part, |_, done, _| done.claimed).map_or(0, |(new, _)| new);
        }
        let done = turn.insert(request, |state, done, _| {
            let end = done.pages;
            state.visit_path(done.node, 0, |start, part| {
                let part = &part[..part.len().min(end.saturating_sub(start))];
                published[start..start + part.len()].copy_from_slice(part);
            })?;
            Ok::<_, Error>(done)
        });
        let done = match done {
            Ok((done, known)) => {
                assert_eq!(known, published[..known.len()]);
                done?
            }
            Err(error) => {
                turn.free_pages(0, &pages)?;
                return Err(error);
            }
        };
        // What others have published stays ours, and goes back.
        let ours: Vec<u32> = (0..count)
            .filter(|&at| at < from_page || published[at] != pages[at])
            .map(|at| pages[at])
            .collect();
        turn.free_pages(0, &ours)?;
        self.locks.extend(done.lock);
        Ok(format!("{} {} {}", done.pages, claimed + done.claimed, done.duplicates))
    }

    /// Makes the call that the generator names.
    fn call(&mut self, rng: &mut Rng) -> Told {
        let (what, ids, pick) = (rng.u32(0..20), prompt(rng, self.images), rng.usize(..));
        let some = |list: &[SequenceId]| (!list.is_empty()).then(|| list[pick % list.len()]);
        let done = match what {
            0..=3 => self.begin(&ids),
            4 | 5 => self.lookup(&ids, what == 4),
            6 => self.node(&ids).and_then(|node| {
                let Some(node) = node else { return Ok("nothing".into()) };
                let lock = self.shared.turn().lock(node)?;
                self.locks.push(lock);
                Ok("locked".into())
            }),
            7 | 8 if !self.locks.is_empty() => {
                let lock = self.locks.swap_remove(pick % self.locks.len());
                self.shared.turn().unlock(lock).map(|()| "unlocked".into())
            }
            // A portion could end inside an image, which no list of tokens does.
            9..=11 if self.index == IndexKind::BlockHash && ids.iter().any(|&id| id >= IMAGE) => {
                Ok("not now".into())
            }
            9 | 10 => self.insert(&ids, None),
            11 => self.node(&ids).and_then(|node| self.insert(&ids, node)),
            12 => self.shared.evict(pick % 4, |_, _| {}).map(|count| count.to_string()),
            13 if pick.is_multiple_of(8) && !self.images => {
                let done = self.shared.clear(Scope::default());
                self.retained.clear();
                done.map(|done| format!("{done:?}"))
            }
            14 | 15 => match some(&self.running).or(some(&self.retained)) {
                None => Ok("nobody".into()),
                Some(parent) => {
                    let how = Continuation {
                        parent,
                        namespace: &Namespace::default(),
                        suffix: TokenList::text(&[200, 201, 202]),
                        all: None,
                        room: Room::default(),
                        running: true,
                    };
                    let made = self.shared.continue_from(&how);
                    made.map(|info| {
                        self.running.push(info.id);
                        format!("{} {}", info.inherited_positions, info.pages)
                    })
                }
            },
            16 => match some(&self.retained) {
                None => Ok("nobody".into()),
                Some(id) => {
                    self.retained.retain(|&other| other != id);
                    self.shared.turn().drop_retained(id).map(|()| "dropped".into())
                }
            },
            _ => self.end(pick, what == 17),
        };
        done.map_err(told)
    }

    /// Publishes a sequence, and retains or releases it.
    fn end(&mut self, pick: usize, retain: bool) -> Result<String, Error> {
        if self.running.is_empty() {
            return Ok("nobody".into());
        }
        let id = self.running.swap_remove(pick % self.running.len());
        let mut turn = self.shared.turn();
        drop(turn.confirm_copies(id));
        let positions = turn.sequence_info(id)?.positions;
        // At once: in portions it would take several moments.
        let published = turn.state().publish(id, positions)?;
        if retain {
            if turn.retain(id)? {
                self.retained.push(id);
            }
        } else {
            turn.release(id)?;
        }
        Ok(format!("{published:?}"))
    }

    /// All that can be seen, but for ids.
    fn seen(&self) -> String {
        let state = self.shared.read();
        state.audit().unwrap();
        state.check().unwrap();
        let (cache, table) = (state.cache_stats().unwrap(), state.page_table_stats());
        let dump = state.dump(DumpFormat::Json).unwrap();
        let counted =
            (cache.nodes, cache.locks, cache.retained_pages, cache.counters.hit_positions);
        format!(
            "{:#?} {counted:?} {} {} {}",
            nodes(&dump),
            table.free,
            table.reclaimable,
            table.private
        )
    }
}

/// M06: on the radix tree and the block-hash index, with room and without.
#[test]
fn m06_portions_of_a_node_change_nothing() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        for (seed, pages) in (0..60).zip([24, 24, 40, 40, 100, 100].into_iter().cycle()) {
            let kind = (index, seed % 2 == 0);
            let mut worlds = [1, 2, 1 << 20].map(|slice| World::new(kind, pages, slice));
            let mut rng = Rng::with_seed(seed);
            for step in 0..400 {
                let call = rng.u64(..);
                let told = worlds.each_mut().map(|world| world.call(&mut Rng::with_seed(call)));
                let seen = worlds.each_ref().map(World::seen);
                for at in [0, 1] {
                    let what = format!("{index:?}, seed {seed}, step {step}, world {at}");
                    assert_eq!(told[at], told[2], "{what}");
                    assert_eq!(seen[at], seen[2], "{what}");
                }
            }
        }
    }
}

/// K01: ids that look like the keys of other than text, on a path of which each node is a portion,
/// find nothing of it.
#[test]
fn k01_ids_that_look_like_coordinates_find_nothing() {
    // What the index has for a coordinate's bin.
    let key = |bin: u32| (1 << 31) + bin;
    let ids: Vec<u32> = (0..12).collect();
    for at in 0..ids.len() {
        let world = World::new((IndexKind::Radix, false), 100, 1);
        let item = [Item { token_index: at, kind: TokenKind::Coord { bin: 7 } }];
        // Each end is a branch, so that the path has a node for each page.
        for end in (1..=6).rev() {
            let ids = [&ids[..2 * end], &[300, 301]].concat();
            let items = if at < 2 * end { &item[..] } else { &[] };
            let list = TokenList { ids: &ids, items };
            let begun = world.shared.begin(&Namespace::default(), list, 0).unwrap();
            let mut turn = world.shared.turn();
            drop(turn.confirm_copies(begun.id));
            turn.publish(begun.id, begun.positions).unwrap();
            turn.release(begun.id).unwrap();
        }
        let mut alike = ids.clone();
        alike[at] = key(7);
        let found = |state: &mut State, found: Found, _: usize| {
            state.take_match(found, false)?;
            Ok::<_, Error>(found.positions())
        };
        let find = |list| world.shared.turn().lookup(&Namespace::default(), list, found).unwrap().0;
        assert_eq!(find(TokenList { ids: &ids, items: &item }), 12);
        assert_eq!(find(TokenList::text(&alike)), at, "the one at {at} is no coordinate");
    }
}
