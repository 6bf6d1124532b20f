//! What was found when a store was opened.
use super::Key;
use crate::memory::SharedBytes;

/// A record that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is found by.
    pub key: Key,
    /// Its length.
    pub bytes: u64,
    /// What was put with it.
    pub note: SharedBytes,
}

/// Records that were found, least recently used first. In parts, as they were read: memory of each
/// is given back when its records were taken.
#[derive(Debug, Default, Clone)]
pub struct FoundRecords(Vec<Vec<Record>>);

impl FoundRecords {
    /// These parts, one after the other.
    pub(super) fn of_parts(parts: Vec<Vec<Record>>) -> Self {
        Self(parts)
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.into_iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<Record>> for FoundRecords {
    fn from(records: Vec<Record>) -> Self {
        if records.is_empty() { Self::default() } else { Self(vec![records]) }
    }
}

impl<'a> IntoIterator for &'a FoundRecords {
    type Item = &'a Record;
    type IntoIter = std::iter::Flatten<std::slice::Iter<'a, Vec<Record>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().flatten()
    }
}

impl IntoIterator for FoundRecords {
    type Item = Record;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<Record>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}
