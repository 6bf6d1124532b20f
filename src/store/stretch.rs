//! How much of a path is looked up before others are let in, and which lists need no more.
use super::long_path::path_portion;
use super::long_query::is_long_to_read;
use super::{PrefixCache, Turn};
use crate::index::{Namespace, Stretch, Walk};
use crate::token::{TokenList, positions_at_most};

/// Keys of a portion for each page of a slice: 16,384 in all, which take 3 microseconds to compare,
/// and 6 when they are in no cache either.
const KEYS: usize = 64;

/// What is looked up of a path before others are let in.
fn stretch(slice: usize) -> Stretch {
    Stretch { nodes: path_portion(slice), keys: KEYS.saturating_mul(slice) }
}

/// What is looked up in one go where it is all: to let others in costs more than it takes.
pub(super) fn short_stretch(slice: usize) -> Stretch {
    // To pass a node takes less than what else is done for one of a portion.
    Stretch { nodes: slice, keys: stretch(slice).keys.saturating_mul(2) }
}

impl PrefixCache {
    /// Whether the path of a list may be longer than others should wait for.
    #[inline]
    pub(super) fn may_be_long(&self, tokens: TokenList<'_>, slice: usize) -> bool {
        let (Stretch { nodes, keys }, positions) =
            (short_stretch(slice), positions_at_most(tokens));
        // Every node has a page.
        let many = positions / self.page_size() > nodes && self.index.node_count() > nodes;
        many || positions > keys
            || self.has_long_needs(positions, slice)
            || is_long_to_read(tokens, keys, slice)
    }
}

impl Turn<'_> {
    /// What is looked up of a path before others are let in.
    #[inline]
    pub(crate) fn stretch(&self) -> Stretch {
        stretch(self.shared.slice)
    }

    /// Whether looking up a list may take longer than others should wait for.
    #[inline]
    pub(crate) fn is_slow(&self, tokens: TokenList<'_>) -> bool {
        let Some(cache) = &self.state.cache else { return false };
        cache.may_be_long(tokens, self.shared.slice) || self.digests_many(tokens)
    }

    /// Whether it is worth a try to look up a list that `is_slow` in one go: it has two portions of
    /// keys at most, and perhaps few nodes.
    pub(super) fn may_be_short(&self, tokens: TokenList<'_>) -> bool {
        let (positions, cache) = (positions_at_most(tokens), self.state.cache.as_ref());
        positions <= short_stretch(self.shared.slice).keys
            && !self.digests_many(tokens)
            && !cache.is_some_and(|cache| cache.has_long_needs(positions, self.shared.slice))
    }

    /// Where a text leads that is looked up by its keys, in one go: nowhere, if nothing is cached.
    /// None when others should not wait for that.
    #[inline(never)] // shorter texts are the hot ones
    pub(crate) fn walk_shortly(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> Option<Option<Walk>> {
        let cache = self.state.cache.as_ref()?;
        if !tokens.items.is_empty() || !self.may_be_short(tokens) {
            return None;
        }
        let Some(root) = cache.index.find_root(namespace) else { return Some(None) };
        let (walk, goes_on) =
            cache.index.walk_some(root, cache.keys(tokens.ids), short_stretch(self.shared.slice));
        (!goes_on).then_some(Some(walk))
    }
}
