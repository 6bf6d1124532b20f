//! A file: as it reads now, and what of that is there after a crash.

/// The unit that is written as a whole or not at all.
const SECTOR: usize = 512;

#[derive(Debug, Clone)]
enum Change {
    Sector { at: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Debug, Default, Clone)]
pub struct Contents {
    pub now: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Change>,
}

impl Contents {
    pub fn write(&mut self, from: &[u8], at: usize) {
        if self.now.len() < at + from.len() {
            self.now.resize(at + from.len(), 0);
        }
        self.now[at..at + from.len()].copy_from_slice(from);
        let mut done = 0;
        while done < from.len() {
            let end = from.len().min(done + SECTOR - (at + done) % SECTOR);
            let bytes = from[done..end].to_vec();
            self.since.push(Change::Sector { at: at + done, bytes });
            done = end;
        }
    }

    pub fn set_length(&mut self, bytes: usize) {
        self.now.resize(bytes, 0);
        self.since.push(Change::Length(bytes));
    }

    /// Changes a byte in each sector, behind everybody's back.
    pub fn scramble(&mut self) {
        for bytes in [&mut self.now, &mut self.synced] {
            bytes.iter_mut().step_by(SECTOR).for_each(|byte| *byte ^= 0x55);
        }
        for change in &mut self.since {
            if let Change::Sector { at, bytes } = change
                && *at % SECTOR == 0
            {
                bytes[0] ^= 0x55;
            }
        }
    }

    pub fn sync(&mut self) {
        for change in std::mem::take(&mut self.since) {
            apply(&mut self.synced, &change);
        }
        assert!(self.synced == self.now, "the model of the disk is wrong");
    }

    /// Of what was not synced: all, nothing, what came first, or anything.
    pub fn after_crash(&self, random: &mut fastrand::Rng) -> Self {
        let mut left = self.synced.clone();
        let share = [0.0, 0.1, 0.5, 0.9, 1.0][random.usize(..5)];
        let end = if random.bool() { self.since.len() } else { random.usize(..=self.since.len()) };
        for change in &self.since[..end] {
            if random.f64() < share {
                apply(&mut left, change);
            }
        }
        Self { now: left.clone(), synced: left, since: Vec::new() }
    }
}

fn apply(file: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(bytes) => file.resize(*bytes, 0),
        Change::Sector { at, bytes } => {
            if file.len() < at + bytes.len() {
                file.resize(at + bytes.len(), 0);
            }
            file[*at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}
