//! What of a prefix cache needs a network: a publisher of KV events over ZeroMQ.
//!
//! ```text
//!   any thread ── publish ──► number · replay buffer · queue       returns at once
//!                                         │              │
//!   one thread of the library   ROUTER ◄──┘              └──► PUB ──► subscribers
//! ```
//!
//! It takes payloads and knows nothing of what is in them: `radixkv` encodes events, and does not
//! link this.
mod capi;
mod endpoint;
mod failure;
mod publisher;
mod replay;

pub use capi::*;
