//! Pages below the device.
mod leaves;
mod map;
#[cfg(test)]
mod map_tests;
