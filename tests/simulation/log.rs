//! The last operations of a run, for who has to understand a failure, and a digest of all of them,
//! which shows that a seed makes the same run again.
use crate::model::abi::Status;
use std::collections::VecDeque;
use std::fmt;

const LINES: usize = 30;

#[derive(Clone, Copy)]
struct Line {
    operation: u64,
    verb: &'static str,
    /// Whose it is: a slot, mostly.
    subject: u64,
    number: u64,
    answer: Option<Status>,
}

#[derive(Default)]
pub struct Log {
    lines: VecDeque<Line>,
    digest: u64,
}

impl Log {
    /// What is about to be done.
    pub fn say(&mut self, verb: &'static str, subject: u64, number: u64) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(Line { operation: 0, verb, subject, number, answer: None });
        let mut digest = self.digest ^ subject ^ number << 24;
        for byte in verb.bytes().take(4) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.digest = digest ^ digest >> 31;
    }

    pub fn answer(&mut self, refusal: Option<Status>) {
        if let Some(line) = self.lines.back_mut() {
            line.answer = refusal;
        }
    }

    pub fn done(&mut self, operation: u64) {
        if let Some(line) = self.lines.back_mut() {
            line.operation = operation;
        }
    }

    pub fn digest(&self) -> u64 {
        self.digest
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for line in &self.lines {
            let Line { operation, verb, subject, number, answer } = line;
            match operation {
                0 => write!(f, "         now  ")?,
                _ => write!(f, "{operation:>12}  ")?,
            }
            write!(f, "{verb} ({subject}, {number})")?;
            match answer {
                Some(status) => writeln!(f, ": {status:?}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
