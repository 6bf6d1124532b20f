//! Sequences that go on from others, and finished ones that are kept for that.
use super::{Kept, Live, World, namespace};
use crate::abi::{Sized32, last_message, ok};
use crate::input::Input;
use crate::prompt::Prompt;
use radixkv::capi::*;

/// What a child can be made of.
struct Parent {
    id: rkv_sequence_id,
    namespace: usize,
    prompt: Prompt,
    /// Positions that the library knows to be computed.
    computed: usize,
    is_live: bool,
}

impl World {
    /// Positions of a live sequence that others may take over.
    fn told(&self, at: usize) -> usize {
        let live = &self.live[at];
        let shared = self.query(at).shared_page_count as usize * self.page_size;
        if live.copy.is_some() { shared } else { live.told }
    }

    pub(super) fn retain_or_drop(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0..5 => self.retain(input),
            5 | 6 => {
                let places: Vec<_> = (0..self.kept.len()).collect();
                if let Some(&at) = input.pick(&places) {
                    let kept = self.kept.remove(at);
                    // SAFETY: the handle is alive.
                    let status = unsafe { rkv_sequence_drop(self.pair.cache, kept.id) };
                    assert!(self.after(status), "drop: {status:?}: {}", last_message());
                    self.released.push(kept.id);
                }
            }
            _ => self.drop_retained(input.below(24)),
        }
    }

    fn retain(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick_live(input) else {
            return;
        };
        let computed = self.told(at);
        let live = self.live.swap_remove(at);
        let (slots, private) = (self.last.free_slots(), self.last.private());
        let mut retained = false;
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_sequence_retain(self.pair.cache, live.id, &mut retained) };
        assert!(self.after(status), "retain: {status:?}: {}", last_message());
        assert_eq!(self.last.free_slots(), slots + 1);
        assert!(self.last.private() <= private);
        if retained {
            let Live { id, namespace, prompt, .. } = live;
            self.kept.push(Kept { id, namespace, prompt, computed });
        } else {
            self.released.push(live.id);
        }
        self.forget_displaced();
    }

    /// The first to finish gave way.
    fn forget_displaced(&mut self) {
        let left = self.pair.retained();
        while self.kept.len() > left.len() {
            let first = self.kept.remove(0);
            self.released.push(first.id);
        }
        let ours: Vec<_> = self.kept.iter().map(|kept| kept.id).collect();
        assert_eq!(left, ours, "another one than the first to finish gave way");
    }

    pub(super) fn drop_retained(&mut self, wanted: usize) {
        let before = self.last.free() + self.last.reclaimable();
        let mut gained = 0;
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_cache_drop_retained(self.pair.cache, wanted, &mut gained) };
        assert!(self.after(status), "drop: {status:?}: {}", last_message());
        assert_eq!(self.last.free() + self.last.reclaimable(), before + gained as u64);
        self.forget_displaced();
        assert!(gained >= wanted || self.kept.is_empty());
    }

    /// A live or a retained sequence.
    fn pick_parent(&mut self, input: &mut Input<'_>) -> Option<Parent> {
        let places: Vec<_> = (0..self.kept.len()).collect();
        if input.flag()
            && let Some(&at) = input.pick(&places)
        {
            let Kept { id, namespace, ref prompt, computed } = self.kept[at];
            return Some(Parent {
                id,
                namespace,
                prompt: prompt.clone(),
                computed,
                is_live: false,
            });
        }
        let at = self.pick_live(input)?;
        let (computed, live) = (self.told(at), &self.live[at]);
        let (id, namespace, prompt) = (live.id, live.namespace, live.prompt.clone());
        Some(Parent { id, namespace, prompt, computed, is_live: true })
    }

    pub(super) fn go_on(&mut self, input: &mut Input<'_>) {
        let Some(parent) = self.pick_parent(input) else {
            return;
        };
        let before = parent.prompt.tokens();
        let mut prompt = parent.prompt.clone();
        for _ in 0..input.below(6) {
            prompt.push_any(input);
        }
        let (running, gone) = (!input.rarely(4), input.rarely(8));
        let number = if input.rarely(8) { input.below(4) } else { parent.namespace };
        let reserve = if input.rarely(4) { input.byte() as usize } else { 0 };
        let id = if gone { u64::MAX } else { parent.id };
        let suffix = prompt.rest(before);
        let (namespace, tokens, all) = (namespace(number), suffix.raw(), prompt.raw());
        let with_all = input.rarely(4);
        let args = rkv_sequence_continue_args {
            flags: if running { RKV_CONTINUE_RUNNING } else { 0 },
            parent: id,
            space: &namespace,
            tokens: &tokens,
            all_tokens: if with_all { &all } else { std::ptr::null() },
            reserve_position_count: reserve as u64,
            ..Sized32::sized()
        };
        let mut state = rkv_sequence_info::sized();
        let slots = self.last.free_slots();
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_sequence_continue(self.pair.cache, &args, &mut state) };
        let row_pages = (prompt.positions() + reserve).div_ceil(self.page_size);
        if !self.after(status) {
            match status {
                rkv_status::StaleSequence => assert!(gone && !with_all),
                rkv_status::Pending => assert!(parent.is_live && !running && !gone),
                rkv_status::InvalidArgument => {
                    assert!(number != parent.namespace || row_pages > self.row_limit);
                }
                rkv_status::OutOfSlots => assert_eq!(slots, 0),
                rkv_status::OutOfPages => self.check_shortage(),
                other => panic!("continue: {other:?}: {}", last_message()),
            }
            return;
        }
        assert!(gone || (number == parent.namespace && (running || !parent.is_live)));
        if gone {
            assert!(with_all);
            assert_eq!(state.inherited_position_count, 0);
        } else {
            let limit = prompt.positions() - (suffix.tokens() == 0) as usize;
            self.check_share(&parent, &prompt, limit, &state);
        }
        self.add_child(number, prompt, &state);
    }

    /// A child takes over as much as the library knows to be computed.
    #[track_caller]
    fn check_share(
        &self,
        parent: &Parent,
        prompt: &Prompt,
        limit: usize,
        state: &rkv_sequence_info,
    ) {
        let most = prompt.boundary(parent.computed.min(limit));
        let most = if self.whole_pages { prompt.page_boundary(most, self.page_size) } else { most };
        assert_eq!(state.inherited_position_count as usize, most);
        assert_eq!(state.cached_position_count, state.inherited_position_count);
    }

    /// Checks what a new sequence maps and is to copy, and keeps it.
    fn add_child(&mut self, number: usize, prompt: Prompt, state: &rkv_sequence_info) {
        let (cached, page_size) = (state.cached_position_count as usize, self.page_size);
        assert!(prompt.is_boundary(cached));
        assert_eq!(state.cached_token_count as usize, prompt.tokens_before(cached));
        assert_eq!(state.position_count as usize, prompt.positions());
        assert_eq!(state.shared_page_count as usize, cached / page_size);
        let row = self.pair.row(state.slot);
        assert_eq!(state.page_count as usize, row.len());
        self.check_content(&prompt, number, &row, cached / page_size * page_size);
        let copy = self.pair.copy_of(state.sequence);
        assert_eq!(copy.position_count as usize, cached % page_size);
        let (source, target) = (copy.source_page, copy.target_page);
        let copy = (cached % page_size > 0).then_some((source, target, cached % page_size));
        if copy.is_some() {
            assert_eq!(target, row[cached / page_size], "the copy goes to the row");
        }
        self.note_node(state.node);
        self.live.push(Live {
            id: state.sequence,
            slot: state.slot,
            namespace: number,
            prompt,
            computed: cached / page_size * page_size,
            told: cached,
            copy,
        });
        self.compute(self.live.len() - 1);
    }

    pub(super) fn fork(&mut self, input: &mut Input<'_>) {
        let Some(parent) = self.pick_parent(input) else {
            return;
        };
        let child_count = 1 + input.below(4);
        let reserve = if input.rarely(4) { input.byte() as usize } else { 0 };
        let args = rkv_sequence_fork_args {
            parent: parent.id,
            child_count,
            reserve_position_count: reserve as u64,
            ..Sized32::sized()
        };
        let nobody = rkv_sequence_fork_child { sequence: 0, slot: 0, copy_count: 0 };
        let mut children = vec![nobody; child_count];
        let (slots, free) = (self.last.free_slots() as usize, self.last.free() as usize);
        // SAFETY: all pointers lead to live values, there is room for all children.
        let status = unsafe {
            rkv_sequence_fork(
                self.pair.cache,
                &args,
                children.as_mut_ptr(),
                size_of::<rkv_sequence_fork_child>(),
            )
        };
        let row_pages = (parent.prompt.positions() + reserve).div_ceil(self.page_size);
        if !self.after(status) {
            match status {
                rkv_status::InvalidArgument => assert!(row_pages > self.row_limit),
                rkv_status::OutOfSlots => assert!(slots < child_count),
                rkv_status::OutOfPages => {
                    self.check_shortage();
                    assert!(row_pages * child_count > free, "refused although it fits");
                }
                other => panic!("fork: {other:?}: {}", last_message()),
            }
            return;
        }
        for child in children {
            let mut state = rkv_sequence_info::sized();
            // SAFETY: all pointers lead to live values.
            ok(unsafe { rkv_sequence_read_info(self.pair.cache, child.sequence, &mut state) });
            assert_eq!(state.slot, child.slot);
            assert_eq!(state.copy_count, child.copy_count as u64);
            self.check_share(&parent, &parent.prompt, parent.prompt.positions(), &state);
            self.add_child(parent.namespace, parent.prompt.clone(), &state);
        }
    }
}
