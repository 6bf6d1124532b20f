//! Locks that go along with what is inserted, and let go of what windows have passed.
use super::engine::{Engine, Lock};
use super::library::{Library, must};
use super::model::{Kind, Prefix};
use radixkv::capi::*;
use std::ptr::null_mut;

impl Library {
    /// The pages of a group that a lock protects, with their places.
    pub fn locked(&self, lock: rkv_lock_id, group: usize) -> Vec<(usize, u32)> {
        let (mut count, size, group) = (0, size_of::<rkv_locked_page>(), group as u32);
        let (cache, none) = (self.cache, rkv_locked_page { page_index: 0, page: 0 });
        // SAFETY: the cache lives as long as the object, each pointer comes with its length.
        let pages = unsafe {
            must(rkv_cache_read_locked_pages(cache, lock, group, null_mut(), 0, 0, &mut count));
            let (mut pages, room) = (vec![none; count], count);
            let into = pages.as_mut_ptr();
            must(rkv_cache_read_locked_pages(cache, lock, group, into, size, room, &mut count));
            pages
        };
        assert_eq!(pages.len(), count);
        pages.iter().map(|locked| (locked.page_index as usize, locked.page)).collect()
    }

    /// Lets go of what no token from a position on attends to.
    pub fn slide_lock(&self, lock: rkv_lock_id, position: usize) {
        // SAFETY: the cache lives as long as the object.
        must(self.call(&mut || unsafe { rkv_cache_slide_lock(self.cache, lock, position as u64) }));
    }
}

impl Lock {
    /// Its id, and the node that it is on.
    pub fn id_and_node(&self) -> (rkv_lock_id, rkv_node_id) {
        let (node, _) = self.on.as_ref().expect("it is on a node");
        (self.id, *node)
    }
}

impl Engine {
    /// A lock that is on a node.
    fn one_on_a_node(&mut self) -> Option<usize> {
        let locks = self.locks.iter().enumerate().filter(|(_, lock)| lock.on.is_some());
        let locks: Vec<usize> = locks.map(|(at, _)| at).collect();
        (!locks.is_empty()).then(|| locks[self.rng.usize(..locks.len())])
    }

    /// Inserts more behind where a lock is: of what is known there, or anything.
    pub fn grow_lock(&mut self) {
        // Of a limit on states the model knows what an insert from the root does: that looks at all
        // of the path, and not at what its links lead to.
        if self.world.checkpoint_limit > 0 {
            return;
        }
        let Some(at) = self.one_on_a_node() else { return };
        let lock = self.locks.swap_remove(at);
        let (_, (tenant, mut ids)) = lock.on.clone().unwrap();
        let behind = |(of, longer): &&Prefix| *of == tenant && longer.starts_with(&ids);
        let known: Vec<Prefix> = self.model.entries.keys().filter(behind).cloned().collect();
        if !known.is_empty() && self.rng.bool() {
            ids = known[self.rng.usize(..known.len())].1.clone();
        }
        for _ in 0..self.rng.usize(..3 * self.model.page_size) {
            ids.push(self.rng.u32(..2));
        }
        self.insert((tenant, ids), Some(lock));
    }

    /// Writes down what the last of the locks protects after it moved, and that the library says
    /// so.
    pub fn note_moved(
        &mut self,
        (id, node): (rkv_lock_id, rkv_node_id),
        (tenant, ids): (u32, &[u32]),
    ) {
        let Lock { id: before, spine, mut uses, .. } = self.locks.pop().unwrap();
        assert_eq!(id, before, "a lock that moves keeps its id");
        let needed = self.needed(tenant, ids, None);
        let places = ids.len() / self.model.page_size;
        let pages: Vec<_> =
            (0..places).map(|at| self.model.entry(tenant, ids, at).unwrap().clone()).collect();
        for (group, of) in self.world.groups.iter().enumerate() {
            if of.kind == Kind::Full {
                uses[group].clone_from(&needed[group]);
            } else {
                let came = (spine.len()..places).map(|place| (place, pages[place][group]));
                uses[group].extend(came.filter(|(_, page)| *page != 0));
            }
        }
        let spine = pages.iter().map(|pages| pages[0]).collect();
        let on = Some((node, (tenant, ids.to_vec())));
        self.locks.push(Lock { id, spine, uses, on });
        self.check_lock(self.locks.len() - 1);
        self.seen.moved += 1;
    }

    /// Whether the library says that a lock protects what is written down.
    fn check_lock(&self, at: usize) {
        let lock = &self.locks[at];
        for (group, uses) in lock.uses.iter().enumerate().skip(1) {
            assert_eq!(&self.library.locked(lock.id, group), uses, "group {group}");
        }
    }

    /// Lets a lock let go of what no token from a position on attends to.
    pub fn slide_lock(&mut self) {
        if self.locks.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.locks.len());
        let page_size = self.model.page_size;
        let most = (self.locks[at].spine.len() + 3) * page_size;
        let position = self.rng.usize(..most);
        for (group, uses) in self.locks[at].uses.iter_mut().enumerate().skip(1) {
            let kind = self.world.groups[group].kind;
            let before = uses.len();
            uses.retain(|&(place, _)| {
                let (first, end) = (place * page_size, (place + 1) * page_size);
                let attended = || (first..end).any(|at| kind.attends(at, position));
                match kind {
                    Kind::Full => true,
                    Kind::State => end >= position,
                    _ => end > position || attended(),
                }
            });
            self.seen.slid += (before - uses.len()) as u64;
        }
        self.library.slide_lock(self.locks[at].id, position);
        self.check_lock(at);
    }
}
