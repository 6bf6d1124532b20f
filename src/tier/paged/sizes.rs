//! What a directory's pages must have in common with the cache's: their groups, and their sizes.
use super::note::Note;
use crate::group::{GROUP_LIMIT, Groups};
use crate::tier::Record;
use std::fmt;

/// Bytes of a page of each group; 0 where there is no such group.
///
/// They belong to what a directory is for, as the fingerprint does: one start with a wrong size
/// must not cost all that is there. A group of which it has no page may be any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSizes([u64; GROUP_LIMIT]);

/// A page that another layout has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherSize {
    group: u8,
    found: u64,
    /// 0 when there is no such group.
    wanted: u64,
}

impl PageSizes {
    pub(super) fn new(groups: &Groups, page_bytes: impl Fn(usize) -> usize) -> Self {
        let mut sizes = [0; GROUP_LIMIT];
        for (size, group) in sizes.iter_mut().zip(groups.list()) {
            *size = page_bytes(group.pool as usize) as u64;
        }
        Self(sizes)
    }

    /// Refuses a page of another size, or of a group that isn't there. What is no page is not
    /// looked at: whoever makes records of pages drops it.
    pub(in crate::tier) fn check(&self, record: &Record) -> Result<(), OtherSize> {
        let Some(note) = Note::decode(&record.note) else { return Ok(()) };
        let (group, found) = (note.name.group, record.bytes);
        let wanted = self.0[usize::from(group)];
        if wanted == found { Ok(()) } else { Err(OtherSize { group, found, wanted }) }
    }
}

impl fmt::Display for OtherSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, found, wanted } = self;
        write!(f, "pages of {found} bytes of group {group}, ")?;
        match wanted {
            0 => f.write_str("which the page table does not have"),
            _ => write!(f, "whose page_bytes are {wanted} here"),
        }
    }
}
