//! Digests of long prompts, made while others have the lock.
//!
//! With an index that finds pages by their digests, a lookup of a long prompt is mostly hashing,
//! which needs nothing of the cache. It goes piece by piece: when all of a piece is cached, the
//! next one is hashed, up to twice as long. So hardly more is hashed in vain than was found.
use super::long_query::is_long_to_read;
use super::lookup::Sharing;
use super::ready_digests::Begun;
use super::stretch::short_stretch;
use super::turn::unlocked;
use super::{Chains, Found, Hold, PrefixCache, Shared, State, Turn};
use crate::error::Error;
use crate::index::{Namespace, Stretch};
use crate::token::{PageDigest, TextDigester, TextDigests, TokenList, position_count};
use std::mem::MaybeUninit;

/// Of the pages of a slice, the part that is hashed at once: 64 pages, 5 microseconds with 16
/// positions each.
pub(super) const PIECES: usize = 4;
/// The part up to which prompts are short. They are hashed under the lock, in 4 microseconds with
/// pages of 16 positions and 35 with the longest.
pub(super) const SHORTS: usize = 8;

/// Tokens of a list that may be looked up at once, whatever is cached: by its path, and where each
/// page is digested.
pub(super) fn short_lists(slice: usize, page_size: usize) -> [usize; 2] {
    let Stretch { nodes, keys } = short_stretch(slice);
    let path = keys.min(nodes.saturating_mul(page_size));
    [path, path.min((slice / SHORTS).saturating_mul(page_size))]
}

impl PrefixCache {
    /// Whether looking up a list means to hash more pages than others should wait for.
    #[inline(always)]
    pub(super) fn digests_many(&self, tokens: TokenList<'_>, slice: usize) -> bool {
        let Sharing { page_size, digests_pages, .. } = self.sharing;
        digests_pages && tokens.leading_text().len() / page_size > slice / SHORTS
    }
}

impl State {
    /// Whether all pages with these digests are cached; these and more keys have them.
    pub(super) fn has_all(
        &self,
        namespace: &Namespace,
        keys: &[u32],
        digests: &[PageDigest],
    ) -> bool {
        let Some(cache) = &self.cache else { return false };
        let keys = cache.keys(&keys[..digests.len() * cache.sharing.page_size]);
        let root = cache.index.find_root(namespace);
        let walk = root.map(|root| cache.index.walk_digested(root, keys, digests));
        walk.is_some_and(|walk| walk.pages == digests.len())
    }
}

impl Shared {
    /// Makes the digests of the first pages of a list, as far as those are cached, and of some
    /// more; some may be made. Fewer when memory runs out: a lookup makes the rest.
    #[cold]
    pub(super) fn digest_ahead(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        (page_size, begun): (usize, Option<Begun>),
    ) -> TextDigests {
        let ids = tokens.leading_text();
        let mut digester = match begun {
            Some((made, false)) => return made,
            Some((made, true)) => TextDigester::after(page_size, made, ids),
            None => TextDigester::new(page_size, namespace.digest(), ids),
        };
        let mut count = digester.made_so_far().len().clamp(1, self.slice.div_ceil(PIECES));
        while digester.make(count) {
            self.without_lock();
            if !self.read().has_all(namespace, ids, digester.made_so_far()) {
                break;
            }
            count = (2 * count).min(self.slice.div_ceil(PIECES));
        }
        digester.made()
    }
}

impl Turn<'_> {
    /// Whether others may be let in while a list is looked up.
    #[inline(always)]
    pub(crate) fn is_long(&self, tokens: TokenList<'_>) -> bool {
        let cache = self.state.cache.as_ref();
        cache.is_some_and(|cache| {
            let [path, digests] = self.shared.short_lists;
            let digests_pages = cache.sharing.digests_pages;
            let most = if digests_pages { digests } else { path };
            tokens.ids.len() > most
                || is_long_to_read(tokens, most, self.shared.slice)
                || digests_pages && self.has_ready(tokens)
        })
    }

    /// Tokens that are looked up at once, whatever is cached, where no page is digested.
    #[inline(always)]
    pub(crate) fn short_path(&self) -> usize {
        self.shared.short_lists[0]
    }

    /// Whether looking up a list is better begun with `digest_ahead`.
    #[inline]
    pub(super) fn digests_many(&self, tokens: TokenList<'_>) -> bool {
        let cache = self.state.cache.as_ref();
        cache.is_some_and(|cache| {
            cache.digests_many(tokens, self.shared.slice)
                || cache.sharing.digests_pages && self.has_ready(tokens)
        })
    }

    #[inline]
    fn has_ready(&self, tokens: TokenList<'_>) -> bool {
        self.ready.is_some_and(|ready| ready.are_for(tokens))
    }

    /// Makes digests for a lookup while others have the lock.
    #[inline(always)]
    pub(crate) fn digest_ahead(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> TextDigests {
        let page_size = self.table.page_size();
        let Self { shared, state, ready, .. } = self;
        let begun = match ready.and_then(|ready| ready.take(namespace, tokens)) {
            Some((made, false)) => return made,
            begun => begun,
        };
        let asked = (page_size, begun);
        unlocked(shared, state, || shared.digest_ahead(namespace, tokens, asked))
    }

    /// Finds how far a token list is cached. `then` gets that, and how many pages of the path are
    /// known, before others can change anything; it returns those pages. Of a long one others may
    /// have the lock before and after it.
    pub fn lookup<R, E: From<Error>>(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        then: impl FnOnce(&mut State, Found, usize) -> Result<R, E>,
    ) -> Result<(R, Vec<u32>), E> {
        let then = |state: &mut State, (found, known), _: &mut [_]| then(state, found, known);
        self.find_long(namespace, (tokens, &mut []), then, (true, false))
    }

    /// The same for who wants the pages in a row: where that has room for all pages of the list,
    /// those that are known may be there rather than be returned.
    pub fn lookup_into<R, E: From<Error>>(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        row: &mut [MaybeUninit<u32>],
        then: impl FnOnce(&mut State, (Found, usize), &mut [MaybeUninit<u32>]) -> Result<R, E>,
    ) -> Result<(R, Vec<u32>), E> {
        // Of a text that no groups limit the whole way was tried: `walk_shortly`.
        let is_tried = tokens.items.is_empty() && !self.has_groups();
        self.find_long(namespace, (tokens, row), then, (true, is_tried))
    }

    /// The same, with whether what is found counts as used, and whether looking it up in one go was
    /// tried.
    pub(super) fn find_long<R, E: From<Error>>(
        &mut self,
        namespace: &Namespace,
        (tokens, row): (TokenList<'_>, &mut [MaybeUninit<u32>]),
        then: impl FnOnce(&mut State, (Found, usize), &mut [MaybeUninit<u32>]) -> Result<R, E>,
        (is_used, is_tried): (bool, bool),
    ) -> Result<(R, Vec<u32>), E> {
        if !self.is_slow(tokens) {
            let found = self.state.find(namespace, tokens)?;
            return Ok((then(self.state(), (found, 0), row)?, Vec::new()));
        }
        if !is_tried
            && self.may_be_short(tokens)
            && let Some(found) =
                self.cache()?.find_shortly(namespace, (tokens, &[]), self.shared.slice)?
        {
            return Ok((then(self.state(), (found, 0), row)?, Vec::new()));
        }
        let positions = position_count(tokens)?;
        let query = self.ask_long(namespace, tokens, Hold::Known)?;
        let chains = if is_used { Chains::Use } else { Chains::Look };
        let pages = row.len().min(positions / self.table.page_size());
        self.touch_row(&mut row[..pages]);
        // Groups look at the pages of the way once more.
        let fits = !self.has_groups() && row.len() >= positions / self.table.page_size();
        let descent = match fits && !row.is_empty() {
            true => self.descend(&query, (usize::MAX, positions), Some(&mut *row)),
            false => self.descend_to_find(&query, positions, chains),
        };
        let done = match descent {
            Ok(mut descent) => {
                let found = self.cache().map(|cache| cache.find_behind(&query, &descent));
                let done = found.map_err(E::from).and_then(|found| {
                    let known = descent.end().min(found.pages());
                    Ok((then(self.state(), (found, known), row)?, known))
                });
                let mut pages = descent.take_pages();
                let used_at = self.now().filter(|_| is_used && done.is_ok());
                self.ascend(descent, used_at);
                done.map(|(done, known)| {
                    pages.truncate(known);
                    (done, pages)
                })
            }
            Err(error) => Err(error.into()),
        };
        self.end_long(query);
        done
    }
}
