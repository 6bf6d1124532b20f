//! Tokens: what they are, and how prompts and images become a token list.
use crate::capi::ffi::{
    AbiElement, AbiStruct, Fail, GivenElements, WantedElements, check_out, fill, guard, out,
    out_slice, put, read_struct, rkv_status, slice,
};
use crate::capi::token::namespace::{namespace_at, rkv_namespace};
use crate::error::Error;
use crate::error::text;
use crate::index::{Ask, DEFAULT_NAMESPACE, Namespace};
use crate::memory::try_collect;
use crate::token::{Item, TokenKind, TokenList, image_digest};
use smallvec::SmallVec;
use std::ffi::c_void;
use std::ops::Range;

/// Kind of an rkv_token_item: a coordinate, `bin` in [0, 1024).
pub const RKV_TOKEN_COORD: u32 = 1;
/// Kind of an rkv_token_item: a size, `bin` (width) and `height_bin` in [0, 1024).
pub const RKV_TOKEN_SIZE: u32 = 2;
/// Kind of an rkv_token_item: an image, `digest` and `position_count`.
pub const RKV_TOKEN_IMAGE: u32 = 3;
/// Text token ids are smaller than this.
pub const RKV_TEXT_ID_LIMIT: u32 = 2147483648;

/// One token that is not text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_token_item {
    /// Index of the token in the list; in rkv_tokens_build() the prompt index that it stands
    /// before.
    pub token_index: u64,
    /// RKV_TOKEN_COORD, RKV_TOKEN_SIZE or RKV_TOKEN_IMAGE.
    pub kind: u32,
    /// KV positions of an image, at least 1. Zero for the other kinds, which take one.
    pub position_count: u32,
    /// Bin of a coordinate or of a width; zero for an image.
    pub bin: u32,
    /// Bin of a height; zero for the other kinds.
    pub height_bin: u32,
    /// Content digest of an image, see rkv_image_digest(); zero for the other kinds.
    pub digest: [u8; 16],
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_token_item {
    const V1: usize = 40;
}

/// A list of tokens: a text id per token, and the tokens that are not text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_tokens {
    /// sizeof(rkv_tokens).
    pub struct_size: u32,
    /// sizeof(rkv_token_item); not read without items.
    pub item_size: u32,
    /// `count` text ids below RKV_TEXT_ID_LIMIT. The id at the index of an item is not read.
    pub ids: *const u32,
    /// Number of tokens, the items included.
    pub count: usize,
    /// `item_count` items with strictly ascending token_index; NULL when there are none.
    pub items: *const rkv_token_item,
    /// Number of items.
    pub item_count: usize,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_tokens {
    const NAME: &'static str = "tokens";
    const V1: usize = 40;
}

/// KV positions [start, end) that attend to each other in both directions: one image. An array
/// element: its layout never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_region {
    /// First position.
    pub start: u64,
    /// One past the last position.
    pub end: u64,
}

impl TryFrom<&rkv_token_item> for Item {
    type Error = Error;
    fn try_from(item: &rkv_token_item) -> Result<Self, Error> {
        let (bin, height_bin, positions) = (item.bin, item.height_bin, item.position_count);
        let kind = match item.kind {
            RKV_TOKEN_COORD if height_bin == 0 && positions <= 1 => TokenKind::Coord { bin },
            RKV_TOKEN_SIZE if positions <= 1 => TokenKind::Size { width_bin: bin, height_bin },
            RKV_TOKEN_IMAGE if bin == 0 && height_bin == 0 => {
                TokenKind::Image { digest: item.digest, positions }
            }
            RKV_TOKEN_COORD..=RKV_TOKEN_IMAGE => {
                return Err(other_field(item));
            }
            kind => {
                let at = item.token_index;
                return Err(Error::argument(text!(
                    "tokens.items: the one with token_index {at} has the unknown kind {kind}"
                )));
            }
        };
        if !matches!(kind, TokenKind::Image { .. }) && item.digest != [0; 16] {
            return Err(other_field(item));
        }
        Ok(Item { token_index: item.token_index as usize, kind })
    }
}

impl From<&Item> for rkv_token_item {
    fn from(item: &Item) -> Self {
        let mut made = rkv_token_item {
            token_index: item.token_index as u64,
            kind: 0,
            position_count: 0,
            bin: 0,
            height_bin: 0,
            digest: [0; 16],
        };
        match item.kind {
            TokenKind::Coord { bin } => (made.kind, made.bin) = (RKV_TOKEN_COORD, bin),
            TokenKind::Size { width_bin, height_bin } => {
                (made.kind, made.bin, made.height_bin) = (RKV_TOKEN_SIZE, width_bin, height_bin);
            }
            TokenKind::Image { digest, positions } => {
                (made.kind, made.digest, made.position_count) =
                    (RKV_TOKEN_IMAGE, digest, positions);
            }
        }
        made
    }
}

fn other_field(item: &rkv_token_item) -> Error {
    let at = item.token_index;
    Error::argument(text!(
        "tokens.items: the one with token_index {at} sets a field that its kind doesn't have"
    ))
}

/// The items of a list.
///
/// # Safety
/// They are readable, per the header.
unsafe fn given_items(raw: &rkv_tokens) -> Result<GivenElements<'_, rkv_token_item>, Fail> {
    let size = (raw.item_size as usize, "tokens.item_size");
    // SAFETY: the caller's contract.
    unsafe { GivenElements::new(raw.items, raw.item_count, size, "tokens.items") }
}

/// The ids of a list of nothing but text, and of the usual size. None: it is to be read with care.
///
/// # Safety
/// `tokens` and what it points to are readable, per the header, and stay so for 'a.
#[inline(always)] // of every lookup
unsafe fn text_at<'a>(tokens: *const rkv_tokens) -> Option<&'a [u32]> {
    if tokens.is_null() || !tokens.is_aligned() {
        return None;
    }
    // SAFETY: the first field can be read.
    if unsafe { (&raw const (*tokens).struct_size).read() } as usize != size_of::<rkv_tokens>() {
        return None;
    }
    // SAFETY: the others, too.
    let rkv_tokens { ids, count, item_count, .. } = unsafe { &*tokens };
    let is_text = *item_count == 0 && !ids.is_null() && ids.is_aligned();
    let most = isize::MAX as usize / size_of::<u32>();
    // SAFETY: the caller's contract.
    (is_text && *count <= most).then(|| unsafe { std::slice::from_raw_parts(*ids, *count) })
}

/// Runs `body` on the token list behind `tokens`.
///
/// # Safety
/// `tokens` and what it points to are readable, per the header.
#[inline(always)] // it is run in one place
pub(crate) unsafe fn with_tokens<R>(
    tokens: *const rkv_tokens,
    body: impl FnOnce(TokenList<'_>) -> Result<R, Fail>,
) -> Result<R, Fail> {
    let mut converted;
    // SAFETY: the caller's contract.
    let list = match unsafe { text_at(tokens) } {
        Some(ids) => TokenList::text(ids),
        None => {
            // A few items are converted without an allocation: lookups stand on this.
            converted = Items::new();
            // SAFETY: the caller's contract.
            let ids = unsafe { read_list(tokens, &mut converted)? };
            TokenList { ids, items: &converted }
        }
    };
    body(list)
}

/// Runs `body` on the ids behind `tokens`, for calls that take text only.
///
/// # Safety
/// `tokens` and what it points to are readable, per the header.
#[inline(always)] // as above
pub(crate) unsafe fn with_text<R>(
    tokens: *const rkv_tokens,
    body: impl FnOnce(&[u32]) -> Result<R, Fail>,
) -> Result<R, Fail> {
    // SAFETY: the caller's contract.
    let ids = match unsafe { text_at(tokens) } {
        Some(ids) => ids,
        // SAFETY: as above.
        None => unsafe { read_text(tokens)? },
    };
    body(ids)
}

/// Reads any list of nothing but text. What others have is not looked at: there may be much of it.
///
/// # Safety
/// `tokens` and what it points to are readable, per the header, and stay so for 'a.
#[inline(never)]
unsafe fn read_text<'a>(tokens: *const rkv_tokens) -> Result<&'a [u32], Fail> {
    // SAFETY: the caller's contract.
    let raw = unsafe { read_struct(tokens)? };
    if raw.item_count != 0 {
        let why = "tokens.item_count is not zero: snapshots take text only";
        return Err(Error::argument(why).into());
    }
    // SAFETY: the caller's contract.
    unsafe { slice(raw.ids, raw.count, "tokens.ids") }
}

type Items = SmallVec<[Item; 4]>;

/// Reads any list: returns its ids, and converts its items.
///
/// # Safety
/// `tokens` and what it points to are readable, per the header, and stay so for 'a.
#[inline(never)]
unsafe fn read_list<'a>(
    tokens: *const rkv_tokens,
    converted: &mut Items,
) -> Result<&'a [u32], Fail> {
    // SAFETY: the caller's contract.
    let raw = unsafe { read_struct(tokens)? };
    // SAFETY: the caller's contract.
    let ids = unsafe { slice(raw.ids, raw.count, "tokens.ids")? };
    if raw.item_count == 0 {
        return Ok(ids);
    }
    // SAFETY: the caller's contract.
    let items = unsafe { given_items(&raw)? };
    converted.try_reserve_exact(raw.item_count).map_err(|_| Error::memory("tokens.items"))?;
    for item in items.iter() {
        converted.push(Item::try_from(&item)?);
    }
    Ok(ids)
}

/// What a lookup of tokens begins with: the namespace, and the ids up to the first item. None of
/// what is going to be refused. Another namespace than the default one is read into `named`.
///
/// # Safety
/// `space` and `tokens` are NULL or readable, per the header, and stay so for 'a.
#[inline(always)]
pub(crate) unsafe fn lookup_ahead<'a>(
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    named: &mut Option<Namespace>,
) -> Option<Ask<'a, &Namespace>> {
    // SAFETY: the caller's contract.
    match unsafe { text_at(tokens) } {
        Some(ids) if space.is_null() => Some((&DEFAULT_NAMESPACE, ids)),
        // SAFETY: the caller's contract.
        _ => unsafe { any_lookup_ahead(space, tokens, named) },
    }
}

/// The same of any namespace and list.
///
/// # Safety
/// As above.
#[inline(never)]
unsafe fn any_lookup_ahead<'a>(
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    named: &mut Option<Namespace>,
) -> Option<Ask<'a, &Namespace>> {
    // SAFETY: the caller's contract.
    let namespace = unsafe { namespace_at(space, named).ok()? };
    // SAFETY: the caller's contract.
    let raw = unsafe { read_struct(tokens).ok()? };
    // SAFETY: the caller's contract.
    let ids = unsafe { slice(raw.ids, raw.count, "tokens.ids").ok()? };
    if raw.item_count == 0 {
        return Some((namespace, ids));
    }
    // SAFETY: the caller's contract.
    let first = unsafe { given_items(&raw).ok()?.iter().next()? };
    Some((namespace, ids.get(..first.token_index as usize)?))
}

/// Content digest of an image: the first 16 bytes of SHA-256 over its raw bytes.
///
/// @param bytes byte_count bytes; may be NULL when byte_count is 0
/// @param byte_count how many
/// @param out_digest receives 16 bytes
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(bytes); no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_image_digest(
    bytes: *const c_void,
    byte_count: usize,
    out_digest: *mut u8,
) -> rkv_status {
    guard(|| {
        // SAFETY: the caller's contract on bytes and out_digest.
        let (bytes, into) = unsafe {
            (
                slice(bytes.cast::<u8>(), byte_count, "bytes")?,
                out(out_digest.cast::<[u8; 16]>(), "out_digest")?,
            )
        };
        into.write(image_digest(bytes));
        Ok(())
    })
}

/// Puts items between the ids of a prompt: the token list of a prompt with images.
///
/// Each item of `tokens` stands before the prompt id at its token_index; the prompt's length puts
/// it at the end, and equal indices keep their order, so images may be adjacent. (Here alone the
/// indices need only ascend, not strictly, and every id of the prompt is kept.)
///
/// @param tokens the ids of the prompt, and the items with their places
/// @param ids receives tokens->count + tokens->item_count ids; zero at the items
/// @param items receives tokens->item_count items of tokens->item_size bytes, token_index in the
/// new list
/// @param id_capacity room in ids: (NULL, 0) is RKV_STATUS_BUFFER_TOO_SMALL, if the items have
/// their place; they need no capacity, their number is known
/// @param out_token_count receives the number of ids, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_BUFFER_TOO_SMALL;
/// RKV_STATUS_OUT_OF_MEMORY
/// @par Cost
/// O(tokens); no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_tokens_build(
    tokens: *const rkv_tokens,
    ids: *mut u32,
    id_capacity: usize,
    items: *mut rkv_token_item,
    out_token_count: *mut usize,
) -> rkv_status {
    guard(|| {
        let given = tokens;
        // SAFETY: the caller's contract on tokens, out_token_count, ids and items.
        unsafe {
            with_tokens(tokens, |tokens| {
                let (made_ids, made_items) = crate::token::build(tokens)?;
                let count = out(out_token_count, "out_token_count")?;
                let (item_size, names) = (read_struct(given)?.item_size, ["items", "item_size"]);
                let room = made_items.len();
                let mut items = WantedElements::new(items, item_size as usize, room, names)?;
                check_out(ids, id_capacity, "ids")?;
                count.write(made_ids.len());
                let ids = out_slice(ids, id_capacity, made_ids.len(), "ids")?;
                ids.write_copy_of_slice(&made_ids);
                for (at, item) in made_items.iter().enumerate() {
                    items.put(at, &item.into());
                }
                Ok(())
            })
        }
    })
}

/// The regions that attend in both directions: one for each image, in KV positions, ascending.
///
/// @param tokens the token list
/// @param regions receives them; (NULL, 0) asks for the count
/// @param capacity room in regions
/// @param out_count receives the number of images, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_BUFFER_TOO_SMALL;
/// RKV_STATUS_OUT_OF_MEMORY
/// @par Cost
/// O(items); no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_tokens_regions(
    tokens: *const rkv_tokens,
    regions: *mut rkv_region,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    guard(|| {
        // SAFETY: the caller's contract on tokens, out_count and regions.
        unsafe {
            with_tokens(tokens, |tokens| {
                let found = crate::token::regions(tokens)?;
                let region = |found: &Range<usize>| rkv_region {
                    start: found.start as u64,
                    end: found.end as u64,
                };
                let found = try_collect(found.iter().map(region))?;
                fill(&found, regions, capacity, out_count, ["regions", "out_count"])
            })
        }
    })
}

/// KV positions that a token list takes.
///
/// @param tokens the token list
/// @param out_position_count receives the sum over the tokens
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY
/// @par Cost
/// O(items); no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_tokens_position_count(
    tokens: *const rkv_tokens,
    out_position_count: *mut usize,
) -> rkv_status {
    guard(|| {
        // SAFETY: the caller's contract on tokens and out_position_count.
        unsafe {
            with_tokens(tokens, |tokens| {
                let count = crate::token::position_count(tokens)?;
                put(count, out_position_count, "out_position_count")
            })
        }
    })
}
