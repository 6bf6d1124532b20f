//! Page numbers of the places that an engine knows its KV by: one for each position.
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::array::{Array, Kind};

/// A place as a number; those below 0 are none.
trait Place: Copy {
    fn number(self) -> i64;
}

impl Place for i32 {
    fn number(self) -> i64 {
        self.into()
    }
}

impl Place for i64 {
    fn number(self) -> i64 {
        self
    }
}

/// The page of each page's first place.
fn divide<T: Place>(places: &[T], page_size: usize, pages: &mut [u32]) -> PyResult<()> {
    for (page, place) in pages.iter_mut().zip(places.iter().step_by(page_size)) {
        let place = place.number();
        let number = place / page_size as i64;
        match u32::try_from(number) {
            Ok(number) if place >= 0 => *page = number,
            _ => return Err(PyValueError::new_err(format!("places: {place} is in no page"))),
        }
    }
    Ok(())
}

/// The pages of a row of places, for an engine that has one for each position: `page_size` of them
/// a page, of which the first says where it is: page number * page_size. The last page may be
/// begun only.
///
/// places: a dense array of 32-bit or 64-bit integers, from the beginning of a page on.
/// page_size: positions of a page.
/// pages: an array of uint32, receives len(places) / page_size numbers, rounded up.
///
/// NumPy does it in one call as well, but through more code: that counts between two steps of an
/// engine, when the processor's caches have other things in them.
///
/// Raises TypeError, ValueError naming the argument.
#[pyfunction]
pub fn page_numbers(
    places: &Bound<'_, PyAny>,
    page_size: usize,
    pages: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let places = Array::of(places, "places", false)?;
    if places.kind != Kind::Integer || !matches!(places.item_size, 4 | 8) {
        return Err(PyTypeError::new_err("places: 32-bit or 64-bit integers are needed"));
    }
    let places = places.on_host("places")?;
    if page_size == 0 {
        return Err(PyValueError::new_err("page_size: must not be 0"));
    }
    let count = places.count.div_ceil(page_size);
    let pages = Array::integers(pages, "pages", 4, true)?.at_least("pages", count)?;
    if count == 0 {
        return Ok(());
    }
    // SAFETY: an array with room for so many; the sizes of the places were checked.
    unsafe {
        let into = std::slice::from_raw_parts_mut(pages.data::<u32>(), count);
        match places.item_size {
            4 => divide(places.read::<i32>(), page_size, into),
            _ => divide(places.read::<i64>(), page_size, into),
        }
    }
}
