//! A match: how it is found and taken, and that it is written where the caller wants it.
use crate::capi::cache::rkv_cache_match_result;
use crate::capi::ffi::{AbiElement, Fail, WantedElements, out_slice};
use crate::error::Error;
use crate::index::{Namespace, Node, Walk};
use crate::store::{Found, State, Turn};
use crate::token::TokenList;
use std::mem::MaybeUninit;

/// What is wanted of a match beside the match, and where it goes.
pub(super) struct Wanted<'a> {
    pub(super) lock: bool,
    /// Receives the pages, if it has any room.
    pub(super) row: &'a mut [MaybeUninit<u32>],
    /// Where the match goes; when the pages don't fit, as many as are needed.
    pub(super) into: WantedElements<rkv_cache_match_result>,
    pub(super) at: usize,
}

/// Where the pages of a match go.
///
/// # Safety
/// `pages` is NULL, or as many are writable there during the call.
pub(super) unsafe fn row_of<'a>(
    pages: *mut u32,
    capacity: usize,
) -> Result<&'a mut [MaybeUninit<u32>], Fail> {
    // SAFETY: the caller's contract.
    unsafe { out_slice(pages, capacity, capacity, "pages") }
}

/// Writes the pages from the one at `first` to where a node ends; none without a node.
pub(crate) fn write_path(
    state: &State,
    node: Option<Node>,
    first: usize,
    into: &mut [MaybeUninit<u32>],
) -> Result<(), Error> {
    state.visit_path(node, first, |start, pages| {
        into[start..start + pages.len()].write_copy_of_slice(pages);
    })
}

/// Matches, and writes the match and its pages. Whatever fails has changed nothing.
#[inline(always)] // the single match is the hot one
pub(super) fn match_tokens(
    turn: &mut Turn<'_>,
    namespace: &Namespace,
    tokens: TokenList<'_>,
    mut wanted: Wanted<'_>,
) -> Result<(), Fail> {
    if turn.is_long(tokens) {
        return match_longer(turn, namespace, tokens, wanted);
    }
    let state = turn.state();
    let Some((cache, root)) = state.text_root(namespace, tokens)? else {
        return match_along(state, namespace, (tokens, None), wanted);
    };
    let walk = cache.walk_text(root, tokens.ids);
    match take_plain(state, &walk, tokens, &mut wanted)? {
        true => Ok(()),
        false => match_along(state, namespace, (tokens, Some(walk)), wanted),
    }
}

/// Takes the match of a text that ends where its walk does, as most do, and writes it. False: it is
/// another match, or its pages don't fit.
#[inline(always)]
fn take_plain(
    state: &mut State,
    walk: &Walk,
    tokens: TokenList<'_>,
    Wanted { lock, row, into, at }: &mut Wanted<'_>,
) -> Result<bool, Fail> {
    if !row.is_empty() && walk.pages > row.len() {
        return Ok(false);
    }
    let Some((node, lock)) = state.take_walk(walk, tokens.ids.len(), *lock)? else {
        return Ok(false);
    };
    if !row.is_empty() && walk.pages > 0 {
        write_path(state, Some(walk.node), 0, row)?;
    }
    let positions = (walk.pages * state.table.page_size()) as u64;
    into.put_made(*at, || rkv_cache_match_result {
        node,
        lock: lock.map_or(0, |lock| lock.0),
        token_count: positions,
        position_count: positions,
        page_count: walk.pages as u64,
        known_position_count: positions,
        ..AbiElement::zeroed()
    });
    Ok(true)
}

/// Any other match, the walk of which may be known.
#[inline(never)]
fn match_along(
    state: &mut State,
    namespace: &Namespace,
    (tokens, walk): (TokenList<'_>, Option<Walk>),
    wanted: Wanted<'_>,
) -> Result<(), Fail> {
    let found = state.find_along(namespace, tokens, walk)?;
    take_found(state, found, 0, wanted)
}

/// The same for a list during which others may be let in, if it leads far.
#[inline(never)]
fn match_longer(
    turn: &mut Turn<'_>,
    namespace: &Namespace,
    tokens: TokenList<'_>,
    mut wanted: Wanted<'_>,
) -> Result<(), Fail> {
    if !turn.has_groups()
        && let Some(walk) = turn.walk_shortly(namespace, tokens)
    {
        let state = turn.state();
        if let Some(walk) = &walk
            && take_plain(state, walk, tokens, &mut wanted)?
        {
            return Ok(());
        }
        return match_along(state, namespace, (tokens, walk), wanted);
    }
    match_long(turn, namespace, tokens, wanted)
}

/// The same, which lets others have the lock.
#[cold]
#[inline(never)]
fn match_long(
    turn: &mut Turn<'_>,
    namespace: &Namespace,
    tokens: TokenList<'_>,
    wanted: Wanted<'_>,
) -> Result<(), Fail> {
    let Wanted { lock, row, into, at } = wanted;
    let ((), known) = turn.lookup_into(namespace, tokens, row, |state, (found, known), row| {
        take_found(state, found, known, Wanted { lock, row, into, at })
    })?;
    if !row.is_empty() && !known.is_empty() {
        let into = &mut row[..known.len()];
        // Without the lock, which is not needed for that.
        turn.unlocked(move || {
            into.write_copy_of_slice(&known);
            drop(known);
        });
    }
    Ok(())
}

/// Takes what was found, and writes it, and its pages from the one at `first` on.
#[inline(always)]
fn take_found(
    state: &mut State,
    found: Found,
    first: usize,
    wanted: Wanted<'_>,
) -> Result<(), Fail> {
    let Wanted { lock, row, mut into, at } = wanted;
    if !row.is_empty() && found.pages() > row.len() {
        // SAFETY: there is room for a match.
        unsafe { (&raw mut (*into.place(at)).page_count).write(found.pages() as u64) };
        return Err(Fail::too_small(found.pages(), row.len(), "pages"));
    }
    let depths = found.depths();
    let (matched, locked) = state.take_match(found, lock)?;
    if !row.is_empty() {
        write_path(state, matched.node, first, row)?;
    }
    let (source, partial) =
        matched.partial.map_or((0, 0), |partial| (partial.page, partial.positions));
    let node = state.node_id(matched.node)?;
    let partial_node = state.node_id(matched.partial.map(|partial| partial.node))?;
    into.put_made(at, || rkv_cache_match_result {
        struct_size: 0,
        partial_page: source,
        node,
        partial_node,
        lock: locked.map_or(0, |lock| lock.0),
        token_count: matched.tokens as u64,
        position_count: matched.positions as u64,
        page_count: matched.pages as u64,
        partial_position_count: partial as u64,
        known_position_count: u64::from(depths.known).max(matched.positions as u64),
        checkpoint_at: depths.checkpoint_at.map(u64::from),
        limiting_group: depths.costliest,
        reserved: 0,
    });
    Ok(())
}
