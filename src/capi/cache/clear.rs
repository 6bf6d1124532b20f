//! Clearing a cache, or some of its namespaces.
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{
    AbiStruct, Fail, check_fit, check_flags, read_struct, rkv_status, with, write_struct,
};
use crate::capi::token::{read_namespace, rkv_namespace};
use crate::error::Error;
use crate::store::Scope;

/// Flag of rkv_cache_clear_args: namespaces with the lora_id of `space`, or like it with none.
pub const RKV_CLEAR_LORA: u32 = 1;
/// Flag of rkv_cache_clear_args: namespaces with the image_digest of `space`, or like it with none.
pub const RKV_CLEAR_IMAGE: u32 = 2;
/// Flag of rkv_cache_clear_args: namespaces with the salt of `space`.
pub const RKV_CLEAR_SALT: u32 = 4;
/// Flag of rkv_cache_clear_args: namespaces with the epoch of `space`.
pub const RKV_CLEAR_EPOCH: u32 = 8;
/// Flags of rkv_cache_clear_args: `space` alone, which has all of it.
pub const RKV_CLEAR_NAMESPACE: u32 = 15;
/// Flag of rkv_cache_clear_args, alone: all namespaces.
pub const RKV_CLEAR_EVERYTHING: u32 = 16;

/// What rkv_cache_clear() is to clear.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_clear_args {
    /// sizeof(rkv_cache_clear_args).
    pub struct_size: u32,
    /// RKV_CLEAR_ flags: which fields of a namespace are those of `space`. At least one.
    pub flags: u32,
    /// Has those fields; the others are not looked at. NULL is the default namespace. NULL with
    /// RKV_CLEAR_EVERYTHING.
    pub space: *const rkv_namespace,
}
// SAFETY: integers and a pointer, no padding.
unsafe impl AbiStruct for rkv_cache_clear_args {
    const NAME: &'static str = "args";
    const V1: usize = 16;
}

/// What a clear did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rkv_cache_clear_result {
    /// sizeof(rkv_cache_clear_result).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Namespaces that it found.
    pub namespace_count: u64,
    /// Cached pages of group 0 that went back to the free pool during the call, as in all counts of
    /// pages here; those of other groups go with them.
    pub freed_page_count: u64,
    /// Cleared pages that locks, sequences and open copies still hold, those of earlier clears
    /// included. Each goes back when the last of them lets it go.
    pub held_page_count: u64,
    /// With an external pool: cleared pages that nobody holds. They are still the cache's;
    /// evictions give them back, before all others. Else 0.
    pub waiting_page_count: u64,
    /// Retained sequences that it dropped.
    pub dropped_sequence_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_clear_result {
    const NAME: &'static str = "out_result";
    const V1: usize = 48;
}

/// # Safety
/// `args.space` is NULL or readable, per the header.
unsafe fn scope_of(args: &rkv_cache_clear_args) -> Result<Scope, Fail> {
    check_flags(args.flags, RKV_CLEAR_NAMESPACE | RKV_CLEAR_EVERYTHING, "args.flags")?;
    let has = |flag: u32| args.flags & flag != 0;
    if args.flags == 0 {
        return Err(Error::argument("args.flags is 0: it says what to clear").into());
    }
    if has(RKV_CLEAR_EVERYTHING) && (has(RKV_CLEAR_NAMESPACE) || !args.space.is_null()) {
        return Err(Error::argument(
            "args.flags has RKV_CLEAR_EVERYTHING, which goes with no other flag and no args.space",
        )
        .into());
    }
    Ok(Scope {
        // SAFETY: the caller's contract.
        like: unsafe { read_namespace(args.space)? },
        lora: has(RKV_CLEAR_LORA),
        image: has(RKV_CLEAR_IMAGE),
        salt: has(RKV_CLEAR_SALT),
        epoch: has(RKV_CLEAR_EPOCH),
    })
}

/// Clears namespaces, while requests run: when weights or an adapter change, or a tenant leaves.
///
/// Nothing that they hold is found any more, by match, probe, begin or continue. Pages that nobody
/// holds are freed. What a lock, a sequence or an open copy holds stays as it is for its holder,
/// and is freed when that lets go. Retained sequences are dropped.
///
/// A sequence that began before goes on, and may publish. Nobody finds what it publishes, also not
/// under the name of the namespace, which is empty from now on and may be used again. That is so
/// for its children too. rkv_cache_insert() after a cleared node is refused. Without from_node it
/// begins anew: don't insert pages that were computed before.
///
/// A namespace is cleared at one moment; of several one comes after the other, and all are cleared
/// when the call returns. A sequence that begins in one of them during the call may be taken for
/// one that began before. So may one that has found and published nothing yet after clears of more
/// than 1024 other scopes: of so many the latest is remembered.
///
/// With an external pool (RKV_PAGE_TABLE_EXTERNAL_POOL) no page leaves by this call:
/// evictions report them.
///
/// @param cache the cache
/// @param args what to clear
/// @param out_result receives what was done; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(nodes + pages that are freed + retained sequences), and with a scope of several namespaces
/// O(namespaces * log(namespaces)); lock, in slices; needs no memory
/// @par Thread safety
/// any thread; lets waiting threads in
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_clear(
    cache: *mut rkv_cache,
    args: *const rkv_cache_clear_args,
    out_result: *mut rkv_cache_clear_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let args = read_struct(args)?;
            check_fit(out_result)?;
            let done = shared.clear(scope_of(&args)?)?;
            let made = rkv_cache_clear_result {
                struct_size: 0,
                reserved: 0,
                namespace_count: done.namespaces as u64,
                freed_page_count: done.freed as u64,
                held_page_count: done.held as u64,
                waiting_page_count: done.waiting as u64,
                dropped_sequence_count: done.dropped as u64,
            };
            write_struct(out_result, &made)
        })
    }
}
