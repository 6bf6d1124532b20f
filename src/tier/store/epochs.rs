//! Who flushes waits for what came before, and not for what comes meanwhile.
use crate::memory::OutOfMemory;
use std::collections::VecDeque;

/// Changes that are not done, by the epoch in which they came.
#[derive(Debug)]
pub(super) struct Epochs {
    first: u64,
    counts: VecDeque<usize>,
}

impl Epochs {
    pub fn new() -> Result<Self, OutOfMemory> {
        let mut counts = VecDeque::new();
        counts.try_reserve(4)?;
        counts.push_back(0);
        Ok(Self { first: 0, counts })
    }

    /// A change comes.
    pub fn begin(&mut self) -> u64 {
        if let Some(count) = self.counts.back_mut() {
            *count += 1;
        }
        self.first + self.counts.len() as u64 - 1
    }

    /// It is done.
    pub fn end(&mut self, epoch: u64) {
        if let Some(count) = self.counts.get_mut(epoch.wrapping_sub(self.first) as usize) {
            *count -= 1;
        }
        while self.counts.len() > 1 && self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.first += 1;
        }
    }

    /// Begins another epoch; returns the one that ends with that, `None` if all is done.
    pub fn next(&mut self) -> Result<Option<u64>, OutOfMemory> {
        if self.counts.iter().all(|&count| count == 0) {
            return Ok(None);
        }
        // Unless nothing has come since somebody began one.
        if self.counts.back() != Some(&0) {
            self.counts.try_reserve(1)?;
            self.counts.push_back(0);
        }
        Ok(Some(self.first + self.counts.len() as u64 - 2))
    }

    /// Whether all that came in an epoch, and before, is done.
    pub fn is_done(&self, epoch: u64) -> bool {
        self.first > epoch
    }

    /// Nothing more will be done.
    pub fn end_all(&mut self) {
        self.first += self.counts.len() as u64;
        self.counts.clear();
        self.counts.push_back(0);
    }
}

#[cfg(test)]
mod tests {
    use super::Epochs;

    #[test]
    fn an_epoch_is_done_when_it_and_all_before_are() {
        let mut epochs = Epochs::new().unwrap();
        assert_eq!(epochs.next().unwrap(), None);
        let (first, same) = (epochs.begin(), epochs.begin());
        let ended = epochs.next().unwrap().unwrap();
        let later = epochs.begin();
        let both = epochs.next().unwrap().unwrap();
        assert_eq!(epochs.next().unwrap(), Some(both), "nothing came since");
        epochs.end(later);
        epochs.end(first);
        assert!(!epochs.is_done(ended) && !epochs.is_done(both));
        epochs.end(same);
        assert!(epochs.is_done(ended) && epochs.is_done(both));
        let last = epochs.begin();
        let ended = epochs.next().unwrap().unwrap();
        assert!(!epochs.is_done(ended));
        epochs.end_all();
        epochs.end(last);
        assert!(epochs.is_done(ended));
    }
}
