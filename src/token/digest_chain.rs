//! Digests of one page after another, each made from the one before.
//!
//! Tokens come in two forms, as a caller's list and as the keys of an index; both are read as
//! pieces, so that what a page's digest is made of is written once.
use super::images::Images;
use super::keys::{self, Kind, all_text, is_text};
use super::list::{TokenKind, TokenList, bad_id, position_count};
use super::page_digest::{PageDigest, PageHasher, PageItem};
use crate::error::Error;
use crate::error::text;

/// Pages of text that are hashed in a row: that they are text is looked at before.
const TOGETHER: usize = 64;

/// Positions in a row that stand for one thing.
pub enum Piece<'a> {
    /// Text ids.
    Text(&'a [u32]),
    /// One token, or a part of an image, and how many positions.
    Item(PageItem, usize),
}

/// Tokens, read piece by piece. A clone reads the same ones once more.
pub trait Pieces: Clone {
    /// The next piece, of at most `limit` positions. None at the end, or at what is no token.
    fn next(&mut self, limit: usize) -> Option<Piece<'_>>;

    /// Whether the next piece is text, as far as can be told without reading it.
    fn is_text_next(&self) -> bool;
}

/// Goes through pages and makes their digests.
pub struct DigestChain<P> {
    hasher: PageHasher,
    last: PageDigest,
    media: bool,
    /// Where the tokens come from.
    pub pieces: P,
}

impl<P: Pieces> DigestChain<P> {
    /// Goes on after the page of digest `parent`, or from the beginning of what it names.
    pub fn new(hasher: PageHasher, parent: PageDigest, pieces: P) -> Self {
        Self { hasher, last: parent, media: false, pieces }
    }

    /// Whether the last page has other than text.
    pub fn has_media(&self) -> bool {
        self.media
    }

    /// The digest of the next page; None when no whole page is left, or at what is no token.
    pub fn next_page(&mut self) -> Option<PageDigest> {
        let mut made = None;
        self.next_pages(1, |digest| made = Some(digest));
        made
    }

    /// Gives `visit` the digests of the next pages, so many at most; fewer when no whole page is
    /// left, or at what is no token. Returns how many.
    #[inline]
    pub fn next_pages(&mut self, most: usize, mut visit: impl FnMut(PageDigest)) -> usize {
        let mut made = 0;
        while made < most {
            let pages = match self.text_pages(most - made, &mut visit) {
                0 => match self.mixed_page() {
                    Some(digest) => {
                        visit(digest);
                        1
                    }
                    None => break,
                },
                pages => pages,
            };
            made += pages;
        }
        made
    }

    /// Pages of nothing but text, up to the first with something else.
    #[inline]
    fn text_pages(&mut self, most: usize, visit: impl FnMut(PageDigest)) -> usize {
        // Otherwise an image would be read anew, as far as so many pages, for each of its pages.
        if !self.pieces.is_text_next() {
            return 0;
        }
        let page_size = self.hasher.page_size();
        let begin = self.pieces.clone();
        let Some(Piece::Text(ids)) = self.pieces.next(most.min(TOGETHER) * page_size) else {
            self.pieces = begin;
            return 0;
        };
        let pages = ids.len() / page_size;
        let (whole, rest) = ids.split_at(pages * page_size);
        let whole_len = whole.len();
        if pages > 0 {
            self.media = false;
            self.last = self.hasher.texts(self.last, whole, visit);
        }
        if !rest.is_empty() {
            self.pieces = begin;
            if pages > 0 {
                self.pieces.next(whole_len);
            }
        }
        pages
    }

    /// A page that has other than text.
    fn mixed_page(&mut self) -> Option<PageDigest> {
        let page_size = self.hasher.page_size();
        let begin = self.pieces.clone();
        let (mut items, mut left) = (0, page_size);
        while left > 0 {
            let piece = self.pieces.next(left)?;
            items += matches!(piece, Piece::Item(..)) as usize;
            left -= piece.positions();
        }
        self.media = items > 0;
        self.last = self.hash_mixed(begin, items);
        Some(self.last)
    }

    /// The digest of a page that was read to its end. How many items it has stands before the ids,
    /// and those stand before the items, so it is read twice more.
    fn hash_mixed(&self, begin: P, item_count: usize) -> PageDigest {
        let mut input = self.hasher.page(&self.last, item_count);
        let each = |mut pieces: P, visit: &mut dyn FnMut(Piece<'_>, usize)| {
            let (page_size, mut at) = (self.hasher.page_size(), 0);
            while at < page_size {
                let piece = pieces.next(page_size - at).expect("it was read before");
                let positions = piece.positions();
                visit(piece, at);
                at += positions;
            }
        };
        each(begin.clone(), &mut |piece, _| match piece {
            Piece::Text(ids) => input.ids(ids),
            Piece::Item(_, positions) => input.no_ids(positions),
        });
        if item_count > 0 {
            each(begin, &mut |piece, at| {
                if let Piece::Item(item, _) = piece {
                    input.item(&PageItem { position: at as u32, ..item });
                }
            });
        }
        input.digest()
    }
}

impl Piece<'_> {
    fn positions(&self) -> usize {
        match self {
            Piece::Text(ids) => ids.len(),
            Piece::Item(_, positions) => *positions,
        }
    }
}

/// Keys of consecutive positions, and what the images among them are.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    /// The keys.
    pub keys: &'a [u32],
    /// Where the images are known.
    pub images: &'a Images,
}

/// An image of which some positions were read, and not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenImage {
    number: u32,
    read: u32,
}

/// Reads keys.
#[derive(Debug, Clone)]
pub struct KeyPieces<'a> {
    left: Keys<'a>,
    open: Option<OpenImage>,
}

impl<'a> KeyPieces<'a> {
    /// Reads keys, before which the beginning of an image may stand.
    pub fn new(keys: Keys<'a>, open: Option<OpenImage>) -> Self {
        Self { left: keys, open }
    }

    /// The image that goes on after what was read.
    pub fn open(&self) -> Option<OpenImage> {
        self.open
    }

    fn take(&mut self, count: usize) -> &'a [u32] {
        let (taken, left) = self.left.keys.split_at(count);
        self.left.keys = left;
        taken
    }

    /// A part of an image: up to `limit` positions of it, all of which must be there.
    fn image(&mut self, number: u32, limit: usize) -> Option<Piece<'_>> {
        let read = match self.open.take() {
            Some(open) if open.number != number => return None,
            open => open.map_or(0, |open| open.read),
        };
        let (digest, positions) = self.left.images.content(number)?;
        let count = limit.min((positions - read) as usize);
        let key = keys::image(number);
        if self.left.keys.len() < count || self.take(count).iter().any(|&other| other != key) {
            return None;
        }
        let item = PageItem::image(digest, positions, read);
        let read = read + count as u32;
        self.open = (read < positions).then_some(OpenImage { number, read });
        Some(Piece::Item(item, count))
    }
}

impl Pieces for KeyPieces<'_> {
    #[inline]
    fn next(&mut self, limit: usize) -> Option<Piece<'_>> {
        let &first = self.left.keys.first()?;
        let kind = keys::kind(first);
        if self.open.is_some() && !matches!(kind, Kind::Image { .. }) {
            return None;
        }
        let item = match kind {
            Kind::Text => {
                let ahead = &self.left.keys[..limit.min(self.left.keys.len())];
                let text = if all_text(ahead) {
                    ahead.len()
                } else {
                    ahead.iter().take_while(|&&key| is_text(key)).count()
                };
                return Some(Piece::Text(self.take(text)));
            }
            Kind::Coord { bin } => PageItem::coord(bin),
            Kind::Size { width_bin, height_bin } => PageItem::size(width_bin, height_bin),
            Kind::Image { number } => return self.image(number, limit),
            Kind::Nothing => return None,
        };
        self.take(1);
        Some(Piece::Item(item, 1))
    }

    #[inline]
    fn is_text_next(&self) -> bool {
        self.left.keys.first().is_some_and(|&key| is_text(key))
    }
}

/// Reads a list whose items are checked.
#[derive(Clone)]
struct ListPieces<'a> {
    tokens: TokenList<'a>,
    token: usize,
    /// The first item at or behind `token`.
    item: usize,
    /// Positions of that item that were read.
    offset: u32,
}

impl Pieces for ListPieces<'_> {
    fn next(&mut self, limit: usize) -> Option<Piece<'_>> {
        let item = self.tokens.items.get(self.item);
        let text = item.map_or(self.tokens.ids.len(), |item| item.token_index) - self.token;
        if text > 0 {
            let ids = &self.tokens.ids[self.token..self.token + text.min(limit)];
            self.token += ids.len();
            return Some(Piece::Text(ids));
        }
        let (made, left) = match item?.kind {
            TokenKind::Coord { bin } => (PageItem::coord(bin), 1),
            TokenKind::Size { width_bin, height_bin } => (PageItem::size(width_bin, height_bin), 1),
            TokenKind::Image { digest, positions } => {
                let left = positions - self.offset;
                (PageItem::image(digest, positions, self.offset), left as usize)
            }
        };
        let count = left.min(limit);
        self.offset += count as u32;
        if count == left {
            (self.token, self.item, self.offset) = (self.token + 1, self.item + 1, 0);
        }
        Some(Piece::Item(made, count))
    }

    fn is_text_next(&self) -> bool {
        let item = self.tokens.items.get(self.item);
        item.map_or(self.tokens.ids.len(), |item| item.token_index) > self.token
    }
}

impl ListPieces<'_> {
    /// Skips positions that are there.
    fn skip(&mut self, mut positions: usize) {
        while positions > 0 {
            positions -= match self.next(positions) {
                Some(Piece::Text(ids)) => ids.len(),
                Some(Piece::Item(_, count)) => count,
                None => return,
            };
        }
    }

    /// Refuses an id, from here on and before position `limit` from here, that is no text id.
    fn check_text(&self, limit: usize) -> Result<(), Error> {
        let mut rest = self.clone();
        let mut left = limit;
        while left > 0 {
            let at = rest.token;
            left -= match rest.next(left) {
                Some(Piece::Text(ids)) if all_text(ids) => ids.len(),
                Some(Piece::Text(ids)) => {
                    let bad = ids.iter().position(|&id| !is_text(id)).expect("one has the bit");
                    return Err(bad_id(at + bad, ids[bad]));
                }
                Some(Piece::Item(_, count)) => count,
                None => return Ok(()),
            };
        }
        Ok(())
    }
}

/// Makes the digests of the whole pages of a list, one after another.
pub struct ListDigests<'a>(DigestChain<ListPieces<'a>>);

impl<'a> ListDigests<'a> {
    /// From a page on. The items were counted, and are good; the ids are checked here, those of so
    /// many pages, or all.
    pub fn new(
        tokens: TokenList<'a>,
        page_size: usize,
        first_page: usize,
        pages: Option<usize>,
    ) -> Result<Self, Error> {
        let mut pieces = ListPieces { tokens, token: 0, item: 0, offset: 0 };
        pieces.skip(first_page * page_size);
        pieces.check_text(pages.map_or(usize::MAX, |pages| pages * page_size))?;
        let hasher = PageHasher::new(page_size);
        Ok(Self(DigestChain::new(hasher, PageDigest::default(), pieces)))
    }

    /// The digest of the next page, after the one of digest `parent`; None when no whole page is
    /// left.
    pub fn next_after(&mut self, parent: PageDigest) -> Option<PageDigest> {
        self.0.last = parent;
        self.0.next_page()
    }
}

/// Whole pages of a list from `first_page` on.
pub fn page_digest_count(
    tokens: TokenList<'_>,
    page_size: usize,
    first_page: usize,
) -> Result<usize, Error> {
    let pages = position_count(tokens)? / page_size;
    pages.checked_sub(first_page).ok_or_else(|| {
        Error::argument(text!(
            "args.first_page {first_page} is beyond the {pages} whole pages of the tokens"
        ))
    })
}

/// Gives `visit` the digests of the whole pages of a list from `first_page` on; `parent` is that of
/// the page before. Checks everything before the first.
pub fn page_digests(
    tokens: TokenList<'_>,
    page_size: usize,
    first_page: usize,
    parent: PageDigest,
    visit: impl FnMut(PageDigest),
) -> Result<(), Error> {
    let pages = page_digest_count(tokens, page_size, first_page)?;
    let ListDigests(mut chain) = ListDigests::new(tokens, page_size, first_page, Some(pages))?;
    chain.last = parent;
    let made = chain.next_pages(pages, visit);
    assert_eq!(made, pages, "the pages are there");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Keys, and how many positions of items were read so far.
    #[derive(Clone)]
    struct Counted<'a>(KeyPieces<'a>, &'a Cell<usize>);

    impl Pieces for Counted<'_> {
        fn next(&mut self, limit: usize) -> Option<Piece<'_>> {
            let piece = self.0.next(limit);
            if let Some(Piece::Item(_, count)) = piece {
                self.1.set(self.1.get() + count);
            }
            piece
        }

        fn is_text_next(&self) -> bool {
            self.0.is_text_next()
        }
    }

    /// The work for the pages of an image grows as they do.
    #[test]
    fn a_page_of_an_image_is_not_read_with_those_before() {
        const PAGE: usize = 16;
        for pages in [1, 2, TOGETHER, 3 * TOGETHER] {
            let mut images = Images::default();
            let key = images.hold([7; 16], (pages * PAGE) as u32).unwrap();
            let (keys, read) = (vec![key; pages * PAGE], Cell::new(0));
            let pieces = KeyPieces::new(Keys { keys: &keys, images: &images }, None);
            let hasher = PageHasher::new(PAGE);
            let mut chain = DigestChain::new(hasher, PageDigest::default(), Counted(pieces, &read));
            assert_eq!(chain.next_pages(pages, |_| {}), pages);
            assert!(read.get() <= 4 * keys.len(), "{pages} pages: {} positions", read.get());
        }
    }
}
