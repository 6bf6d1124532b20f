//! A small engine: a free list, requests with their lists of pages, and what it knows of the cache
//! by what it was told. Everything is naive, so that it can be believed.
use super::library::{Counts, From, Library, Lock};
use super::mirror::{Mirror, Prefix};
use fastrand::Rng;
use radixkv::capi::{RKV_REASON_CALLER, RKV_REASON_DESTROYED};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy)]
pub struct World {
    pub page_size: u32,
    pub page_count: u32,
    pub block_hash: bool,
    pub failures: bool,
}

/// What a run came across.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub adopted: u64,
    pub duplicates: u64,
    pub evicted: u64,
    pub refused_for_pages: u64,
    pub refused_inserts: u64,
    pub resumed: u64,
    pub restarts: u64,
    pub out_of_memory: u64,
}

impl Seen {
    fn counts(&mut self) -> [&mut u64; 8] {
        [
            &mut self.adopted,
            &mut self.duplicates,
            &mut self.evicted,
            &mut self.refused_for_pages,
            &mut self.refused_inserts,
            &mut self.resumed,
            &mut self.restarts,
            &mut self.out_of_memory,
        ]
    }

    pub fn add(&mut self, mut other: Seen) {
        self.counts().into_iter().zip(other.counts()).for_each(|(sum, more)| *sum += *more);
    }

    pub fn must_have_happened(mut self) {
        let shown = self;
        let [.., out_of_memory] = self.counts();
        *out_of_memory = 1;
        assert!(self.counts().into_iter().all(|count| *count > 0), "{shown:?}");
    }
}

/// A request: its tokens, and a page for each page_size of them.
struct Request {
    tenant: u32,
    ids: Vec<u32>,
    pages: Vec<u32>,
    /// The first of the pages are the cache's.
    shared: usize,
    /// What keeps those, and where an insert may go on from.
    lock: Option<Lock>,
    from: From,
}

pub struct Engine {
    world: World,
    rng: Rng,
    library: Library,
    /// The engine's allocator.
    free: Vec<u32>,
    requests: Vec<Request>,
    /// What the cache has, by what its calls said.
    held: BTreeMap<u32, Prefix>,
    /// The same the other way round.
    published: BTreeMap<Prefix, u32>,
    mirror: Mirror,
    seen: Seen,
}

impl Engine {
    pub fn new(world: World, seed: u64) -> Self {
        let World { page_size, page_count, block_hash, failures } = world;
        Self {
            world,
            rng: Rng::with_seed(seed),
            library: Library::new(page_size, page_count, block_hash, failures),
            free: (1..=page_count).collect(),
            requests: Vec::new(),
            held: BTreeMap::new(),
            published: BTreeMap::new(),
            mirror: Mirror::default(),
            seen: Seen::default(),
        }
    }

    pub fn into_library(self) -> Library {
        self.library
    }

    pub fn seen(&self) -> Seen {
        Seen { out_of_memory: self.library.out_of_memory.get(), ..self.seen }
    }

    fn page_size(&self) -> usize {
        self.world.page_size as usize
    }

    /// A prompt that shares its beginning with others, of up to the whole pool's length.
    fn prompt(&mut self) -> Vec<u32> {
        let most = (self.world.page_count as usize + 1) * self.page_size();
        let (family, fork) = (self.rng.u32(..3), self.rng.usize(..most));
        let branch = self.rng.u32(..3);
        let count = self.rng.usize(1..=most.min(40 * self.page_size()));
        let id =
            |at: usize| family * 10_000 + at as u32 + if at >= fork { branch * 1000 } else { 0 };
        (0..count).map(id).collect()
    }

    /// The pages that the cache has of a prompt.
    fn expected(&self, tenant: u32, ids: &[u32]) -> Vec<u32> {
        let prefixes = (1..=ids.len() / self.page_size()).map(|n| &ids[..n * self.page_size()]);
        prefixes.map_while(|part| self.published.get(&(tenant, part.to_vec())).copied()).collect()
    }

    pub fn step(&mut self) {
        match self.rng.u8(..20) {
            0..=5 => self.start(),
            6..=8 => self.publish(),
            9..=11 => self.decode(),
            12..=14 => self.finish(),
            15 => self.look_around(),
            16 | 17 => {
                let count = self.rng.usize(..=self.world.page_count as usize / 2 + 1);
                self.evict(count);
            }
            18 => self.misuse(),
            _ if self.rng.u8(..8) == 0 => self.restart(),
            _ => {
                let (tenant, ids) = (self.rng.u32(..2), self.prompt());
                let positions = self.library.probe(tenant, &ids);
                let whole = self.expected(tenant, &ids).len();
                assert_eq!(positions / self.page_size(), whole, "a probe");
            }
        }
    }

    /// Takes pages, those of the cache when there are too few. False: nothing was taken.
    fn allocate(&mut self, count: usize, into: &mut Vec<u32>) -> bool {
        let missing = count.saturating_sub(self.free.len());
        if missing > self.library.counts().reclaimable {
            self.seen.refused_for_pages += 1;
            return false;
        }
        if missing > 0 {
            self.evict(missing);
        }
        into.extend(self.free.drain(self.free.len() - count..));
        true
    }

    fn evict(&mut self, count: usize) {
        let before = self.library.counts().reclaimable;
        let pages = self.library.evict(count);
        assert_eq!(pages.len(), count.min(before), "what is reclaimable can be evicted");
        for &page in &pages {
            let (tenant, prefix) = self.held.remove(&page).expect("the cache has it");
            let longer = self.published.range((tenant, prefix.clone())..).nth(1);
            let goes_on =
                longer.is_some_and(|((t, ids), _)| *t == tenant && ids.starts_with(&prefix));
            assert!(!goes_on, "page {page} goes before one that follows it");
            let locked = |request: &&Request| request.pages[..request.shared].contains(&page);
            assert!(!self.requests.iter().any(|request| locked(&request)), "page {page} is locked");
            self.published.remove(&(tenant, prefix));
        }
        self.seen.evicted += pages.len() as u64;
        self.free.extend(pages);
    }

    fn lookup(&self, tenant: u32, ids: &[u32], lock: bool) -> (Vec<u32>, From, Option<Lock>) {
        let found = self.library.lookup(tenant, ids, lock);
        assert_eq!(found.pages, self.expected(tenant, ids), "a match");
        if let Some(page) = found.partial_page {
            let (t, prefix) = &self.held[&page];
            let whole = found.pages.len() * self.page_size();
            assert!(*t == tenant && prefix[..whole] == ids[..whole], "a part of another prompt");
        }
        let from = From { node: found.node, tokens: found.tokens, pages: found.pages.len() as u64 };
        let from = if found.pages.is_empty() { From::default() } else { from };
        (found.pages, from, found.lock)
    }

    fn start(&mut self) {
        if self.requests.len() > 4 {
            return self.finish();
        }
        let (tenant, ids) = (self.rng.u32(..2), self.prompt());
        let (mut pages, from, lock) = self.lookup(tenant, &ids, true);
        let shared = pages.len();
        let own = ids.len().div_ceil(self.page_size()) - shared;
        if !self.allocate(own, &mut pages) {
            lock.into_iter().for_each(|lock| self.library.unlock(lock));
            return;
        }
        self.requests.push(Request { tenant, ids, pages, shared, lock, from });
    }

    /// Inserts the whole pages of a request, remaps its duplicates and moves its lock.
    fn publish(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.requests.len());
        let mut request = self.requests.swap_remove(at);
        let whole = request.ids.len() / self.page_size();
        let before = self.expected(request.tenant, &request.ids).len();
        let resumes = request.from.node != 0 && self.rng.bool();
        let from = if resumes { request.from } else { From::default() };
        let Request { tenant, ref ids, ref pages, .. } = request;
        let (published, claimed, duplicates) =
            self.library.insert(tenant, ids, pages, from).expect("all pages are good");
        self.seen.resumed += u64::from(resumes);
        self.seen.adopted += claimed as u64;
        self.seen.duplicates += duplicates as u64;
        assert_eq!(claimed, whole - before.min(whole));
        for (at, (&published, page)) in published.iter().zip(&mut request.pages).enumerate() {
            if at >= whole {
                assert_eq!(published, *page, "what is not whole stays");
                continue;
            }
            let prefix = (tenant, request.ids[..(at + 1) * self.page_size()].to_vec());
            match self.published.get(&prefix) {
                Some(&known) => assert_eq!(published, known, "what was there stays"),
                None => {
                    assert_eq!(published, *page, "what is adopted is what was named");
                    self.held.insert(published, prefix.clone());
                    self.published.insert(prefix, published);
                }
            }
            if published != *page {
                self.free.push(std::mem::replace(page, published));
            }
        }
        let given_back = duplicates;
        assert!(given_back <= before.saturating_sub(request.shared), "only its own are");
        let (pages, from, lock) =
            self.lookup(tenant, &request.ids[..whole * self.page_size()], true);
        assert_eq!(pages[..], request.pages[..whole]);
        let old = std::mem::replace(&mut request.lock, lock);
        old.into_iter().for_each(|lock| self.library.unlock(lock));
        (request.shared, request.from) = (whole, from);
        self.requests.push(request);
    }

    /// Tokens more, which may need a page.
    fn decode(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.requests.len());
        let mut request = self.requests.swap_remove(at);
        let count = self.rng.usize(1..=2 * self.page_size());
        let pages = (request.ids.len() + count).div_ceil(self.page_size());
        if self.allocate_beside(pages - request.pages.len(), &mut request) {
            let more = (0..count).map(|_| self.rng.u32(..3));
            request.ids.extend(more);
        }
        self.requests.push(request);
    }

    /// The same for a request that is not in the list, but keeps its pages all the same.
    fn allocate_beside(&mut self, count: usize, request: &mut Request) -> bool {
        let mut taken = Vec::new();
        let done = self.allocate(count, &mut taken);
        let kept = &request.pages[..request.shared];
        assert!(kept.iter().all(|page| self.held.contains_key(page)), "it is locked");
        request.pages.extend(taken);
        done
    }

    fn finish(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.requests.len());
        let request = self.requests.swap_remove(at);
        request.lock.into_iter().for_each(|lock| self.library.unlock(lock));
        self.free.extend(&request.pages[request.shared..]);
    }

    fn look_around(&mut self) {
        let (tenant, ids) = (self.rng.u32(..2), self.prompt());
        self.lookup(tenant, &ids, false);
    }

    /// Pages that are not outside, or given twice: refused, and nothing changed.
    fn misuse(&mut self) {
        let (tenant, ids) = (self.rng.u32(..2), self.prompt());
        let known = self.expected(tenant, &ids);
        let whole = ids.len() / self.page_size();
        let mut pages = known.clone();
        pages.extend(self.free.iter().take(whole.saturating_sub(known.len())));
        if pages.len() < whole || whole == 0 {
            return;
        }
        self.library.check_refusals(&ids, &pages);
        let at = self.rng.usize(..whole);
        let wrong = match self.rng.u8(..4) {
            0 => [0, self.world.page_count + 1, u32::MAX][self.rng.usize(..3)],
            1 => pages[self.rng.usize(..whole)],
            _ if self.held.is_empty() => 0,
            _ => *self.held.keys().nth(self.rng.usize(..self.held.len())).unwrap(),
        };
        if pages[at] == wrong {
            return;
        }
        pages[at] = wrong;
        assert!(self.library.insert(tenant, &ids, &pages, From::default()).is_none(), "{pages:?}");
        self.seen.refused_inserts += 1;
    }

    /// The cache goes, with everything that it has; the journal alone lists it.
    fn restart(&mut self) {
        while !self.requests.is_empty() {
            self.finish();
        }
        self.library.restart_cache();
        let (records, last) = self.library.read(self.mirror.last);
        self.mirror.last = last;
        for (page, reason) in self.mirror.apply(self.page_size(), &records) {
            assert_eq!(reason, RKV_REASON_DESTROYED);
            assert!(self.held.remove(&page).is_some(), "page {page} was the cache's");
            self.free.push(page);
        }
        assert!(self.held.is_empty() && self.mirror.held.is_empty());
        self.published.clear();
        self.library.start_cache();
        self.seen.restarts += 1;
    }

    /// The engine, the library and the journal say the same of every page.
    pub fn agree(&mut self, when: &str) {
        let (records, last) = self.library.read(self.mirror.last);
        self.mirror.last = last;
        for (_, reason) in self.mirror.apply(self.page_size(), &records) {
            assert_eq!(reason, RKV_REASON_CALLER, "{when}");
        }
        assert_eq!(self.mirror.held, self.held, "{when}");
        let mut own = vec![0; self.world.page_count as usize + 1];
        self.free.iter().for_each(|&page| own[page as usize] += 1);
        for request in &self.requests {
            request.pages[request.shared..].iter().for_each(|&page| own[page as usize] += 1);
        }
        for page in 1..=self.world.page_count {
            let is_held = self.held.contains_key(&page);
            assert_eq!(own[page as usize], u32::from(!is_held), "{when}: page {page}");
            assert_eq!(self.library.contains(page), is_held, "{when}: page {page}");
        }
        let counts = self.library.counts();
        let outside = own.iter().sum::<u32>() as usize;
        let cached = self.held.len();
        assert_eq!(counts, Counts { cached, outside, ..counts }, "{when}");
        self.library.check();
    }

    /// Everything ends: all pages are the engine's again.
    pub fn end(&mut self) {
        while !self.requests.is_empty() {
            self.finish();
        }
        assert_eq!(self.library.counts().reclaimable, self.held.len());
        self.evict(self.world.page_count as usize);
        self.agree("at the end");
        assert_eq!(self.free.len(), self.world.page_count as usize);
    }
}
