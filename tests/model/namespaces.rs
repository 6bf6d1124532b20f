//! Namespaces by number.
use super::abi::sized;
use radixkv::capi::*;

/// Namespaces that operations name by number. The last one spells the first one out.
pub const NAMESPACE_COUNT: u8 = 8;

/// The namespace that a number stands for, in a form that compares.
pub fn namespace_of(number: u8) -> u8 {
    number % NAMESPACE_COUNT % (NAMESPACE_COUNT - 1)
}

/// None is NULL.
pub fn namespace(number: u8) -> Option<rkv_namespace> {
    let mut made: rkv_namespace = sized();
    match number % NAMESPACE_COUNT {
        0 => return None,
        1 => made.flags = RKV_NAMESPACE_LORA, // Adapter 0 is a real one.
        2 => (made.flags, made.lora_id) = (RKV_NAMESPACE_LORA, 7),
        3 => made.flags = RKV_NAMESPACE_IMAGE,
        4 => made.salt[31] = 1,
        5 => made.epoch = 1,
        6 => (made.flags, made.epoch) = (RKV_NAMESPACE_LORA, 1),
        _ => {}
    }
    Some(made)
}
