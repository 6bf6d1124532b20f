//! The tree as text, for people and tools.
use super::RadixIndex;
use crate::token::is_text;

/// Keys that a picture shows of a segment.
const SHOWN: usize = 8;

/// Keys as a person reads them: text ids as numbers, the others by kind and number.
fn keys_text(keys: &[u32]) -> Vec<String> {
    let text = |&key: &u32| match crate::token::image_number(key) {
        Some(number) => format!("image{number}"),
        None if is_text(key) => key.to_string(),
        None => format!("bin{}", key - crate::token::TEXT_ID_LIMIT),
    };
    keys.iter().map(text).collect()
}

impl RadixIndex {
    pub(super) fn dump_json(&self) -> String {
        self.tree.dump_json(|segment| {
            let keys = keys_text(segment.label.keys(self.page_size));
            let keys: Vec<_> = keys.iter().map(|key| format!("\"{key}\"")).collect();
            format!("\"keys\": [{}]", keys.join(", "))
        })
    }

    pub(super) fn dump_dot(&self) -> String {
        self.tree.dump_dot(|segment| {
            let keys = segment.label.keys(self.page_size);
            let more = if keys.len() > SHOWN { " ..." } else { "" };
            keys_text(&keys[..keys.len().min(SHOWN)]).join(" ") + more
        })
    }
}
