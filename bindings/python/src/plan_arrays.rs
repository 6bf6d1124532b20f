//! The arrays of a plan, as attention kernels take them.
use std::ptr::null_mut;
use std::sync::PoisonError;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Array, empty};
use crate::c::*;
use crate::handle::{Handle, Raw, long};
use crate::plan::Plan;
use crate::status::check;

/// The arrays by name, with NumPy's name of their type and the bytes of an element.
const ARRAYS: [(&str, &str, usize); 9] = [
    ("query_indptr", "i4", 4),
    ("indptr", "i4", 4),
    ("indices", "i4", 4),
    ("last_page_len", "i4", 4),
    ("slot_mapping", "i8", 8),
    ("first_position", "i8", 8),
    ("sink_page_count", "i4", 4),
    ("copy_sequences", "u8", 8),
    ("copies", "page_copy", size_of::<rkv_page_copy>()),
];
const SLOT_MAPPING: usize = 4;
const COPIES: usize = ARRAYS.len() - 1;

/// Of each of `ARRAYS`, the caller's array, if any.
type Given<'a, 'py> = [Option<&'a Bound<'py, PyAny>>; ARRAYS.len()];

#[pymethods]
impl Plan {
    /// (rows, new positions of all rows, pages of all rows in the group, copies) of the step that
    /// was set: how much room `read()` needs for the same group.
    #[pyo3(signature = (*, group=0, compact=false))]
    fn sizes(
        &self,
        py: Python<'_>,
        group: u32,
        compact: bool,
    ) -> PyResult<(usize, usize, usize, usize)> {
        self.measure(py, group, compact).map(Sizes::tuple)
    }

    /// Copies the step's arrays to the caller's, e.g. to pinned tensors; those that are None are
    /// left out. An array may be longer: its front is written.
    ///
    /// query_indptr: int32, rows + 1: where the new positions of each row begin.
    /// indptr, indices: int32, rows + 1 and pages: the pages of each row up to its last new
    ///     position, 0 where it has none any more; of a state group the page of each row's state.
    /// last_page_len: int32, rows: positions in each row's last page; 1 in a state group.
    /// slot_mapping: int64, new positions: page * page_size + offset of each. A state group has
    ///     none.
    /// copies: dtypes.page_copy: copies of all groups to carry out before the step; then
    ///     `Sequence.confirm_copies()` for each of `copy_sequences` (64-bit). A runner does both.
    /// first_position, sink_page_count: int64 and int32, rows: where the first page begins that is
    ///     none of the sinks', and how many of those are in front of it. 0 unless `compact`.
    /// group: the group of layers whose pages these are; rows of slots have those of group 0 alone.
    /// compact: only pages that new positions are in or attend to.
    ///
    /// Returns `sizes()` of the group. Raises ValueError naming an array that is too short,
    /// InvalidArgument without such a group, InvalidState naming a row that is a slot's.
    #[pyo3(signature = (*, query_indptr=None, indptr=None, indices=None, last_page_len=None,
                        slot_mapping=None, copies=None, copy_sequences=None, first_position=None,
                        sink_page_count=None, group=0, compact=false))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        query_indptr: Option<&Bound<'_, PyAny>>,
        indptr: Option<&Bound<'_, PyAny>>,
        indices: Option<&Bound<'_, PyAny>>,
        last_page_len: Option<&Bound<'_, PyAny>>,
        slot_mapping: Option<&Bound<'_, PyAny>>,
        copies: Option<&Bound<'_, PyAny>>,
        copy_sequences: Option<&Bound<'_, PyAny>>,
        first_position: Option<&Bound<'_, PyAny>>,
        sink_page_count: Option<&Bound<'_, PyAny>>,
        group: u32,
        compact: bool,
    ) -> PyResult<(usize, usize, usize, usize)> {
        let given = [
            query_indptr,
            indptr,
            indices,
            last_page_len,
            slot_mapping,
            first_position,
            sink_page_count,
            copy_sequences,
            copies,
        ];
        self.copy_out(py, given, group, compact).map(Sizes::tuple)
    }

    /// The step's arrays as new NumPy arrays by name, those of `read()`: for a look, and for
    /// engines that do not mind the allocation. `first_position` and `sink_page_count` are there
    /// with `compact`, `slot_mapping` unless it is a state group.
    #[pyo3(signature = (*, group=0, compact=false))]
    fn arrays<'py>(
        &self,
        py: Python<'py>,
        group: u32,
        compact: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        loop {
            let sizes = self.measure(py, group, compact)?;
            let mut made = [const { None }; ARRAYS.len()];
            for (at, (name, kind, _)) in ARRAYS.into_iter().enumerate() {
                let is_there = match name {
                    "first_position" | "sink_page_count" => compact,
                    "slot_mapping" => sizes.is_mapped,
                    _ => true,
                };
                if is_there {
                    made[at] = Some(empty(py, sizes.counts()[at], kind)?);
                }
            }
            let given = made.each_ref().map(Option::as_ref);
            // Another thread may have set it since.
            match self.copy_out(py, given, group, compact) {
                Ok(now) if now != sizes => continue,
                Err(_) if self.measure(py, group, compact)? != sizes => continue,
                done => done?,
            };
            let named = PyDict::new(py);
            for ((name, ..), array) in ARRAYS.into_iter().zip(made) {
                if let Some(array) = array {
                    named.set_item(name, array)?;
                }
            }
            return Ok(named);
        }
    }
}

impl Plan {
    fn measure(&self, py: Python<'_>, group: u32, compact: bool) -> PyResult<Sizes> {
        let plan = self.handle.get(py)?;
        let seen = long(py, true, || {
            let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the arrays stay as they are for this turn.
            unsafe { View::of(&plan, group, compact).map(|view| view.sizes()) }
        });
        seen.map_err(|status| check(py, status).expect_err("a call that failed"))
    }

    fn copy_out(
        &self,
        py: Python<'_>,
        given: Given<'_, '_>,
        group: u32,
        compact: bool,
    ) -> PyResult<Sizes> {
        let plan = self.handle.get(py)?;
        let mut targets = [const { Target::NONE }; ARRAYS.len()];
        for (at, (target, (name, kind, size))) in targets.iter_mut().zip(ARRAYS).enumerate() {
            let Some(object) = given[at] else { continue };
            let array = match at {
                COPIES => Array::structs::<rkv_page_copy>(object, name, kind, true)?,
                _ => Array::integers(object, name, size, true)?,
            };
            let (start, room) = (Raw(array.data()), array.count);
            *target = Target { start, room, _kept: Raw(Some(array)) };
        }
        let done = long(py, true, || {
            let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the arrays stay as they are for this turn.
            let view = unsafe { View::of(&plan, group, compact) }.map_err(Refusal::Status)?;
            // SAFETY: likewise.
            let sizes = unsafe { view.sizes() };
            let counts = sizes.counts();
            for (at, target) in targets.iter().enumerate() {
                if target.room < counts[at] {
                    return Err(Refusal::Room(ARRAYS[at].0, counts[at]));
                }
            }
            if !sizes.is_mapped && !targets[SLOT_MAPPING].start.get().is_null() {
                return Err(Refusal::State);
            }
            // SAFETY: each source has `counts` elements, or is null; each target has room for
            // them, or is null.
            unsafe {
                for (at, from) in view.sources().into_iter().enumerate() {
                    let (into, bytes) = (targets[at].start.get(), counts[at] * ARRAYS[at].2);
                    match (into.is_null(), from.is_null()) {
                        (true, _) => {}
                        (false, true) => into.write_bytes(0, bytes),
                        (false, false) => into.copy_from(from, bytes),
                    }
                }
                let copies = targets[COPIES].start.get().cast::<rkv_page_copy>();
                if !copies.is_null() {
                    view.write_copies(copies);
                }
            }
            Ok(sizes)
        });
        done.map_err(|refusal| match refusal {
            Refusal::Status(status) => check(py, status).expect_err("a call that failed"),
            Refusal::Room(name, count) => {
                PyValueError::new_err(format!("{name}: room for {count} is needed"))
            }
            Refusal::State => PyValueError::new_err(format!(
                "slot_mapping: group {group} is a state group: its positions have no places"
            )),
        })
    }
}

enum Refusal {
    /// What the library returned.
    Status(i32),
    /// An array that is too short, and what it needs.
    Room(&'static str, usize),
    /// Places of positions in a state group.
    State,
}

/// An array of the caller's, or none: then it has room for everything.
struct Target {
    start: Raw<*mut u8>,
    room: usize,
    _kept: Raw<Option<Array>>,
}

impl Target {
    const NONE: Target = Target { start: Raw(null_mut()), room: usize::MAX, _kept: Raw(None) };
}

/// The library's arrays of a plan, and those of one group.
struct View {
    step: rkv_plan_arrays,
    pages: rkv_plan_group_arrays,
}

impl View {
    /// # Safety
    /// Nobody sets the plan for as long as the view is looked at.
    unsafe fn of(plan: &Handle<rkv_plan>, group: u32, compact: bool) -> Result<View, i32> {
        let mut view =
            View { step: rkv_plan_arrays::sized(), pages: rkv_plan_group_arrays::sized() };
        let flags = if compact { RKV_PLAN_COMPACT } else { 0 };
        // SAFETY: a live handle.
        let status = unsafe {
            match rkv_plan_view(plan.raw(), &mut view.step) {
                RKV_STATUS_OK => rkv_plan_view_group(plan.raw(), group, flags, &mut view.pages),
                status => status,
            }
        };
        if status == RKV_STATUS_OK { Ok(view) } else { Err(status) }
    }

    /// # Safety
    /// As of `of`.
    unsafe fn sizes(&self) -> Sizes {
        let rows = self.pages.row_count as usize;
        Sizes {
            rows,
            positions: self.step.position_count as usize,
            // SAFETY: rows + 1 offsets.
            pages: unsafe { *self.pages.indptr.add(rows) as usize },
            copies: self.step.copy_count as usize,
            is_mapped: !self.pages.slot_mapping.is_null(),
        }
    }

    /// Where the elements of `ARRAYS` lie, but for the copies; null: all are 0.
    fn sources(&self) -> [*const u8; COPIES] {
        [
            self.step.query_indptr.cast(),
            self.pages.indptr.cast(),
            self.pages.indices.cast(),
            self.pages.last_page_len.cast(),
            self.pages.slot_mapping.cast(),
            self.pages.first_position.cast(),
            self.pages.sink_page_count.cast(),
            self.step.copy_sequence.cast(),
        ]
    }

    /// # Safety
    /// As of `of`, and there is room for all copies.
    unsafe fn write_copies(&self, into: *mut rkv_page_copy) {
        let step = &self.step;
        for at in 0..step.copy_count as usize {
            // SAFETY: each list has copy_count elements.
            unsafe {
                into.add(at).write(rkv_page_copy {
                    source_page: *step.copy_source_page.add(at) as u32,
                    target_page: *step.copy_target_page.add(at) as u32,
                    position_count: *step.copy_position_count.add(at) as u32,
                    group: *step.copy_group.add(at) as u32,
                });
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
struct Sizes {
    rows: usize,
    positions: usize,
    pages: usize,
    copies: usize,
    /// Not in a state group.
    is_mapped: bool,
}

impl Sizes {
    fn tuple(self) -> (usize, usize, usize, usize) {
        (self.rows, self.positions, self.pages, self.copies)
    }

    /// Elements of each of `ARRAYS`.
    fn counts(&self) -> [usize; ARRAYS.len()] {
        let Sizes { rows, positions, pages, copies, .. } = *self;
        [rows + 1, rows + 1, pages, rows, positions, rows, rows, copies, copies]
    }
}

/// New positions of the step that a plan has. To be called within its turn.
pub fn positions(plan: &Handle<rkv_plan>) -> usize {
    let mut view = rkv_plan_arrays::sized();
    // SAFETY: a live handle; nobody sets it in this turn.
    match unsafe { rkv_plan_view(plan.raw(), &mut view) } {
        RKV_STATUS_OK => view.position_count as usize,
        _ => 0,
    }
}
