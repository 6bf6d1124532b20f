//! What a store that caches share is asked, to find the longest state of a prompt there.
use super::head::{HEAD, Head};
use super::lower::Lower;
use super::remote::Lowest;
use crate::error::Error;
use crate::memory::{Arc, OutOfMemory, TryGrow, try_box, try_zeros};
use crate::snapshot::Namespace;
use crate::tier::Key;
use crate::tier::remote::Question;
use crate::token::{PageDigest, PageHasher, TextDigester, all_text};
use std::time::Instant;

/// Tokens of a block.
pub(super) const BLOCK: usize = 64;
/// Marks that lead to no state, and states that are too large, after which nothing more is asked.
const ROUNDS: usize = 4;
/// How far a question has come.
pub(super) struct Asking {
    pub(super) namespace: Namespace,
    /// What was asked for.
    pub(super) tokens: Arc<Vec<u32>>,
    /// What is after so many blocks.
    pub(super) digests: Vec<PageDigest>,
    /// Only more tokens are of use.
    pub(super) least: usize,
    pub(super) trims: bool,
    pub(super) step: Step,
    pub(super) rounds: usize,
    /// When it goes on without the store.
    pub(super) until: Instant,
    /// Removals of all that there was, by then.
    pub(super) removals: u64,
    /// What it may bring was removed.
    pub(super) is_removed: bool,
    /// While a head is read, a shorter state was removed: none is asked for after that.
    pub(super) is_shorter_removed: bool,
    /// Nobody waits for it any more; what is read is there until that has ended.
    pub(super) is_given_up: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Which is the last block with a mark, of those up to one.
    Marks { last: usize },
    /// Which is the longest state that ends in a block.
    Lengths { block: usize, longest: usize },
    /// What is there.
    Head { length: usize },
    /// The state.
    Body,
}

/// The last digest after whole blocks, which needs no memory; none for what is no text: nobody has
/// a state of that.
pub(super) fn last_digest(namespace: &Namespace, tokens: &[u32]) -> Option<PageDigest> {
    let whole = &tokens[..tokens.len() / BLOCK * BLOCK];
    let hasher = PageHasher::new(BLOCK);
    all_text(tokens).then(|| hasher.texts(namespace.digest(), whole, |_| {}))
}

/// Digests after each number of whole blocks, none included.
pub(super) fn block_digests(
    namespace: &Namespace,
    tokens: &[u32],
) -> Result<Vec<PageDigest>, OutOfMemory> {
    let mut digester = TextDigester::new(BLOCK, namespace.digest(), tokens);
    digester.make(usize::MAX);
    let made = digester.made();
    if made.len() < tokens.len() / BLOCK {
        // There was no memory for them: the tokens are text.
        return Err(OutOfMemory);
    }
    let mut all = Vec::new();
    all.try_reserve_exact(1 + made.len())?;
    all.try_push(namespace.digest())?;
    made.iter().for_each(|&digest| all.push(digest));
    Ok(all)
}

impl Asking {
    /// Whether a state is read: what that takes is counted until it has ended.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.step, Step::Body)
    }

    fn key(&self, lowest: &Lowest, length: usize) -> Key {
        let block = length / BLOCK;
        lowest.keys.key_after(&self.digests[block], &self.tokens[block * BLOCK..length])
    }

    /// Whether the state of so many tokens is on its way out of the store.
    pub(super) fn is_to_go(&self, lowest: &Lowest, length: usize) -> bool {
        lowest.remote.is_to_go(&self.key(lowest, length))
    }

    /// The first block that is of use.
    fn first_block(&self) -> usize {
        (self.least + 1) / BLOCK
    }

    /// The shortest length in a block that is of use.
    fn shortest(&self, block: usize) -> usize {
        (block * BLOCK).max(self.least + 1)
    }

    /// Whether it may bring a state of so many tokens. `read` is how many the one has that is read.
    pub(super) fn may_bring(&self, tokens: usize, read: usize) -> bool {
        match self.step {
            Step::Marks { .. } | Step::Lengths { .. } => true,
            Step::Head { length } => length == tokens,
            Step::Body => read == tokens,
        }
    }

    /// Whether two ask the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let tail = |asking: &Self| asking.tokens.len() / BLOCK * BLOCK;
        (self.least, self.trims, self.tokens.len())
            == (other.least, other.trims, other.tokens.len())
            && self.namespace == other.namespace
            // Of whole blocks the last digest says all.
            && self.digests.last() == other.digests.last()
            && self.tokens[tail(self)..] == other.tokens[tail(other)..]
    }

    /// What is asked first, when so many tokens are known; none when there is nothing to ask.
    pub(super) fn begin(
        &mut self,
        lower: &Lower,
        known: usize,
    ) -> Result<Option<Vec<Key>>, OutOfMemory> {
        self.least = known;
        let keys = lower.lowest.as_ref().map(|lowest| self.keys(lowest)).transpose()?;
        Ok(keys.filter(|keys| !keys.is_empty()))
    }

    /// Nothing came of it: the directory may have something.
    pub(super) fn has_failed(&mut self) {
        self.step = Step::Marks { last: 0 };
    }

    /// What its step asks about.
    fn keys(&self, lowest: &Lowest) -> Result<Vec<Key>, OutOfMemory> {
        let mut keys = Vec::new();
        match self.step {
            Step::Marks { last } => {
                for block in (self.first_block()..=last).rev() {
                    keys.try_push(lowest.mark(&self.digests[block]))?;
                }
            }
            Step::Lengths { block, longest } => {
                for length in (self.shortest(block)..=longest).rev() {
                    keys.try_push(self.key(lowest, length))?;
                }
            }
            Step::Head { .. } | Step::Body => {}
        }
        Ok(keys)
    }

    /// Asks what its step says. False when there is nothing to ask.
    pub(super) fn ask(&self, lowest: &Lowest, number: u64) -> Result<bool, Error> {
        if let Step::Head { length } = self.step {
            let (key, bytes) = (self.key(lowest, length), try_zeros(HEAD)?.into_boxed_slice());
            lowest.remote.get(key, try_box(Head { number, key, bytes })?)?;
            return Ok(true);
        }
        let keys = self.keys(lowest)?;
        if keys.is_empty() {
            return Ok(false);
        }
        lowest.remote.ask(Question::First, number, keys)?;
        Ok(true)
    }

    /// The step after an answer; none when there is no more to ask.
    pub(super) fn answered(&mut self, found: usize) -> Option<Step> {
        match self.step {
            Step::Marks { last } => {
                let block = last.checked_sub(found).filter(|&at| at >= self.first_block())?;
                let longest = self.tokens.len().min((block + 1) * BLOCK - 1);
                Some(Step::Lengths { block, longest })
            }
            Step::Lengths { block, longest } => {
                let length = longest.checked_sub(found);
                if let Some(length) = length.filter(|&at| at >= self.shortest(block)) {
                    return Some(Step::Head { length });
                }
                // States that others have, of other tokens.
                self.rounds += 1;
                let last = block.checked_sub(1).filter(|_| self.rounds < ROUNDS)?;
                (last >= self.first_block()).then_some(Step::Marks { last })
            }
            Step::Head { .. } | Step::Body => None,
        }
    }

    /// The step after a state that memory has no room for, or that is on its way out: a shorter one
    /// may do. Only so often, as each takes as long as any other question.
    pub(super) fn shorter(&mut self, length: usize) -> Option<Step> {
        self.rounds += 1;
        if self.rounds >= ROUNDS || self.is_shorter_removed {
            return None;
        }
        let block = length / BLOCK;
        if length > self.shortest(block) {
            return Some(Step::Lengths { block, longest: length - 1 });
        }
        let last = block.checked_sub(1)?;
        (last >= self.first_block()).then_some(Step::Marks { last })
    }
}
