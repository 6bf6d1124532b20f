//! A token list as the index reads it: keys, and where they may be cut.
use super::images::Images;
use super::keys::{self, all_text, is_text};
use super::list::{Item, TokenKind, TokenList, bad_id, positions};
use super::scratch::Scratches;
use crate::error::Error;
use crate::memory::TryGrow;

/// The positions of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSpan {
    /// First position.
    pub start: usize,
    /// One past the last.
    pub end: usize,
}

/// The keys of a token list. Text-only lists are read where they lie.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// A key for each position; fewer than `positions` when an unknown token ends what can match.
    pub keys: &'a [u32],
    /// Positions of the whole list.
    pub positions: usize,
    /// The images among the keys.
    pub images: &'a [ImageSpan],
    /// So many of the first keys are ids of the caller that nobody has checked yet.
    pub unchecked: usize,
}

impl Query<'_> {
    /// The last token boundary at or before a position.
    pub fn boundary(&self, position: usize) -> usize {
        let after = self.images.partition_point(|image| image.start < position);
        match after.checked_sub(1).map(|at| self.images[at]) {
            Some(image) if position < image.end => image.start,
            _ => position,
        }
    }

    /// The last page boundary at or before a position that is a token boundary too.
    pub fn page_boundary(&self, position: usize, page_size: usize) -> usize {
        let mut at = position - position % page_size;
        loop {
            let boundary = self.boundary(at);
            if boundary == at {
                return at;
            }
            at = boundary - boundary % page_size;
        }
    }

    /// Tokens up to a token boundary.
    pub fn tokens_before(&self, boundary: usize) -> usize {
        let inside = self.images.iter().take_while(|image| image.end <= boundary);
        boundary - inside.map(|image| image.end - image.start - 1).sum::<usize>()
    }

    /// The position at which a token begins; the end for the number of tokens.
    pub fn position_of(&self, token: usize) -> Option<usize> {
        // There are no more tokens than positions, so that no sum is too large.
        let mut position = Some(token).filter(|&token| token <= self.positions)?;
        for image in self.images {
            if image.start >= position {
                break;
            }
            position += image.end - image.start - 1;
        }
        (position <= self.positions).then_some(position)
    }

    /// Refuses ids of the caller, from one on, that are no text ids.
    #[inline(always)]
    pub fn check_text(&self, from: usize) -> Result<(), Error> {
        let end = self.unchecked.min(self.keys.len());
        if from >= end || all_text(&self.keys[from..end]) {
            return Ok(());
        }
        let at = self.keys.iter().position(|&key| !is_text(key)).expect("one has the bit");
        Err(bad_id(at, self.keys[at]))
    }

    /// Ends an unchecked query before the first of its first `count` keys that is no text id.
    pub fn text_prefix(self, count: usize) -> Self {
        let end = self.keys[..count].iter().position(|&key| !is_text(key));
        Self { keys: &self.keys[..end.unwrap_or(self.keys.len())], ..self }
    }
}

#[derive(Default)]
struct Scratch {
    keys: Vec<u32>,
    images: Vec<ImageSpan>,
}

/// Bytes of a scratch that is kept, at most.
const BYTES_KEPT: usize = 1 << 20;

/// Lists of text that are longer are checked before the lock is taken for them: where that is done
/// as they are looked up, it takes 8 microseconds for so many.
const CHECKED_AHEAD: usize = 1 << 17;

/// Keys of lists with items are made here.
static SCRATCHES: Scratches<Scratch> = Scratches::new();

impl Scratch {
    fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<u32>() + self.images.capacity() * size_of::<ImageSpan>()
    }

    /// Makes the keys. `image` gives the key of an image, or None to end the keys before it; an id
    /// that is no text id ends them too when `lenient`.
    fn expand(
        &mut self,
        tokens: TokenList<'_>,
        lenient: bool,
        mut image: impl FnMut([u8; 16], u32) -> Option<u32>,
    ) -> Result<(), Error> {
        self.keys.clear();
        self.images.clear();
        let mut done = 0;
        for item in tokens.items {
            if !self.extend_text(tokens.ids, done, item.token_index, lenient)? {
                return Ok(());
            }
            done = item.token_index + 1;
            match item.kind {
                TokenKind::Coord { bin } => self.keys.try_push(keys::coord(bin))?,
                TokenKind::Size { width_bin, height_bin } => {
                    self.keys.try_push(keys::size(width_bin, height_bin))?;
                }
                TokenKind::Image { digest, positions } => {
                    let Some(key) = image(digest, positions) else {
                        return Ok(());
                    };
                    let start = self.keys.len();
                    let end = start + positions as usize;
                    self.keys
                        .try_reserve(positions as usize)
                        .map_err(|_| Error::memory("the positions of an image"))?;
                    self.keys.resize(end, key);
                    self.images.try_push(ImageSpan { start, end })?;
                }
            }
        }
        self.extend_text(tokens.ids, done, tokens.ids.len(), lenient).map(drop)
    }

    /// Whether all were text ids.
    fn extend_text(
        &mut self,
        ids: &[u32],
        from: usize,
        to: usize,
        lenient: bool,
    ) -> Result<bool, Error> {
        let bad = ids[from..to].iter().position(|&id| !is_text(id)).map(|at| from + at);
        if let Some(bad) = bad.filter(|_| !lenient) {
            return Err(bad_id(bad, ids[bad]));
        }
        self.keys.try_extend_from_slice(&ids[from..bad.unwrap_or(to)])?;
        Ok(bad.is_none())
    }
}

/// Runs `body` on a list of which only what is known can match: an image that nobody uses ends the
/// keys, and so does an id that is no text id.
pub fn with_known_query<R>(
    tokens: TokenList<'_>,
    images: &Images,
    body: impl FnOnce(Query<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    with_keys(tokens, true, |digest, positions| images.find(digest, positions), body)
}

/// Runs `body` on a list that has no images; None when it has some.
pub fn with_imageless_query<R>(
    tokens: TokenList<'_>,
    body: impl FnOnce(Query<'_>) -> Result<R, Error>,
) -> Result<Option<R>, Error> {
    let is_image = |item: &Item| matches!(item.kind, TokenKind::Image { .. });
    if tokens.items.iter().any(is_image) {
        return Ok(None);
    }
    with_keys(tokens, true, |_, _| None, body).map(Some)
}

/// Runs `body` on a list whose positions were counted, and whose items are good therefore; `images`
/// are the keys of its images, in order.
pub fn with_query<R>(
    tokens: TokenList<'_>,
    images: &[u32],
    body: impl FnOnce(Query<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut images = images.iter().copied();
    with_keys(tokens, false, |_, _| images.next(), body)
}

#[inline(always)] // lists of text have nothing to be made
fn with_keys<R>(
    tokens: TokenList<'_>,
    lenient: bool,
    image: impl FnMut([u8; 16], u32) -> Option<u32>,
    body: impl FnOnce(Query<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    if tokens.items.is_empty() {
        let (keys, positions) = (tokens.ids, tokens.ids.len());
        return body(Query { keys, positions, images: &[], unchecked: positions });
    }
    with_made_keys(tokens, lenient, image, body)
}

fn with_made_keys<R>(
    tokens: TokenList<'_>,
    lenient: bool,
    image: impl FnMut([u8; 16], u32) -> Option<u32>,
    body: impl FnOnce(Query<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    if lenient {
        // Others were counted before, and are good.
        tokens.check_items()?;
    }
    body(MadeKeys::new(tokens, lenient, image)?.query())
}

/// Keys of a list with items.
struct MadeKeys {
    scratch: Scratch,
    positions: usize,
}

impl MadeKeys {
    fn new(
        tokens: TokenList<'_>,
        lenient: bool,
        image: impl FnMut([u8; 16], u32) -> Option<u32>,
    ) -> Result<Self, Error> {
        let mut made = Self { scratch: SCRATCHES.take(), positions: positions(tokens) };
        made.scratch.expand(tokens, lenient, image)?;
        Ok(made)
    }

    fn query(&self) -> Query<'_> {
        let Self { scratch: Scratch { keys, images }, positions } = self;
        Query { keys, positions: *positions, images, unchecked: 0 }
    }
}

impl MadeKeys {
    /// The lists, if they are not kept for the next.
    fn into_lists(mut self) -> (Vec<u32>, Vec<ImageSpan>) {
        if self.scratch.bytes() <= BYTES_KEPT {
            return Default::default();
        }
        let Scratch { keys, images } = std::mem::take(&mut self.scratch);
        (keys, images)
    }
}

impl Drop for MadeKeys {
    fn drop(&mut self) {
        if (1..=BYTES_KEPT).contains(&self.scratch.bytes()) {
            SCRATCHES.keep(std::mem::take(&mut self.scratch));
        }
    }
}

/// The keys of a list for a call that lets others in, who leave them as they are: somebody holds
/// its images.
pub struct HeldKeys<'a> {
    made: Option<MadeKeys>,
    text: &'a [u32],
    /// So many of its first ids were not looked at yet.
    unchecked: usize,
    positions: usize,
}

impl<'a> HeldKeys<'a> {
    /// Whether the keys of a list are its ids, which are looked at later.
    pub fn lie_there(tokens: TokenList<'_>) -> bool {
        tokens.items.is_empty() && tokens.ids.len() <= CHECKED_AHEAD
    }

    /// The keys of a list; `images` are those of its images, in order. Where those end, or at an id
    /// that is no text id when `lenient`, the keys end too.
    pub fn new(tokens: TokenList<'a>, lenient: bool, images: &[u32]) -> Result<Self, Error> {
        let TokenList { ids, items } = tokens;
        if !items.is_empty() {
            tokens.check_items()?;
            let mut images = images.iter().copied();
            let made = MadeKeys::new(tokens, lenient, |_, _| images.next())?;
            let positions = made.positions;
            return Ok(Self { made: Some(made), text: &[], unchecked: 0, positions });
        }
        let is_checked = !Self::lie_there(tokens);
        let is_good = !is_checked || all_text(ids);
        let bad = if is_good { None } else { ids.iter().position(|&id| !is_text(id)) };
        if let Some(at) = bad.filter(|_| !lenient) {
            return Err(bad_id(at, ids[at]));
        }
        let text = &ids[..bad.unwrap_or(ids.len())];
        let unchecked = if is_checked { 0 } else { ids.len() };
        Ok(Self { made: None, text, unchecked, positions: ids.len() })
    }

    /// The keys and images that were made of it, if they are so many that they are not kept for the
    /// next.
    pub fn into_lists(self) -> (Vec<u32>, Vec<ImageSpan>) {
        self.made.map_or_else(Default::default, MadeKeys::into_lists)
    }

    /// How many ids from one on were not looked at yet.
    pub fn unchecked_from(&self, from: usize) -> usize {
        self.unchecked.saturating_sub(from)
    }

    /// Says that those are good.
    pub fn set_checked_from(&mut self, from: usize) {
        self.unchecked = self.unchecked.min(from);
    }

    /// As the index reads them.
    pub fn query(&self) -> Query<'_> {
        match &self.made {
            Some(made) => made.query(),
            None => {
                let Self { text: keys, positions, unchecked, .. } = *self;
                Query { keys, positions, images: &[], unchecked }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of a long list of images is no more than of a long list of anything.
    #[test]
    fn a_long_list_of_images_leaves_no_long_scratch() {
        let count = (1 << 18) + 1;
        let kind = TokenKind::Image { digest: [1; 16], positions: 1 };
        let items: Vec<_> = (0..count).map(|token_index| Item { token_index, kind }).collect();
        let ids = vec![0; count];
        let tokens = TokenList { ids: &ids, items: &items };
        let made = MadeKeys::new(tokens, true, |_, _| Some(keys::image(3))).unwrap();
        let (keys, images) = made.into_lists();
        assert_eq!((keys.len(), images.len()), (count, count));
        while let Some(kept) = Some(SCRATCHES.take()).filter(|kept| kept.images.capacity() > 0) {
            assert!(kept.bytes() <= BYTES_KEPT, "{} bytes are kept", kept.bytes());
        }
    }
}
