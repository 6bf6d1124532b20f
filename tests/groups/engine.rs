//! An engine that keeps books of its own and does anything that the header allows, at random.
use super::chance::Chance;
use super::follower::Follower;
use super::library::{Counts, Library, Rows, World};
use super::model::{Kind, Model, Pages, Prefix};
use radixkv::capi::{rkv_lock_id, rkv_node_id, rkv_status};
use std::collections::BTreeSet;

/// What a run came across.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub claimed: u64,
    pub filled: u64,
    pub duplicates: u64,
    pub evicted: u64,
    pub lost: u64,
    pub partial: u64,
    pub refused: u64,
    pub out_of_memory: u64,
    pub records_lost: u64,
    pub records_of_groups: u64,
    pub dropped: u64,
    pub moved: u64,
    pub slid: u64,
}

/// A lock, and what it protects.
pub struct Lock {
    pub id: rkv_lock_id,
    /// Pages of group 0.
    pub spine: Vec<u32>,
    /// By group, place and page.
    pub uses: Vec<Vec<(usize, u32)>>,
    /// Where it is: the node at the end of a prefix of whole pages. None inside a page.
    pub on: Option<(rkv_node_id, Prefix)>,
}

pub struct Engine {
    pub world: World,
    pub library: Library,
    pub model: Model,
    pub rng: Chance,
    pub locks: Vec<Lock>,
    /// Of an external pool: the pages that are the engine's.
    outside: Vec<BTreeSet<u32>>,
    follower: Follower,
    pub seen: Seen,
}

impl Engine {
    pub fn new(world: &World, rng: Chance) -> Self {
        let mut world = world.clone();
        if world.slice > 0 {
            // Which states go then depends on the portions.
            world.checkpoint_limit = 0;
        }
        Self {
            library: Library::new(&world),
            model: Model {
                page_size: world.page_size as usize,
                groups: world.groups.clone(),
                whole_pages: world.whole_pages,
                ..Model::default()
            },
            rng,
            locks: Vec::new(),
            outside: world.pools.iter().map(|&pages| (1..=pages).collect()).collect(),
            world,
            follower: Follower::default(),
            seen: Seen::default(),
        }
    }

    /// Prompts have few tokens to choose from, so that they often share beginnings.
    fn prompt(&mut self) -> (u32, Vec<u32>) {
        let most = 9 * self.world.reach * self.model.page_size + 3;
        let mut ids: Vec<u32> = match self.model.entries.len() {
            0 => Vec::new(),
            count => {
                let (_, prefix) =
                    self.model.entries.keys().nth(self.rng.usize(..count)).unwrap().clone();
                prefix[..self.rng.usize(..=prefix.len())].to_vec()
            }
        };
        let more = self.rng.usize(..=most - ids.len().min(most));
        ids.extend((0..more).map(|_| self.rng.u32(..2)));
        ids.truncate(most);
        if ids.is_empty() {
            ids.push(0);
        }
        (self.rng.u32(..2), ids)
    }

    /// Whether what decides its steps is used up.
    #[allow(dead_code)] // of the fuzz targets
    pub fn is_over(&self) -> bool {
        self.rng.is_over()
    }

    pub fn step(&mut self) {
        match self.rng.u32(..100) {
            0..30 => {
                let (tenant, ids) = self.prompt();
                self.insert((tenant, ids), None);
            }
            30..36 => self.grow_lock(),
            36..40 => self.slide_lock(),
            40..60 => self.lookup(),
            60..75 => self.unlock(),
            75..80 => self.lock_node(),
            80..99 => {
                let pool = self.rng.usize(..self.world.pools.len());
                let count = self.rng.usize(..6);
                self.evict(pool, count);
            }
            _ => self.restart(),
        }
        self.seen.out_of_memory = self.library.out_of_memory.get();
    }

    /// Pages of a pool that are nobody else's; None when all others are in use.
    fn take(&mut self, pool: usize, count: usize) -> Option<Vec<u32>> {
        let free = match self.world.external {
            true => self.outside[pool].len(),
            false => self.library.counts(pool).free as usize,
        };
        if free < count {
            self.evict(pool, count - free);
        }
        if self.world.external {
            let has = self.outside[pool].len() >= count;
            return has
                .then(|| (0..count).map(|_| self.outside[pool].pop_first().unwrap()).collect());
        }
        match self.library.allocate(pool, count) {
            Ok(pages) => Some(pages),
            Err(status) => {
                assert_eq!(status, rkv_status::OutOfPages);
                let shortage = self.library.shortage();
                assert_eq!((shortage.pool as usize, shortage.reclaimable_page_count), (pool, 0));
                self.seen.refused += 1;
                None
            }
        }
    }

    fn give_back(&mut self, pool: usize, page: u32) {
        match self.world.external {
            true => assert!(self.outside[pool].insert(page), "page {page} is in two places"),
            false => self.library.free(pool, &[page]),
        }
    }

    /// Inserts the pages of a prompt: some its own, some the cache's, some missing. It may go on
    /// from where a lock is, which goes along.
    pub fn insert(&mut self, (tenant, ids): Prefix, after: Option<Lock>) {
        let known = after.as_ref().map_or(0, |lock| lock.spine.len());
        let places = ids.len() / self.model.page_size;
        let groups = self.world.groups.clone();
        let mut rows: Rows = vec![vec![0; places]; groups.len()];
        let mut fresh: Vec<(usize, u32)> = Vec::new();
        let density = self.rng.u32(..5);
        // What eviction for the pages takes is not in the cache any more.
        for (group, of) in groups.iter().enumerate() {
            let wanted = (0..places).filter(|_| group == 0 || self.rng.u32(..4) < density);
            let wanted: Vec<usize> = wanted.collect();
            let Some(pages) = self.take(of.pool, wanted.len()) else {
                fresh.drain(..).for_each(|(pool, page)| self.give_back(pool, page));
                self.locks.extend(after);
                return;
            };
            for (place, page) in wanted.into_iter().zip(pages) {
                rows[group][place] = page;
                fresh.push((of.pool, page));
            }
        }
        for (group, row) in rows.iter_mut().enumerate() {
            for (place, page) in row.iter_mut().enumerate() {
                let entry = self.model.entry(tenant, &ids, place);
                let cached = entry.map_or(0, |pages| pages[group]);
                if cached != 0 && self.rng.bool() {
                    *page = cached;
                }
            }
        }
        let lock = after.is_some() || self.rng.bool();
        let (moved, node) = after.as_ref().map_or((0, 0), Lock::id_and_node);
        let done = self.library.insert_after((tenant, &ids), &rows, (lock, moved), (node, known));
        let (published, counts, id, node) = done.unwrap();
        let mut expected = [0; 4];
        let mut claimed = BTreeSet::new();
        let mut came = BTreeSet::new();
        for place in known..places {
            let key: Prefix = (tenant, ids[..(place + 1) * self.model.page_size].to_vec());
            let entry = self.model.entries.entry(key).or_insert_with(|| vec![0; groups.len()]);
            for (group, there) in entry.iter_mut().enumerate() {
                let (given, kind) = (rows[group][place], if group == 0 { 0 } else { 2 });
                if *there == 0 && given != 0 {
                    *there = given;
                    expected[kind] += 1;
                    claimed.insert((groups[group].pool, given));
                    self.seen.filled += u64::from(group > 0);
                    came.insert((group, place));
                } else if given != 0 && given != *there {
                    expected[kind + 1] += 1;
                }
            }
        }
        // What a lock protected that goes along stays.
        self.locks.extend(after);
        self.drop_surplus((tenant, &ids), &came);
        for (group, row) in published.iter().enumerate() {
            for (place, &page) in row.iter().enumerate().take(places) {
                let there = self.model.entry(tenant, &ids, place).unwrap()[group];
                assert_eq!(page, there, "group {group}, place {place}");
            }
        }
        assert_eq!(counts, expected, "claimed and duplicate pages");
        self.seen.claimed += expected[0] as u64;
        self.seen.duplicates += (expected[1] + expected[3]) as u64;
        for (pool, page) in fresh {
            if !claimed.contains(&(pool, page)) {
                self.give_back(pool, page);
            }
        }
        if lock && places > 0 {
            let ids = &ids[..places * self.model.page_size];
            match moved {
                0 => self.note_lock(id, node, (tenant, ids), false),
                _ => self.note_moved((id, node), (tenant, ids)),
            }
        }
    }

    /// Of the groups of which states came: those that a path has too many of are free again.
    fn drop_surplus(&mut self, (tenant, ids): (u32, &[u32]), came: &BTreeSet<(usize, usize)>) {
        let limit = self.world.checkpoint_limit as usize;
        if limit == 0 || self.world.external {
            return;
        }
        let (_, uses) = self.in_use();
        for (group, of) in self.world.groups.iter().enumerate() {
            if of.kind != Kind::State || !came.iter().any(|(of, _)| *of == group) {
                continue;
            }
            let stays =
                |place, page| uses.contains(&(group, page)) || came.contains(&(group, place));
            for place in self.model.surplus(group, (tenant, ids), limit, stays) {
                let key = (tenant, ids[..(place + 1) * self.model.page_size].to_vec());
                self.model.entries.get_mut(&key).expect("it has a state")[group] = 0;
                self.seen.dropped += 1;
            }
        }
    }

    /// The pages that a prefix needs, as far as they are there.
    pub fn needed(&self, tenant: u32, ids: &[u32], part: Option<&Pages>) -> Vec<Vec<(usize, u32)>> {
        let page_size = self.model.page_size;
        let needs = |kind: super::model::Kind| kind.needs(ids.len(), page_size).unwrap_or_default();
        let page = |group: usize, place: usize| {
            let whole = (place + 1) * page_size <= ids.len();
            let entry = if whole { self.model.entry(tenant, ids, place) } else { part };
            entry.map_or(0, |pages| pages[group])
        };
        let groups = self.world.groups.iter().enumerate();
        let pages = groups.map(|(group, of)| {
            let places = needs(of.kind).into_iter().map(|place| (place, page(group, place)));
            match of.kind {
                // Nothing behind a hole can be reused.
                super::model::Kind::Full => places.take_while(|(_, page)| *page != 0).collect(),
                _ => places.filter(|(_, page)| *page != 0).collect(),
            }
        });
        pages.collect()
    }

    /// Writes down what a lock protects, and that the library says so. `part` for one whose prefix
    /// ends inside a page, which the caller protects besides.
    fn note_lock(
        &mut self,
        id: rkv_lock_id,
        node: rkv_node_id,
        (tenant, ids): (u32, &[u32]),
        all: bool,
    ) {
        self.note_lock_with(id, (tenant, ids), None, all);
        self.locks.last_mut().unwrap().on = Some((node, (tenant, ids.to_vec())));
    }

    fn note_lock_with(
        &mut self,
        id: rkv_lock_id,
        (tenant, ids): (u32, &[u32]),
        part: Option<Pages>,
        all: bool,
    ) {
        let page_size = self.model.page_size;
        let needed = self.needed(tenant, ids, part.as_ref());
        for (group, pages) in needed.iter().enumerate().skip(1) {
            assert_eq!(&self.library.locked(id, group), pages, "group {group}");
            let kind = self.world.groups[group].kind;
            let places = kind.needs(ids.len(), page_size).map(|places| places.len());
            assert!(!all || places == Some(pages.len()), "a match has all that it needs");
        }
        let places = 0..ids.len() / page_size;
        let mut spine: Vec<u32> =
            places.map(|place| self.model.entry(tenant, ids, place).unwrap()[0]).collect();
        spine.extend(part.map(|pages| pages[0]));
        self.locks.push(Lock { id, spine, uses: needed, on: None });
    }

    fn lookup(&mut self) {
        let (tenant, ids) = self.prompt();
        let lock = self.rng.bool();
        let found = self.library.lookup(tenant, &ids, lock);
        let (known, usable) = self.model.depths(tenant, &ids);
        assert_eq!(found.known, known, "of {ids:?}");
        assert!(usable.contains(&found.positions), "{found:?}, but {usable:?} of {ids:?}");
        let whole = found.positions / self.model.page_size;
        for (place, &page) in found.pages.iter().enumerate() {
            assert_eq!(self.model.entry(tenant, &ids, place).unwrap()[0], page);
        }
        assert_eq!(found.pages.len(), whole);
        let mut saved = found.checkpoint_at.to_vec();
        saved.retain(|&at| at > 0);
        assert_eq!(saved, self.model.checkpoint_at(ids.len(), known, found.positions));
        assert_eq!(found.limiting_group > 0, found.positions < known);
        self.seen.lost += u64::from(found.positions < known);
        self.seen.partial += u64::from(!found.positions.is_multiple_of(self.model.page_size));
        if lock && found.positions > 0 {
            let part = (found.partial_page != 0).then(|| {
                let is_it = |pages: &&Pages| pages[0] == found.partial_page;
                self.model.entries.values().find(is_it).expect("it is cached").clone()
            });
            let ids = &ids[..found.positions];
            match part {
                None => self.note_lock(found.lock, found.node, (tenant, ids), true),
                _ => self.note_lock_with(found.lock, (tenant, ids), part, true),
            }
        } else {
            assert_eq!(found.lock, 0);
        }
    }

    fn lock_node(&mut self) {
        let (tenant, ids) = self.prompt();
        let found = self.library.lookup(tenant, &ids, false);
        if found.node == 0 {
            return;
        }
        let id = self.library.lock(found.node);
        let whole = found.pages.len() * self.model.page_size;
        self.note_lock(id, found.node, (tenant, &ids[..whole]), false);
    }

    fn unlock(&mut self) {
        if self.locks.is_empty() {
            return;
        }
        let lock = self.locks.swap_remove(self.rng.usize(..self.locks.len()));
        self.library.unlock(lock.id);
    }

    /// Pages of group 0 that are protected, and those of others.
    fn in_use(&self) -> (BTreeSet<u32>, BTreeSet<(usize, u32)>) {
        let spine = self.locks.iter().flat_map(|lock| &lock.spine).copied().collect();
        let uses = self.locks.iter().flat_map(|lock| lock.uses.iter().enumerate().skip(1));
        let pages = uses.flat_map(|(group, uses)| uses.iter().map(move |it| (group, it.1)));
        (spine, pages.collect())
    }

    fn evict(&mut self, pool: usize, count: usize) {
        let (spine, uses) = self.in_use();
        let (gone, freed) = self.library.evict(pool, count);
        let in_pool = |group: usize| self.world.groups[group].pool == pool;
        assert_eq!(freed, gone.iter().filter(|(group, _)| in_pool(*group)).count());
        for (group, page) in gone {
            let is_it = |(_, pages): &(&Prefix, &Pages)| pages[group] == page;
            let (prefix, _) = self.model.entries.iter().find(is_it).expect("it was cached");
            let prefix = prefix.clone();
            if group == 0 {
                assert!(!spine.contains(&page), "page {page} is locked");
                let (tenant, ids) = &prefix;
                let below = self.model.entries.keys().any(|(of, longer)| {
                    of == tenant && longer.len() > ids.len() && longer.starts_with(ids)
                });
                assert!(!below, "page {page} has others behind it");
                let pages = self.model.entries.remove(&prefix).unwrap();
                assert!(pages[1..].iter().all(|&page| page == 0), "what hung on it goes first");
            } else {
                assert!(!uses.contains(&(group, page)), "page {page} of {group} is in use");
                self.model.entries.get_mut(&prefix).unwrap()[group] = 0;
            }
            self.seen.evicted += 1;
            if self.world.external {
                let pool = self.world.groups[group].pool;
                assert!(self.outside[pool].insert(page), "page {page} is in two places");
            }
        }
        assert!(freed >= count || self.library.counts(pool).reclaimable == 0);
        let together = self.world.groups.iter().filter(|group| group.pool == pool).count();
        assert!(freed < count + together.max(1), "{freed} pages, {count} were asked for");
    }

    fn restart(&mut self) {
        let (told, follower) = (self.world.journal_bytes > 0, &mut self.follower);
        self.library.restart_cache(&mut |library| {
            if told && follower.read_on(library) {
                assert!(follower.entries(1).is_empty(), "all of it went with the cache");
            }
        });
        self.locks.clear();
        self.model.entries.clear();
        for (outside, &pages) in self.outside.iter_mut().zip(&self.world.pools) {
            *outside = (1..=pages).collect();
        }
    }

    /// Whether the library's numbers are those that the model has.
    pub fn agree(&mut self) {
        self.library.check();
        // Who reads a small ring seldom loses records.
        let is_small = self.world.journal_bytes < 1 << 16;
        if self.world.journal_bytes > 0 && !(is_small && self.rng.u32(..24) > 0) {
            self.follower.follow(&self.library);
            let told = self.follower.entries(self.world.groups.len());
            assert_eq!(told, self.model.entries, "what the journal says");
            self.seen.records_lost = self.follower.lost;
            self.seen.records_of_groups = self.follower.of_groups;
        }
        let (spine, uses) = self.in_use();
        for pool in 0..self.world.pools.len() {
            let (mut cached, mut reclaimable) = (0, 0);
            for pages in self.model.entries.values() {
                for (group, &page) in pages.iter().enumerate().filter(|(_, page)| **page != 0) {
                    if self.world.groups[group].pool == pool {
                        let used = match group {
                            0 => spine.contains(&page),
                            _ => uses.contains(&(group, page)),
                        };
                        cached += 1;
                        reclaimable += u64::from(!used);
                    }
                }
            }
            let total = u64::from(self.world.pools[pool]);
            let rest = total - cached;
            let (free, outside) = if self.world.external { (0, rest) } else { (rest, 0) };
            let wanted =
                Counts { total, free, cached, private: 0, outside, reclaimable, retained: 0 };
            assert_eq!(self.library.counts(pool), wanted, "pool {pool}");
        }
        let (tenant, ids) = self.prompt();
        let probe = self.library.probe(tenant, &ids);
        let (known, usable) = self.model.depths(tenant, &ids);
        assert_eq!(probe.known, known);
        assert!(usable.contains(&probe.positions), "{probe:?}, but {usable:?} of {ids:?}");
        assert_eq!(probe.lost.iter().sum::<usize>(), known - probe.positions);
        assert_eq!((probe.lost[0], probe.lost.len()), (0, self.world.groups.len()));
        let mut saved = probe.checkpoint_at.to_vec();
        saved.retain(|&at| at > 0);
        assert_eq!(saved, self.model.checkpoint_at(ids.len(), known, probe.positions));
    }

    #[allow(dead_code)] // of tests/groups_memory.rs
    pub fn into_library(self) -> Library {
        self.library
    }
}
