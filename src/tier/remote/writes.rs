//! What a thread does that writes: values in the order in which they came, and removals, which keep
//! to that order too.
use super::calls::{Call, Inner, room};
use super::queue::{Put, Writes};
use super::removals::Removal;
use super::sealed::{HEAD_BYTES, seal};
use super::{Answer, Item};
use crate::memory::try_collect;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How long removals wait before somebody looks again whether a pause is over.
const NAP: Duration = Duration::from_millis(50);

impl Inner {
    pub(super) fn keep_writing(&self) {
        let mut scratch = Vec::new();
        loop {
            while self.write_some(&mut scratch) {}
            let mut queue = self.queue();
            while !queue.is_closed && !queue.can_write(Instant::now()) {
                queue = match queue.has_removals() {
                    // Nobody tells of the end of a pause.
                    true => {
                        let waited = self.to_write.wait_timeout(queue, NAP);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    false => self.to_write.wait(queue).unwrap_or_else(PoisonError::into_inner),
                };
            }
            if queue.is_closed {
                return;
            }
        }
    }

    pub(super) fn write_some(&self, scratch: &mut Vec<u8>) -> bool {
        let taken = self.queue().take_writes(Instant::now(), self.workers);
        match taken {
            Writes::None => return false,
            Writes::Dropped(writes) => drop(writes),
            Writes::Unfit(write) => drop(write),
            Writes::Puts(puts) => {
                let (count, first) = (puts.len(), puts.first().map(|put| put.number));
                self.put(puts, scratch);
                self.end_puts(count, first);
            }
            Writes::Large(large) => {
                let number = large.number;
                self.put_large(large, scratch);
                self.end_puts(1, Some(number));
            }
            Writes::Removes(removals) => {
                self.remove(&removals);
                self.end_removals(&removals);
            }
        }
        // There may be room for others.
        (self.wake)();
        true
    }

    /// Removes values. What the store does not do waits to be asked for again.
    fn remove(&self, removals: &[Removal]) {
        let item = |removal: &Removal| Item::new(removal.key, &mut []);
        if let Ok(mut items) = try_collect(removals.iter().map(item)) {
            self.remove_at_once(removals, &mut items);
            return;
        }
        // Without memory one by one.
        for (at, removal) in removals.iter().enumerate() {
            if !self.remove_at_once(std::slice::from_ref(removal), &mut [item(removal)]) {
                return self.queue().remove_again(&removals[at + 1..]);
            }
        }
    }

    /// The same with one call. Whether the store answered. If not it is asked again, after a pause
    /// when that begins. Before it is asked about something again it is asked for that: so a store
    /// that is dead is told from one that does not remove it.
    fn remove_at_once(&self, removals: &[Removal], items: &mut [Item<'_>]) -> bool {
        let has: Call = |store, items, time| store.has(items, time);
        let remove: Call = |store, items, time| store.remove(items, time);
        let is_again = removals.iter().any(|removal| removal.is_again);
        let is_there = is_again && self.call(has, items, self.timeout);
        items.iter_mut().for_each(|item| item.answer = Answer::Failed);
        let is_done = (is_there || !is_again) && self.call(remove, items, self.timeout);
        let mut queue = self.queue();
        if !is_there && !is_done {
            queue.remove_again(removals);
            return false;
        }
        let now = Instant::now();
        for (&removal, item) in removals.iter().zip(items) {
            if item.answer == Answer::Failed {
                queue.refuse_removal(removal, now);
            }
        }
        true
    }

    /// So many values were written, the first of which had a number, or could not be: who waited
    /// for that goes on.
    fn end_puts(&self, count: usize, first: Option<u64>) {
        let mut queue = self.queue();
        queue.writing -= count;
        queue.in_hand.retain(|&number| Some(number) != first);
        self.to_write.notify_all();
    }

    /// The same of some that were removed, or could not be.
    fn end_removals(&self, removals: &[Removal]) {
        self.queue().end_removing(removals);
        self.to_write.notify_all();
    }

    /// What values came from may be used again.
    fn let_go(&self, puts: Vec<Put>) {
        let bytes: usize = puts.iter().map(|put| put.bytes).sum();
        drop(puts);
        self.queue().waiting_bytes -= bytes as u64;
    }

    fn put(&self, puts: Vec<Put>, scratch: &mut Vec<u8>) {
        let lengths = puts.iter().map(|put| put.bytes + HEAD_BYTES);
        let items = room(scratch, lengths).and_then(|places| {
            try_collect(puts.iter().zip(places).map(|(put, place)| Item::new(put.key, place)))
        });
        let asked = try_collect(puts.iter().map(|put| Item::new(put.key, &mut [])));
        let (Ok(mut items), Ok(mut asked)) = (items, asked) else {
            self.queue().stats.failed += puts.len() as u64;
            return self.let_go(puts);
        };
        // Others may have written them: that is asked before their bytes are moved, and without the
        // places of these, which have what was put before.
        let is_answered =
            self.call(|store, items, time| store.has(items, time), &mut asked, self.timeout);
        items.iter_mut().zip(&asked).for_each(|(item, asked)| item.answer = asked.answer);
        let known = items.iter().filter(|item| item.answer == Answer::Done).count();
        self.queue().stats.known += known as u64;
        if !is_answered || known == items.len() {
            return self.let_go(puts);
        }
        let (mut damaged, mut unwanted) = (0, 0);
        for (item, put) in items.iter_mut().zip(&puts) {
            if item.answer != Answer::Done && !put.source.is_wanted() {
                item.answer = Answer::Done;
                unwanted += 1;
            }
            if item.answer == Answer::Done {
                continue;
            }
            let mut body = &mut item.bytes[HEAD_BYTES..];
            for part in (0..put.source.parts()).map(|at| put.source.part(at)) {
                let (into, rest) = body.split_at_mut(part.len());
                into.copy_from_slice(part);
                body = rest;
            }
            // With a seal of ours others would take it for good.
            if put.source.are_intact(&item.bytes[HEAD_BYTES..]) {
                seal(&item.key, item.bytes);
            } else {
                item.answer = Answer::Done;
                damaged += 1;
            }
        }
        self.let_go(puts);
        {
            let stats = &mut self.queue().stats;
            stats.failed += damaged;
            stats.skipped += unwanted;
        }
        items.retain_mut(|item| item.answer != Answer::Done);
        if items.is_empty() {
            return;
        }
        items.iter_mut().for_each(|item| item.answer = Answer::Failed);
        self.call(|store, items, time| store.put(items, time), &mut items, self.timeout);
        let written = items.iter().filter(|item| item.answer == Answer::Done);
        let (mut count, mut bytes) = (0, 0);
        written.for_each(|item| (count, bytes) = (count + 1, bytes + item.bytes.len() as u64));
        let stats = &mut self.queue().stats;
        stats.written += count;
        stats.written_bytes += bytes;
    }
}
