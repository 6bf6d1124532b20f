//! Prefix cache and paged KV memory for LLM serving engines. No code here: the architecture.
//!
//! ```text
//!            C, C++, Go, Python engines                Rust engines
//!                       │ include/radixkv.h                 │
//!                    ┌──▼───┐                               │
//!                    │ capi │ checks, converts, catches     │
//!                    └──┬───┘                               │
//!               ┌───────▼───────────────────────────────────▼──┐
//!               │ runner     plan · append_prefill · copies     │  KV memory and a backend
//!               └───────┬──────────────────────────┬───────────┘
//!                       │                  ┌───────▼──────┐
//!                       │                  │ cpu          │  computes
//!                       │                  ├──────────────┤
//!                       │                  │ attention    │  what is computed: shapes, batches,
//!                       │                  └──────────────┘  masks; no pointers
//!               ┌───────▼──────────────────────────────────────┐
//!               │ sequence   begin · publish · append · release │  one lock (`Shared`)
//!               └───────┬──────────────────────────────────────┘
//!               ┌───────▼───────┐
//!               │ cache         │  who owns which page; what a lookup means
//!               └──┬─────────┬──┘
//!         ┌────────▼──┐  ┌───▼──────┐
//!         │ index     │  │ paging   │   which page holds which keys, and    │ pages, rows,
//!         │  radix/   │  │          │   in which order they go              │ batch arrays
//!         └────────┬──┘  └──────────┘
//!            ┌─────▼─────┐
//!            │ token     │  one 4-byte key for each KV position
//!            └───────────┘
//! ```
//!
//! An engine with kernels of its own uses `capi` down to `sequence`, and no `runner`.
//!
//! A module uses only those below it. Only [`capi`], [`runner`] and [`cpu`] have `unsafe` code, and
//! a lock for race detectors that is built for tests alone.

pub mod attention;
pub mod cache;
pub mod capi;
pub mod cpu;
pub mod error;
pub mod ids;
pub mod index;
mod lock;
pub mod paging;
pub mod runner;
pub mod sequence;
pub mod snapshot;
pub mod token;
