//! Prefix cache and paged KV memory for LLM serving engines. No code here: the architecture.
//!
//! ```text
//!            C, C++, Go, Python engines                Rust engines
//!                       │ include/radixkv.h                 │
//!                    ┌──▼───┐                               │
//!                    │ capi │ checks, converts, catches     │
//!                    └──┬───┘                               │
//!               ┌───────▼───────────────────────────────────▼──┐
//!               │ sequence   begin · publish · append · release │  one lock (`Shared`)
//!               └───────┬───────────────────────────────────────┘
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
//! A module uses only those below it. Only [`capi`] has `unsafe` code, and two modules at the
//! bottom: `grace`, which keeps memory alive for threads that probe without a lock, and a lock for
//! race detectors that is built for tests alone.
//!
//! A cache is changed, and nearly always read, under the lock. Only probes do without: the index
//! publishes what they need (`index::Probe`), and they take the lock when that doesn't suffice.

pub mod cache;
pub mod capi;
pub mod error;
pub mod ids;
pub mod index;
mod grace;
mod lock;
pub mod paging;
pub mod sequence;
pub mod token;
