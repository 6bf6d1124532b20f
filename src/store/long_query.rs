//! What a long call looks up: made while others have the lock, and the same until the call ends.
use super::{PrefixCache, State, Turn};
use crate::error::Error;
use crate::index::Namespace;
use crate::memory::try_to_vec;
use crate::token::{
    HeldKeys, Item, PageDigest, Query, TextDigests, TokenKind, TokenList, positions_at_most,
};

/// Images that are looked at before others are let in, as a part of the pages of a slice.
const IMAGES: usize = 8;

/// Images of a call that lets others in. Held, they keep their keys.
#[derive(Debug)]
pub(crate) struct HeldImages {
    /// Where the cache has them, for its checks and for whoever takes them over.
    pub(super) at: Option<u32>,
    /// Caches that were gone before theirs.
    pub(super) gone: u64,
}

/// Which images of a list are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// All: who knows them from now on is the call.
    All,
    /// The first ones, as far as somebody knows them.
    Known,
}

/// Ids that are looked at before others are let in: 2 microseconds, and 12 when they are in no
/// cache.
const CHECKED_AT_ONCE: usize = 1 << 15;

/// Keys of a list, which stay what they are: its images are held.
pub(crate) struct HeldQuery<'a> {
    keys: HeldKeys<'a>,
    images: HeldImages,
}

impl HeldQuery<'_> {
    /// The keys.
    pub(crate) fn keys(&self) -> Query<'_> {
        self.keys.query()
    }
}

/// The same, and the digests of its first pages where an index finds them by those.
pub(crate) struct LongQuery<'a> {
    namespace: &'a Namespace,
    page_size: usize,
    held: HeldQuery<'a>,
    digests: TextDigests,
}

impl LongQuery<'_> {
    /// The digests of the first pages.
    pub(crate) fn digests(&self) -> &[PageDigest] {
        &self.digests
    }

    /// So many of the keys at most, and the digests of their pages.
    pub(super) fn first(&self, keys: usize) -> (Query<'_>, &[PageDigest]) {
        let query = self.keys();
        let keys = &query.keys[..query.keys.len().min(keys)];
        let digests = self.digests.len().min(keys.len() / self.page_size);
        (Query { keys, ..query }, &self.digests[..digests])
    }

    /// Where it is looked up.
    pub(crate) fn namespace(&self) -> &Namespace {
        self.namespace
    }

    /// The keys.
    pub(crate) fn keys(&self) -> Query<'_> {
        self.held.keys()
    }

    /// Refuses to be looked up in another cache than the one that its images are of.
    pub(super) fn check_there(&self, state: &State) -> Result<(), Error> {
        let HeldImages { at, gone } = &self.held.images;
        let is_there = at.is_none() || *gone == state.caches_gone;
        if is_there { Ok(()) } else { Err(super::no_cache()) }
    }
}

impl<'a> LongQuery<'a> {
    /// The keys, for who takes the images over.
    pub(crate) fn held(&mut self) -> &mut HeldQuery<'a> {
        &mut self.held
    }
}

/// Images of a list.
fn images(items: &[Item]) -> impl Iterator<Item = ([u8; 16], u32)> + '_ {
    items.iter().filter_map(|item| match item.kind {
        TokenKind::Image { digest, positions } => Some((digest, positions)),
        _ => None,
    })
}

/// Images that are looked at before others are let in.
fn image_portion(slice: usize) -> usize {
    slice.div_ceil(IMAGES)
}

/// Whether making the keys of a list with items takes longer than others should wait for.
#[inline]
pub(super) fn is_long_to_read(tokens: TokenList<'_>, positions: usize, slice: usize) -> bool {
    !tokens.items.is_empty()
        && (positions_at_most(tokens) > positions || tokens.items.len() > image_portion(slice))
}

impl PrefixCache {
    /// Images that calls hold which let others in.
    pub(super) fn images_of_calls(&self) -> impl Iterator<Item = &[u32]> {
        self.held_images.iter().map(Vec::as_slice)
    }

    /// Lets go of the images of a sequence that ends. Many become those of the call, to go in
    /// portions; without memory for that they go at once.
    pub(super) fn leave_images(&mut self, keys: Vec<u32>, slice: usize) -> Option<u32> {
        if keys.len() > image_portion(slice) && self.held_images.try_reserve(1).is_ok() {
            return Some(self.held_images.insert(keys));
        }
        self.images.release(&keys);
        None
    }
}

impl State {
    /// Images of a list that are held.
    pub(crate) fn images_of(&self, query: &HeldQuery<'_>) -> Result<Vec<u32>, Error> {
        self.images_at(&query.images)
    }

    fn images_at(&self, images: &HeldImages) -> Result<Vec<u32>, Error> {
        match images.at {
            Some(at) => Ok(try_to_vec(&self.cache()?.held_images[at])?),
            None => Ok(Vec::new()),
        }
    }

    /// Undoes `hold_query` for who holds the images from now on.
    pub(crate) fn take_images(&mut self, query: &mut HeldQuery<'_>) -> Vec<u32> {
        let HeldImages { at, gone } = &mut query.images;
        let (at, gone) = (at.take(), *gone);
        let is_there = gone == self.caches_gone;
        let cache = self.cache.as_mut().filter(|_| is_there);
        let taken = at.zip(cache).map(|(at, cache)| cache.held_images.remove(at));
        taken.unwrap_or_default()
    }
}

impl Turn<'_> {
    /// Makes ready for looking up a list whose items were checked. `end_long` undoes it.
    pub(crate) fn ask_long<'a>(
        &mut self,
        namespace: &'a Namespace,
        tokens: TokenList<'a>,
        hold: Hold,
    ) -> Result<LongQuery<'a>, Error> {
        let held = self.hold_query(tokens, hold)?;
        let page_size = self.table.page_size();
        let digests = match self.digests_many(tokens) {
            true => self.digest_ahead(namespace, tokens),
            false => TextDigests::default(),
        };
        if held.images.at.is_some() && held.images.gone != self.caches_gone {
            return Err(super::no_cache());
        }
        Ok(LongQuery { namespace, page_size, held, digests })
    }

    /// Makes the keys of a list whose items were checked. `end_query` undoes it.
    pub(crate) fn hold_query<'a>(
        &mut self,
        tokens: TokenList<'a>,
        hold: Hold,
    ) -> Result<HeldQuery<'a>, Error> {
        let images = self.hold_images(tokens.items, hold)?;
        match self.make_keys(tokens, (hold, &images)) {
            Ok(keys) => Ok(HeldQuery { keys, images }),
            Err(error) => {
                self.let_images_go(images);
                Err(error)
            }
        }
    }

    fn make_keys<'a>(
        &mut self,
        tokens: TokenList<'a>,
        (hold, images): (Hold, &HeldImages),
    ) -> Result<HeldKeys<'a>, Error> {
        let known = self.images_at(images)?;
        let make = || HeldKeys::new(tokens, hold == Hold::Known, &known);
        // To give the lock up and take it again costs more than to read text where it lies.
        let keys = if HeldKeys::lie_there(tokens) { make() } else { self.unlocked(make) };
        // Keys of images are those of one cache.
        let is_there = images.at.is_none() || images.gone == self.caches_gone;
        if is_there { keys } else { Err(super::no_cache()) }
    }

    /// Refuses ids of a list that are no text ids, from one on, while others have the lock, where
    /// those are many. Whether others were let in.
    pub(crate) fn check_text_ahead(
        &mut self,
        query: &mut HeldQuery<'_>,
        from: usize,
    ) -> Result<bool, Error> {
        if query.keys.unchecked_from(from) <= CHECKED_AT_ONCE {
            return Ok(false);
        }
        self.unlocked_in_cache(|| query.keys().check_text(from))??;
        query.keys.set_checked_from(from);
        Ok(true)
    }

    /// Lets go of what `ask_long` holds.
    pub(crate) fn end_long(&mut self, query: LongQuery<'_>) {
        self.end_query(query.held);
    }

    /// Lets go of what `hold_query` holds.
    pub(crate) fn end_query(&mut self, query: HeldQuery<'_>) {
        let HeldQuery { keys, images } = query;
        self.let_images_go(images);
        let (keys, images) = keys.into_lists();
        self.housekeeping.discard(keys);
        self.housekeeping.discard_images(images);
    }

    /// Holds images of a list.
    fn hold_images(&mut self, items: &[Item], hold: Hold) -> Result<HeldImages, Error> {
        let (count, gone) = (images(items).count(), self.caches_gone);
        let mut held = HeldImages { at: None, gone };
        if count == 0 {
            return Ok(held);
        }
        let portion = image_portion(self.shared.slice);
        let cache = self.parts()?.0;
        let no_room = |_| Error::memory("keys of images");
        let mut room = Vec::new();
        room.try_reserve_exact(count).map_err(|error| no_room(error.into()))?;
        cache.held_images.try_reserve(1).map_err(no_room)?;
        let at = cache.held_images.insert(room);
        held.at = Some(at);
        for (done, (digest, positions)) in images(items).enumerate() {
            if done > 0 && done.is_multiple_of(portion) {
                self.let_in()?;
            }
            let cache = self.parts()?.0;
            let known = match hold {
                Hold::Known => Ok(cache.images.hold_known(digest, positions)),
                Hold::All => cache.images.hold(digest, positions).map(Some),
            };
            match known {
                Ok(Some(key)) => cache.held_images[at].push(key),
                Ok(None) => break,
                Err(error) => {
                    self.let_images_go(held);
                    return Err(error);
                }
            }
        }
        Ok(held)
    }

    /// Takes the images of a sequence that ends out of it, when they are many. They are to be let
    /// go of when it has ended.
    pub(crate) fn set_images_aside(&mut self, slot: u32) -> HeldImages {
        let (slice, gone) = (self.shared.slice, self.caches_gone);
        let State { sequences, sequence_bytes, cache, .. } = self.state();
        let place = &mut sequences[slot as usize];
        let is_long = place.images.len() > image_portion(slice);
        let at = cache.as_mut().filter(|_| is_long).and_then(|cache| {
            *sequence_bytes -= place.images.capacity() * size_of::<u32>();
            cache.leave_images(std::mem::take(&mut place.images), slice)
        });
        HeldImages { at, gone }
    }

    /// Lets go of images, if their cache is still there.
    pub(crate) fn let_images_go(&mut self, held: HeldImages) {
        let (portion, HeldImages { at, gone }) = (image_portion(self.shared.slice), held);
        let Some(at) = at else { return };
        while gone == self.caches_gone
            && let Ok((PrefixCache { images, held_images, .. }, _)) = self.parts()
        {
            let keys = &mut held_images[at];
            let left = keys.len().saturating_sub(portion);
            images.release(&keys[left..]);
            keys.truncate(left);
            if left == 0 {
                held_images.remove(at);
                return;
            }
            self.let_waiting_in();
        }
    }
}
