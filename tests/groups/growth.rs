//! What comes behind a prompt: decoded tokens, and drafts that may be taken back.
use super::requests::Requests;
use radixkv::capi::*;

impl Requests {
    pub(super) fn append(&mut self) {
        let Some(at) = self.any_that_grows() else { return };
        // What publishes nothing is to have all of it behind its prompt, and soon.
        let most = if self.running[at].publishes { 3 } else { 4 * self.page_size() };
        self.append_to(at, most);
    }

    /// A request that waits for nothing and is not too long yet.
    fn any_that_grows(&mut self) -> Option<usize> {
        if self.running.is_empty() {
            return None;
        }
        let (at, most) = (self.rng.usize(..self.running.len()), self.pages_long(9));
        (!self.running[at].waits && self.running[at].ids.len() <= most).then_some(at)
    }

    fn append_to(&mut self, at: usize, most: usize) -> bool {
        let ids: Vec<u32> = (0..self.rng.usize(1..=most)).map(|_| self.rng.u32(..3)).collect();
        match self.library.append(self.running[at].id, &ids) {
            Ok(()) => {
                self.running[at].ids.extend(ids);
                self.seen.appended += 1;
                true
            }
            Err(status) => {
                let refused = [rkv_status::OutOfPages, rkv_status::InvalidArgument];
                assert!(refused.contains(&status), "{status:?}");
                false
            }
        }
    }

    /// Computes some tokens behind all others, and takes the last of them back. Of states there is
    /// one after each of a few such tokens, or a state can't be taken back.
    pub(super) fn draft(&mut self) {
        let states = self.draft_states().filter(|&states| states > 0);
        let Some(at) = self.any_that_grows() else { return };
        let request = &self.running[at];
        let is_known = request.told.max(request.accepted) == request.computed;
        if self.has_states() && (states.is_none() || !is_known) {
            return;
        }
        let (id, before) = (self.running[at].id, self.running[at].ids.len());
        if self.running[at].computed < before || !self.append_to(at, 3) {
            return;
        }
        if states.is_some_and(|states| self.running[at].ids.len() - before > 1 + states) {
            // More than there are states for: they go before they are computed.
            must_be_ok(self.library.truncate(id, before + 1));
            self.running[at].ids.truncate(before + 1);
        }
        let drafted = self.running[at].ids.len();
        if self.library.allocate_positions(id, drafted).is_err() {
            return;
        }
        self.copy_children(id);
        let least = before + usize::from(states.is_some());
        self.write(at, drafted, states.is_some());
        let accepted = least + self.rng.usize(..=drafted - least);
        if states.is_some() {
            assert_eq!(self.library.truncate(id, before), Err(rkv_status::InvalidArgument));
        }
        match self.library.truncate(id, accepted) {
            Ok(()) => {
                self.running[at].ids.truncate(accepted);
                self.seen.taken_back += u64::from(accepted < drafted);
                let is_moved = states.is_some() && accepted > least;
                if is_moved {
                    self.running[at].accepted = accepted;
                    self.seen.accepted += 1;
                }
            }
            // A child is still to copy what would go.
            Err(status) => assert!(status == rkv_status::InvalidState && states.is_none()),
        }
        self.running[at].computed = self.running[at].ids.len();
        self.verify(at);
    }

    /// Takes any tokens back that came behind a prompt and are not published, also of what slid:
    /// refused exactly when a later position would be without something that it attends to.
    pub(super) fn take_back(&mut self) {
        if self.has_states() || self.running.is_empty() {
            return; // states are taken back as far as there are drafts
        }
        let at = self.rng.usize(..self.running.len());
        let request = &self.running[at];
        let is_read = self.running.iter().any(|child| child.parent == request.id && child.waits);
        if request.waits || is_read {
            return;
        }
        let (id, length, page_size) = (request.id, request.ids.len(), self.page_size());
        let published = self.library.info(id).shared_page_count as usize * page_size;
        let least = request.prompt.max(published);
        let first = if self.rng.u32(..4) == 0 { 1 } else { least.min(length) };
        let keep = self.rng.usize(first..=length);
        let has = |group: usize| {
            let (row, kind) = (self.library.group_row(id, group), self.world.groups[group].kind);
            let is_there = |position: usize| row[position / page_size] != 0;
            (keep..row.len() * page_size).all(|next| {
                is_there(next) && (0..next).all(|at| !kind.attends(at, next) || is_there(at))
            })
        };
        let has_all = (0..self.world.groups.len()).all(has);
        let expected = match keep {
            _ if keep < least => Err(rkv_status::InvalidArgument),
            _ if !has_all => Err(rkv_status::InvalidState),
            _ => Ok(()),
        };
        assert_eq!(self.library.truncate(id, keep), expected, "{keep} of {length}");
        self.seen.kept_back += u64::from(expected == Err(rkv_status::InvalidState));
        if expected.is_ok() {
            let request = &mut self.running[at];
            request.ids.truncate(keep);
            request.computed = request.computed.min(keep);
            request.told = request.told.min(keep);
            self.seen.taken_back += u64::from(keep < length);
            self.verify(at);
        }
    }
}

#[track_caller]
fn must_be_ok(done: Result<(), rkv_status>) {
    assert_eq!(done, Ok(()));
}
