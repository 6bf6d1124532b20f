//! What a row of several groups gives to the cache.
use std::array::from_fn;
use std::ptr::{null, null_mut};

use pyo3::prelude::*;

use crate::c::*;
use crate::group_lane::Kind;
use crate::group_row::{GroupRow, GroupState};
use crate::row_source::{all_published, room_to_tell};

impl GroupRow {
    /// Gives the tokens and pages up to `end` pages to the cache; the row's lock goes along.
    pub fn publish(&self, py: Python<'_>, state: &mut GroupState, end: usize) -> PyResult<()> {
        if state.published >= end {
            return Ok(());
        }
        // A new lock protects what the end needs, one that moves all that comes. Steps under way
        // read and write all of it.
        if state.lock == 0 && end > 1 {
            self.publish_to(py, state, 1)?;
        }
        self.publish_to(py, state, end)
    }

    fn publish_to(&self, py: Python<'_>, state: &mut GroupState, end: usize) -> PyResult<()> {
        let first = state.published;
        let mut rows: [_; RKV_GROUP_LIMIT as usize] = from_fn(|_| rkv_group_row::zeroed());
        let mut base = null();
        let mut row_count = 0;
        for lane in &state.lanes {
            if lane.number == 0 {
                base = lane.pages.as_ptr();
                continue;
            }
            rows[row_count] = rkv_group_row {
                group: lane.number,
                reserved: 0,
                pages: lane.published().as_ptr(),
                page_count: end,
                published_pages: null_mut(),
            };
            row_count += 1;
        }
        let mut there = room_to_tell(first, end);
        let more = (&rows[..row_count], &mut there[..]);
        let on = (state.node, state.lock, state.began);
        let done = self.source.insert(py, &state.tokens, base, on, (first, end), more)?;
        let reached = done.page_count as usize;
        for lane in &mut state.lanes {
            // Where the cache has another page, the row's own stays private to it. The lock is on
            // all that the cache has.
            let kept: Vec<_> = match lane.number {
                0 if done.duplicate_page_count == 0 => Vec::new(),
                0 => {
                    let is_known = |&at: &usize| there.get(at) != Some(&lane.pages[at]);
                    (first..reached).filter(is_known).map(|at| lane.pages[at]).collect()
                }
                _ if done.duplicate_group_page_count == 0 => Vec::new(),
                _ => {
                    let locked = self.locked(py, done.lock, lane.number, reached)?;
                    let is_locked = |page: &u32| locked.iter().any(|it| it.page == *page);
                    let pages = lane.pages[first..reached].iter();
                    pages.copied().filter(|page| !is_locked(page)).collect()
                }
            };
            for at in first..reached {
                // A state inside a page was not given: it stays the row's.
                let is_claimed = lane.published()[at] != 0 && !kept.contains(&lane.pages[at]);
                if is_claimed && std::mem::take(&mut lane.own[at]) && lane.kind == Kind::State {
                    state.new_states.push(lane.pages[at]);
                }
            }
        }
        (state.node, state.published, state.lock) = (done.node, reached, done.lock);
        all_published(py, reached, end)
    }
}
