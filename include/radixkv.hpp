/**
 * @file radixkv.hpp
 * @brief radixkv.h for C++17: RAII, exceptions, vectors. Header-only, no symbol of its own.
 *
 * Each wrapper makes the one C call that its comment names; what the call promises stands there, in
 * radixkv.h, and is not repeated here. Results that are plain C structs stay the C structs.
 *
 * Errors     A status other than RKV_STATUS_OK is thrown as rkv::Error, a shortage of pages as
 *            rkv::OutOfPages. The C call changed nothing then, and neither did the wrapper. Code
 *            built without exceptions uses radixkv.h.
 * Ownership  PageTable, Cache, Sequence, Lock, Runner, Plan, SnapshotCache and SnapshotPin own what
 *            they name and can be moved, not copied.
 *            They speak the language of std::unique_ptr: get() looks, release() gives up ownership,
 *            reset() ends it now and throws when that fails, where a destructor must stay silent.
 *            A moved-from object is empty: it may be destroyed, assigned, asked with get(), and a
 *            Cache for its page_size(), which is 0; any other call throws
 *            RKV_STATUS_INVALID_ARGUMENT.
 * Order      Objects may be destroyed in any order, but a SnapshotFetch before its SnapshotCache. A
 *            Sequence and a Lock keep the C cache alive: when the Cache object goes first,
 *            rkv_cache_destroy() waits for the last of them. A Runner and a Plan keep the C page
 *            table alive.
 * Children   Sequence::retain() ends a sequence and empties its object; what is retained belongs to
 *            the cache and goes by its id, with no object.
 * Vectors    What returns a vector allocates it. An overload that takes a span writes in the
 *            caller's buffer instead and allocates nothing. Where there is none, as of copies(),
 *            group_row() and most calls over many items, the C call does that, with get().
 * Callbacks  One that throws ends the process: standard error says what was thrown where, then
 *            std::abort().
 * fork()     In a child process the parent's objects may be destroyed, which does nothing but to
 *            destroy the parallel_for of a Runner; any other call on them throws
 *            RKV_STATUS_INVALID_STATE.
 * Threads    As in C. An object of this header, like any C++ object, must not be moved or destroyed
 *            while another thread uses it.
 */

#ifndef RADIXKV_HPP
#define RADIXKV_HPP

#if defined(_MSVC_LANG) ? _MSVC_LANG < 201703L : __cplusplus < 201703L
#  error "radixkv.hpp needs C++17"
#endif
#if !defined(__cpp_exceptions)
#  error "radixkv.hpp reports errors as exceptions; a program without them uses radixkv.h"
#endif

// The order of a request; each header can be included alone.
#include "radixkv/error.hpp"
#include "radixkv/callback.hpp"
#include "radixkv/library.hpp"
#include "radixkv/spatial.hpp"
#include "radixkv/token.hpp"
#include "radixkv/namespace.hpp"
#include "radixkv/page_digest.hpp"
#include "radixkv/journal.hpp"
#include "radixkv/groups.hpp"
#include "radixkv/page_table.hpp"
#include "radixkv/cache.hpp"
#include "radixkv/events.hpp"
#include "radixkv/sequence.hpp"
#include "radixkv/plan.hpp"
#include "radixkv/runner.hpp"
#include "radixkv/snapshot.hpp"

#endif  // RADIXKV_HPP
