//! A snapshot cache when memory runs out, at any request.
#[path = "../failing/mod.rs"]
mod failing;
mod refusals;
mod soak;
mod world;
