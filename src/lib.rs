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
//! Beside them stands `snapshot`, states of models without paged KV by token list: of the others it
//! uses tokens and namespaces, no page and no sequence.
//!
//! A module uses only those below it. Only [`capi`] has `unsafe` code, and a lock for race
//! detectors that is built for tests alone.

pub mod cache;
pub mod capi;
pub mod error;
pub mod ids;
pub mod index;
mod lock;
pub mod paging;
pub mod sequence;
pub mod snapshot;
pub mod token;
