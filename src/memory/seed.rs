//! Seeds for hashes and ranks: unless a test chooses, nobody knows them, so nobody can send tokens
//! that all meet in one place.
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

static CHOSEN: OnceLock<u64> = OnceLock::new();

/// A seed that nobody knows.
pub fn seed() -> u64 {
    // A loom model runs the same way again and again.
    if cfg!(loom) {
        0
    } else {
        CHOSEN.get().copied().unwrap_or_else(|| RandomState::new().hash_one(0))
    }
}

/// Takes the same seed for everything that is made in this process from now on: for tests in which
/// the same calls are to ask for the same memory again.
#[doc(hidden)]
pub fn choose_seed(seed: u64) {
    let chosen = *CHOSEN.get_or_init(|| seed);
    assert_eq!(chosen, seed, "a process has one seed");
}
