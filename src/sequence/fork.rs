//! Forks: children with the same tokens as their parent, all or none.
use super::begin::{Begun, Room};
use super::inherit::Share;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::store::{SequenceInfo, Shared, State, Turn};
use crate::token::Query;

impl State {
    /// What each child of a fork takes over.
    fn share_for_fork(&self, parent: SequenceId, reserve: usize) -> Result<Share, Error> {
        let from = self.heritable(parent)?;
        let room = (0, Room::from(reserve));
        self.share(from, from.positions, room, "args.reserve_position_count")
    }

    /// What is the same as long as the parent has the same tokens.
    fn tokens_of_parent(&self, parent: SequenceId) -> Result<(usize, u64, usize), Error> {
        let from = self.heritable(parent)?;
        Ok((from.base_pages, from.tail.version(), from.tail().len()))
    }
}

impl Shared {
    /// Begins sequences with the same tokens as another one, all or none.
    pub fn fork(
        &self,
        parent: SequenceId,
        count: usize,
        reserve: usize,
    ) -> Result<Vec<SequenceInfo>, Error> {
        let (mut children, mut made) = (Vec::new(), Vec::new());
        let mut turn = self.turn();
        let how = (count, reserve);
        let known = match turn.start_fork(parent, how, true, (&mut children, &mut made))? {
            Some(known) => known,
            None => {
                let known = turn.start_fork(parent, how, false, (&mut children, &mut made))?;
                known.unwrap_or_default()
            }
        };
        turn.complete(&children, &known)?;
        for child in &children {
            made.push(turn.sequence_info(child.id)?);
        }
        Ok(made)
    }
}

impl Turn<'_> {
    /// Starts the children, and makes room for what is said of them; returns the pages that they
    /// share, if those are still to be written to their rows. Each has a long row, perhaps, so who
    /// waits gets in between two of them. None, and no child, when the parent has changed by then:
    /// the children are to be alike.
    fn start_fork(
        &mut self,
        parent: SequenceId,
        (count, reserve): (usize, usize),
        lets_in: bool,
        (children, made): (&mut Vec<Begun>, &mut Vec<SequenceInfo>),
    ) -> Result<Option<Vec<u32>>, Error> {
        let known = self.pages_of(parent)?;
        let share = self.share_for_fork(parent, reserve)?;
        self.check_children(share, count)?;
        let no_room = |_| Error::memory("the children");
        children.try_reserve_exact(count).map_err(no_room)?;
        made.try_reserve_exact(count).map_err(no_room)?;
        let nothing = Query { keys: &[], positions: 0, images: &[], unchecked: 0 };
        let tokens = self.tokens_of_parent(parent)?;
        // None: the parent has changed.
        let started = (0..count).try_for_each(|at| -> Result<(), Option<Error>> {
            let (mut tail, mut let_in, mut rows) = (None, false, None);
            if lets_in {
                tail = self.tail_of_child(parent, &[]).map_err(Some)?;
                let made = self.make_room_for_child(share).map_err(Some)?;
                (let_in, rows) = self.use_parent_rows(parent, share.positions).map_err(Some)?;
                let_in |= tail.is_some() || made || (at > 0 && self.let_waiting_in());
            }
            let child = self.with_parent_rows(rows, |turn| {
                if let_in {
                    let now = turn.share_for_fork(parent, reserve)?;
                    let is_like = turn.tokens_of_parent(parent)? == tokens;
                    if !is_like || now.positions != share.positions {
                        return Ok(None);
                    }
                }
                let how = (!known.is_empty(), tail, rows);
                turn.start_child(parent, share, (nothing, &[]), how).map(Some)
            });
            children.push(child.map_err(Some)?.ok_or(None)?);
            Ok(())
        });
        if let Err(why) = started {
            children.iter().for_each(|child| self.abandon(child));
            self.end_rows_of(children);
            children.clear();
            // Their path may have been cleared meanwhile.
            self.drop_let_go();
            return why.map_or(Ok(None), Err);
        }
        if let Some(child) = children.first() {
            self.touch_path_of(child);
        }
        Ok(Some(known))
    }
}
