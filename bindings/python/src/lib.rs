//! The extension module of the Python package `radixkv`.
//!
//! It stands on the C interface: `c` declares what the header declares, `status` turns what calls
//! return into exceptions, `handle` keeps objects alive while calls use them, `array` takes the
//! caller's arrays. The other files have one noun of the header each.
//!
//! Calls that are shorter than a switch of threads keep the interpreter's lock; those that may take
//! over a microsecond, wait or compute let go of it (`handle::long`). Nothing in the library waits
//! for the interpreter while it holds a lock of its own, so neither way can deadlock: a log message
//! is queued (`log`), and a snapshot's object is let go of when the library holds no lock.
use pyo3::prelude::*;

mod array;
mod begin;
mod c;
mod cache;
mod clears;
mod cuda_array;
mod dlpack;
mod engine_request;
mod engine_row;
mod events;
mod group_lane;
mod group_publish;
mod group_row;
mod groups;
mod growing_row;
mod handle;
mod index_memory;
mod journal;
mod lent;
mod lock;
mod log;
mod many;
mod page_numbers;
mod page_table;
mod pickle;
mod place_tables;
mod placed_pages;
mod placed_rows;
mod plan;
mod plan_arrays;
mod process;
mod record;
mod request_row;
mod request_rows;
mod row_source;
mod runner;
mod runner_memory;
mod runner_step;
mod shape;
mod sequence;
mod snapshot;
mod snapshot_kept;
mod snapshot_pin;
mod snapshot_tier;
mod space;
mod status;
mod strays;
mod tier;
mod tokens;

#[pymodule(gil_used = false)]
fn _radixkv(module: &Bound<'_, PyModule>) -> PyResult<()> {
    process::watch()?;
    record::add_classes(module)?;
    module.add_function(wrap_pyfunction!(record::layouts, module)?)?;
    module.add_function(wrap_pyfunction!(status::version, module)?)?;
    module.add_function(wrap_pyfunction!(status::abi_version, module)?)?;
    module.add_function(wrap_pyfunction!(status::features, module)?)?;
    module.add_function(wrap_pyfunction!(log::set_log, module)?)?;
    module.add_function(wrap_pyfunction!(log::log_message, module)?)?;
    module.add_function(wrap_pyfunction!(index_memory::reserve_index_memory, module)?)?;
    module.add_function(wrap_pyfunction!(index_memory::index_memory_stats, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::image_digest, module)?)?;
    module.add_function(wrap_pyfunction!(page_numbers::page_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(page_numbers::page_places, module)?)?;
    module.add_function(wrap_pyfunction!(runner_memory::runner_supports, module)?)?;
    module.add_class::<tokens::TokenItem>()?;
    module.add_class::<tokens::Tokens>()?;
    module.add_class::<space::Namespace>()?;
    module.add_class::<page_table::Group>()?;
    module.add_class::<page_table::PageTable>()?;
    module.add_class::<cache::Cache>()?;
    module.add_class::<lock::Lock>()?;
    module.add_class::<events::EventEncoder>()?;
    module.add_class::<sequence::Sequence>()?;
    module.add_class::<growing_row::GrowingRow>()?;
    module.add_class::<group_row::GroupRow>()?;
    module.add_class::<request_rows::RequestRows>()?;
    module.add_class::<placed_rows::PlacedRows>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<runner::Runner>()?;
    module.add_class::<runner_memory::KvMemory>()?;
    module.add_class::<snapshot::SnapshotCache>()?;
    module.add_class::<snapshot_pin::Pin>()?;
    module.add_class::<snapshot_tier::Fetch>()?;
    Ok(())
}
