//! The tables of an engine that knows its KV by places, kept where they lie.
use std::ops::Range;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::array::{Array, empty};
use crate::handle::Raw;
use crate::page_numbers::{Place, divide, page_of, places_to_change};

/// The places of an engine's requests, a row for each.
pub struct Rows {
    array: Raw<Array>,
    pub width: usize,
}

impl Rows {
    pub fn of(rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = places_to_change(rows, "rows")?;
        match array.shape()[..] {
            [_, width] => Ok(Rows { array: Raw(array), width: width as usize }),
            _ => Err(PyTypeError::new_err("rows: an array of two dimensions is needed")),
        }
    }

    /// Where the places [start, end) of a row are in the array.
    fn part(&self, (row, start, end): (usize, usize, usize)) -> PyResult<Range<usize>> {
        let Raw(array) = &self.array;
        let row_count = array.count.checked_div(self.width).unwrap_or(0);
        if row >= row_count || start > end || end > self.width {
            let message = format!("row: places {start} to {end} of row {row} are not there");
            return Err(PyValueError::new_err(message));
        }
        Ok(row * self.width + start..row * self.width + end)
    }

    /// The pages of the places [start, end) of a row.
    pub fn divide(
        &self,
        part: (usize, usize, usize),
        page_size: usize,
        pages: &mut [u32],
    ) -> PyResult<()> {
        let part = self.part(part)?;
        let Raw(array) = &self.array;
        // SAFETY: `places_to_change` has looked at the size; the engine writes no row meanwhile.
        unsafe {
            match array.item_size {
                4 => divide(&array.read::<i32>()[part], page_size, pages),
                _ => divide(&array.read::<i64>()[part], page_size, pages),
            }
        }
    }

    /// Puts whole pages into a row, from its page `first` on.
    pub fn put(&self, row: usize, first: usize, pages: &[u32], page_size: usize) -> PyResult<()> {
        let (start, end) = (first * page_size, (first + pages.len()) * page_size);
        let part = self.part((row, start, end))?;
        let Raw(array) = &self.array;
        let last = pages.iter().max().map_or(0, |&page| (page as u64 + 1) * page_size as u64);
        if array.item_size == 4 && last > 1 << 31 {
            return Err(PyValueError::new_err(format!("rows: place {last} is none of 32 bits")));
        }
        // SAFETY: as above, and it may be written.
        unsafe {
            match array.item_size {
                4 => fill(array.data::<i32>().add(part.start), pages, page_size),
                _ => fill(array.data::<i64>().add(part.start), pages, page_size),
            }
        }
        Ok(())
    }
}

/// Writes the places of whole pages, one behind the other.
///
/// # Safety
/// There is room for them at `into`, which nobody else uses meanwhile.
unsafe fn fill<T: Place>(into: *mut T, pages: &[u32], page_size: usize) {
    let places = pages.iter().flat_map(|&page| {
        let first = i64::from(page) * page_size as i64;
        first..first + page_size as i64
    });
    for (at, place) in places.enumerate() {
        // SAFETY: as the caller says.
        unsafe { into.add(at).write(T::of(place)) };
    }
}

/// The places in the window's pool, by those of full attention.
pub struct Mapping(Raw<Array>);

impl Mapping {
    pub fn of(mapping: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Mapping(Raw(Array::integers(mapping, "mapping", 8, true)?)))
    }

    /// The window's page of a page, 0 for none.
    pub fn window(&self, page: u32, page_size: usize) -> PyResult<u32> {
        let Raw(array) = &self.0;
        let first = page as usize * page_size;
        if first + page_size > array.count {
            return Err(PyValueError::new_err(format!("mapping: page {page} is not in it")));
        }
        // SAFETY: the size of the numbers and that of the array were looked at.
        let place = unsafe { array.data::<i64>().add(first).read() };
        page_of(place, page_size, "mapping")
    }

    /// Has a window's page for a page, if the page is in it.
    pub fn set(&self, page: u32, window: u32, page_size: usize) {
        let Raw(array) = &self.0;
        let first = page as usize * page_size;
        if first + page_size <= array.count {
            // SAFETY: within the array, which is writable.
            unsafe { fill(array.data::<i64>().add(first), &[window], page_size) };
        }
    }

    /// Has no window's page for a page any more, if the page is in it.
    pub fn clear(&self, page: u32, page_size: usize) {
        let Raw(array) = &self.0;
        let first = page as usize * page_size;
        if first + page_size <= array.count {
            // SAFETY: within the array, which is writable.
            unsafe { array.data::<i64>().add(first).write_bytes(0, page_size) };
        }
    }
}

/// A new array of page numbers, of NumPy's type with this name.
pub fn numbers<'py, T: Copy>(
    py: Python<'py>,
    kind: &str,
    numbers: &[T],
) -> PyResult<Bound<'py, PyAny>> {
    let array = empty(py, numbers.len(), kind)?;
    if !numbers.is_empty() {
        let into = Array::integers(&array, "result", size_of::<T>(), true)?;
        // SAFETY: an array of just this size that nobody else has.
        unsafe { into.data::<T>().copy_from(numbers.as_ptr(), numbers.len()) };
    }
    Ok(array)
}

/// The same of 64-bit numbers, which engines index their tensors by. Between two steps of an engine
/// what is called on the way costs: NumPy is asked itself.
pub fn longs<'py>(py: Python<'py>, pages: &[u32]) -> PyResult<Bound<'py, PyAny>> {
    static MADE_BY: PyOnceLock<[Py<PyAny>; 2]> = PyOnceLock::new();
    let [empty, kind] = MADE_BY.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        let (empty, kind) = (numpy.getattr("empty")?, numpy.call_method1("dtype", ("i8",))?);
        PyResult::Ok([empty.unbind(), kind.unbind()])
    })?;
    let array = empty.bind(py).call1((pages.len(), kind.bind(py)))?;
    if pages.is_empty() {
        return Ok(array);
    }
    let into = Array::integers(&array, "result", 8, true)?;
    // SAFETY: as above.
    let into = unsafe { std::slice::from_raw_parts_mut(into.data::<i64>(), pages.len()) };
    into.iter_mut().zip(pages).for_each(|(into, &page)| *into = page.into());
    Ok(array)
}
