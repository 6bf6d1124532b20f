pub fn tokens(_data: &[u8]) {}
