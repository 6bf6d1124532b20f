//! How far a list is known, and what each group costs of that: with the lock that readers share, or
//! in portions.
use super::{Chains, Descent, Found, Hold, LongQuery, PrefixCache, Shared, Turn};
use crate::error::Error;
use crate::group::Reached;
use crate::index::{Namespace, Node, PrefixIndex, Walk};
use crate::token::{Keys, PageDigest, Query, TokenList, position_count, with_known_query};

/// How far a list can be reused, and what each group costs.
pub type Costs = (Found, Reached);

impl PrefixCache {
    /// What each group costs of what is known of a query, of which a descent may know more.
    fn costs(
        &self,
        namespace: &Namespace,
        (query, digests): (Query<'_>, &[PageDigest]),
        descent: &Descent,
    ) -> Costs {
        let walk = |_: &dyn PrefixIndex, root: Node, keys: Keys<'_>| -> Walk {
            descent.walk(self, (root, keys.keys), digests)
        };
        let mut found = self.find_spine(namespace, query, walk);
        let known = descent.known(self);
        found.ahead = known.ahead;
        match &self.groups {
            None => (found, Reached::all(found.positions())),
            Some(groups) => self.limit_to_groups(groups, (found, known), query),
        }
    }
}

impl Shared {
    /// How far a list is known, and what each group costs of that. Changes nothing.
    pub fn costs(&self, namespace: &Namespace, tokens: TokenList<'_>) -> Result<Costs, Error> {
        let state = self.read();
        let cache = state.cache()?;
        if !cache.may_be_long(tokens, self.slice) && !cache.digests_many(tokens, self.slice) {
            return with_known_query(tokens, &cache.images, |query| {
                Ok(cache.costs(namespace, (query, &[]), &Descent::NONE))
            });
        }
        drop(state);
        self.turn().costs_of_long(namespace, tokens)
    }
}

impl Turn<'_> {
    fn costs_of_long(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> Result<Costs, Error> {
        let positions = position_count(tokens)?;
        let query = self.ask_long(namespace, tokens, Hold::Known)?;
        let costs = self.costs_behind(&query, positions);
        self.end_long(query);
        costs
    }

    fn costs_behind(&mut self, query: &LongQuery<'_>, positions: usize) -> Result<Costs, Error> {
        let descent = self.descend_to_find(query, positions, Chains::Look)?;
        let asked = (query.keys(), query.digests());
        let costs = self.cache().map(|cache| cache.costs(query.namespace(), asked, &descent));
        self.ascend(descent, None);
        costs
    }
}
