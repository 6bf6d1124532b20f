//! The tree as text, for people and tools.
use super::RadixIndex;
use super::node::Segment;
use crate::memory::OutOfMemory;
use crate::token::is_text;
use crate::tree::{Hanging, Text};
use std::fmt::{self, Write};

/// Keys that a picture shows of a segment.
const SHOWN: usize = 8;

/// A key as a person reads it: a text id as a number, another one by its kind and number.
fn write_key(text: &mut Text, key: u32) -> fmt::Result {
    match crate::token::image_number(key) {
        Some(number) => write!(text, "image{number}"),
        None if is_text(key) => write!(text, "{key}"),
        None => write!(text, "bin{}", key - crate::token::TEXT_ID_LIMIT),
    }
}

impl RadixIndex {
    pub(super) fn dump_json(&self, hanging: &Hanging<'_>) -> Result<String, OutOfMemory> {
        let content = |text: &mut Text, segment: &Segment| {
            text.write_str("\"keys\": [")?;
            for (at, &key) in segment.label.keys(self.page_size).iter().enumerate() {
                text.write_str(if at > 0 { ", \"" } else { "\"" })?;
                write_key(text, key)?;
                text.write_str("\"")?;
            }
            text.write_str("]")
        };
        self.tree.dump_json(content, hanging)
    }

    pub(super) fn dump_dot(&self, hanging: &Hanging<'_>) -> Result<String, OutOfMemory> {
        let content = |text: &mut Text, segment: &Segment| {
            let keys = segment.label.keys(self.page_size);
            for (at, &key) in keys.iter().take(SHOWN).enumerate() {
                text.write_str(if at > 0 { " " } else { "" })?;
                write_key(text, key)?;
            }
            text.write_str(if keys.len() > SHOWN { " ..." } else { "" })
        };
        self.tree.dump_dot(content, hanging)
    }
}
