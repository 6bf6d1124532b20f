//! Calls about several groups go in portions too, and with nobody else about that must change
//! nothing: the same random calls on caches whose portions are a place, three and all find as much.
use fastrand::Rng;
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::{LockId, NodeId, SequenceId};
use radixkv::index::Namespace;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::sequence::Room;
use radixkv::store::{
    CacheConfig, Found, GroupRow, InsertRequest, InsertResult, Shared, State, Turn,
};
use radixkv::token::TokenList;
use std::cell::RefCell;

const PAGE_SIZE: usize = 2;
const PAGES: u32 = 3000;
const SLOTS: u32 = 6;

const WINDOW: GroupKind = GroupKind::Window { window: 7, sinks: 3 };
const CHUNK: GroupKind = GroupKind::Chunk { chunk: 6 };

/// Groups beside the first, and the states that a path keeps.
const SETTINGS: [(&[GroupKind], u32); 5] = [
    (&[WINDOW], 0),
    (&[GroupKind::Full, CHUNK], 0),
    (&[WINDOW, GroupKind::State], 0),
    (&[GroupKind::State, CHUNK], 3),
    (&[GroupKind::Full, GroupKind::State], 2),
];

struct World {
    shared: Shared,
    kinds: &'static [GroupKind],
    running: Vec<SequenceId>,
    locks: Vec<LockId>,
    /// Of locks of inserts: the node that each is on, and the whole pages up to there.
    ends: Vec<(LockId, NodeId, Vec<u32>)>,
    /// States that a path keeps.
    limit: u32,
    /// Prompts that were inserted, with such a limit.
    inserted: Vec<Vec<u32>>,
}

type Told = Result<String, String>;

fn told(error: Error) -> String {
    match error {
        Error::StaleNode(_) | Error::StaleSequence(_) | Error::StaleLock(_) => "stale".into(),
        Error::RetainedSequence(_) => "retained".into(),
        Error::LiveSequence(_) => "live".into(),
        other => other.to_string(),
    }
}

/// A prompt, most often one that parts from others late.
fn prompt(rng: &mut Rng) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..rng.u32(1..60)).collect();
    let ends = rng.usize(0..8);
    ids.extend((0..ends).map(|_| 100 + rng.u32(0..2)));
    ids
}

impl World {
    fn new((kinds, checkpoint_limit): (&'static [GroupKind], u32), slice: usize) -> Self {
        let mut groups = vec![GroupConfig::default()];
        groups.extend(kinds.iter().map(|kind| kind.in_pool(1)));
        let config = PageTableConfig {
            page_size: PAGE_SIZE as u32,
            page_count: PAGES,
            slot_count: SLOTS,
            groups: Groups::new(&groups).unwrap(),
            more_pools: MorePools::new(&[2 * PAGES]).unwrap(),
            ..PageTableConfig::default()
        };
        let shared = Shared::with_slices(config, slice, None).unwrap();
        shared.attach_cache(CacheConfig { checkpoint_limit, ..CacheConfig::default() }).unwrap();
        let (running, locks, ends) = (Vec::new(), Vec::new(), Vec::new());
        let (limit, inserted) = (checkpoint_limit, Vec::new());
        Self { shared, kinds, running, locks, ends, limit, inserted }
    }

    fn lookup(&mut self, ids: &[u32], lock: bool) -> Result<String, Error> {
        let take = |state: &mut State, found: Found, _: usize| {
            let (matched, lock) = state.take_match(found, lock)?;
            Ok::<_, Error>((lock, format!("{} {:?}", matched.positions, found.depths())))
        };
        let list = TokenList::text(ids);
        let ((lock, told), _) = self.shared.turn().lookup(&Namespace::default(), list, take)?;
        let locked = lock.map(|lock| self.locked(lock));
        self.locks.extend(lock);
        Ok(format!("{told} {locked:?}"))
    }

    /// The places of pages that a lock protects.
    fn locked(&self, lock: LockId) -> Vec<Vec<usize>> {
        let state = self.shared.read();
        let of = |group| {
            let pages = state.locked_pages(lock, group).unwrap();
            pages.iter().map(|(place, _)| place as usize).collect()
        };
        (1..=self.kinds.len()).map(of).collect()
    }

    /// Inserts a row of each group, with some pages; now and then more behind a lock, which goes
    /// along.
    fn insert(&mut self, rng: &mut Rng, ids: &[u32]) -> Result<String, Error> {
        self.ends.retain(|(lock, ..)| self.locks.contains(lock));
        // With a limit on states, links from before lead past some.
        let moves = self.limit == 0 && !self.ends.is_empty() && rng.u32(0..3) == 0;
        let after = moves.then(|| self.ends.swap_remove(rng.usize(0..self.ends.len())));
        let known = after.as_ref().map_or(&[][..], |(_, _, known)| known);
        let (ids, from_page) = (&[known, ids].concat(), known.len() / PAGE_SIZE);
        let count = ids.len() / PAGE_SIZE;
        let mut rows = vec![self.shared.allocate_pages(count)?];
        let dense = rng.bool();
        for _ in self.kinds {
            let given = (0..count).filter(|_| rng.u32(0..4) > if dense { 0 } else { 2 });
            let given: Vec<usize> = given.collect();
            let pages = self.shared.allocate_pool_pages(1, given.len());
            let Ok(pages) = pages else {
                let mut turn = self.shared.turn();
                free(&mut turn, &rows);
                return Ok("no room".into());
            };
            let mut row = vec![0; count];
            given.iter().zip(pages).for_each(|(&place, page)| row[place] = page);
            rows.push(row);
        }
        let groups = rows.iter().enumerate().skip(1);
        let groups: Vec<_> = groups.map(|(group, pages)| GroupRow { group, pages }).collect();
        let request = InsertRequest {
            groups: &groups,
            namespace: &Namespace::default(),
            tokens: TokenList::text(ids),
            pages: &rows[0],
            from: after.as_ref().map(|(_, node, _)| *node),
            from_token: known.len(),
            from_page,
            lock: after.is_some() || rng.bool(),
            moved: after.as_ref().map(|(lock, ..)| *lock),
        };
        let published = RefCell::new(vec![vec![0; count]; rows.len()]);
        let mut tell = |row: usize, place: usize, page| {
            published.borrow_mut()[row + 1][place] = page;
        };
        let then = |state: &mut State, done: InsertResult, known| {
            let published = &mut *published.borrow_mut();
            state.visit_path(done.node, known, |start, part| {
                published[0][start..start + part.len()].copy_from_slice(part);
            })?;
            for row in groups.iter().filter(|_| !done.hung.told) {
                state.write_group_row(done.node, row.group, |place, page| {
                    published[row.group][place] = page;
                })?;
            }
            Ok::<_, Error>((done, NodeId(state.node_id(done.node)?)))
        };
        let mut turn = self.shared.turn();
        let (done, known) = turn.insert_telling(request, Some(&mut tell), then)?;
        let ((done, node), mut published) = (done?, published.into_inner());
        published[0][..known.len()].copy_from_slice(&known);
        // What others have published stays ours, and goes back.
        let mut kept = Vec::new();
        for (row, published) in rows.iter_mut().zip(&published) {
            let there = published[from_page..].iter().map(|&page| (page != 0) as u8);
            kept.push(there.collect::<Vec<_>>());
            row.iter_mut().zip(published).filter(|(a, b)| a == b).for_each(|(a, _)| *a = 0);
        }
        free(&mut turn, &rows);
        drop(turn);
        let locked = done.lock.map(|lock| self.locked(lock));
        if let Some(lock) = done.lock {
            self.locks.extend(after.is_none().then_some(lock));
            self.ends.push((lock, node, ids[..count * PAGE_SIZE].to_vec()));
        }
        let hung = (done.hung.claimed, done.hung.duplicates);
        Ok(format!(
            "{} {} {} {hung:?} {kept:?} {locked:?}",
            done.pages, done.claimed, done.duplicates
        ))
    }

    fn end(&mut self, pick: usize) -> Result<String, Error> {
        if self.running.is_empty() {
            return Ok("nobody".into());
        }
        let id = self.running.swap_remove(pick % self.running.len());
        let mut turn = self.shared.turn();
        drop(turn.confirm_copies(id));
        let positions = turn.sequence_info(id)?.positions;
        let half = positions / 2 - positions / 2 % PAGE_SIZE;
        let mut told = format!("{:?}", turn.publish(id, half));
        if turn.checkpoint(id).is_ok() {
            drop(turn.confirm_copies(id));
        }
        told += &format!("{:?} {:?}", turn.publish(id, positions), turn.published_groups(id));
        turn.release(id)?;
        Ok(told)
    }

    fn call(&mut self, rng: &mut Rng) -> Told {
        let (what, mut ids, pick) = (rng.u32(0..16), prompt(rng), rng.usize(..));
        if !self.inserted.is_empty() && pick % 3 > 0 {
            let mut before = self.inserted[pick / 3 % self.inserted.len()].clone();
            before.extend(ids.drain(..ids.len() / 2));
            ids = before;
        }
        let done = match what {
            0..=3 => {
                let begun = self.shared.begin(&Namespace::default(), TokenList::text(&ids), 0);
                begun.map(|info| {
                    self.running.push(info.id);
                    let copies = info.group_copies;
                    format!("{} {} {copies}", info.cached_positions, info.shared_pages)
                })
            }
            4..=6 => self.lookup(&ids, what == 4),
            7..=9 if self.limit > 0 => {
                // All of it is new: states that are there may be used by others, and stay then.
                ids.insert(0, 1000 + self.inserted.len() as u32);
                ids.truncate(60);
                self.inserted.push(ids.clone());
                self.insert(rng, &ids)
            }
            7..=9 => self.insert(rng, &ids),
            10 | 11 if !self.locks.is_empty() => {
                let lock = self.locks.swap_remove(pick % self.locks.len());
                self.shared.turn().unlock(lock).map(|()| "unlocked".into())
            }
            13 if !self.locks.is_empty() => {
                let lock = self.locks[pick % self.locks.len()];
                let slid = self.shared.turn().slide_lock(lock, pick / 64 % 70);
                slid.map(|()| format!("{:?}", self.locked(lock)))
            }
            12 => {
                // All: which goes first among those of one age is as the portions are.
                let (pool, count) = (pick as u32 % 2, if pick % 4 < 2 { usize::MAX } else { 0 });
                let gone = self.shared.evict_from_pool(pool, count, usize::MAX, |_| {});
                gone.map(|count| count.to_string())
            }
            _ => self.end(pick),
        };
        done.map_err(told)
    }

    /// All that can be seen, but for page numbers.
    fn seen(&self) -> String {
        let state = self.shared.read();
        state.audit().unwrap();
        state.check().unwrap();
        let pools = [0, 1].map(|pool| state.pool_stats(pool).unwrap());
        let groups: Vec<_> = (0..=self.kinds.len()).map(|at| state.group_stats(at)).collect();
        format!("{pools:?} {groups:?}")
    }
}

/// Frees the pages of rows that are not 0.
fn free(turn: &mut Turn<'_>, rows: &[Vec<u32>]) {
    for (group, row) in rows.iter().enumerate() {
        for &page in row.iter().filter(|&&page| page != 0) {
            turn.free_pages((group > 0).into(), &[page]).unwrap();
        }
    }
}

/// M06.
#[test]
fn m06_portions_of_a_place_change_nothing_for_groups() {
    for (number, setting) in SETTINGS.into_iter().enumerate() {
        for seed in 0..16 {
            let mut worlds = [1, 3, 1 << 20].map(|slice| World::new(setting, slice));
            let mut rng = Rng::with_seed(seed);
            for step in 0..150 {
                let call = rng.u64(..);
                let told = worlds.each_mut().map(|world| world.call(&mut Rng::with_seed(call)));
                let seen = worlds.each_ref().map(World::seen);
                for at in [0, 1] {
                    let what = format!("setting {number}, seed {seed}, step {step}, world {at}");
                    assert_eq!(told[at], told[2], "{what}");
                    assert_eq!(seen[at], seen[2], "{what}: {:?}", told[2]);
                }
            }
        }
    }
}

/// G08: pages that no end needs go first, in whatever portions they came.
#[test]
fn g08_of_rows_that_came_in_portions_inner_pages_go_first() {
    for slice in [1, 3, 1 << 20] {
        let mut world = World::new((&[WINDOW], 0), slice);
        let ids: Vec<u32> = (0..50).collect();
        // Every page is given, and nothing locked, for this seed.
        let dense = |seed: &u64| {
            let mut world = World::new((&[WINDOW], 0), 1 << 20);
            let told = world.insert(&mut Rng::with_seed(*seed), &ids).unwrap();
            told.starts_with("25 25 0 (25, 0)") && told.ends_with("None")
        };
        let seed = (0..).find(dense).unwrap();
        world.insert(&mut Rng::with_seed(seed), &ids).unwrap();
        // A window of 4 pages at most, and two of sinks.
        assert_eq!(world.shared.evict_from_pool(1, 20, 100, |_| {}).unwrap(), 20);
        let found = world.shared.probe(&Namespace::default(), TokenList::text(&ids)).unwrap();
        assert_eq!(found, (50, 50), "slices of {slice}");
    }
}

/// G02: where windows were evicted, a lookup that goes in portions finds the same end far above
/// what is known.
#[test]
fn g02_portions_find_the_same_window_far_back() {
    const LEN: usize = 40;
    let mut short = 0;
    for kinds in [&[WINDOW][..], &[CHUNK, GroupKind::Full], &[WINDOW, GroupKind::State]] {
        let mut worlds = [1, 3, 1 << 20].map(|slice| World::new((kinds, 0), slice));
        let ids: Vec<u32> = (0..LEN as u32).collect();
        for world in &worlds {
            // Each end is a branch, so that the path has a node for each page.
            for end in (1..=LEN / 2).rev() {
                let ids = [&ids[..2 * end], &[300, 301]].concat();
                let begun = world.shared.begin(&Namespace::default(), TokenList::text(&ids), 0);
                let (begun, mut turn) = (begun.unwrap(), world.shared.turn());
                drop(turn.confirm_copies(begun.id));
                turn.state().publish(begun.id, begun.positions).unwrap();
                if turn.checkpoint(begun.id).is_ok() {
                    turn.confirm_copies(begun.id).unwrap();
                }
                turn.release(begun.id).unwrap();
            }
        }
        for step in 0..80 {
            let told = worlds.each_mut().map(|world| {
                let mut gone = Vec::new();
                let evicted = |page| gone.push(page);
                world.shared.evict_from_pool(1, 1, 100, evicted).unwrap();
                let found = match step % 3 {
                    0 => world.lookup(&ids, true).unwrap(),
                    1 => world.lookup(&ids[..LEN - 3], false).unwrap(),
                    _ => {
                        let list = TokenList::text(&ids);
                        let begun = world.shared.begin(&Namespace::default(), list, 0).unwrap();
                        world.shared.turn().release(begun.id).unwrap();
                        format!("{} {:?}", begun.cached_positions, begun.depths)
                    }
                };
                world.locks.drain(..).for_each(|lock| world.shared.turn().unlock(lock).unwrap());
                format!("{found} {} {}", gone.len(), world.seen())
            });
            assert_eq!(told[0], told[2], "{kinds:?}, step {step}");
            assert_eq!(told[1], told[2], "{kinds:?}, step {step}");
            let found: usize = told[0].split(' ').next().unwrap().parse().unwrap();
            short += usize::from((1..LEN / 2).contains(&found));
        }
    }
    assert!(short > 5, "{short} lookups ended far back");
}

/// G10: a window that a begin could reuse is in use by the call itself when it looks for room. It
/// is a part of what the sequence needs, whatever its portions are.
#[test]
fn g10_a_begin_with_little_room_reuses_the_window_it_found() {
    for slice in [1, 512] {
        let groups = [GroupConfig::default(), WINDOW.in_pool(1)];
        let config = PageTableConfig {
            page_size: PAGE_SIZE as u32,
            page_count: 100,
            slot_count: 2,
            groups: Groups::new(&groups).unwrap(),
            more_pools: MorePools::new(&[9]).unwrap(),
            ..PageTableConfig::default()
        };
        let shared = Shared::with_slices(config, slice, None).unwrap();
        shared.attach_cache(CacheConfig::default()).unwrap();
        let (first, more): (Vec<u32>, Vec<u32>) = ((0..38).collect(), (0..58).collect());
        let space = Namespace::default();
        let room = Room { reserve: 0, first: 2 };
        let id = shared.begin(&space, TokenList::text(&first), room).unwrap().id;
        for end in (2..=38).step_by(2) {
            shared.turn().allocate(id, end).unwrap();
            shared.turn().publish(id, end).unwrap();
        }
        shared.turn().release(id).unwrap();
        let list = TokenList::text(&more);
        assert_eq!(shared.read().find(&space, list).unwrap().positions(), 38);
        let begun = shared.begin(&space, list, room).unwrap();
        assert_eq!(begun.cached_positions, 38, "slices of {slice}");
        shared.turn().release(begun.id).unwrap();
        let state = shared.read();
        state.check().unwrap();
        state.audit().unwrap();
    }
}

/// G08: a chat that is inserted from its beginning at each turn keeps as many states as the limit
/// says, in whatever portions its rows come.
#[test]
fn g08_a_limit_on_states_holds_for_rows_that_come_in_portions() {
    for slice in [1, 3, 1 << 20] {
        let world = World::new((&[GroupKind::State], 1), slice);
        let ids: Vec<u32> = (0..48).collect();
        for turn in 1..=6 {
            let count = 4 * turn;
            let pages = world.shared.allocate_pages(count).unwrap();
            let mut states = vec![0; count];
            states[count - 1] = world.shared.allocate_pool_pages(1, 1).unwrap()[0];
            let rows = [GroupRow { group: 1, pages: &states }];
            let request = InsertRequest {
                groups: &rows,
                namespace: &Namespace::default(),
                tokens: TokenList::text(&ids[..count * PAGE_SIZE]),
                pages: &pages,
                from: None,
                from_token: 0,
                from_page: 0,
                lock: false,
                moved: None,
            };
            world.shared.turn().insert(request, |_, _, _| ()).unwrap();
            let cached = world.shared.read().pool_stats(1).unwrap().cached;
            assert_eq!(cached, 1, "slices of {slice}, turn {turn}");
        }
        let found = world.shared.probe(&Namespace::default(), TokenList::text(&ids)).unwrap();
        assert_eq!(found, (48, 48), "slices of {slice}");
        let state = world.shared.read();
        state.audit().unwrap();
        state.check().unwrap();
    }
}

/// G10: what a prompt is known of and can't be reused is evicted for it like anything else,
/// whatever the portions of its begin are.
#[test]
fn g10_a_begin_with_little_room_gets_the_pages_that_it_cannot_reuse() {
    for slice in [1, 512] {
        let groups = [GroupConfig::default(), WINDOW.in_pool(1)];
        let config = PageTableConfig {
            page_size: PAGE_SIZE as u32,
            page_count: 31,
            slot_count: 2,
            groups: Groups::new(&groups).unwrap(),
            more_pools: MorePools::new(&[40]).unwrap(),
            ..PageTableConfig::default()
        };
        let shared = Shared::with_slices(config, slice, None).unwrap();
        shared.attach_cache(CacheConfig::default()).unwrap();
        let (first, more): (Vec<u32>, Vec<u32>) = ((0..40).collect(), (0..42).collect());
        let space = Namespace::default();
        let id = shared.begin(&space, TokenList::text(&first), 0).unwrap().id;
        shared.turn().publish(id, 40).unwrap();
        shared.turn().release(id).unwrap();
        // No window is left: 20 pages are known, and none can be reused. 10 are free.
        shared.evict_from_pool(1, usize::MAX, usize::MAX, |_| {}).unwrap();
        let list = TokenList::text(&more);
        assert_eq!(shared.read().find(&space, list).unwrap().positions(), 0);
        assert_eq!(shared.read().pool_stats(0).unwrap().reclaimable, 20);
        let begun = shared.begin(&space, list, 0);
        let begun = begun.unwrap_or_else(|error| panic!("slices of {slice}: {error}"));
        assert_eq!((begun.cached_positions, begun.pages), (0, 21), "slices of {slice}");
        shared.turn().release(begun.id).unwrap();
        let state = shared.read();
        state.check().unwrap();
        state.audit().unwrap();
    }
}
