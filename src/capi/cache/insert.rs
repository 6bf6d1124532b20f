//! Publishing pages that the caller computed.
use crate::capi::cache::{rkv_cache, rkv_group_row, rkv_lock_id, rkv_node_id, write_path};
use crate::capi::ffi::{
    AbiStruct, Fail, GivenElements, check_fit, check_flags, check_out, check_zero, out_slice,
    read_struct, rkv_status, slice, with, write_struct,
};
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_tokens};
use crate::error::{Error, text};
use crate::group::{GROUP_LIMIT, check_count};
use crate::ids::{HandleId, NodeId};
use crate::store::{GroupRow, InsertRequest, InsertResult, Shared, State};
use crate::token::TokenList;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// Flag of rkv_cache_insert_args: lock what was inserted in the same step, so that no other thread
/// can evict it before. Undo with rkv_cache_unlock() of rkv_cache_insert_result.lock.
pub const RKV_INSERT_LOCK: u32 = 1;

/// What rkv_cache_insert() puts where.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_insert_args {
    /// sizeof(rkv_cache_insert_args).
    pub struct_size: u32,
    /// 0 or RKV_INSERT_LOCK.
    pub flags: u32,
    /// The namespace; NULL for the default one. Not read when from_node is set.
    pub space: *const rkv_namespace,
    /// All tokens of the prefix, from its beginning.
    pub tokens: *const rkv_tokens,
    /// The pages of the prefix, from its beginning; at least one for each whole page of the
    /// tokens. Those before from_page_index are not read.
    pub pages: *const u32,
    /// Number of pages.
    pub page_count: usize,
    /// Node of an earlier match to go on from; 0 begins at the root.
    pub from_node: rkv_node_id,
    /// Tokens up to from_node's end, as rkv_cache_match_result.token_count says: those of a page
    /// that matched in part may be counted too. 0 without from_node.
    pub from_token_index: u64,
    /// Pages up to from_node's end, as rkv_cache_match_result.page_count says; 0 without from_node.
    pub from_page_index: u64,
    /// The pages of other groups, one row for each that has any; NULL without.
    pub groups: *const rkv_group_row,
    /// Number of rows.
    pub group_count: usize,
    /// sizeof(rkv_group_row); not read without rows.
    pub group_size: usize,
    /// With RKV_INSERT_LOCK: a lock on from_node, which moves to where the published pages end, in
    /// the same step; 0 takes a new one. (That of a match which ended inside a page is on
    /// partial_node, and stays there.) It keeps its id, and what it protected it protects still:
    /// of other groups all pages from there on, until rkv_cache_slide_lock() lets go of those that
    /// are passed. So a request that grows page by page has one lock, and a page more costs the
    /// work on that page. When nobody else has locked from_node, or has pages behind it, its
    /// segment becomes longer and from_node is stale; go on from rkv_cache_insert_result.node.
    /// Let one call at a time move a lock. If another call moves it on between two portions of this
    /// one, or undoes it, then that holds: it protects no more of what this call publishes.
    pub lock: rkv_lock_id,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_cache_insert_args {
    const NAME: &'static str = "args";
    const V1: usize = 64;
}

/// What rkv_cache_insert() did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_insert_result {
    /// sizeof(rkv_cache_insert_result).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Node that ends where the published pages end; 0 when there is no whole page.
    pub node: rkv_node_id,
    /// Pages that the cache owns from now on.
    pub claimed_page_count: u64,
    /// Pages that were not claimed because another page is published for the same tokens. They
    /// stay private to their holder, or outside.
    pub duplicate_page_count: u64,
    /// With RKV_INSERT_LOCK: the lock, which protects the prefix up to node, the one that moved if
    /// one did; 0 when there is no whole page.
    pub lock: rkv_lock_id,
    /// Pages of other groups that the cache owns from now on.
    pub claimed_group_page_count: u64,
    /// Pages of other groups that were not claimed because another page is published there.
    pub duplicate_group_page_count: u64,
    /// Whole pages of the tokens that are published: all, unless memory ran out before the end of
    /// a long list. The pages behind them are the caller's as before.
    pub page_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_insert_result {
    const NAME: &'static str = "out_result";
    const V1: usize = 40;
}

/// The rows of other groups that an insert was given.
struct GivenRows<'a> {
    rows: [GroupRow<'a>; GROUP_LIMIT],
    published: [*mut u32; GROUP_LIMIT],
    count: usize,
}

impl GivenRows<'_> {
    /// # Safety
    /// What the rows of `args` name is readable and writable during the call.
    unsafe fn read(args: &rkv_cache_insert_args, is_external: bool) -> Result<Self, Fail> {
        let (count, size) = (args.group_count, (args.group_size, "args.group_size"));
        let empty = GroupRow { group: 0, pages: &[] };
        let mut read =
            Self { rows: [empty; GROUP_LIMIT], published: [null_mut(); GROUP_LIMIT], count };
        if count == 0 {
            return Ok(read);
        }
        check_count(count, "args.group_count")?;
        // SAFETY: the caller's contract.
        let given = unsafe { GivenElements::new(args.groups, count, size, "args.groups")? };
        for (at, row) in given.iter().enumerate() {
            let name = |field: &str| text!("args.groups[{at}].{field}");
            // Names are made for refusals alone: an insert of a page takes as long as they do.
            if row.reserved != 0 {
                check_zero(row.reserved, &name("reserved"))?;
            }
            // SAFETY: the caller's contract.
            let pages = |name: &str| unsafe { slice(row.pages, row.page_count, name) };
            let pages = pages("").or_else(|_| pages(&name("pages")))?;
            let out = |name: &str| check_out(row.published_pages, pages.len(), name);
            if !row.published_pages.is_null() {
                out("").or_else(|_| out(&name("published_pages")))?;
            }
            if is_external && row.published_pages.is_null() && !pages.is_empty() {
                let what = "is NULL: it alone says which pages of an external pool the cache has";
                return Err(Error::argument(text!("{} {what}", name("published_pages"))).into());
            }
            read.rows[at] = GroupRow { group: row.group as usize, pages };
            read.published[at] = row.published_pages;
        }
        Ok(read)
    }

    fn list(&self) -> &[GroupRow<'_>] {
        &self.rows[..self.count]
    }

    /// Where the pages of a row go, if somewhere.
    ///
    /// # Safety
    /// As of `read`.
    unsafe fn published<'b>(&self, row: usize) -> Result<Option<&'b mut [MaybeUninit<u32>]>, Fail> {
        let (into, count) = (self.published[row], self.rows[row].pages.len());
        if into.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's contract.
        unsafe { out_slice(into, count, count, "args.groups[].published_pages").map(Some) }
    }

    /// Writes the page of the cache at each whole page, unless that was done as they came, and the
    /// caller's own after them.
    ///
    /// # Safety
    /// As of `read`.
    unsafe fn write_published(&self, state: &State, done: &InsertResult) -> Result<(), Fail> {
        let InsertResult { node: end, pages, .. } = *done;
        for (number, row) in self.list().iter().enumerate() {
            // SAFETY: the caller's contract.
            let Some(into) = (unsafe { self.published(number)? }) else { continue };
            if done.hung.told {
                into[pages..].write_copy_of_slice(&row.pages[pages..]);
                continue;
            }
            into.write_copy_of_slice(row.pages);
            state.write_group_row(end, row.group, |place, page| {
                if place < pages {
                    into[place].write(page);
                }
            })?;
        }
        Ok(())
    }
}

/// What is inserted, and where to tell what was done.
struct Given<'a> {
    args: &'a rkv_cache_insert_args,
    pages: &'a [u32],
    published_pages: *mut u32,
    out_result: *mut rkv_cache_insert_result,
}

impl Given<'_> {
    /// # Safety
    /// What the arguments point to is readable, or writable, per the header.
    unsafe fn insert(&self, shared: &Shared, rows: Option<&GivenRows<'_>>) -> Result<(), Fail> {
        let Self { args, pages, published_pages, out_result } = *self;
        let space = if args.from_node == 0 { args.space } else { null() };
        // SAFETY: the caller's contract.
        let namespace = unsafe { read_namespace(space)? };
        // Written where there is a place for them.
        let published = || match (published_pages.is_null(), pages.len()) {
            (true, _) => Ok(&mut [][..]),
            // SAFETY: the caller's contract.
            (false, count) => unsafe {
                out_slice(published_pages, count, count, "published_pages")
            },
        };
        let tell = |state: &mut State, inserted: InsertResult, first: usize| {
            if let Some(rows) = rows {
                // SAFETY: the caller's contract.
                unsafe { rows.write_published(state, &inserted)? };
            }
            if !published_pages.is_null() {
                write_path(state, inserted.node, first, published()?)?;
            }
            let made = rkv_cache_insert_result {
                struct_size: 0,
                reserved: 0,
                node: state.node_id(inserted.node)?,
                claimed_page_count: inserted.claimed as u64,
                duplicate_page_count: inserted.duplicates as u64,
                lock: inserted.lock.map_or(0, |lock| lock.0),
                claimed_group_page_count: inserted.hung.claimed as u64,
                duplicate_group_page_count: inserted.hung.duplicates as u64,
                page_count: inserted.pages as u64,
            };
            // SAFETY: the caller's contract.
            unsafe { write_struct(out_result, &made)? };
            Ok::<_, Fail>(inserted.pages)
        };
        let insert = |tokens: TokenList<'_>| {
            let request = InsertRequest {
                namespace: &namespace,
                tokens,
                pages,
                from: (args.from_node != 0).then_some(NodeId(args.from_node)),
                from_token: args.from_token_index as usize,
                from_page: args.from_page_index as usize,
                lock: args.flags & RKV_INSERT_LOCK != 0,
                moved: (args.lock != 0).then_some(HandleId(args.lock)),
                groups: rows.map_or(&[], GivenRows::list),
            };
            let mut tell_row = |row: usize, place: usize, page: u32| {
                let Some(rows) = rows else { return };
                // SAFETY: the caller's contract.
                if let Ok(Some(into)) = unsafe { rows.published(row) } {
                    into[place].write(page);
                }
            };
            let is_told = rows.is_some_and(|rows| rows.published.iter().any(|to| !to.is_null()));
            let tell_row: Option<&mut dyn FnMut(usize, usize, u32)> =
                if is_told { Some(&mut tell_row) } else { None };
            let (told, known) = shared.turn().insert_telling(request, tell_row, tell)?;
            let end = told?;
            if !published_pages.is_null() {
                let into = published()?;
                into[..known.len()].write_copy_of_slice(&known);
                into[end..].write_copy_of_slice(&pages[end..]);
            }
            Ok(())
        };
        // SAFETY: the caller's contract.
        unsafe { with_tokens(args.tokens, insert) }
    }
}

/// Publishes the whole pages of a prefix. Pages that were computed before rkv_cache_clear() cleared
/// the namespace are not to be inserted: the cache can't know.
///
/// Pages for which the cache has none yet are claimed: they must be private, and are the cache's
/// from then on, also where they are mapped: then keep them locked (RKV_INSERT_LOCK) until
/// rkv_page_table_free_slot() has returned, or an eviction gives them to somebody else while the
/// row has them. Nothing refuses that: two rows have one page then, and freeing the row frees what
/// is the other's. Where the cache has another page for the same tokens, that one stays and the
/// caller's is a duplicate: `published_pages` tells what to map instead.
///
/// With an external pool (RKV_PAGE_TABLE_EXTERNAL_POOL) the pages must be outside. Where the first
/// out_result->page_count of published_pages have the caller's own page, that is the cache's from
/// then on; where they have another one, the caller's is outside as before. When memory ran out in
/// a long insert, the pages after those are outside too: insert them again later. A page that the
/// cache has at another place, or that is given twice, is refused.
///
/// @param cache the cache
/// @param args what to insert
/// @param published_pages receives page_count entries: the cache's page at each whole page of the
/// tokens that is published, and the caller's own from out_result->page_count on; may be NULL, but
/// not with an external pool
/// @param out_result receives what was done; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for a page to be claimed that is not
/// private or given twice (with an external pool, for any such page), or a lock to move that is not
/// on from_node; RKV_STATUS_STALE_NODE; RKV_STATUS_STALE_LOCK for a lock to move that was undone;
/// RKV_STATUS_INVALID_STATE when no more locks can be numbered, or from_node was cleared, which a
/// lock on it does not hinder; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. A failed insert
/// changes nothing. A long list is checked as a whole and published in portions; when memory runs
/// out after the first, or another thread gives a page of the list away, the call succeeds and
/// out_result->page_count says how far it came. Pages of other groups come in portions after all of
/// group 0, and none of them goes before the call ends; those that did not come are not in the
/// published_pages of their row.
/// @par Cost
/// O(tokens + nodes on the path); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_insert(
    cache: *mut rkv_cache,
    args: *const rkv_cache_insert_args,
    published_pages: *mut u32,
    out_result: *mut rkv_cache_insert_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let args = read_struct(args)?;
            check_flags(args.flags, RKV_INSERT_LOCK, "args.flags")?;
            if args.lock != 0 && args.flags & RKV_INSERT_LOCK == 0 {
                return Err(Error::argument("args.lock needs RKV_INSERT_LOCK").into());
            }
            check_fit(out_result)?;
            let pages = slice(args.pages, args.page_count, "args.pages")?;
            if !published_pages.is_null() {
                check_out(published_pages, pages.len(), "published_pages")?;
            } else if !pages.is_empty() && shared.has_external_pool() {
                return Err(Error::argument(
                    "published_pages is NULL: of an external pool's pages it alone says which the \
                     cache has now",
                )
                .into());
            }
            let given = Given { args: &args, pages, published_pages, out_result };
            if args.group_count == 0 {
                return given.insert(shared, None);
            }
            let rows = GivenRows::read(&args, shared.has_external_pool())?;
            given.insert(shared, Some(&rows))
        })
    }
}
