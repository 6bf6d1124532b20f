//! What a row of several groups gives to the cache.
use std::array::from_fn;
use std::ptr::{null, null_mut};

use pyo3::prelude::*;

use crate::c::*;
use crate::group_lane::Kind;
use crate::group_row::{GroupRow, GroupState};
use crate::row_source::all_published;

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
        let (mut row_count, mut given) = (0, 0);
        // What the cache has then, by lane and place: not of a page alone, of which the counts say
        // it, but for several lanes.
        let mut told = vec![0; if end > first + 1 { end * state.lanes.len() } else { 0 }];
        let (mut there, mut room) = (&mut [][..], told.chunks_mut(end));
        for lane in &state.lanes {
            let part = room.next().unwrap_or_default();
            if lane.number == 0 {
                (base, there) = (lane.pages.as_ptr(), part);
                continue;
            }
            rows[row_count] = rkv_group_row {
                group: lane.number,
                reserved: 0,
                pages: lane.published().as_ptr(),
                page_count: end,
                published_pages: if part.is_empty() { null_mut() } else { part.as_mut_ptr() },
            };
            row_count += 1;
            given += u64::from(lane.published()[first] != 0);
        }
        let on = (state.node, state.lock, state.began);
        let more = (&rows[..row_count], there);
        let done = self.source.insert(py, &state.tokens, base, on, (first, end), more)?;
        let reached = done.page_count as usize;
        let mut parts = told.chunks(end);
        for lane in &mut state.lanes {
            // Where the cache has another page, or for want of memory none, the row's own stays
            // private to it. The lock is on all that the cache has.
            let part = parts.next();
            let is_alone_taken = match (part, lane.number) {
                (Some(_), _) => false,
                (None, 0) => done.duplicate_page_count == 0,
                _ if done.claimed_group_page_count == given => true,
                _ if done.claimed_group_page_count == 0 => false,
                _ => {
                    let locked = self.locked(py, done.lock, lane.number, reached)?;
                    locked.iter().any(|it| it.page == lane.pages[first])
                }
            };
            for at in first..reached {
                let page = lane.pages[at];
                let is_taken = part.map_or(is_alone_taken, |part| part[at] == page);
                // A state inside a page was not given: it stays the row's.
                let is_claimed = is_taken && lane.published()[at] != 0;
                if is_claimed && std::mem::take(&mut lane.own[at]) && lane.kind == Kind::State {
                    state.new_states.push(page);
                }
            }
        }
        (state.node, state.published, state.lock) = (done.node, reached, done.lock);
        all_published(py, reached, end)
    }
}
