//! Prefix cache and paged KV memory for LLM serving engines. No code here: the architecture.
//!
//! ```text
//!            C, C++, Go, Python engines                Rust engines
//!                       │ include/radixkv.h                 │
//!                    ┌──▼───┐                               │
//!                    │ capi │ checks, converts, catches     │
//!                    └──┬───┘                               │
//!               ┌───────▼───────────────────────────────────▼──┐
//!               │ runner     prepare · append_prefill · copies  │  KV memory and a backend
//!               └───────┬──────────────────────────┬───────────┘
//!                       │                  ┌───────▼──────┐
//!                       │                  │ cpu │ gpu    │  compute
//!               ┌───────▼───────┐          ├──────────────┤
//!               │ plan          ├─────────►│ attention    │  what is computed: shapes, batches,
//!               └───────┬───────┘          └──────────────┘  masks; no pointers
//!               ┌───────▼──────────────────────────────────────┐
//!               │ sequence   begin · fork · publish · release   │  one lock (`Shared`)
//!               └───────┬──────────────────────────────────────┘
//!               ┌───────▼───────┐
//!               │ cache         │  who owns which page; what a lookup means
//!               └──┬─────────┬──┘
//!         ┌────────▼──┐      │
//!         │ journal   │      │       which pages came and left, in order
//!         └────────┬──┘      │
//!         ┌────────▼──┐  ┌───▼──────┐
//!         │ index     │  │ paging   │   which page holds which keys, and    │ pages, rows,
//!         │  radix/   │  │          │   in which order they go              │ batch arrays
//!         └────────┬──┘  └──────────┘
//!            ┌─────▼─────┐
//!            │ token     │  one 4-byte key for each KV position
//!            └───────────┘
//! ```
//!
//! An engine with kernels of its own uses `capi`, [`plan`] for the arrays of a step, and what is
//! below that: no `runner`. Beside them stands [`snapshot`], states of models without paged KV by
//! token list: of the others it uses tokens and namespaces, no page and no sequence.
//!
//! A module uses only those below it. Only [`capi`], [`runner`], [`cpu`] and [`gpu`] have `unsafe`
//! code, and two modules at the bottom: `grace`, which keeps memory alive for threads that probe
//! without a lock, and a lock for race detectors that is built for tests alone.
//!
//! A cache is changed, and nearly always read, under the lock. Only probes do without: the index
//! publishes what they need (`index::Probe`), and they take the lock when that doesn't suffice.

pub mod attention;
pub mod cache;
pub mod capi;
pub mod cpu;
pub mod error;
pub mod gpu;
pub mod ids;
pub mod index;
pub mod journal;
mod grace;
pub mod handles;
mod lock;
pub mod memory;
pub mod paging;
pub mod plan;
pub mod runner;
pub mod sequence;
pub mod snapshot;
mod sync;
pub mod token;

#[cfg(all(loom, test))]
#[path = "../tests/loom/mod.rs"]
mod models;
