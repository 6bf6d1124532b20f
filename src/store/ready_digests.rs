//! Digests of the next prompts of a call over many, made before it is their turn.
//!
//! A page waits for the one before it, and pages of other prompts need not: so those of several
//! prompts are hashed side by side, while others have the lock. How far is as for a single one: as
//! long as all is cached, and some more.
use super::ahead::PIECES;
use super::tail_digests::TailDigests;
use super::turn::unlocked;
use super::{Shared, State, Turn};
use crate::grace::Reader;
use crate::index::{Ask, Namespace};
use crate::token::{TOGETHER, TextDigester, TextDigests, TokenList};
use smallvec::SmallVec;
use std::cell::RefCell;

/// Items of a call whose digests are made together.
pub(crate) const READY: usize = TOGETHER;
/// Words that are hashed of the shortest prompt for which that pays, and of a page besides its ids.
const FEW: usize = 256;
const BESIDES: usize = 16;
/// Pages of a prompt that are hashed at first, and how many times as many then, as long as all are
/// cached: twice as many as of a single prompt, for side by side they take half as long.
const FIRST: usize = 2;
const GROWTH: usize = 4;
/// Digests of several prompts, as many as which are made together: a mebibyte. The rest of longer
/// prompts is hashed when it is their turn.
const MOST: usize = 1 << 15;

/// Digests of the first pages of prompts that a call looks up next, or of what it publishes next.
#[derive(Debug, Default)]
pub struct ReadyDigests {
    prompts: RefCell<SmallVec<[Ready; TOGETHER]>>,
    pub(super) tails: RefCell<SmallVec<[TailDigests; TOGETHER]>>,
}

/// Some of a prompt's digests, and whether more of them may be of use.
pub(super) type Begun = (TextDigests, bool);

/// Those of a prompt, until they are taken.
#[derive(Debug)]
struct Ready {
    namespace: Namespace,
    /// Where the prompt's text is, and how many ids that are.
    text: (usize, usize),
    digests: Option<Begun>,
}

/// Whether hashing so many pages ahead pays.
pub(super) fn is_worth_it(pages: usize, page_size: usize) -> bool {
    pages.saturating_mul(page_size.saturating_add(BESIDES)) >= FEW
}

fn place(ids: &[u32]) -> (usize, usize) {
    (ids.as_ptr().addr(), ids.len())
}

impl ReadyDigests {
    /// Whether they were made for a list.
    pub(super) fn are_for(&self, tokens: TokenList<'_>) -> bool {
        let text = place(tokens.leading_text());
        self.prompts.borrow().iter().any(|ready| ready.text == text)
    }

    /// Those of a list.
    pub(super) fn take(&self, namespace: &Namespace, tokens: TokenList<'_>) -> Option<Begun> {
        let text = place(tokens.leading_text());
        let mut all = self.prompts.borrow_mut();
        let mut same = all.iter_mut().filter(|it| it.text == text && it.namespace == *namespace);
        same.find_map(|ready| ready.digests.take())
    }
}

impl Shared {
    /// The page size, if lookups make digests of pages.
    pub(crate) fn digested_pages(&self) -> Option<usize> {
        // Who looks up without a lock makes none.
        let looks_up_alone = Reader::enter().is_some_and(|it| !self.prober.read(&it).is_empty());
        if looks_up_alone { None } else { self.read().digested_pages() }
    }

    /// Makes digests for as many of `asks` as are looked up next.
    pub(crate) fn make_ready<'a>(
        &self,
        ready: &ReadyDigests,
        page_size: usize,
        asks: &mut impl Iterator<Item = Option<Ask<'a>>>,
    ) {
        let mut all = ready.prompts.borrow_mut();
        all.clear();
        let (mut asked, mut digesters) =
            (SmallVec::<[Ask<'_>; TOGETHER]>::new(), SmallVec::<[_; TOGETHER]>::new());
        let is_long = |(_, ids): &Ask<'_>| is_worth_it(ids.len() / page_size, page_size);
        let mut parent = None;
        for (namespace, ids) in asks.take(TOGETHER).flatten().filter(is_long) {
            let same = asked.last().is_some_and(|(before, _)| *before == namespace);
            let digest = parent.filter(|_| same).unwrap_or_else(|| namespace.digest());
            parent = Some(digest);
            digesters.push(TextDigester::new(page_size, digest, ids));
            asked.push((namespace, ids));
        }
        if asked.len() > 1 {
            self.digest_together(&asked, &mut digesters);
            all.extend(asked.iter().zip(digesters).map(|(&(namespace, ids), digester)| {
                let goes_on = digester.goes_on();
                let digests = Some((digester.made(), goes_on));
                Ready { namespace, text: place(ids), digests }
            }));
        }
    }

    fn digest_together(&self, asked: &[Ask<'_>], digesters: &mut [TextDigester<'_>]) {
        let (mut count, mut made) = (FIRST, 0);
        while made < MOST && digesters.iter().any(TextDigester::goes_on) {
            TextDigester::make_together(digesters, count);
            self.without_lock();
            let state = self.read();
            for ((namespace, ids), digester) in asked.iter().zip(&mut *digesters) {
                if digester.goes_on() && !state.has_all(namespace, ids, digester.made_so_far()) {
                    digester.stop();
                }
            }
            made = digesters.iter().map(|digester| digester.made_so_far().len()).sum();
            count = (GROWTH * count).min(self.slice.div_ceil(PIECES));
        }
    }
}

impl State {
    fn digested_pages(&self) -> Option<usize> {
        let sharing = self.cache.as_ref()?.sharing;
        sharing.digests_pages.then_some(sharing.page_size)
    }
}

impl Turn<'_> {
    /// The same while others have the lock, if lookups make digests of pages.
    pub(crate) fn make_ready<'a>(
        &mut self,
        asks: &mut impl Iterator<Item = Option<Ask<'a>>>,
    ) -> bool {
        let Self { shared, state, ready, .. } = self;
        let (Some(ready), Some(page_size)) = (ready, state.digested_pages()) else { return false };
        unlocked(shared, state, || shared.make_ready(ready, page_size, asks));
        true
    }
}
