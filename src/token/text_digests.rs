//! Digests of the first pages of a list, made before a lookup needs them.
use super::keys::{self, all_text};
use super::page_digest::{PageDigest, PageHasher};
use super::scratch::Scratches;
use crate::sha256::Chain;
use smallvec::SmallVec;
use std::ops::Deref;

/// Lists of which digests are made together, at most: some more than are hashed side by side, since
/// not all are as long.
pub(crate) const TOGETHER: usize = 8;

/// Digests in a scratch that is kept, at most: a mebibyte of them.
const DIGESTS_KEPT: usize = 1 << 15;

static SCRATCHES: Scratches<Vec<PageDigest>> = Scratches::new();

/// Digests of the first pages of a list, which are text. None of them is made twice.
#[derive(Debug, Default)]
pub struct TextDigests(Vec<PageDigest>);

impl Deref for TextDigests {
    type Target = [PageDigest];

    #[inline]
    fn deref(&self) -> &[PageDigest] {
        &self.0
    }
}

impl Drop for TextDigests {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() > 0 {
            keep(std::mem::take(&mut self.0));
        }
    }
}

#[cold]
fn keep(digests: Vec<PageDigest>) {
    if digests.capacity() <= DIGESTS_KEPT {
        SCRATCHES.keep(digests);
    }
}

/// Makes them, some at a time.
pub struct TextDigester<'a> {
    hasher: PageHasher,
    parent: PageDigest,
    left: &'a [u32],
    made: TextDigests,
    goes_on: bool,
}

impl<'a> TextDigester<'a> {
    /// Of the pages of `ids` up to the first with what is no text id; `parent` stands before them.
    pub fn new(page_size: usize, parent: PageDigest, ids: &'a [u32]) -> Self {
        let mut made = TextDigests(SCRATCHES.take());
        made.0.clear();
        Self::behind(page_size, parent, (made, ids))
    }

    /// Of those that follow the first ones, which were made.
    pub fn after(page_size: usize, made: TextDigests, ids: &'a [u32]) -> Self {
        let last = *made.last().expect("the first ones are some");
        let left = &ids[made.len() * page_size..];
        Self::behind(page_size, last, (made, left))
    }

    fn behind(
        page_size: usize,
        parent: PageDigest,
        (made, left): (TextDigests, &'a [u32]),
    ) -> Self {
        let goes_on = left.len() >= page_size;
        Self { hasher: PageHasher::new(page_size), parent, left, made, goes_on }
    }

    /// Whether there are more, and memory for them.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Makes no more of them.
    pub fn stop(&mut self) {
        self.goes_on = false;
    }

    /// Makes the next ones, so many at most. Whether there are more, and memory for them.
    pub fn make(&mut self, count: usize) -> bool {
        let Chain { words: ids, .. } = self.next(count);
        let Self { hasher, parent, made, .. } = self;
        *parent = hasher.texts(*parent, ids, |digest| made.0.push(digest));
        self.goes_on
    }

    /// Does that for `TOGETHER` lists at most, of pages of one size. Those of different ones are
    /// hashed side by side, and what lists begin with alike is hashed once.
    pub fn make_together(all: &mut [Self], count: usize) {
        let Some(hasher) = all.first().map(|first| first.hasher) else { return };
        debug_assert!(all.len() <= TOGETHER);
        // What is next of each, and which one before it has the same.
        let mut nexts = SmallVec::<[(Chain<'_>, Option<usize>); TOGETHER]>::new();
        let mut chains = SmallVec::<[_; TOGETHER]>::new();
        let mut lists = SmallVec::<[_; TOGETHER]>::new();
        for (at, digester) in all.iter_mut().enumerate() {
            let chain = digester.next(count);
            let like = nexts.iter().position(|(before, _)| *before == chain);
            if like.is_none() {
                chains.push(chain);
                lists.push(at);
            }
            nexts.push((chain, like));
        }
        hasher.texts_together(&mut chains, |chain, digest| all[lists[chain]].made.0.push(digest));
        for (at, (chain, like)) in nexts.iter().enumerate() {
            let (before, rest) = all.split_at_mut(at);
            let digester = &mut rest[0];
            if let Some(like) = *like {
                let made = &before[like].made;
                let some = made.len() - chain.words.len() / hasher.page_size();
                digester.made.0.extend_from_slice(&made[some..]);
            }
            digester.parent = *digester.made.last().unwrap_or(&digester.parent);
        }
    }

    /// The next whole pages of text, so many at most, for whose digests there is room.
    fn next(&mut self, count: usize) -> Chain<'a> {
        let page_size = self.hasher.page_size();
        let count = if self.goes_on { count.min(self.left.len() / page_size) } else { 0 };
        let has_room = self.made.0.try_reserve(count).is_ok();
        let (ids, left) = self.left.split_at(if has_room { count * page_size } else { 0 });
        let is_text = all_text(ids);
        let text = match is_text {
            true => ids.len(),
            false => ids.iter().take_while(|&&id| keys::is_text(id)).count(),
        };
        self.left = left;
        self.goes_on &= has_room && is_text && left.len() >= page_size;
        Chain { last: self.parent.0, words: &ids[..text / page_size * page_size] }
    }

    /// Those that were made.
    pub fn made(self) -> TextDigests {
        self.made
    }

    /// The same so far.
    pub fn made_so_far(&self) -> &[PageDigest] {
        &self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    const PARENTS: u32 = 2;

    /// A list that goes on like another one for a while, mostly, perhaps with an id that is none.
    fn list(rng: &mut Rng, page_size: usize, before: &[Vec<u32>]) -> Vec<u32> {
        let mut ids = match rng.choice(before) {
            Some(other) if rng.bool() => other[..rng.usize(..=other.len())].to_vec(),
            _ => Vec::new(),
        };
        let most = rng.usize(..40) * page_size + rng.usize(..page_size);
        ids.extend((ids.len()..most).map(|_| rng.u32(..50_000)));
        if rng.u8(..4) == 0 && !ids.is_empty() {
            let at = rng.usize(..ids.len());
            ids[at] |= 1 << 31;
        }
        ids
    }

    fn parent(at: usize) -> PageDigest {
        PageDigest([(at as u32 % PARENTS) as u8; 32])
    }

    fn start<'a>(lists: &'a [Vec<u32>], page_size: usize) -> Vec<TextDigester<'a>> {
        let lists = lists.iter().enumerate();
        lists.map(|(at, ids)| TextDigester::new(page_size, parent(at), ids)).collect()
    }

    /// H01: lists of all lengths, alike or not, in portions of all sizes, some of which stop.
    #[test]
    fn h01_digests_made_together_are_those_made_alone() {
        let mut rng = Rng::with_seed(17);
        for _ in 0..400 {
            let page_size = rng.usize(1..20);
            let mut lists = Vec::new();
            for _ in 0..rng.usize(..=TOGETHER) {
                let made = list(&mut rng, page_size, &lists);
                lists.push(made);
            }
            let [mut alone, mut together] = [(); 2].map(|()| start(&lists, page_size));
            while together.iter().any(TextDigester::goes_on) {
                let count = rng.usize(1..12);
                TextDigester::make_together(&mut together, count);
                for (one, other) in alone.iter_mut().zip(&mut together) {
                    one.make(count);
                    assert_eq!(one.made_so_far(), other.made_so_far());
                    assert_eq!((one.goes_on, one.parent), (other.goes_on, other.parent));
                    if rng.u8(..9) == 0 {
                        one.stop();
                        other.stop();
                    }
                }
            }
            for (at, (ids, digester)) in lists.iter().zip(&together).enumerate() {
                let made = TextDigests(digester.made_so_far().to_vec());
                if !made.is_empty() {
                    let mut resumed = TextDigester::after(page_size, made, ids);
                    resumed.make(usize::MAX);
                    let mut whole = TextDigester::new(page_size, parent(at), ids);
                    whole.make(usize::MAX);
                    assert_eq!(resumed.made_so_far(), whole.made_so_far());
                }
            }
        }
    }
}
