//! What `RequestRows` asks of a request's row, with one group of layers or with several.
use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::c::*;
use crate::status::refused;

/// A row of pages that only grows.
pub trait EngineRow {
    type State;
    /// Whether it lets go of pages while it grows.
    const SLIDES: bool = false;

    fn state(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Self::State>>;
    fn page_count(state: &Self::State) -> usize;
    fn published(state: &Self::State) -> usize;
    fn token_count(state: &Self::State) -> usize;

    /// Pages that it takes until it has places for `page_count`, of which each group holds as many
    /// as `most` says, where it does.
    fn needed(state: &Self::State, page_count: usize, most: &[usize]) -> usize;

    /// Begins with so many pages that were found.
    fn begin(&self, py: Python<'_>, state: &mut Self::State, page_count: usize) -> PyResult<()>;

    /// Whether it goes on from one of these pages, which are states.
    fn rests_on(_state: &Self::State, _pages: &[u32]) -> bool {
        false
    }

    /// Moves the states that it published since the last call.
    fn drain_states(_state: &mut Self::State, _into: &mut Vec<u32>) {}

    /// Adds its pages of attention from a place on.
    fn attended(_state: &Self::State, _first: usize, _into: &mut Vec<u32>) {}

    /// Lets go of what no token from position `processed` on needs.
    fn slide(&self, _py: Python<'_>, _state: &mut Self::State, _processed: usize) -> PyResult<()> {
        Ok(())
    }

    /// A step computes the positions before this one.
    fn step_ends(&self, _state: &mut Self::State, _position: usize) {}

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
