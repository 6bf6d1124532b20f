//! The tree as text: what the index says, and the pages of the groups beside the spine.
use super::State;
use crate::error::Error;
use crate::group::Hung;
use crate::index::DumpFormat;
use crate::tree::Text;
use std::fmt::{self, Write};

impl State {
    /// The tree as text, with the pages of each group.
    pub fn dump(&self, format: DumpFormat) -> Result<String, Error> {
        let cache = self.cache()?;
        let Some(groups) = &cache.groups else {
            return cache.index.dump(format, &|_, _| Ok(()));
        };
        let hung = &groups.hung;
        cache.index.dump(format, &|text, spine| match format {
            DumpFormat::Json => hung_json(hung, spine, text),
            DumpFormat::Dot => hung_label(hung, spine, text),
        })
    }
}

/// The pages of the groups beside the spine that hang on some of it, each at the place of its page
/// of the spine; 0 for a hole.
fn hung_json(hung: &Hung, spine: &[u32], text: &mut Text) -> fmt::Result {
    text.write_str(", \"group_pages\": {")?;
    for group in 1..hung.group_count() {
        write!(text, "{}\"{group}\": [", if group > 1 { ", " } else { "" })?;
        for (at, &page) in spine.iter().enumerate() {
            write!(text, "{}{}", if at > 0 { ", " } else { "" }, hung.page(group, page))?;
        }
        text.write_str("]")?;
    }
    text.write_str("}")
}

/// How many there are of each group.
fn hung_label(hung: &Hung, spine: &[u32], text: &mut Text) -> fmt::Result {
    (1..hung.group_count()).try_for_each(|group| {
        let count = spine.iter().filter(|&&page| hung.page(group, page) != 0).count();
        write!(text, "\\ngroup {group}: {count} pages")
    })
}
