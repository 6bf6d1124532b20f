//! Pages of the groups beside the spine that come to the cache: each hangs on a page of group 0,
//! and the journal says so.
use super::PrefixCache;
use crate::group::{Class, Hung, HungPage};
use crate::journal::Journal;
use crate::token::Images;

/// Hangs pages, of which those of one group best come in the order of their positions: so they come
/// into one record.
pub(super) struct Hanging<'a> {
    pub(super) hung: &'a mut Hung,
    journal: Option<&'a mut Journal>,
    images: &'a Images,
    now: u64,
}

impl PrefixCache {
    /// Begins to hang pages; None with one group.
    pub(super) fn begin_hanging(&mut self) -> Option<Hanging<'_>> {
        let now = self.index.now();
        let Self { groups, journal, images, .. } = self;
        let hung = &mut groups.as_deref_mut()?.hung;
        Some(Hanging { hung, journal: journal.as_deref_mut(), images, now })
    }
}

impl Hanging<'_> {
    /// Says that a page goes behind all that hang by now.
    pub(super) fn renew(&mut self, page: HungPage) {
        self.hung.renew(page, self.now);
    }

    /// Hangs a page, which its pool has as cached already, on one of the spine.
    pub(super) fn hang(&mut self, page: HungPage, spine: u32) {
        self.hung.hang(page, spine, Class::Tail, self.now);
        if let Some(journal) = &mut self.journal {
            journal.hang(page, self.hung.pool_of(page.group), spine, self.images);
        }
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.end_hanging(self.images);
        }
    }
}
