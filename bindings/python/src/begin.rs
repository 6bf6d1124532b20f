//! How sequences begin: by a lookup, from another one, or several at once; and retained ones.
use std::ptr::null;

use pyo3::prelude::*;

use crate::c::*;
use crate::cache::Cache;
use crate::handle::{Raw, filled, listed, long};
use crate::sequence::Sequence;
use crate::space::{Namespace, Space};
use crate::status::check;
use crate::tokens::TokenArg;

#[pymethods]
impl Cache {
    /// Begins a sequence: finds the longest cached prefix, locks it, takes a slot, maps the shared
    /// pages and allocates the others, evicting when the pool is short. It happens whole or not at
    /// all. At least one token is left to compute. Where it reuses a part of a page, that is to be
    /// copied: while `info().copy_count` is not 0 the sequence can be neither computed nor
    /// published; carry `copies()` out, then `confirm_copies()`. With `whole_pages` there is none.
    ///
    /// reserve: positions beyond the prompt to allocate pages for at once.
    /// allocate: how many of the first positions get pages now, for a prefill in chunks; 0 for all.
    ///
    /// Returns a Sequence. Raises OutOfPages, whose `shortage` has the numbers, OutOfSlots.
    #[pyo3(signature = (tokens, *, space=None, reserve=0, allocate=0))]
    fn begin(
        this: &Bound<'_, Self>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
        reserve: u64,
        allocate: u64,
    ) -> PyResult<Sequence> {
        let (py, cache) = (this.py(), this.get().handle.get(this.py())?);
        let tokens = TokenArg::of(tokens, "tokens")?;
        let space = Space::of(space);
        let args = rkv_sequence_begin_args {
            space: space.c(),
            tokens: tokens.c(),
            reserve_position_count: reserve,
            allocate_position_count: allocate,
            ..rkv_sequence_begin_args::sized()
        };
        let mut state = rkv_sequence_info::sized();
        let call = Raw((&args, &raw mut state));
        let status = long(py, true, || {
            let (args, state) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_sequence_begin(cache.raw(), args, state) }
        });
        check(py, status)?;
        Ok(Sequence::new(this.clone().unbind(), state.sequence))
    }

    /// A Sequence object for an id, e.g. one of `begin_many()`, for the verbs that are not needed
    /// in each step. The id stays the caller's to end; with `own` the object does that, as one of
    /// `begin()`. Raises StaleSequence.
    #[pyo3(signature = (id, *, own=false))]
    fn sequence(this: &Bound<'_, Self>, id: u64, own: bool) -> PyResult<Sequence> {
        let (py, cache) = (this.py(), this.get().handle.get(this.py())?);
        // SAFETY: a live handle.
        filled::<rkv_sequence_info>(py, |out| unsafe {
            rkv_sequence_read_info(cache.raw(), id, out)
        })?;
        let cache = this.clone().unbind();
        Ok(if own { Sequence::new(cache, id) } else { Sequence::borrowed(cache, id) })
    }

    /// Begins a sequence that goes on from another one, by its id: what the parent has computed is
    /// taken over by reference, without a lookup.
    ///
    /// tokens: what the child has after the tokens of its parent.
    /// all_tokens: all tokens of the child, to begin with by a lookup when the parent is gone.
    /// space: the namespace, which must be the parent's.
    /// running: take over what a parent that is still running has so far; without, such a parent
    ///     raises Pending.
    ///
    /// Raises StaleSequence when the parent is gone and `all_tokens` is None, OutOfPages.
    #[pyo3(signature = (parent, tokens=None, *, all_tokens=None, space=None, running=false,
                        reserve=0, allocate=0))]
    #[allow(clippy::too_many_arguments)]
    fn continue_from(
        this: &Bound<'_, Self>,
        parent: u64,
        tokens: Option<&Bound<'_, PyAny>>,
        all_tokens: Option<&Bound<'_, PyAny>>,
        space: Option<&Bound<'_, Namespace>>,
        running: bool,
        reserve: u64,
        allocate: u64,
    ) -> PyResult<Sequence> {
        let (py, cache) = (this.py(), this.get().handle.get(this.py())?);
        let tokens = tokens.map(|it| TokenArg::of(it, "tokens")).transpose()?;
        let all = all_tokens.map(|it| TokenArg::of(it, "all_tokens")).transpose()?;
        let space = Space::of(space);
        let args = rkv_sequence_continue_args {
            flags: if running { RKV_CONTINUE_RUNNING } else { 0 },
            parent,
            space: space.c(),
            tokens: tokens.as_ref().map_or(null(), |it| it.c()),
            all_tokens: all.as_ref().map_or(null(), |it| it.c()),
            reserve_position_count: reserve,
            allocate_position_count: allocate,
            ..rkv_sequence_continue_args::sized()
        };
        let mut state = rkv_sequence_info::sized();
        let call = Raw((&args, &raw mut state));
        let status = long(py, true, || {
            let (args, state) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_sequence_continue(cache.raw(), args, state) }
        });
        check(py, status)?;
        Ok(Sequence::new(this.clone().unbind(), state.sequence))
    }

    /// Begins `count` children with the tokens of a live or retained sequence, by its id: for beam
    /// search, or several samples of one prompt. All of them or none. Publish before, or nothing is
    /// shared.
    ///
    /// Returns a list of Sequences. Raises StaleSequence, OutOfPages, OutOfSlots.
    #[pyo3(signature = (parent, count, *, reserve=0))]
    fn fork(
        this: &Bound<'_, Self>,
        parent: u64,
        count: usize,
        reserve: u64,
    ) -> PyResult<Vec<Sequence>> {
        let (py, cache) = (this.py(), this.get().handle.get(this.py())?);
        let args = rkv_sequence_fork_args {
            parent,
            child_count: count,
            reserve_position_count: reserve,
            ..rkv_sequence_fork_args::sized()
        };
        // No table has more slots: more are refused before memory is asked for.
        let room = count.min((1 << 20) + 1);
        let args = rkv_sequence_fork_args { child_count: room, ..args };
        let mut children = vec![rkv_sequence_fork_child::zeroed(); room];
        let call = Raw((&args, children.as_mut_ptr()));
        let status = long(py, true, || {
            let (args, into) = call.get();
            let size = size_of::<rkv_sequence_fork_child>();
            // SAFETY: a live handle, room for every child.
            unsafe { rkv_sequence_fork(cache.raw(), args, into, size) }
        });
        check(py, status)?;
        let child =
            |it: &rkv_sequence_fork_child| Sequence::new(this.clone().unbind(), it.sequence);
        Ok(children.iter().map(child).collect())
    }

    /// Drops a retained sequence, by its id. What it published stays in the cache. Raises
    /// StaleSequence, also for a live one.
    fn drop(&self, py: Python<'_>, sequence: u64) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        check(py, long(py, true, || unsafe { rkv_sequence_drop(cache.raw(), sequence) }))
    }

    /// Drops retained sequences, the first to finish first, until so many more pages of a pool are
    /// available; None drops all. Returns how many more are.
    #[pyo3(signature = (page_count=None, *, pool=0))]
    fn drop_retained(
        &self,
        py: Python<'_>,
        page_count: Option<usize>,
        pool: u32,
    ) -> PyResult<usize> {
        let (cache, mut count) = (self.handle.get(py)?, 0);
        let (wanted, call) = (page_count.unwrap_or(usize::MAX), Raw(&raw mut count));
        let status = long(py, true, || {
            // SAFETY: a live handle.
            unsafe { rkv_cache_drop_retained_pool(cache.raw(), pool, wanted, call.get()) }
        });
        check(py, status)?;
        Ok(count)
    }

    /// The ids of the retained sequences, those that finished first at the front: a new array of
    /// uint64.
    fn retained<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let cache = self.handle.get(py)?;
        listed(py, "u8", |into, room, count| {
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_cache_read_retained(cache.raw(), into.cast(), room, count) }
        })
    }
}
