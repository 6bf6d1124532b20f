//! The driver's calls over many items: what comes of each must be what comes of the single calls
//! one after another. Which sequences items name, and which room they give, is settled before.
use super::abi::many::{BeginItem, MatchItem};
use super::abi::{Library, Status};
use super::driver::{Driver, Refused, room_of};
use super::naive::{Wrong, require};
use super::ops::{Op, Pick};
use super::prompt::{Prompt, Tokens};
use super::tokens::TokenList;

/// An item that names a sequence: its id, and the sequence if it is alive.
type Named = (u64, Option<usize>);

fn refused<T>(what: &str, got: Result<T, Refused>, status: Status) -> Result<(), Wrong> {
    let got = got.err().map(|refused| refused.status);
    require!(got == Some(status), "{what}: an item that is refused gets {got:?}");
    Ok(())
}

/// The token lists of items; none for those that are refused.
fn lists(items: &[Option<Op>]) -> Vec<Option<TokenList>> {
    let list = |item: &Option<Op>| match item {
        Some(
            Op::Begin { prompt, .. }
            | Op::Match { prompt, .. }
            | Op::MatchTooSmall { prompt, .. }
            | Op::Probe { prompt, .. },
        ) => Some(TokenList::of(prompt)),
        _ => None,
    };
    items.iter().map(list).collect()
}

impl Driver {
    /// The answers of a call over `name`, but for items that lacked memory: nothing may have come
    /// of them, while all others were carried out.
    fn answers<T>(
        &self,
        name: &str,
        answers: Vec<Result<T, Status>>,
    ) -> Result<Vec<Option<Result<T, Refused>>>, Wrong> {
        let last = answers.iter().rposition(Result::is_err);
        let lacks_memory = |answer: &Result<T, Status>| {
            crate::MEMORY_FAILS && answer.as_ref().err() == Some(&Status::OutOfMemory)
        };
        if let Some(last) = last {
            let message = Library::last_message();
            let names_it = message.starts_with(&format!("{name}[{last}]: "));
            require!(names_it, "item {last} is the last that is refused: {message}");
        }
        let lacking = answers.iter().position(lacks_memory);
        if lacking.is_some_and(|lacking| answers[lacking..].iter().any(Result::is_ok)) {
            self.model.mark("an item goes on after one that lacks memory");
        }
        let refused = answers.iter().position(|answer| answer.is_err() && !lacks_memory(answer));
        if refused.is_some_and(|refused| answers[refused..].iter().any(Result::is_ok)) {
            self.model.mark("an item goes on after one that is refused");
        }
        let answers = answers.into_iter().enumerate().map(|(at, answer)| {
            let kept = Some(answer).filter(|answer| !lacks_memory(answer));
            kept.map(|answer| answer.map_err(|status| Refused { status, is_past: Some(at) < last }))
        });
        Ok(answers.collect())
    }

    pub fn begin_many(&mut self, items: &[Option<Op>]) -> Result<(), Wrong> {
        const WHAT: &str = "rkv_sequence_begin_many";
        let lists = lists(items);
        let call = |(item, list): (&Option<Op>, _)| -> BeginItem {
            match item {
                Some(Op::Begin { ns, reserve, first, .. }) => {
                    (*ns, list, room_of(*reserve, *first))
                }
                _ => (0, None, 0.into()),
            }
        };
        let calls: Vec<_> = items.iter().zip(lists.iter().map(Option::as_ref)).map(call).collect();
        let begun = self.library.begin_many(&calls);
        let had_slots = self.model.can_allocate_slot().is_ok();
        let slots = |answer: &Result<_, Status>| matches!(answer, Err(Status::OutOfSlots));
        if had_slots && begun.iter().any(slots) {
            self.model.mark("an item takes the last slot");
        }
        for (item, begun) in items.iter().zip(self.answers("items", begun)?) {
            let Some(begun) = begun else { continue };
            match item {
                Some(Op::Begin { ns, prompt, reserve, first }) => {
                    self.begun(WHAT, begun, *ns, prompt, room_of(*reserve, *first))?;
                }
                _ => refused(WHAT, begun, Status::InvalidArgument)?,
            }
        }
        Ok(())
    }

    /// The sequence of an item; one that is not alive for an item that is refused.
    fn named(&self, at: usize, sequence: Option<Pick>) -> Named {
        let live = sequence.and_then(|sequence| self.live_sequence(sequence));
        let id = live.map_or_else(|| self.dead_id(at as Pick), |index| self.sequences[index]);
        (id, live)
    }

    pub fn append_many(&mut self, items: &[Option<Op>]) -> Result<(), Wrong> {
        const WHAT: &str = "rkv_sequence_append_many";
        let call = |(at, item): (usize, &Option<Op>)| match item {
            Some(Op::Append { sequence, prompt }) => {
                (self.named(at, Some(*sequence)), prompt.clone())
            }
            _ => (self.named(at, None), Prompt::default()),
        };
        let calls: Vec<_> = items.iter().enumerate().map(call).collect();
        let lists: Vec<_> = calls.iter().map(|(_, prompt)| TokenList::of(prompt)).collect();
        let raw = calls.iter().zip(&lists).map(|(((id, _), _), list)| (*id, list));
        let appended = self.library.append_many(&raw.collect::<Vec<_>>());
        for (((_, index), prompt), appended) in calls.iter().zip(self.answers("items", appended)?) {
            let Some(appended) = appended else { continue };
            match *index {
                Some(index) => self.appended(WHAT, appended, index, prompt)?,
                None => refused(WHAT, appended, Status::StaleSequence)?,
            }
        }
        Ok(())
    }

    pub fn publish_many(&mut self, items: &[Option<Op>]) -> Result<(), Wrong> {
        const WHAT: &str = "rkv_sequence_publish_many";
        let call = |(at, item): (usize, &Option<Op>)| {
            let (sequence, more) = match item {
                Some(Op::Publish { sequence, back }) => (*sequence, -i64::from(*back)),
                Some(Op::PublishBeyond { sequence, more }) => (*sequence, i64::from(*more) + 1),
                _ => return (self.named(at, None), 0),
            };
            let relative = self.relative(sequence, more);
            (self.named(at, Some(sequence)), relative.map_or(0, |(_, computed)| computed))
        };
        let calls: Vec<_> = items.iter().enumerate().map(call).collect();
        let raw = calls.iter().map(|&((id, _), computed)| (id, computed));
        let published = self.library.publish_many(&raw.collect::<Vec<_>>());
        for (((_, index), computed), published) in
            calls.iter().zip(self.answers("items", published)?)
        {
            let Some(published) = published else { continue };
            match *index {
                Some(index) => self.published(WHAT, published, index, *computed)?,
                None => refused(WHAT, published, Status::StaleSequence)?,
            }
        }
        Ok(())
    }

    pub fn release_many(&mut self, items: &[Option<Op>]) -> Result<(), Wrong> {
        const WHAT: &str = "rkv_sequence_release_many";
        let call = |(at, item): (usize, &Option<Op>)| match item {
            Some(Op::Release { sequence }) => self.named(at, Some(*sequence)),
            _ => self.named(at, None),
        };
        let calls: Vec<Named> = items.iter().enumerate().map(call).collect();
        let ids: Vec<u64> = calls.iter().map(|call| call.0).collect();
        let released = self.library.release_many(&ids);
        for ((_, index), released) in calls.iter().zip(self.answers("sequences", released)?) {
            let Some(released) = released else { continue };
            match *index {
                Some(index) => {
                    if self.model.sequence(index).is_err() {
                        self.model.mark("a sequence is released twice at once");
                    }
                    self.released(WHAT, released, index)?;
                }
                None => refused(WHAT, released, Status::StaleSequence)?,
            }
        }
        Ok(())
    }

    pub fn match_many(&mut self, items: &[Option<Op>]) -> Result<(), Wrong> {
        const WHAT: &str = "rkv_cache_match_many";
        let lists = lists(items);
        let page_size = self.model.config.page_size;
        // Of those with too little room: the pages that they find. Matches change nothing of that.
        let whole = |item: &Option<Op>| match item {
            Some(Op::MatchTooSmall { ns, prompt }) => {
                let cut = self.model.match_cut(self.model.space(*ns), &Tokens::of(prompt));
                Some(cut.whole_pages).filter(|&whole| whole > 1)
            }
            _ => None,
        };
        let whole: Vec<Option<usize>> = items.iter().map(whole).collect();
        let call = |((item, tokens), whole): ((&Option<Op>, _), &Option<usize>)| match item {
            Some(Op::Match { ns, prompt, lock }) => {
                MatchItem { ns: *ns, tokens, lock: *lock, room: prompt.positions() / page_size }
            }
            Some(Op::MatchTooSmall { ns, .. }) => {
                let tokens = tokens.filter(|_| whole.is_some());
                MatchItem { ns: *ns, tokens, lock: true, room: whole.map_or(0, |whole| whole - 1) }
            }
            _ => MatchItem { ns: 0, tokens: None, lock: false, room: 0 },
        };
        let raw = items.iter().zip(lists.iter().map(Option::as_ref)).zip(&whole).map(call);
        let matched = self.library.match_many(&raw.collect::<Vec<_>>());
        let statuses = matched.iter().map(|matched| match matched.0 {
            Status::Ok => Ok(()),
            status => Err(status),
        });
        let statuses = self.answers("items", statuses.collect())?;
        for (((item, matched), whole), status) in items.iter().zip(matched).zip(whole).zip(statuses)
        {
            let Some(status) = status else { continue };
            match (item, whole) {
                (Some(Op::Match { ns, prompt, lock }), _) => {
                    let (_, locked) = self.matched(WHAT, matched, *ns, prompt, *lock)?;
                    self.locks.extend(locked);
                }
                (_, Some(whole)) => self.matched_too_small(matched, whole)?,
                _ => refused(WHAT, status, Status::InvalidArgument)?,
            }
        }
        Ok(())
    }

    pub fn probe_many(&mut self, items: &[Option<Op>]) -> Result<(), Wrong> {
        const WHAT: &str = "rkv_cache_probe_many";
        let lists = lists(items);
        let call = |(item, list): (&Option<Op>, _)| match item {
            Some(Op::Probe { ns, .. }) => (*ns, list),
            _ => (0, None),
        };
        let calls: Vec<_> = items.iter().zip(lists.iter().map(Option::as_ref)).map(call).collect();
        let probed = self.library.probe_many(&calls);
        for (item, probed) in items.iter().zip(self.answers("items", probed)?) {
            match (item, probed) {
                (_, None) => {}
                (Some(Op::Probe { ns, prompt }), Some(Ok(found))) => {
                    self.probed(WHAT, found, *ns, prompt)?;
                }
                (_, Some(probed)) => refused(WHAT, probed, Status::InvalidArgument)?,
            }
        }
        Ok(())
    }
}
