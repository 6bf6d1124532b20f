//! Reading a cache from its journal: all that it holds, then what becomes of it, record by record,
//! and from the beginning again when records were lost.
use super::intake::Intake;
use crate::error::Error;
use crate::memory::OutOfMemory;
use crate::store::Shared;

/// What is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// All that was known is void.
    Begin,
    /// All that the cache holds, from a page on: not exact yet.
    Contents { next_page: u32 },
    /// Records up to a number, with which the contents are exact.
    CatchUp { until: u64 },
    /// Records as they come.
    Follow,
}

/// What a step of reading came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// What is known is void, and nothing is read before `voided` is called.
    Void,
    /// Records may wait.
    More,
    /// With all records that were given, what is known is exact.
    Exact,
    /// There is nothing new.
    Nothing,
    /// There is no cache.
    NoCache,
}

#[derive(Debug)]
pub(crate) struct Reader {
    intake: Intake,
    phase: Phase,
    /// The last record that was read.
    number: u64,
    /// Records that were lost.
    lost: u64,
}

impl Reader {
    /// For pages of so many positions.
    pub fn new(page_size: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { intake: Intake::new(page_size)?, phase: Phase::Begin, number: 0, lost: 0 })
    }

    /// The records that wait, to be looked at while this is changed; none when none does.
    pub fn take_waiting(&mut self) -> Option<Intake> {
        self.intake.first().is_some().then(|| std::mem::take(&mut self.intake))
    }

    /// Puts them back.
    pub fn put_waiting(&mut self, intake: Intake) {
        self.intake = intake;
    }

    /// The first was worked on.
    pub fn drop_first(&mut self) {
        self.intake.drop_first();
    }

    /// Whether what is known is exact up to the record before the first that waits.
    pub fn is_exact(&self) -> bool {
        self.phase == Phase::Follow
    }

    /// Whether what is known is void.
    pub fn is_void(&self) -> bool {
        self.phase == Phase::Begin
    }

    /// The last record that was read.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Records that were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that were lost since they were taken last.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Reads a little more. No record waits.
    pub fn read(&mut self, shared: &Shared) -> Result<Read, Error> {
        match self.phase {
            Phase::Begin => Ok(Read::Void),
            // What it held is not known, and another one may come.
            Phase::Contents { next_page } if !shared.read().has_cache() => {
                self.phase = if next_page == 0 { self.phase } else { Phase::Begin };
                Ok(if next_page > 0 { Read::More } else { Read::NoCache })
            }
            Phase::Contents { next_page } => self.read_contents(shared, next_page),
            Phase::CatchUp { until } if self.number >= until => {
                self.phase = Phase::Follow;
                Ok(Read::Exact)
            }
            Phase::CatchUp { .. } | Phase::Follow => {
                let before = self.number;
                self.read_journal(shared)?;
                let is_idle = self.number == before && self.phase == Phase::Follow;
                Ok(if is_idle { Read::Nothing } else { Read::More })
            }
        }
    }

    /// What was known is forgotten.
    pub fn voided(&mut self) {
        self.intake.clear();
        self.phase = Phase::Contents { next_page: 0 };
    }

    /// Whether all that the cache holds was told: from here on records are read.
    pub fn has_all_contents(&self) -> bool {
        matches!(self.phase, Phase::CatchUp { .. } | Phase::Follow)
    }

    /// Reads a page of the contents again, as it is by now. No record waits.
    pub fn read_page(&mut self, shared: &Shared, page: u32) -> Result<(), Error> {
        let intake = &mut self.intake;
        match shared.read_page(page, &mut |record| intake.take(record)) {
            Ok(newest) => {
                if let Phase::CatchUp { until } = &mut self.phase {
                    *until = newest;
                }
            }
            Err(error) => drop(self.contents_failed(shared, page, error)?),
        }
        Ok(())
    }

    fn read_contents(&mut self, shared: &Shared, page: u32) -> Result<Read, Error> {
        let intake = &mut self.intake;
        let told = match shared.read_contents(page, &mut |record| intake.take(record)) {
            Ok(told) => told,
            Err(error) => return self.contents_failed(shared, page, error),
        };
        if page == 0 {
            self.number = told.number;
        }
        self.phase = match told.next_page {
            0 => Phase::CatchUp { until: told.newest },
            next_page => Phase::Contents { next_page },
        };
        Ok(Read::More)
    }

    /// What was taken may be of a cache that is gone: it is forgotten. Where it went while it was
    /// read there may be another one already.
    #[cold]
    fn contents_failed(&mut self, shared: &Shared, page: u32, error: Error) -> Result<Read, Error> {
        self.intake.clear();
        let state = shared.read();
        let goes_on = !state.has_cache() || state.journal_pages().is_ok();
        if !(matches!(error, Error::State(_)) && goes_on) {
            return Err(error);
        }
        if page > 0 {
            self.phase = Phase::Begin;
        }
        Ok(Read::More)
    }

    fn read_journal(&mut self, shared: &Shared) -> Result<(), Error> {
        let intake = &mut self.intake;
        let read = match shared.read_journal(self.number, &mut |record| intake.take(record)) {
            Ok(read) => read,
            // The cache went, its records too, and another one without a journal came: what was
            // known is void. Who reads on is told that there is no journal.
            Err(Error::State(_)) => {
                self.intake.clear();
                self.phase = Phase::Begin;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.number = read.last;
        if read.lost > 0 {
            self.lost += read.lost;
            self.phase = Phase::Begin;
            self.intake.clear();
        }
        Ok(())
    }
}
