//! Page numbers of the places that an engine knows its KV by: one for each position.
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::array::{Array, Kind};
use crate::c::RKV_PAGE_SIZE_MAX;

/// A place as a number; those below 0 are none.
pub trait Place: Copy {
    fn number(self) -> i64;

    /// Of a number that it was made from.
    fn of(number: i64) -> Self;
}

impl Place for i32 {
    fn number(self) -> i64 {
        self.into()
    }

    fn of(number: i64) -> Self {
        number as i32
    }
}

impl Place for i64 {
    fn number(self) -> i64 {
        self
    }

    fn of(number: i64) -> Self {
        number
    }
}

/// The page that a place begins. One within a page would be KV of other positions. `name` is the
/// argument's, for messages.
#[inline]
pub fn page_of(place: i64, page_size: usize, name: &str) -> PyResult<u32> {
    let size = page_size as u64;
    let page = u64::try_from(place).ok().and_then(|at| u32::try_from(at / size).ok());
    match page {
        Some(page) if (place as u64).is_multiple_of(size) => Ok(page),
        Some(_) => Err(PyValueError::new_err(format!("{name}: {place} begins no page"))),
        None => Err(PyValueError::new_err(format!("{name}: {place} is in no page"))),
    }
}

/// The page of each page's first place.
pub fn divide<T: Place>(places: &[T], page_size: usize, pages: &mut [u32]) -> PyResult<()> {
    for (page, place) in pages.iter_mut().zip(places.iter().step_by(page_size)) {
        *page = page_of(place.number(), page_size, "places")?;
    }
    Ok(())
}

/// An argument that is a dense array of places on the host. `name` is the argument's, for messages.
pub fn places_of(places: &Bound<'_, PyAny>, name: &str) -> PyResult<Array> {
    dense(Array::of(places, name, false)?, name)
}

/// The same of one whose places are changed.
pub fn places_to_change(places: &Bound<'_, PyAny>, name: &str) -> PyResult<Array> {
    dense(Array::of(places, name, true)?, name)
}

fn dense(places: Array, name: &str) -> PyResult<Array> {
    if places.kind != Kind::Integer || !matches!(places.item_size, 4 | 8) {
        let message = format!("{name}: 32-bit or 64-bit integers are needed");
        return Err(PyTypeError::new_err(message));
    }
    places.readable(name)
}

/// The pages of the first place and of each that is so many places behind the one before.
pub fn divide_places(places: &Array, page_size: usize, pages: &mut [u32]) -> PyResult<()> {
    // SAFETY: `places_of` has looked at the size.
    unsafe {
        match places.item_size {
            4 => divide(places.read::<i32>(), page_size, pages),
            _ => divide(places.read::<i64>(), page_size, pages),
        }
    }
}

/// One of the places, which is there.
#[inline]
pub fn place_at(places: &Array, at: usize) -> i64 {
    debug_assert!(at < places.count);
    // SAFETY: `places_of` has looked at the size, the caller at the number.
    unsafe {
        match places.item_size {
            4 => places.data::<i32>().add(at).read().into(),
            _ => places.data::<i64>().add(at).read(),
        }
    }
}

/// Refuses a size that no page has.
fn check_size(page_size: usize) -> PyResult<()> {
    if (1..=RKV_PAGE_SIZE_MAX as usize).contains(&page_size) {
        return Ok(());
    }
    let message = format!("page_size: {page_size} is not 1 to {RKV_PAGE_SIZE_MAX}");
    Err(PyValueError::new_err(message))
}

/// The pages of a row of places, for an engine that has one for each position: `page_size` of them
/// a page, of which the first says where it is: page number * page_size. The others are not looked
/// at. The last page may be begun only.
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
    let places = places_of(places, "places")?;
    check_size(page_size)?;
    let count = places.count.div_ceil(page_size);
    let pages = Array::integers(pages, "pages", 4, true)?.at_least("pages", count)?;
    if count == 0 {
        return Ok(());
    }
    // SAFETY: an array with room for so many.
    let into = unsafe { std::slice::from_raw_parts_mut(pages.data::<u32>(), count) };
    divide_places(&places, page_size, into)
}

/// The places of whole pages, one for each position: what `page_numbers()` reads.
///
/// pages: a dense array of 32-bit or 64-bit integers.
/// page_size: positions of a page.
/// places: an array of int64, receives len(pages) * page_size of them.
///
/// Raises TypeError, ValueError naming the argument.
#[pyfunction]
pub fn page_places(
    pages: &Bound<'_, PyAny>,
    page_size: usize,
    places: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let pages = places_of(pages, "pages")?;
    check_size(page_size)?;
    let count = pages.count.saturating_mul(page_size);
    let places = Array::integers(places, "places", 8, true)?.at_least("places", count)?;
    if count == 0 {
        return Ok(());
    }
    let most = i64::MAX / page_size as i64;
    let mut numbers = (0..pages.count).map(|at| place_at(&pages, at));
    if let Some(page) = numbers.find(|page| !(0..most).contains(page)) {
        return Err(PyValueError::new_err(format!("pages: {page} is no page's number")));
    }
    // SAFETY: an array with room for so many.
    let into = unsafe { std::slice::from_raw_parts_mut(places.data::<i64>(), count) };
    for (at, places) in into.chunks_exact_mut(page_size).enumerate() {
        let first = place_at(&pages, at) * page_size as i64;
        for (place, number) in places.iter_mut().zip(first..) {
            *place = number;
        }
    }
    Ok(())
}
