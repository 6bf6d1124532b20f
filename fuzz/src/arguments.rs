pub const FUNCTIONS: &[(&str, u8)] = &[];
pub fn arguments(_data: &[u8]) {}
