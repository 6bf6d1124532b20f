//! What of a prefix cache needs a network: a publisher of KV events over ZeroMQ, and a store that
//! caches share, on a server of Redis or S3.
//!
//! ```text
//!   any thread ── publish ──► number · replay buffer · queue       returns at once
//!                                         │              │
//!   one thread of the library   ROUTER ◄──┘              └──► PUB ──► subscribers
//! ```
//!
//! It takes payloads and knows nothing of what is in them: `radixkv` encodes events, and does not
//! link this. A store knows as little of the pages that it keeps; what calls it is a struct of
//! functions, which `radixkv.h` has, too.
mod capi;
mod endpoint;
mod failure;
mod handle;
mod publisher;
mod replay;
mod socket;
mod store;
mod subscribers;
mod zmtp;

pub use capi::*;
pub use store::{
    rkv_net_store, rkv_net_store_config, rkv_net_store_create, rkv_net_store_describe,
    rkv_net_store_destroy, rkv_net_store_last_failure,
};
