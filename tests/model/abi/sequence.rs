//! Sequences.
use super::super::namespaces::namespace;
use super::super::tokens::TokenList;
use super::many::only;
use super::{Library, Status, done, sized};
use radixkv::capi::*;
use radixkv::sequence::Room;
use std::ptr::null;

// Every unsafe block has the reason that `mod.rs` gives.
const NO_COPY: rkv_page_copy =
    rkv_page_copy { source_page: 0, target_page: 0, position_count: 0, group: 0 };

impl Library {
    pub fn begin(
        &self,
        ns: u8,
        tokens: &TokenList,
        room: Room,
    ) -> Result<rkv_sequence_info, Status> {
        if self.in_batch() {
            return only(self.begin_many(&[(ns, Some(tokens), room)]));
        }
        let namespace = namespace(ns);
        let tokens = tokens.raw();
        let args = rkv_sequence_begin_args {
            space: namespace.as_ref().map_or(null(), std::ptr::from_ref),
            tokens: &tokens,
            reserve_position_count: room.reserve as u64,
            allocate_position_count: room.first as u64,
            ..sized()
        };
        let mut state = sized();
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_begin", Some(self), &mut || unsafe {
            rkv_sequence_begin(self.cache, &args, &mut state)
        });
        done(status, ())?;
        Ok(state)
    }

    pub fn go_on(
        &self,
        parent: u64,
        ns: u8,
        tokens: &TokenList,
        all: Option<&TokenList>,
        room: Room,
        running: bool,
    ) -> Result<rkv_sequence_info, Status> {
        let namespace = namespace(ns);
        let (tokens, all) = (tokens.raw(), all.map(TokenList::raw));
        let args = rkv_sequence_continue_args {
            flags: if running { RKV_CONTINUE_RUNNING } else { 0 },
            parent,
            space: namespace.as_ref().map_or(null(), std::ptr::from_ref),
            tokens: &tokens,
            all_tokens: all.as_ref().map_or(null(), std::ptr::from_ref),
            reserve_position_count: room.reserve as u64,
            allocate_position_count: room.first as u64,
            ..sized()
        };
        let mut state = sized();
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_continue", Some(self), &mut || unsafe {
            rkv_sequence_continue(self.cache, &args, &mut state)
        });
        done(status, ())?;
        Ok(state)
    }

    pub fn fork(
        &self,
        parent: u64,
        child_count: usize,
        reserve: usize,
    ) -> Result<Vec<rkv_sequence_fork_child>, Status> {
        let args = rkv_sequence_fork_args {
            parent,
            child_count,
            reserve_position_count: reserve as u64,
            ..sized()
        };
        let nobody =
            rkv_sequence_fork_child { sequence: u64::MAX, slot: u32::MAX, copy_count: u32::MAX };
        let mut children = vec![nobody; child_count];
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_fork", Some(self), &mut || unsafe {
            rkv_sequence_fork(
                self.cache,
                &args,
                children.as_mut_ptr(),
                size_of::<rkv_sequence_fork_child>(),
            )
        });
        done(status, ())?;
        Ok(children)
    }

    /// The page copy that a sequence waits for; zeros when there is none.
    pub fn copy_of(&self, sequence: u64) -> Result<rkv_page_copy, Status> {
        let mut copy = NO_COPY;
        let mut count = usize::MAX;
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_read_copies", Some(self), &mut || unsafe {
            let size = size_of::<rkv_page_copy>();
            rkv_sequence_read_copies(self.cache, sequence, &mut copy, size, 1, &mut count)
        });
        done(status, copy)
    }

    pub fn retain(&self, sequence: u64) -> Result<bool, Status> {
        let mut retained = false;
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_retain", Some(self), &mut || unsafe {
            rkv_sequence_retain(self.cache, sequence, &mut retained)
        });
        done(status, retained)
    }

    pub fn drop_sequence(&self, sequence: u64) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call_sure("rkv_sequence_drop", Some(self), &mut || unsafe {
            rkv_sequence_drop(self.cache, sequence)
        });
        done(status, ())
    }

    pub fn drop_retained(&self, pages: usize) -> Result<usize, Status> {
        let mut gained = usize::MAX;
        // SAFETY: see above.
        let status = crate::call_sure("rkv_cache_drop_retained", Some(self), &mut || unsafe {
            rkv_cache_drop_retained(self.cache, pages, &mut gained)
        });
        done(status, gained)
    }

    /// The retained sequences, with room for `room` of them.
    pub fn retained(&self, room: usize) -> Result<Vec<u64>, Status> {
        let mut ids = vec![0; room.max(1)];
        let mut count = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_cache_read_retained", Some(self), &mut || unsafe {
            rkv_cache_read_retained(self.cache, ids.as_mut_ptr(), room, &mut count)
        });
        ids.truncate(count);
        done(status, ids)
    }

    /// The namespaces, with their roots.
    pub fn namespaces(&self) -> Result<Vec<(rkv_namespace, u64)>, Status> {
        let (mut spaces, mut roots) = ([sized::<rkv_namespace>(); 16], [0; 16]);
        let (size, room, mut count) = (size_of::<rkv_namespace>(), roots.len(), 0);
        let (into, nodes) = (spaces.as_mut_ptr(), roots.as_mut_ptr());
        // SAFETY: see above.
        let status = crate::call("rkv_cache_read_namespaces", Some(self), &mut || unsafe {
            rkv_cache_read_namespaces(self.cache, into, size, nodes, room, &mut count)
        });
        done(status, spaces.into_iter().zip(roots).take(count).collect())
    }

    pub fn query(&self, sequence: u64) -> Result<rkv_sequence_info, Status> {
        let mut state = sized();
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_read_info", Some(self), &mut || unsafe {
            rkv_sequence_read_info(self.cache, sequence, &mut state)
        });
        done(status, ())?;
        Ok(state)
    }

    pub fn confirm_copies(&self, sequence: u64) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call_sure("rkv_sequence_confirm_copies", Some(self), &mut || unsafe {
            rkv_sequence_confirm_copies(self.cache, sequence)
        });
        done(status, ())
    }

    pub fn allocate(&self, sequence: u64, positions: usize) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_allocate", Some(self), &mut || unsafe {
            rkv_sequence_allocate(self.cache, sequence, positions as u64)
        });
        done(status, ())
    }

    pub fn append(&self, sequence: u64, tokens: &TokenList) -> Result<(), Status> {
        if self.in_batch() {
            return only(self.append_many(&[(sequence, tokens)]));
        }
        let tokens = tokens.raw();
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_append", Some(self), &mut || unsafe {
            rkv_sequence_append(self.cache, sequence, &tokens)
        });
        done(status, ())
    }

    pub fn truncate(&self, sequence: u64, positions: usize) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call_sure("rkv_sequence_truncate", Some(self), &mut || unsafe {
            rkv_sequence_truncate(self.cache, sequence, positions as u64)
        });
        done(status, ())
    }

    pub fn publish(
        &self,
        sequence: u64,
        computed: usize,
    ) -> Result<rkv_sequence_publish_result, Status> {
        if self.in_batch() {
            return only(self.publish_many(&[(sequence, computed)]));
        }
        let mut result = sized();
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_publish", Some(self), &mut || unsafe {
            rkv_sequence_publish(self.cache, sequence, computed as u64, &mut result)
        });
        done(status, result)
    }

    pub fn release(&self, sequence: u64) -> Result<(), Status> {
        if self.in_batch() {
            return only(self.release_many(&[sequence]));
        }
        // SAFETY: see above.
        let status = crate::call_sure("rkv_sequence_release", Some(self), &mut || unsafe {
            rkv_sequence_release(self.cache, sequence)
        });
        done(status, ())
    }
}
