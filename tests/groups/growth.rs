//! What comes behind a prompt: decoded tokens, and drafts that may be taken back.
use super::requests::Requests;
use radixkv::capi::*;

impl Requests {
    pub(super) fn append(&mut self) {
        if let Some(at) = self.any_that_grows() {
            self.append_to(at);
        }
    }

    /// A request that waits for nothing and is not too long yet.
    fn any_that_grows(&mut self) -> Option<usize> {
        if self.running.is_empty() {
            return None;
        }
        let (at, most) = (self.rng.usize(..self.running.len()), 9 * self.page_size());
        (!self.running[at].waits && self.running[at].ids.len() <= most).then_some(at)
    }

    fn append_to(&mut self, at: usize) -> bool {
        let ids: Vec<u32> = (0..self.rng.usize(1..4)).map(|_| self.rng.u32(..3)).collect();
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

    /// Computes some tokens behind all others, and takes the last of them back. A state can't be
    /// taken back.
    pub(super) fn draft(&mut self) {
        let Some(at) = self.any_that_grows().filter(|_| !self.has_states()) else { return };
        let (id, before) = (self.running[at].id, self.running[at].ids.len());
        if self.running[at].computed < before || !self.append_to(at) {
            return;
        }
        let drafted = self.running[at].ids.len();
        if self.library.allocate_positions(id, drafted).is_err() {
            return;
        }
        self.write(at, drafted);
        let accepted = before + self.rng.usize(..=drafted - before);
        match self.library.truncate(id, accepted) {
            Ok(()) => {
                self.running[at].ids.truncate(accepted);
                self.seen.taken_back += u64::from(accepted < drafted);
            }
            // A child is still to copy what would go.
            Err(status) => assert_eq!(status, rkv_status::InvalidState),
        }
        self.running[at].computed = self.running[at].ids.len();
        self.verify(at);
    }
}
