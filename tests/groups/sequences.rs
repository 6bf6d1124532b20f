//! Sequences through the header.
use super::library::{Library, must, sized};
use radixkv::capi::*;

// Every block below has this reason: the handles live as long as the object, each pointer comes
// from a reference or from a slice with its length, and the library keeps none of them.
impl Library {
    pub fn begin(
        &self,
        tenant: u32,
        ids: &[u32],
        chunk: usize,
    ) -> Result<rkv_sequence_info, rkv_status> {
        let (space, list) = (Self::namespace(tenant), Self::tokens(ids));
        let args = rkv_sequence_begin_args {
            space: &space,
            tokens: &list,
            allocate_position_count: chunk as u64,
            ..sized()
        };
        let mut info = sized();
        // SAFETY: see above.
        let status =
            self.call(&mut || unsafe { rkv_sequence_begin(self.cache(), &args, &mut info) });
        if status != rkv_status::Ok {
            return Err(status);
        }
        let (known, used) = (info.known_position_count, info.cached_position_count);
        self.note_cost(info.limiting_group, known, used);
        Ok(info)
    }

    pub fn copies(&self, id: rkv_sequence_id) -> Vec<rkv_page_copy> {
        // SAFETY: plain integers.
        let mut copies = vec![unsafe { std::mem::zeroed::<rkv_page_copy>() }; 16];
        let (size, mut count) = (size_of::<rkv_page_copy>(), 0);
        // SAFETY: see above.
        must(unsafe {
            let (into, room) = (copies.as_mut_ptr(), copies.len());
            rkv_sequence_read_copies(self.cache(), id, into, size, room, &mut count)
        });
        copies.truncate(count);
        copies
    }

    pub fn confirm(&self, id: rkv_sequence_id) {
        // SAFETY: see above.
        must(self.call(&mut || unsafe { rkv_sequence_confirm_copies(self.cache(), id) }));
    }

    pub fn group_row(&self, id: rkv_sequence_id, group: usize) -> Vec<u32> {
        let (mut pages, mut count, group) = (vec![0; 200], 0, group as u32);
        // SAFETY: see above.
        must(unsafe {
            let (into, room) = (pages.as_mut_ptr(), pages.len());
            rkv_sequence_read_group_row(self.cache(), id, group, 0, into, room, &mut count)
        });
        pages.truncate(count);
        pages
    }

    pub fn allocate_positions(&self, id: rkv_sequence_id, end: usize) -> Result<(), rkv_status> {
        // SAFETY: see above.
        let status =
            self.call(&mut || unsafe { rkv_sequence_allocate(self.cache(), id, end as u64) });
        if status == rkv_status::Ok { Ok(()) } else { Err(status) }
    }

    pub fn publish(&self, id: rkv_sequence_id, computed: usize) -> rkv_sequence_publish_result {
        let mut result = sized();
        // SAFETY: see above.
        must(self.call(&mut || unsafe {
            rkv_sequence_publish(self.cache(), id, computed as u64, &mut result)
        }));
        result
    }

    pub fn slide(&self, id: rkv_sequence_id, computed: usize) {
        // SAFETY: see above.
        must(self.call(&mut || unsafe { rkv_sequence_slide(self.cache(), id, computed as u64) }));
    }

    pub fn checkpoint(&self, id: rkv_sequence_id) -> Result<usize, rkv_status> {
        let mut count = 0;
        // SAFETY: see above.
        let status =
            self.call(&mut || unsafe { rkv_sequence_checkpoint(self.cache(), id, &mut count) });
        if status == rkv_status::Ok { Ok(count) } else { Err(status) }
    }

    pub fn append(&self, id: rkv_sequence_id, ids: &[u32]) -> Result<(), rkv_status> {
        let list = Self::tokens(ids);
        // SAFETY: see above.
        let status = self.call(&mut || unsafe { rkv_sequence_append(self.cache(), id, &list) });
        if status == rkv_status::Ok { Ok(()) } else { Err(status) }
    }

    pub fn truncate(&self, id: rkv_sequence_id, keep: usize) -> Result<(), rkv_status> {
        // SAFETY: see above.
        let status =
            self.call(&mut || unsafe { rkv_sequence_truncate(self.cache(), id, keep as u64) });
        if status == rkv_status::Ok { Ok(()) } else { Err(status) }
    }

    pub fn info(&self, id: rkv_sequence_id) -> rkv_sequence_info {
        let mut info = sized();
        // SAFETY: see above.
        must(unsafe { rkv_sequence_read_info(self.cache(), id, &mut info) });
        info
    }

    pub fn fork(
        &self,
        parent: rkv_sequence_id,
        (count, reserve): (usize, usize),
    ) -> Result<Vec<rkv_sequence_id>, rkv_status> {
        let reserve_position_count = reserve as u64;
        let args = rkv_sequence_fork_args {
            parent,
            child_count: count,
            reserve_position_count,
            ..sized()
        };
        // SAFETY: plain integers.
        let mut children = vec![unsafe { std::mem::zeroed::<rkv_sequence_fork_child>() }; count];
        let size = size_of::<rkv_sequence_fork_child>();
        // SAFETY: see above.
        let status = self.call(&mut || unsafe {
            rkv_sequence_fork(self.cache(), &args, children.as_mut_ptr(), size)
        });
        match status {
            rkv_status::Ok => Ok(children.iter().map(|child| child.sequence).collect()),
            status => Err(status),
        }
    }

    /// Running and retained ones.
    pub fn sequence_counts(&self) -> (u64, u64) {
        let mut stats: rkv_cache_stats = sized();
        // SAFETY: see above.
        must(unsafe { rkv_cache_read_stats(self.cache(), &mut stats) });
        (stats.sequence_count, stats.retained_sequence_count)
    }

    pub fn retain(&self, id: rkv_sequence_id) {
        let mut retained = false;
        // SAFETY: see above.
        must(self.call(&mut || unsafe { rkv_sequence_retain(self.cache(), id, &mut retained) }));
    }

    pub fn drop_sequence(&self, id: rkv_sequence_id) {
        // SAFETY: see above. It may have been displaced.
        let status = self.call(&mut || unsafe { rkv_sequence_drop(self.cache(), id) });
        assert!([rkv_status::Ok, rkv_status::StaleSequence].contains(&status));
    }

    /// What goes on from a sequence that runs or is retained; its pages come chunk by chunk, with
    /// some more than it has tokens.
    pub fn go_on(
        &self,
        (parent, runs): (rkv_sequence_id, bool),
        (tenant, more): (u32, &[u32]),
        (chunk, reserve): (usize, usize),
    ) -> Result<rkv_sequence_info, rkv_status> {
        let (space, list) = (Self::namespace(tenant), Self::tokens(more));
        let args = rkv_sequence_continue_args {
            flags: if runs { RKV_CONTINUE_RUNNING } else { 0 },
            parent,
            space: &space,
            tokens: &list,
            reserve_position_count: reserve as u64,
            allocate_position_count: chunk as u64,
            ..sized()
        };
        let mut info = sized();
        // SAFETY: see above.
        let status =
            self.call(&mut || unsafe { rkv_sequence_continue(self.cache(), &args, &mut info) });
        if status == rkv_status::Ok { Ok(info) } else { Err(status) }
    }

    pub fn clear(&self) {
        self.note_clear();
        let args = rkv_cache_clear_args { flags: RKV_CLEAR_EVERYTHING, ..sized() };
        // SAFETY: see above.
        must(self.call(&mut || unsafe { rkv_cache_clear(self.cache(), &args, &mut sized()) }));
    }

    pub fn published(&self, id: rkv_sequence_id) -> Vec<rkv_published_group> {
        let none = rkv_published_group {
            group: 0,
            claimed_page_count: 0,
            remapped_page_count: 0,
            reserved: 0,
        };
        let (mut groups, mut count) = (vec![none; 8], 0);
        // SAFETY: see above.
        must(unsafe {
            let (into, size) = (groups.as_mut_ptr(), size_of::<rkv_published_group>());
            rkv_sequence_read_published(self.cache(), id, into, size, 8, &mut count)
        });
        groups.truncate(count);
        groups
    }

    pub fn donate(&self, id: rkv_sequence_id) -> usize {
        let mut count = 0;
        // SAFETY: see above.
        must(self.call(&mut || unsafe { rkv_sequence_donate(self.cache(), id, &mut count) }));
        count
    }

    pub fn release(&self, id: rkv_sequence_id) {
        // SAFETY: see above.
        must(self.call(&mut || unsafe { rkv_sequence_release(self.cache(), id) }));
    }
}
