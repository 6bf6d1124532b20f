//! Digests of pages, for those who speak in block hashes: routers, stores, other engines.
use crate::capi::ffi::{
    AbiStruct, Fail, check_out, guard, out, out_slice, read_struct, rkv_status, slice,
};
use crate::capi::page_table::RKV_PAGE_SIZE_MAX;
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_tokens};
use crate::error::Error;
use crate::error::text;
use crate::token::{PageDigest, page_digest_count, page_digests};

/// Names the content of a page together with everything before it. An array element: its layout
/// never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_page_digest {
    /// SHA-256 over the digest of the page before and the tokens of the page.
    pub bytes: [u8; 32],
}

/// What rkv_tokens_page_digests() makes digests of.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_tokens_page_digests_args {
    /// sizeof(rkv_tokens_page_digests_args).
    pub struct_size: u32,
    /// Positions per page, 1 to RKV_PAGE_SIZE_MAX.
    pub page_size: u32,
    /// The namespace; NULL for the default one. Not read when parent is set.
    pub space: *const rkv_namespace,
    /// The tokens, pages of which are counted from their first position.
    pub tokens: *const rkv_tokens,
    /// Digest of the page before first_page, to go on from; NULL to begin with the namespace.
    pub parent: *const rkv_page_digest,
    /// First page of the tokens to make a digest of. 0 without parent. With parent, 0 means that
    /// the tokens themselves go on where the parent's page ends.
    pub first_page: u64,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_tokens_page_digests_args {
    const NAME: &'static str = "args";
    const V1: usize = 40;
}

/// The digest that stands before the first page of the tokens that are hashed.
///
/// # Safety
/// What `args` points to is readable, per the header.
unsafe fn parent(args: &rkv_tokens_page_digests_args) -> Result<PageDigest, Fail> {
    if !args.parent.is_null() {
        // SAFETY: the caller's contract.
        return Ok(PageDigest(unsafe { slice(args.parent, 1, "args.parent")? }[0].bytes));
    }
    if args.first_page != 0 {
        return Err(Error::argument("args.first_page needs args.parent").into());
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { read_namespace(args.space)? }.digest())
}

/// Digests of the whole pages of a token list, each over the page and everything before it.
///
/// Two pages have the same digest when, and only when, their tokens, all tokens before, the page
/// size and the namespace are the same. Digests are the same in every process and on every machine,
/// and they are those of RKV_INDEX_BLOCK_HASH; docs/block_hash.md says how to compute them without
/// this library.
///
/// @param args what to make digests of
/// @param digests receives them, that of first_page first; (NULL, 0) asks for the count
/// @param capacity room in digests
/// @param out_count receives the number of whole pages from first_page on, also on
/// RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for an id that is no text id;
/// RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_OUT_OF_MEMORY
/// @par Cost
/// O(positions), a SHA-256 of each page; no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_tokens_page_digests(
    args: *const rkv_tokens_page_digests_args,
    digests: *mut rkv_page_digest,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on args, digests and out_count.
    guard(|| unsafe {
        let args = read_struct(args)?;
        if args.page_size == 0 || args.page_size > RKV_PAGE_SIZE_MAX {
            let message =
                text!("args.page_size {} is not in 1..={RKV_PAGE_SIZE_MAX}", args.page_size);
            return Err(Error::argument(message).into());
        }
        let (page_size, first_page) = (args.page_size as usize, args.first_page as usize);
        let parent = parent(&args)?;
        with_tokens(args.tokens, |tokens| {
            let count = page_digest_count(tokens, page_size, first_page)?;
            let out_count = out(out_count, "out_count")?;
            check_out(digests, capacity, "digests")?;
            if digests.is_null() {
                out_count.write(count);
                return Ok(());
            }
            let room = out_slice(digests, capacity, count, "digests");
            if room.is_err() {
                out_count.write(count);
            }
            let mut room = room?.iter_mut();
            page_digests(tokens, page_size, first_page, parent, |PageDigest(bytes)| {
                room.next().expect("it was counted").write(rkv_page_digest { bytes });
            })?;
            out_count.write(count);
            Ok(())
        })
    })
}
