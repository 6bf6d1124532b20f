//! What a node of the block-hash index holds: one page, by its digest.
use crate::token::{OpenImage, PageDigest};
use crate::tree::{Held, NONE, TreeNode};

/// A page. That of a root is 0, and its digest that of the namespace.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) digest: PageDigest,
    /// Few pages have any.
    pub(super) kept: Option<Box<Kept>>,
    pub(super) page: u32,
    pub(super) child_count: u32,
    /// The child that came last.
    pub(super) first_child: u32,
    /// Neighbours among the children of the parent.
    pub(super) next: u32,
    pub(super) previous: u32,
}

/// What is kept of a page with other than text.
#[derive(Debug)]
pub(super) struct Kept {
    /// All its keys: the images among them stay known while the page is.
    pub(super) keys: Box<[u32]>,
    /// An image goes on in the page after it.
    pub(super) open: Option<OpenImage>,
}

// A bound of the design: 128 bytes for a node, with what else it takes.
const _: () = assert!(size_of::<TreeNode<Entry>>() <= 112);

impl Default for Entry {
    fn default() -> Self {
        Self {
            digest: PageDigest::default(),
            kept: None,
            page: 0,
            child_count: 0,
            first_child: NONE,
            next: NONE,
            previous: NONE,
        }
    }
}

impl Held for Entry {
    fn pages(&self) -> &[u32] {
        &std::slice::from_ref(&self.page)[..self.page_count()]
    }

    #[inline]
    fn page_count(&self) -> usize {
        (self.page != 0) as usize
    }

    #[inline]
    fn child_count(&self) -> usize {
        self.child_count as usize
    }
}

impl Entry {
    #[inline]
    pub(super) fn has_children(&self) -> bool {
        self.child_count > 0
    }

    /// The keys of a page with other than text; none of a page of text.
    pub(super) fn media_keys(&self) -> &[u32] {
        self.kept.as_ref().map_or(&[], |kept| &kept.keys)
    }

    pub(super) fn open_image(&self) -> Option<OpenImage> {
        self.kept.as_ref().and_then(|kept| kept.open)
    }

    /// Heap memory.
    pub(super) fn media_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| size_of::<Kept>() + size_of_val(&*kept.keys))
    }
}
