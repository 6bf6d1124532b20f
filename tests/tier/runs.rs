//! How often the random tests of tiers run.

/// `RKV_TIER_RUNS` times as often as else; 0.1 is a tenth.
pub fn runs(usual: u64) -> u64 {
    let factor = std::env::var("RKV_TIER_RUNS").map_or(1.0, |text| text.parse::<f64>().unwrap());
    (usual as f64 * factor).ceil() as u64
}
