//! Namespaces by number.
use super::abi::sized;
use radixkv::capi::*;

/// Namespaces that operations name by number. The last one spells the first one out.
pub const NAMESPACE_COUNT: u8 = 8;

/// The namespace that a number stands for, in a form that compares.
pub fn namespace_of(number: u8) -> u8 {
    number % NAMESPACE_COUNT % (NAMESPACE_COUNT - 1)
}

/// Whether one namespace is like another in the fields that the flags of a clear name.
pub fn covers(flags: u32, like: u8, other: u8) -> bool {
    let fields = |number| {
        let space = namespace(number).unwrap_or_else(sized);
        let has = |flag| space.flags & flag != 0;
        let lora = has(RKV_NAMESPACE_LORA).then_some(space.lora_id);
        let image = has(RKV_NAMESPACE_IMAGE).then_some(space.image_digest);
        (lora, image, space.salt, space.epoch)
    };
    let (like, other) = (fields(like), fields(other));
    let differs = |flag, is_like: bool| flags & flag != 0 && !is_like;
    !differs(RKV_CLEAR_LORA, like.0 == other.0)
        && !differs(RKV_CLEAR_IMAGE, like.1 == other.1)
        && !differs(RKV_CLEAR_SALT, like.2 == other.2)
        && !differs(RKV_CLEAR_EPOCH, like.3 == other.3)
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
