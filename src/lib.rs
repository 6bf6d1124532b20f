//! Prefix cache and paged KV memory for LLM serving engines.
//!
//! A Rust engine uses [`api`]:
//!
//! ```
//! use radixkv::api::PageTable;
//! use radixkv::index::Namespace;
//! use radixkv::store::CacheConfig;
//! use radixkv::paging::PageTableConfig;
//! use radixkv::token::TokenList;
//!
//! # fn main() -> Result<(), radixkv::error::Error> {
//! let config = PageTableConfig { page_size: 16, page_count: 65, ..PageTableConfig::default() };
//! let table = PageTable::new(config)?; // 64 pages: page 0 is reserved
//! let cache = table.cache(CacheConfig::default())?;
//! let space = Namespace::default();
//!
//! // A request: what is cached of its prompt is in its row already.
//! let prompt: Vec<u32> = (0..100).collect();
//! let mut request = cache.begin(&space, TokenList::text(&prompt), 0)?;
//! assert_eq!(request.info()?.cached_positions, 0);
//! let pages = table.row(request.slot())?; // your kernels compute into these
//! assert_eq!(pages.len(), 7);
//! request.publish(100)?;
//! request.append(TokenList::text(&[7]))?; // a decoded token
//! drop(request); // its private pages are free, what it published stays
//!
//! // The next one shares the 6 whole pages by reference, and computes the rest.
//! let mut next = cache.begin(&space, TokenList::text(&prompt), 0)?;
//! let info = next.info()?;
//! assert_eq!((info.shared_pages, info.cached_positions), (6, 96));
//! next.publish(100)?;
//! drop(next);
//!
//! // Or one keeps one's own books: a match is locked for as long as it lives.
//! let found = cache.find(&space, TokenList::text(&prompt[..50]))?;
//! assert_eq!((found.pages.len(), found.tokens), (3, 50));
//! assert_eq!(cache.evict(100)?.len(), 2); // nothing of what was found
//! # Ok(())
//! # }
//! ```
//!
//! What [`api`] has no call for is a call of [`api::PageTable::shared`]. No code here beyond that:
//! the architecture.
//!
//! ```text
//!            C, C++, Go, Python engines                Rust engines
//!                       │ include/radixkv.h                 │
//!                    ┌──▼───┐                            ┌──▼───┐
//!                    │ capi │ checks, converts, catches  │ api  │ owns: nothing is left behind
//!                    └──┬───┘                            └──┬───┘
//!               ┌───────▼───────────────────────────────────▼──┐
//!               │ runner     prepare · append_prefill · copies  │  KV memory and a backend
//!               └───────┬──────────────────────────┬───────────┘
//!                       │                  ┌───────▼──────┐
//!                       │                  │ cpu │ gpu    │  compute
//!               ┌───────▼───────┐          ├──────────────┤
//!               │ plan          ├─────────►│ attention    │  what is computed: shapes, batches,
//!               └───────┬───────┘          └──────────────┘  masks; no pointers
//!               ┌───────▼──────────────────────────────────────┐
//!               │ sequence   begin · fork · publish · release   │  a prompt's life
//!               └───────┬──────────────────────────────────────┘
//!               ┌───────▼───────┐
//!               │ store         │  the room with the lock (`Shared`): who owns which page, what a
//!               └──┬─────────┬──┘  lookup means; slices, between which others are let in
//!         ┌────────▼──┐      │
//!         │ journal   │      │       which pages came and left, in order
//!         └────────┬──┘      │
//!         ┌────────▼──┐  ┌───▼──────┐
//!         │ index     │  │ paging   │   which page holds which keys, and    │ pages, rows,
//!         │  radix/   │  │          │   in which order they go              │ batch arrays
//!         └────────┬──┘  └──────────┘
//!            ┌─────▼─────┐
//!            │ tree      │  nodes, their ids and locks, roots, who is whose child, which leaf goes
//!            └─────┬─────┘
//!            ┌─────▼─────┐
//!            │ token     │  one 4-byte key for each KV position
//!            └───────────┘
//! ```
//!
//! A model whose layers differ has several [`group`]s: the index and the rows know the first one
//! alone. Pages of the others hang on its pages, by number, and stand in rows of their own; `store`
//! has what they mean for a lookup, a lock, an eviction and a sequence in files named `group_…`.
//!
//! An engine with kernels of its own uses `capi`, [`plan`] for the arrays of a step, and what is
//! below that: no `runner`. Beside them stands [`snapshot`], states of models without paged KV by
//! token list: of the others it uses tokens and namespaces, no page and no sequence.
//!
//! Below the device stand [`tier`]s: a store on disk that both caches use, and `tier::paged`, which
//! follows the journal of a cache, keeps what its pages hold in host memory and on disk, and fills
//! private pages of sequences from there. The store knows of it only that it is there
//! (`store::Lower`), and which pages are being copied.
//!
//! Two things are there twice, and why:
//!
//! - *Trees.* Under the index and the snapshot cache are one label, one set of roots, namespaces
//!   and comparisons. Their nodes are two types. An index's node owns pages, ends where pages end,
//!   has an id and a time, and is read without a lock; so it takes 128 bytes, never moves, and its
//!   place is kept. A snapshot's is a line of the processor's cache, may have its value at an inner
//!   node, and moves when memory is to be given back. The index's tree in its place takes 1.8 times
//!   the memory and no less time: `docs/PERFORMANCE.md`, "One tree or two".
//! - *Nodes of the index.* The owner has its own, and publishes a row for readers without a lock.
//!   A lookup under the lock changes times, hits and locks; a probe reads none of these, and its
//!   lines stay in the caches of other processors only while nobody writes to them.
//!
//! A module uses only those below it. Only [`capi`], [`runner`], [`cpu`] and [`gpu`] have `unsafe`
//! code, and five modules at the bottom: [`memory`], whose allocations can fail, `grace`, which
//! keeps memory alive for threads that probe without a lock, [`ring`], requests that the system
//! carries out, `sha256`, for the sake of a processor's instructions, and a lock for race detectors
//! that is built for tests alone.
//!
//! A cache is changed, and nearly always read, under the lock. Only probes do without: the index
//! publishes what they need (`index::Probe`), and they take the lock when that doesn't suffice.

// Models of threads (tests/loom) do without what stands at the top, and takes long to compile.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
pub mod api;
pub mod attention;
#[cfg(not(loom))]
pub mod capi;
#[cfg(not(loom))]
pub mod cpu;
pub mod error;
pub mod events;
#[cfg(not(loom))]
pub mod gpu;
pub mod group;
pub mod ids;
pub mod index;
pub mod journal;
mod grace;
pub mod handles;
mod lock;
pub mod memory;
pub mod paging;
pub mod plan;
pub mod ring;
#[cfg(not(loom))]
pub mod runner;
pub mod sequence;
mod sha256;
pub mod snapshot;
pub mod store;
mod sync;
pub mod tier;
pub mod token;
mod tree;

#[cfg(all(loom, test))]
#[path = "../tests/loom/mod.rs"]
mod models;
