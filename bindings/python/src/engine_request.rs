//! What an engine's scheduler says of a request, and of its step.
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// What the engine says of a request's step.
pub struct Step {
    /// Tokens that were computed before, that a lookup found, that are computed now, and places
    /// for drafts behind them.
    pub before: usize,
    pub found: usize,
    pub new: usize,
    pub lookahead: usize,
    /// Whether all of the request has to fit.
    pub is_whole: bool,
    pub reserved: usize,
    /// Whether others run in this step.
    pub has_others: bool,
}

pub fn number(request: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<usize> {
    request.getattr(name)?.extract()
}

/// Tokens that are computed and stay. A step that is under way computes others, for tokens that
/// are not known yet, or that a request gives up when it goes on.
pub fn computed_of(request: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = request.py();
    let computed = number(request, intern!(py, "num_computed_tokens"))?;
    let placeholders = number(request, intern!(py, "num_output_placeholders"))?;
    let known = number(request, intern!(py, "num_tokens"))?;
    Ok(computed.saturating_sub(placeholders).min(known))
}
