//! The life of sequences.
use super::{Live, World, namespace};
use crate::abi::{Sized32, last_message, ok};
use crate::input::Input;
use crate::prompt::Prompt;
use radixkv::capi::*;

impl World {
    pub(super) fn begin(&mut self, input: &mut Input<'_>) {
        self.begin_with(input, 0);
    }

    /// The first positions of the prompt alone get pages.
    pub(super) fn begin_part(&mut self, input: &mut Input<'_>) {
        let first = input.byte() as usize;
        self.begin_with(input, first);
    }

    fn begin_with(&mut self, input: &mut Input<'_>, first: usize) {
        let prompt = self.prompt(input);
        let number = input.below(4);
        let reserve = if input.rarely(4) { input.byte() as usize } else { 0 };
        let (namespace, tokens) = (namespace(number), prompt.raw());
        let (_, found) = self.probe(number, &prompt);
        let free = self.last.free() as usize;
        let args = rkv_sequence_begin_args {
            space: &namespace,
            tokens: &tokens,
            reserve_position_count: reserve as u64,
            allocate_position_count: first as u64,
            ..Sized32::sized()
        };
        let mut state = rkv_sequence_info::sized();
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_sequence_begin(self.pair.cache, &args, &mut state) };
        let row_pages = (prompt.positions() + reserve).div_ceil(self.page_size);
        let free_slots = self.last.free_slots();
        if !self.after(status) {
            match status {
                rkv_status::InvalidArgument => {
                    assert!(prompt.tokens() == 0 || row_pages > self.row_limit);
                }
                rkv_status::OutOfSlots => assert_eq!(free_slots, 0),
                rkv_status::OutOfPages => {
                    self.check_shortage();
                    assert!(row_pages > free, "refused although the pool alone is enough");
                }
                other => panic!("begin: {other:?}: {}", last_message()),
            }
            return;
        }
        let cached = state.cached_position_count as usize;
        let most = found.min(prompt.boundary(prompt.positions() - 1));
        let page_size = self.page_size;
        let most = if self.whole_pages { prompt.page_boundary(most, page_size) } else { most };
        assert!(cached <= most, "{cached} positions are reused, {found} were found");
        if row_pages <= free {
            assert_eq!(cached, most, "there was room to reuse everything");
        }
        assert!(prompt.is_boundary(cached));
        assert_eq!(state.cached_token_count as usize, prompt.tokens_before(cached));
        assert_eq!(state.position_count as usize, prompt.positions());
        assert_eq!(state.shared_page_count as usize, cached / page_size);
        let row = self.pair.row(state.slot);
        let row_pages = match first {
            0 => row_pages,
            all if all >= prompt.positions() => row_pages,
            some => some.max(cached).div_ceil(page_size),
        };
        assert_eq!(row.len(), row_pages);
        assert_eq!(state.page_count as usize, row_pages);
        self.check_content(&prompt, number, &row, cached / page_size * page_size);
        let copy = self.pair.copy_of(state.sequence);
        assert_eq!(copy.position_count as usize, cached % page_size);
        let copy = (state.copy_count > 0).then_some((
            copy.source_page,
            copy.target_page,
            cached % page_size,
        ));
        if let Some((_, target, _)) = copy {
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
        let at = self.live.len() - 1;
        self.compute(at);
    }

    /// Positions of a sequence that its row has pages for, of an image all or none.
    fn positions_with_pages(&self, at: usize) -> usize {
        let live = &self.live[at];
        let allocated = self.pair.row(live.slot).len() * self.page_size;
        live.prompt.boundary(live.prompt.positions().min(allocated))
    }

    /// Pages for some more positions of a sequence, or for more than it has.
    pub(super) fn allocate_more(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick_live(input) else {
            return;
        };
        let (live, byte) = (&self.live[at], input.byte() as usize);
        let positions = live.prompt.positions();
        let wanted = if byte == 255 { positions + 1 } else { positions * byte / 254 };
        let before = self.pair.row(live.slot).len();
        // SAFETY: the handle is alive.
        let status = unsafe { rkv_sequence_allocate(self.pair.cache, live.id, wanted as u64) };
        let length = before.max(wanted.div_ceil(self.page_size));
        if self.after(status) {
            assert_eq!(self.pair.row(self.live[at].slot).len(), length);
            self.compute(at);
            return;
        }
        match status {
            rkv_status::OutOfPages => {
                self.check_shortage();
                assert!(length > before);
            }
            rkv_status::InvalidArgument => assert!(wanted > positions),
            other => panic!("allocate: {other:?}: {}", last_message()),
        }
    }

    /// Does what an engine does between calls: writes the KV of every position that has a page and
    /// lacks it.
    pub(super) fn compute(&mut self, at: usize) {
        let (live, page_size) = (&self.live[at], self.page_size);
        if live.copy.is_some() {
            return;
        }
        let (prompt, number) = (live.prompt.clone(), live.namespace);
        let row = self.pair.row(live.slot);
        let shared = self.query(at).shared_page_count as usize * page_size;
        let todo = live.computed..self.positions_with_pages(at);
        assert!(todo.is_empty() || todo.start >= shared, "a shared page would be written to");
        self.live[at].computed = todo.end;
        if !todo.is_empty() && self.is_computed_by_the_runner(at) {
            self.compute_by_the_runner(at, todo);
        } else {
            self.write_content(&prompt, number, &row, todo);
        }
    }

    pub(super) fn query(&self, at: usize) -> rkv_sequence_info {
        let live = &self.live[at];
        let mut state = rkv_sequence_info::sized();
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_sequence_read_info(self.pair.cache, live.id, &mut state) });
        assert_eq!((state.sequence, state.slot), (live.id, live.slot));
        assert_eq!(state.position_count as usize, live.prompt.positions());
        assert_eq!(state.copy_count > 0, live.copy.is_some());
        assert!(state.shared_page_count <= state.page_count);
        assert!(state.page_count as usize * self.page_size >= live.computed);
        state
    }

    pub(super) fn pick_live(&self, input: &mut Input<'_>) -> Option<usize> {
        let places: Vec<_> = (0..self.live.len()).collect();
        input.pick(&places).copied()
    }

    pub(super) fn append(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick_live(input) else {
            return;
        };
        let before = self.live[at].prompt.tokens();
        let mut longer = self.live[at].prompt.clone();
        for _ in 0..1 + input.below(6) {
            longer.push_any(input);
        }
        let added = longer.rest(before);
        let tokens = added.raw();
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_sequence_append(self.pair.cache, self.live[at].id, &tokens) };
        if self.after(status) {
            self.prompts.pop();
            self.prompts.push(longer.clone());
            self.live[at].prompt = longer;
            self.compute(at);
            return;
        }
        match status {
            rkv_status::OutOfPages => self.check_shortage(),
            rkv_status::InvalidArgument => {
                assert!(longer.positions().div_ceil(self.page_size) > self.row_limit);
            }
            other => panic!("append: {other:?}: {}", last_message()),
        }
    }

    pub(super) fn truncate(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick_live(input) else {
            return;
        };
        let state = self.query(at);
        let keep = state.position_count.saturating_sub(input.below(20) as u64) as usize;
        // SAFETY: the handle is alive.
        let status =
            unsafe { rkv_sequence_truncate(self.pair.cache, self.live[at].id, keep as u64) };
        let good = self.after(status);
        let live = &mut self.live[at];
        if good {
            assert!(live.prompt.is_boundary(keep), "an image was cut");
            assert!(keep >= state.shared_page_count as usize * self.page_size);
            assert!(keep as u64 >= state.cached_position_count);
            live.prompt = live.prompt.cut_at(keep);
            live.computed = live.computed.min(keep);
            live.told = live.told.min(keep);
        } else {
            let lent = status == rkv_status::InvalidState && self.is_lent(at);
            assert!(lent || status == rkv_status::InvalidArgument, "{status:?}");
            let live = &self.live[at];
            assert_ne!(keep, live.prompt.positions(), "keeping all is always allowed");
        }
    }

    /// Whether a copy of a private page of this sequence is still to be made.
    fn is_lent(&self, at: usize) -> bool {
        let row = self.pair.row(self.live[at].slot);
        let sources = self.live.iter().filter_map(|live| live.copy);
        sources.into_iter().any(|(source, ..)| row.contains(&source) && !self.contains(source))
    }

    pub(super) fn publish(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick_live(input) else {
            return;
        };
        let before = self.query(at);
        let live = &self.live[at];
        let too_many = input.rarely(16);
        let computed = match input.byte() as usize {
            _ if too_many => live.prompt.positions() + 1,
            some if some < 128 => live.computed * some / 128,
            _ => live.computed,
        };
        let mut result = rkv_sequence_publish_result::sized();
        let (free, cached) = (self.last.free(), self.last.cached());
        let row_before = self.pair.row(live.slot);
        // SAFETY: all pointers lead to live values.
        let status =
            unsafe { rkv_sequence_publish(self.pair.cache, live.id, computed as u64, &mut result) };
        let live_copy = live.copy.is_some();
        if !self.after(status) {
            match status {
                rkv_status::InvalidArgument => assert!(too_many),
                rkv_status::InvalidState => assert!(live_copy),
                other => panic!("publish: {other:?}: {}", last_message()),
            }
            return;
        }
        assert!(!too_many && !live_copy);
        self.live[at].told = self.live[at].told.max(computed);
        let (after, live) = (self.query(at), &self.live[at]);
        let row = self.pair.row(live.slot);
        let shared = (computed / self.page_size) as u64;
        assert_eq!(result.shared_page_count, shared.max(before.shared_page_count));
        assert_eq!(result.shared_page_count, after.shared_page_count);
        assert_eq!(
            result.claimed_page_count + result.remapped_page_count,
            after.shared_page_count - before.shared_page_count
        );
        assert_eq!(after.page_count, before.page_count);
        // What a child is still to copy from stays until it has.
        let is_lent = |page: u32| {
            self.live.iter().any(|live| live.copy.is_some_and(|(source, ..)| source == page))
        };
        let gone = row_before.iter().zip(&row).filter(|(before, after)| before != after);
        let lent = gone.filter(|(before, _)| is_lent(**before)).count() as u64;
        assert_eq!(self.last.free() - free, result.remapped_page_count - lent);
        assert_eq!(self.last.cached() - cached, result.claimed_page_count);
        if result.remapped_page_count == 0 {
            assert_eq!(result.first_remapped_index, row.len() as u64);
        }
        self.check_content(&live.prompt, live.namespace, &row, live.computed);
        self.note_node(after.node);
    }

    pub(super) fn confirm_copies(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick_live(input) else {
            return;
        };
        let page_size = self.page_size;
        let mut planned = false;
        if let Some((source, target, count)) = self.live[at].copy {
            let todo = self.live[at].computed + count..self.positions_with_pages(at);
            planned = !todo.is_empty() && self.is_computed_by_the_runner(at);
            // Only now, to see that the source was protected all the time.
            if planned {
                self.plan(at, &todo);
            } else {
                self.kv.copy(source as usize * page_size, target as usize * page_size, count);
            }
            let live = &self.live[at];
            let row = self.pair.row(live.slot);
            self.check_content(&live.prompt, live.namespace, &row, live.computed + count);
            self.live[at].computed += count;
        }
        if planned {
            self.live[at].copy = None;
            self.query(at);
            self.compute(at);
            return;
        }
        // SAFETY: the handle is alive.
        let status = unsafe { rkv_sequence_confirm_copies(self.pair.cache, self.live[at].id) };
        if self.after(status) {
            assert!(self.live[at].copy.take().is_some());
            self.compute(at);
        } else {
            assert_eq!(status, rkv_status::InvalidState);
            assert!(self.live[at].copy.is_none());
        }
    }

    pub(super) fn release(&mut self, input: &mut Input<'_>) {
        if let Some(at) = self.pick_live(input) {
            let live = self.live.swap_remove(at);
            self.release_one(live);
        }
    }

    pub(super) fn release_one(&mut self, live: Live) {
        let row = self.pair.row(live.slot);
        self.check_content(&live.prompt, live.namespace, &row, live.computed);
        let (before, slots) = (self.last.private(), self.last.free_slots());
        // SAFETY: the handle is alive.
        let status = unsafe { rkv_sequence_release(self.pair.cache, live.id) };
        assert!(self.after(status), "release: {status:?}: {}", last_message());
        assert!(self.last.private() <= before);
        assert_eq!(self.last.free_slots(), slots + 1);
        self.released.push(live.id);
    }

    pub(super) fn release_twice(&mut self, input: &mut Input<'_>) {
        let Some(&id) = input.pick(&self.released) else {
            return;
        };
        // SAFETY: the handle is alive.
        let status = unsafe { rkv_sequence_release(self.pair.cache, id) };
        assert_eq!(status, rkv_status::StaleSequence);
        self.after(status);
    }

    /// What a sequence published is found for as long as it lives.
    pub(super) fn probe_live(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.pick_live(input) else {
            return;
        };
        let shared = self.query(at).shared_page_count as usize * self.page_size;
        let live = &self.live[at];
        let (prompt, number): (Prompt, _) = (live.prompt.clone(), live.namespace);
        let (_, found) = self.probe(number, &prompt);
        let least = prompt.page_boundary(shared, self.page_size);
        let least = if self.whole_pages { least } else { prompt.boundary(shared) };
        assert!(found >= least, "{shared} positions are published, {found} are found");
        let row = self.pair.row(self.live[at].slot);
        self.check_content(&prompt, number, &row, self.live[at].computed);
    }
}
