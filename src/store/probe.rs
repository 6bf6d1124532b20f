//! Probes: how far a list is cached, without a lock where that can be, and else with the one that
//! readers share.
use super::long_query::is_long_to_read;
use super::lookup::Sharing;
use super::stretch::short_stretch;
use super::{Found, PrefixCache, ReadyDigests, Shared, State};
use crate::error::Error;
use crate::grace::Reader;
use crate::index::{Ask, Namespace, Probe, Ways};
use crate::token::{
    PageDigest, TextDigests, TokenList, positions_at_most, with_imageless_query, with_known_query,
};

/// Looks up without a lock.
#[derive(Debug)]
pub struct Prober {
    index: Box<dyn Probe>,
    sharing: Sharing,
}

impl Prober {
    /// Tokens and positions of a list that are cached. None: whoever asks must take the lock.
    pub fn probe(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        is_ahead: bool,
        reader: &Reader,
    ) -> Result<Option<(usize, usize)>, Error> {
        with_imageless_query(tokens, |query| {
            let reach = |keys: &[u32]| self.index.reach(namespace, keys, is_ahead, reader);
            let positions = self.sharing.positions(query, reach);
            Ok(positions.map(|positions| (query.tokens_before(positions), positions)))
        })
        .map(Option::flatten)
    }
}

impl PrefixCache {
    /// What looks up without a lock, if the index can.
    pub fn prober(&self) -> Result<Option<Prober>, Error> {
        // What groups have is seen under the lock alone.
        let index = if self.groups.is_some() { None } else { self.index.prober()? };
        Ok(index.map(|index| Prober { index, sharing: self.sharing }))
    }
}

impl PrefixCache {
    /// How far a list is cached whose first pages have these digests. None when others should not
    /// wait for that.
    pub(super) fn find_shortly(
        &self,
        namespace: &Namespace,
        (tokens, digests): (TokenList<'_>, &[PageDigest]),
        slice: usize,
    ) -> Result<Option<Found>, Error> {
        let positions = positions_at_most(tokens);
        if is_long_to_read(tokens, short_stretch(slice).keys, slice)
            || self.has_long_needs(positions, slice)
        {
            return Ok(None);
        }
        with_known_query(tokens, &self.images, |query| {
            let descent = self.descend_shortly(namespace, (query, digests), slice);
            let found = descent.map(|it| self.find_below(namespace, (query, digests), &it));
            Ok(found)
        })
    }
}

impl Shared {
    /// Lets probes of a batch go ahead of item `at`, without a lock. Returns whether they do.
    pub(crate) fn go_ahead<'a>(
        &self,
        ways: &mut Ways<'a>,
        at: usize,
        ask: impl for<'n> FnMut(&'n mut Option<Namespace>) -> Option<Ask<'a, &'n Namespace>>,
    ) -> bool {
        let Some(reader) = Reader::enter() else { return false };
        let Some(Prober { index, .. }) = self.prober.read(&reader).first() else {
            return false;
        };
        if !ways.go(at, || index.is_large(&reader)) {
            return false;
        }
        let root = |namespace: &_| index.first_node(namespace, &reader);
        ways.advance(at, ask, root, |ways| index.go_on(ways, &reader));
        true
    }

    /// How many tokens and positions of a list are cached.
    pub fn probe(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> Result<(usize, usize), Error> {
        self.probe_ahead(namespace, tokens, (false, None))
    }

    /// The same, with whether that went ahead, and what may be hashed.
    pub(crate) fn probe_ahead(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        (is_ahead, ready): (bool, Option<&ReadyDigests>),
    ) -> Result<(usize, usize), Error> {
        if let Some(found) = self.probe_without_lock(namespace, tokens, is_ahead)? {
            return Ok(found);
        }
        self.find_and(namespace, (tokens, ready), |_, found| (found.tokens(), found.positions()))
    }

    /// Finds how far a list is cached, and looks at that while it is so.
    pub(super) fn find_and<R>(
        &self,
        namespace: &Namespace,
        (tokens, ready): (TokenList<'_>, Option<&ReadyDigests>),
        look: impl FnOnce(&State, Found) -> R,
    ) -> Result<R, Error> {
        let begun = ready.and_then(|ready| ready.take(namespace, tokens));
        let mut state = self.read();
        let cache = state.cache()?;
        let mut digests = TextDigests::default();
        if begun.is_some() || cache.digests_many(tokens, self.slice) {
            let page_size = cache.sharing.page_size;
            drop(state);
            digests = self.digest_ahead(namespace, tokens, (page_size, begun));
            state = self.read();
        }
        let found = state.cache()?.find_shortly(namespace, (tokens, &digests), self.slice)?;
        if let Some(found) = found {
            return Ok(look(&state, found));
        }
        drop(state);
        let found = |state: &mut State, (found, _), _: &mut [_]| Ok::<_, Error>(look(state, found));
        let asked = (tokens, &mut [][..]);
        self.turn().find_long(namespace, asked, found, (false, true)).map(|(looked, _)| looked)
    }

    /// None when that doesn't work: for images, when the index changes too fast or can't do it, or
    /// when there are more readers than places.
    fn probe_without_lock(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        is_ahead: bool,
    ) -> Result<Option<(usize, usize)>, Error> {
        let Some(reader) = Reader::enter() else {
            return Ok(None);
        };
        let prober = self.prober.read(&reader).first();
        prober.map_or(Ok(None), |prober| prober.probe(namespace, tokens, is_ahead, &reader))
    }
}
