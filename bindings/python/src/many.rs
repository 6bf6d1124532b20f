//! The batch verbs: one call for a step of many sequences, arrays in and arrays out.
use std::cell::Cell;
use std::ptr::null_mut;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::array::{Array, no_numbers};
use crate::c::*;
use crate::cache::Cache;
use crate::handle::{Raw, long};
use crate::space::{Namespace, Space};
use crate::status::{batch_error, check};
use crate::tokens::TokenArg;

/// From so many items on a call lets other threads run.
const LONG: usize = 8;

thread_local! {
    /// Statuses of callers who want none; kept from one call to the next.
    static SPARE: Cell<Vec<i32>> = const { Cell::new(Vec::new()) };
}

/// Where the statuses of a batch go: the caller's array, or memory of our own.
struct Statuses {
    array: Option<Array>,
    own: Vec<i32>,
    count: usize,
}

impl Statuses {
    fn of(array: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<Self> {
        let Some(array) = array else {
            let mut own = SPARE.take();
            own.clear();
            own.resize(count, RKV_STATUS_OK);
            return Ok(Statuses { array: None, own, count });
        };
        let array = Array::integers(array, "statuses", 4, true)?.exactly("statuses", count)?;
        Ok(Statuses { array: Some(array), own: Vec::new(), count })
    }

    fn c(&mut self) -> *mut i32 {
        match &self.array {
            Some(array) => array.data(),
            None => self.own.as_mut_ptr(),
        }
    }

    /// How many items failed. Without an array of the caller's that is an exception.
    fn finish(mut self, py: Python<'_>, status: i32) -> PyResult<usize> {
        check(py, status)?;
        let from = self.c();
        // SAFETY: `count` statuses, all written.
        let all = unsafe { std::slice::from_raw_parts(from, self.count) };
        let failed = all.iter().filter(|status| **status != RKV_STATUS_OK).count();
        if failed > 0 && self.array.is_none() {
            return Err(batch_error(py, all));
        }
        Ok(failed)
    }
}

impl Drop for Statuses {
    fn drop(&mut self) {
        SPARE.set(std::mem::take(&mut self.own));
    }
}

/// An optional array of structs for results, and where it begins.
fn results<T>(
    array: Option<&Bound<'_, PyAny>>,
    name: &str,
    layout: &str,
    count: usize,
) -> PyResult<(Option<Array>, *mut T)> {
    let Some(array) = array else { return Ok((None, null_mut())) };
    let array = Array::structs::<T>(array, name, layout, true)?.at_least(name, count)?;
    let start = array.data();
    Ok((Some(array), start))
}

/// The argument `spaces`: one namespace for all items, or a list with one for each.
struct Spaces {
    one: Option<Space>,
    each: Vec<Space>,
}

impl Spaces {
    fn of(spaces: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<Self> {
        let Some(spaces) = spaces else { return Ok(Spaces { one: None, each: Vec::new() }) };
        if let Ok(one) = spaces.cast::<Namespace>() {
            return Ok(Spaces { one: Some(Space::of(Some(one))), each: Vec::new() });
        }
        let list: Vec<Option<Bound<'_, Namespace>>> = spaces.extract().map_err(|_| {
            PyTypeError::new_err("spaces: a Namespace, or a list of them and None, is needed")
        })?;
        if list.len() != count {
            let message = format!("spaces: {count} are needed, {} are there", list.len());
            return Err(PyValueError::new_err(message));
        }
        let each = list.iter().map(|space| Space::of(space.as_ref())).collect();
        Ok(Spaces { one: None, each })
    }

    fn at(&self, index: usize) -> *const rkv_namespace {
        let space = self.one.as_ref().or_else(|| self.each.get(index));
        space.map_or(std::ptr::null(), Space::c)
    }
}

fn prompts<'py>(list: &Bound<'py, PyList>) -> PyResult<Vec<TokenArg<'py>>> {
    let one = |(at, tokens)| TokenArg::of(&tokens, &format!("prompts[{at}]"));
    list.iter().enumerate().map(one).collect()
}

/// A number for all items, or an array of 64-bit integers with one for each.
enum Numbers {
    One(u64),
    Each(Array),
}

impl Numbers {
    fn of(object: Option<&Bound<'_, PyAny>>, name: &str, count: usize) -> PyResult<Self> {
        let Some(object) = object else { return Ok(Numbers::One(0)) };
        match object.extract() {
            Ok(one) => return Ok(Numbers::One(one)),
            Err(reason) if reason.is_instance_of::<PyOverflowError>(object.py()) => {
                return Err(no_numbers(object.py(), name, &reason));
            }
            Err(_) => {}
        }
        let array = Array::integers(object, name, 8, false)?;
        Ok(Numbers::Each(array.exactly(name, count)?))
    }

    fn at(&self, index: usize) -> u64 {
        match self {
            Numbers::One(one) => *one,
            // SAFETY: 64-bit integers, as many as there are items.
            Numbers::Each(array) => unsafe { array.read::<u64>()[index] },
        }
    }
}

#[pymethods]
impl Cache {
    /// As many calls of `match()`, in order, with one lock.
    ///
    /// prompts: a list of n token arrays.
    /// matches: an array of `dtypes.match` with room for n, receives the matches.
    /// pages: a 2-dimensional array of uint32, n rows, receives the whole pages of each.
    /// spaces: a Namespace for all, or a list of n.
    /// statuses: an array of n int32, receives 0 or the status of each.
    ///
    /// Returns how many failed, which do not keep the others from being carried out. Without
    /// `statuses` the error of the last that failed is raised, after all were gone through; its
    /// attribute `statuses` has those of all.
    #[pyo3(signature = (prompts, matches, pages=None, *, spaces=None, lock=false, statuses=None))]
    #[allow(clippy::too_many_arguments)]
    fn match_many(
        &self,
        py: Python<'_>,
        prompts: &Bound<'_, PyList>,
        matches: &Bound<'_, PyAny>,
        pages: Option<&Bound<'_, PyAny>>,
        spaces: Option<&Bound<'_, PyAny>>,
        lock: bool,
        statuses: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let tokens = self::prompts(prompts)?;
        let count = tokens.len();
        let spaces = Spaces::of(spaces, count)?;
        let pages = pages.map(|it| Array::integers(it, "pages", 4, true)).transpose()?;
        let room = match &pages {
            None => 0,
            Some(array) => match array.shape()[..] {
                [rows, room] if rows as usize >= count => room as usize,
                _ => {
                    let message = format!("pages: {count} rows in 2 dimensions are needed");
                    return Err(PyValueError::new_err(message));
                }
            },
        };
        let into = pages.as_ref().map_or(null_mut(), |array| array.data::<u32>());
        let item = |(at, tokens): (usize, &TokenArg<'_>)| rkv_cache_match_item {
            space: spaces.at(at),
            tokens: tokens.c(),
            pages: if room == 0 { null_mut() } else { into.wrapping_add(at * room) },
            page_capacity: room,
            flags: if lock { RKV_MATCH_LOCK } else { 0 },
            reserved: 0,
        };
        let items: Vec<_> = tokens.iter().enumerate().map(item).collect();
        let (_kept, found) =
            results::<rkv_cache_match_result>(Some(matches), "matches", "match", count)?;
        let mut statuses = Statuses::of(statuses, count)?;
        let call = Raw((items.as_ptr(), found, statuses.c()));
        let status = long(py, count > LONG, || {
            let (items, found, statuses) = call.get();
            let (item, result) =
                (size_of::<rkv_cache_match_item>(), size_of::<rkv_cache_match_result>());
            // SAFETY: a live handle; the arrays have `count` entries.
            unsafe {
                rkv_cache_match_many(cache.raw(), items, count, item, found, result, statuses)
            }
        });
        statuses.finish(py, status)
    }

    /// As many calls of `probe()`. `found`, an array of `dtypes.probe` with room for n, receives
    /// tokens and positions. The other arguments and the result are those of `match_many()`.
    #[pyo3(signature = (prompts, found, *, spaces=None, statuses=None))]
    fn probe_many(
        &self,
        py: Python<'_>,
        prompts: &Bound<'_, PyList>,
        found: &Bound<'_, PyAny>,
        spaces: Option<&Bound<'_, PyAny>>,
        statuses: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let tokens = self::prompts(prompts)?;
        let count = tokens.len();
        let spaces = Spaces::of(spaces, count)?;
        let item = |(at, tokens): (usize, &TokenArg<'_>)| rkv_cache_probe_item {
            space: spaces.at(at),
            tokens: tokens.c(),
        };
        let items: Vec<_> = tokens.iter().enumerate().map(item).collect();
        let (_kept, found) =
            results::<rkv_cache_probe_result>(Some(found), "found", "probe", count)?;
        let mut statuses = Statuses::of(statuses, count)?;
        let call = Raw((items.as_ptr(), found, statuses.c()));
        let status = long(py, count > LONG, || {
            let (items, found, statuses) = call.get();
            let (item, result) =
                (size_of::<rkv_cache_probe_item>(), size_of::<rkv_cache_probe_result>());
            // SAFETY: a live handle; the arrays have `count` entries.
            unsafe {
                rkv_cache_probe_many(cache.raw(), items, count, item, found, result, statuses)
            }
        });
        statuses.finish(py, status)
    }

    /// As many calls of `begin()`, in order. `infos`, an array of `dtypes.sequence_info` with room
    /// for n, receives the sequences: ids in its field `sequence`. They are the caller's to end, by
    /// `release_many()`. Those with a `copy_count` have copies to carry out and confirm first, see
    /// `begin()`. `reserve` and `allocate` are numbers, or arrays of n 64-bit integers. The other
    /// arguments and the result are those of `match_many()`.
    #[pyo3(signature = (prompts, infos, *, spaces=None, reserve=None, allocate=None, statuses=None),
           text_signature = "($self, prompts, infos, *, spaces=None, reserve=None, allocate=None, \
                             statuses=None)")]
    #[allow(clippy::too_many_arguments)]
    fn begin_many(
        &self,
        py: Python<'_>,
        prompts: &Bound<'_, PyList>,
        infos: &Bound<'_, PyAny>,
        spaces: Option<&Bound<'_, PyAny>>,
        reserve: Option<&Bound<'_, PyAny>>,
        allocate: Option<&Bound<'_, PyAny>>,
        statuses: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let tokens = self::prompts(prompts)?;
        let count = tokens.len();
        let spaces = Spaces::of(spaces, count)?;
        let reserve = Numbers::of(reserve, "reserve", count)?;
        let allocate = Numbers::of(allocate, "allocate", count)?;
        let item = |(at, tokens): (usize, &TokenArg<'_>)| rkv_sequence_begin_args {
            space: spaces.at(at),
            tokens: tokens.c(),
            reserve_position_count: reserve.at(at),
            allocate_position_count: allocate.at(at),
            ..rkv_sequence_begin_args::sized()
        };
        let items: Vec<_> = tokens.iter().enumerate().map(item).collect();
        let (_kept, states) =
            results::<rkv_sequence_info>(Some(infos), "infos", "sequence_info", count)?;
        let mut statuses = Statuses::of(statuses, count)?;
        let call = Raw((items.as_ptr(), states, statuses.c()));
        let status = long(py, count > 0, || {
            let (items, states, statuses) = call.get();
            let (item, state) =
                (size_of::<rkv_sequence_begin_args>(), size_of::<rkv_sequence_info>());
            // SAFETY: a live handle; the arrays have `count` entries.
            unsafe {
                rkv_sequence_begin_many(cache.raw(), items, count, item, states, state, statuses)
            }
        });
        statuses.finish(py, status)
    }

    /// Adds tokens to n sequences, e.g. to each the one just decoded: a step of decoding is this
    /// one call.
    ///
    /// sequences: an array of n 64-bit ids.
    /// tokens: an array of n 32-bit ids, one for each; with `counts` those of all, one after
    /// another. counts: an array of n 32-bit integers, how many tokens each sequence gets.
    ///
    /// Returns how many failed; `statuses` as in `match_many()`.
    #[pyo3(signature = (sequences, tokens, *, counts=None, statuses=None))]
    fn append_many(
        &self,
        py: Python<'_>,
        sequences: &Bound<'_, PyAny>,
        tokens: &Bound<'_, PyAny>,
        counts: Option<&Bound<'_, PyAny>>,
        statuses: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let sequences = Array::integers(sequences, "sequences", 8, false)?;
        let count = sequences.count;
        let tokens = TokenArg::of_many(tokens, "tokens")?;
        let Some((ids, id_count)) = tokens.ids() else {
            return Err(PyTypeError::new_err("tokens: text ids alone; else Sequence.append()"));
        };
        let counts = counts.map(|it| Array::integers(it, "counts", 4, false)).transpose()?;
        let counts = counts.map(|it| it.exactly("counts", count)).transpose()?;
        // SAFETY: 32-bit integers, 64-bit ids.
        let (counts, sequences) =
            unsafe { (counts.as_ref().map(|it| it.read::<u32>()), sequences.read::<u64>()) };
        let total = match counts {
            Some(counts) => counts.iter().map(|count| *count as usize).sum(),
            None => count,
        };
        if total != id_count {
            let message = format!("tokens: {total} are needed, {id_count} are there");
            return Err(PyValueError::new_err(message));
        }
        let mut next = ids;
        let item = |(at, sequence): (usize, &u64)| {
            let (ids, id_count) = (next, counts.map_or(1, |counts| counts[at] as usize));
            next = next.wrapping_add(id_count);
            let tokens = std::ptr::null();
            rkv_sequence_append_item { sequence: *sequence, ids, id_count, tokens }
        };
        let items: Vec<_> = sequences.iter().enumerate().map(item).collect();
        let mut statuses = Statuses::of(statuses, count)?;
        let call = Raw((items.as_ptr(), statuses.c()));
        let status = long(py, count > LONG, || {
            let ((items, statuses), item) = (call.get(), size_of::<rkv_sequence_append_item>());
            // SAFETY: a live handle; the arrays have `count` entries.
            unsafe { rkv_sequence_append_many(cache.raw(), items, count, item, statuses) }
        });
        statuses.finish(py, status)
    }

    /// Publishes what n sequences have computed: `computed` has the positions of each, 64-bit.
    /// `results`, an array of `dtypes.publish_result` with room for n, receives what was done.
    ///
    /// Returns how many failed; `statuses` as in `match_many()`.
    #[pyo3(signature = (sequences, computed, results=None, *, statuses=None))]
    fn publish_many(
        &self,
        py: Python<'_>,
        sequences: &Bound<'_, PyAny>,
        computed: &Bound<'_, PyAny>,
        results: Option<&Bound<'_, PyAny>>,
        statuses: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let sequences = Array::integers(sequences, "sequences", 8, false)?;
        let count = sequences.count;
        let computed =
            Array::integers(computed, "computed", 8, false)?.exactly("computed", count)?;
        // SAFETY: 64-bit integers.
        let pairs = unsafe { sequences.read::<u64>().iter().zip(computed.read::<u64>()) };
        let items: Vec<_> = pairs
            .map(|(sequence, computed)| rkv_sequence_publish_item {
                sequence: *sequence,
                computed_position_count: *computed,
            })
            .collect();
        let (_kept, done) = self::results::<rkv_sequence_publish_result>(
            results,
            "results",
            "publish_result",
            count,
        )?;
        let mut statuses = Statuses::of(statuses, count)?;
        let call = Raw((items.as_ptr(), done, statuses.c()));
        let status = long(py, count > LONG, || {
            let (items, done, statuses) = call.get();
            let (item, size) =
                (size_of::<rkv_sequence_publish_item>(), size_of::<rkv_sequence_publish_result>());
            // SAFETY: a live handle; the arrays have `count` entries.
            unsafe {
                rkv_sequence_publish_many(cache.raw(), items, count, item, done, size, statuses)
            }
        });
        statuses.finish(py, status)
    }

    /// Ends n sequences, an array of 64-bit ids. Returns how many failed; `statuses` as in
    /// `match_many()`.
    #[pyo3(signature = (sequences, *, statuses=None))]
    fn release_many(
        &self,
        py: Python<'_>,
        sequences: &Bound<'_, PyAny>,
        statuses: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let sequences = Array::integers(sequences, "sequences", 8, false)?;
        let count = sequences.count;
        let mut statuses = Statuses::of(statuses, count)?;
        let call = Raw((sequences.data(), statuses.c()));
        let status = long(py, count > 2, || {
            let (ids, statuses) = call.get();
            // SAFETY: a live handle; the arrays have `count` entries.
            unsafe { rkv_sequence_release_many(cache.raw(), ids, count, statuses) }
        });
        statuses.finish(py, status)
    }
}
