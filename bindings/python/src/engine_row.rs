//! What is asked of a request's row, with one group of layers or with several.
use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::c::*;
use crate::row_source::ids_of;
use crate::status::refused;

/// A page that a step ends with, and the groups, as bits, in which it was not known that one does.
#[derive(Clone, Copy, Default)]
pub struct Ends {
    pub at: usize,
    pub lanes: u64,
}

/// A row of pages that only grows.
pub trait EngineRow {
    type State;
    /// Whether it lets go of pages while it grows.
    const SLIDES: bool = false;

    fn state(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Self::State>>;
    fn page_count(state: &Self::State) -> usize;
    fn published(state: &Self::State) -> usize;
    fn token_count(state: &Self::State) -> usize;

    /// Whether it gives its pages to the cache when it ends, not before.
    fn is_late(state: &Self::State) -> bool;

    /// It ends: from now on it gives them.
    fn end_late(state: &mut Self::State);

    /// Pages that it takes until it has places for `page_count`, of which each group holds as many
    /// as `most` says, where it does.
    fn needed(state: &Self::State, page_count: usize, most: &[usize]) -> usize;

    /// Begins with so many pages that were found.
    fn begin(&self, py: Python<'_>, state: &mut Self::State, page_count: usize) -> PyResult<()>;

    /// Whether it goes on from one of these pages, which are states.
    fn rests_on(_state: &Self::State, _pages: &[u32]) -> bool {
        false
    }

    /// It was refused for one of them.
    fn has_waited(_state: &mut Self::State) {}

    /// Moves the states that it published since the last call.
    fn drain_states(_state: &mut Self::State, _into: &mut Vec<u32>) {}

    /// Adds its pages of attention from a place on.
    fn attended(_state: &Self::State, _first: usize, _into: &mut Vec<u32>) {}

    /// Lets go of what no token from position `processed` on needs.
    fn slide(&self, _py: Python<'_>, _state: &mut Self::State, _processed: usize) -> PyResult<()> {
        Ok(())
    }

    /// A step computes the positions before this one. Returns what is new by that.
    fn step_ends(&self, _state: &mut Self::State, _position: usize) -> Ends {
        Ends::default()
    }

    /// Adds tokens, pages for `positions`, and publishes what is whole of the first `computed`.
    /// Where the new pages begin, or nothing when there are too few.
    fn grow(
        &self,
        py: Python<'_>,
        state: &mut Self::State,
        added: &[u32],
        positions: usize,
        computed: usize,
    ) -> PyResult<Option<usize>>;

    /// Gives back everything but the tokens.
    fn let_go(&self, py: Python<'_>, state: &mut Self::State) -> PyResult<()>;

    /// The pages from a place on, as the engine is told of them.
    fn pages<'py>(
        py: Python<'py>,
        state: &Self::State,
        first: usize,
    ) -> PyResult<Bound<'py, PyList>>;
}

/// A row's state. Waiting would hold up the interpreter, which whoever has the row may be waiting
/// for.
pub fn held<'a, T>(py: Python<'_>, state: &'a Mutex<T>) -> PyResult<MutexGuard<'a, T>> {
    match state.try_lock() {
        Ok(state) => Ok(state),
        Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(refused(py, RKV_STATUS_BUSY, "another thread uses the row"))
        }
    }
}

/// `extend()` of a row.
pub fn extended<'py, R: EngineRow>(
    row: &R,
    tokens: Option<&Bound<'py, PyAny>>,
    (py, positions, computed): (Python<'py>, usize, usize),
) -> PyResult<Option<Bound<'py, PyList>>> {
    let added = tokens.map(ids_of).transpose()?.unwrap_or_default();
    let mut state = row.state(py)?;
    match row.grow(py, &mut state, &added, positions, computed)? {
        Some(held) => R::pages(py, &state, held).map(Some),
        None => Ok(None),
    }
}

/// What Python calls of either row, and its end.
macro_rules! row_methods {
    ($row:ident) => {
        #[pymethods]
        impl $row {
            /// Its pages, as a list; with several groups a list for each.
            #[getter(pages)]
            fn all_pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
                Self::pages(py, &*EngineRow::state(self, py)?, 0)
            }

            /// How many pages it has; with several groups how many places in each.
            #[getter(page_count)]
            fn held_count(&self, py: Python<'_>) -> PyResult<usize> {
                Ok(Self::page_count(&*EngineRow::state(self, py)?))
            }

            /// How many tokens it knows.
            #[getter(token_count)]
            fn known_count(&self, py: Python<'_>) -> PyResult<usize> {
                Ok(Self::token_count(&*EngineRow::state(self, py)?))
            }

            /// How many of its leading places others find, by these pages or by those of another
            /// request.
            #[getter]
            fn published_page_count(&self, py: Python<'_>) -> PyResult<usize> {
                Ok(Self::published(&*EngineRow::state(self, py)?))
            }

            /// Begins the row with so many pages that the last lookup found, and locks them.
            ///
            /// Raises InvalidArgument for more than were found, or than its tokens fill,
            /// InvalidState when it has pages, StaleNode when they were evicted since.
            fn take(&self, py: Python<'_>, page_count: usize) -> PyResult<()> {
                self.begin(py, &mut *EngineRow::state(self, py)?, page_count)
            }

            /// Adds tokens, gives the row pages for its first `positions`, where a step ends, and
            /// publishes the whole pages among the first `computed`, of which the tokens are
            /// known: a page that is published is not written again. Evicts when the pool is
            /// short. Of states there is one new page, in the last place.
            ///
            /// Returns the new pages as `pages` has them, None when there are too few: nothing has
            /// changed then. Raises InvalidArgument when more is computed than known or has pages,
            /// StaleNode when the namespace was cleared since the row began, and OutOfMemory: what
            /// was not published then is the row's own.
            #[pyo3(signature = (tokens, positions, computed))]
            fn extend<'py>(
                &self,
                py: Python<'py>,
                tokens: Option<&Bound<'py, PyAny>>,
                positions: usize,
                computed: usize,
            ) -> PyResult<Option<Bound<'py, PyList>>> {
                $crate::engine_row::extended(self, tokens, (py, positions, computed))
            }

            /// Gives its pages back; what it published stays in the cache. The tokens stay: it can
            /// begin again, as after a preemption.
            fn release(&self, py: Python<'_>) -> PyResult<()> {
                self.let_go(py, &mut *EngineRow::state(self, py)?)
            }
        }

        impl Drop for $row {
            fn drop(&mut self) {
                let state = self.state.get_mut().unwrap_or_else(|held| held.into_inner());
                let mut state = std::mem::take(state);
                if Self::page_count(&state) > 0 {
                    // Nobody is left to be told.
                    $crate::handle::ending(|py| drop(self.let_go(py, &mut state)));
                }
            }
        }
    };
}
pub(crate) use row_methods;
