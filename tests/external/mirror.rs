//! What the cache holds, by the journal alone.
use super::library::Record;
use std::collections::BTreeMap;

/// The tenant and the tokens of a prefix that ends with a page.
pub type Prefix = (u32, Vec<u32>);

#[derive(Default)]
pub struct Mirror {
    pub held: BTreeMap<u32, Prefix>,
    pub last: u64,
}

impl Mirror {
    /// Applies records; returns the pages that left, in order, with the reason.
    pub fn apply(&mut self, page_size: usize, records: &[Record]) -> Vec<(u32, u32)> {
        let mut left = Vec::new();
        for record in records {
            if !record.stored {
                for &page in &record.pages {
                    self.held.remove(&page).expect("a page that leaves was there");
                    left.push((page, record.reason));
                }
                continue;
            }
            let (tenant, mut prefix) = match record.parent {
                0 => (record.tenant, Vec::new()),
                parent => self.held[&parent].clone(),
            };
            for (&page, tokens) in record.pages.iter().zip(record.tokens.chunks(page_size)) {
                prefix.extend(tokens);
                let before = self.held.insert(page, (tenant, prefix.clone()));
                assert!(before.is_none(), "page {page} comes in twice");
            }
        }
        left
    }
}
