//! The driver's operations on parents and children.
use super::abi::{Library, Status};
use super::compare::{compare_sequence, equal};
use super::driver::{Driver, agree, pick, room_of};
use super::inherit::{Asked, ChildPlan};
use super::naive::{Wrong, require};
use super::namespaces::namespace_of;
use super::ops::{Op, Pick};
use super::prompt::{Prompt, Tokens};
use super::tokens::TokenList;
use radixkv::sequence::Room;

impl Driver {
    pub fn apply_to_children(&mut self, op: &Op) -> Result<(), Wrong> {
        match op {
            Op::Retain { sequence } => self.retain(*sequence),
            Op::Drop { sequence } => self.drop_kept(*sequence),
            Op::DropRetained { pages } => self.drop_retained(*pages as usize),
            Op::Fork { parent, count, reserve } => {
                self.fork(*parent, *count as usize + 1, *reserve as usize)
            }
            Op::Continue { parent, ns, prompt, reserve, first, running, all } => {
                let parent = self.any_parent(*parent);
                self.go_on(parent, *ns, prompt, room_of(*reserve, *first), *running, *all)
            }
            other => self.apply_to_table(other),
        }
    }

    fn retain(&mut self, at: Pick) -> Result<(), Wrong> {
        let Some(index) = self.live_sequence(at) else { return Ok(()) };
        let retained = self.library.retain(self.sequences[index]);
        let ours = self.model.retain(index, retained == Ok(true));
        if let Some((retained, ours)) = agree("rkv_sequence_retain", retained, ours)? {
            require!(retained == ours, "rkv_sequence_retain says {retained}, the model {ours}");
        }
        Ok(())
    }

    fn drop_kept(&mut self, at: Pick) -> Result<(), Wrong> {
        let kept: Vec<usize> = self.model.retained.iter().map(|kept| kept.index).collect();
        let Some(index) = pick(&kept, at) else { return Ok(()) };
        let dropped = self.library.drop_sequence(self.sequences[index]);
        agree("rkv_sequence_drop", dropped, self.model.drop_kept(index))?;
        Ok(())
    }

    fn drop_retained(&mut self, pages: usize) -> Result<(), Wrong> {
        let gained = self.library.drop_retained(pages);
        let ours = self.model.drop_retained(pages);
        if let Some((gained, ours)) = agree("rkv_cache_drop_retained", gained, ours)? {
            require!(gained == ours, "{gained} pages are gained, {ours} in the model");
        }
        Ok(())
    }

    /// Any sequence that is live or retained, often a retained one; now and then one that is gone,
    /// or that never was: none.
    fn any_parent(&self, at: Pick) -> Option<usize> {
        let all = 0..self.sequences.len();
        let found: Vec<usize> = match at % 8 {
            0..=2 => all.filter(|&index| self.model.namespace(index).is_some()).collect(),
            3..=6 => all.filter(|&index| self.model.kept(index).is_some()).collect(),
            _ => all.collect(),
        };
        pick(&found, at / 8)
    }

    fn id_of(&self, parent: Option<usize>) -> u64 {
        parent.map_or(self.foreign.sequence, |index| self.sequences[index])
    }

    fn go_on(
        &mut self,
        parent: Option<usize>,
        ns: u8,
        prompt: &Prompt,
        room: Room,
        running: bool,
        all: bool,
    ) -> Result<(), Wrong> {
        // Namespace 0 stands for the parent's own, so that most continuations are good.
        let known = parent.filter(|_| ns == 0).and_then(|index| self.model.namespace(index));
        let ns = known.unwrap_or(ns);
        let (tokens, list) = (Tokens::of(prompt), TokenList::of(prompt));
        let id = self.id_of(parent);
        let all_tokens = all.then_some(&list);
        let continued = self.library.go_on(id, ns, &list, all_tokens, room, running);
        let asked = Asked { ns: namespace_of(ns), more: &tokens, room, running };
        let plan = parent.map_or(Ok(None), |index| self.model.continue_plan(index, &asked));
        let plan = match plan {
            Ok(None) if all => {
                self.model.mark("a child begins without its parent");
                return self.begun("rkv_sequence_continue", continued, ns, prompt, room);
            }
            Ok(None) => Err(Status::StaleSequence.into()),
            Ok(Some(plan)) => Ok(plan),
            Err(refusal) => Err(refusal),
        };
        let Some((state, plan)) = agree("rkv_sequence_continue", continued, plan)? else {
            return Ok(());
        };
        let parent = parent.expect("there is a plan for it");
        self.model.use_parent(parent);
        self.add_child(parent, &plan, state.sequence)?;
        let sequence = self.model.sequences.last().and_then(Option::as_ref);
        compare_sequence(
            &self.model,
            &self.library,
            &mut self.names,
            sequence.expect("just begun"),
            &state,
        )
    }

    fn fork(&mut self, at: Pick, count: usize, reserve: usize) -> Result<(), Wrong> {
        let parent = self.any_parent(at);
        let forked = self.library.fork(self.id_of(parent), count, reserve);
        let plan = match parent {
            Some(index) => self.model.fork_plan(index, count, reserve),
            None => Err(Status::StaleSequence.into()),
        };
        let Some((children, plan)) = agree("rkv_sequence_fork", forked, plan)? else {
            return Ok(());
        };
        if count > 1 {
            self.model.mark("a fork into several");
        }
        let parent = parent.expect("there is a plan for it");
        self.model.use_parent(parent);
        for child in &children {
            let state = self.add_child(parent, &plan, child.sequence)?;
            equal!("rkv_sequence_fork",
                slot: state.slot, child.slot;
                copies: state.copy_count, child.copy_count;
            );
        }
        Ok(())
    }

    /// Adds a child of the library to the model.
    fn add_child(
        &mut self,
        parent: usize,
        plan: &ChildPlan,
        id: u64,
    ) -> Result<radixkv::capi::rkv_sequence_info, Wrong> {
        require!(!self.sequences.contains(&id), "a sequence id is used again");
        let state = self.library.query(id).map_err(|status| format!("query: {status:?}"))?;
        let row = self.library.row(state.slot, 0).map_err(|status| format!("row: {status:?}"))?;
        let shared = plan.cut.whole_pages;
        require!(row.len() >= shared, "the row {row:?} is shorter than the {shared} shared pages");
        let (slot, source) = (state.slot, self.copy_of(id)?.source_page);
        self.model.add_child(parent, plan, slot, &row[shared..], source)?;
        self.sequences.push(id);
        Ok(state)
    }

    /// The list of what is retained, as it is in the model.
    pub fn compare_retained(&self) -> Result<(), Wrong> {
        let kept = self.model.retained.iter();
        let ours: Vec<u64> = kept.map(|kept| self.sequences[kept.index]).collect();
        let theirs = self.library.retained(ours.len());
        require!(
            theirs.as_ref() == Ok(&ours),
            "retained are {theirs:?}, in the model {ours:?}: {}",
            Library::last_message()
        );
        Ok(())
    }
}
