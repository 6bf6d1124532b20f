//! The driver's page table operations.
use super::abi::Status;
use super::driver::{Driver, agree, pick};
use super::naive::{Page, Wrong, require};
use super::ops::{Op, Pick};
use super::prompt::Prompt;

impl Driver {
    pub fn apply_to_table(&mut self, op: &Op) -> Result<(), Wrong> {
        match op {
            Op::AllocateSlot => self.allocate_slot(),
            Op::Erase { slot } => self.erase(*slot),
            Op::AllocatePages { count } => self.allocate(*count as usize).map(|_| ()),
            Op::FreePages { first, count } => self.free_some(*first, *count as usize),
            Op::FreeAny { pages } => {
                let count = self.model.config.page_count as u32 + 1;
                self.free(&pages.map(|page| u32::from(page) % count))
            }
            Op::Map { row, first, count } => self.map_loose(*row, *first, *count as usize),
            Op::MapAny { slot, index, page } => self.map_any(*slot, *index, *page),
            Op::MapMatch { row, ns, prompt } => self.map_match(*row, *ns, prompt),
            Op::Reserve { slot, positions } => self.reserve(*slot, *positions as usize),
            Op::CanReserve { slot, positions } => self.can_reserve(*slot, *positions as usize),
            Op::ReadRows { first, count, seed } => self.read_rows(*first, *count, *seed),
            other => unreachable!("{other:?} is not about the page table"),
        }
    }

    /// Slots that no sequence owns.
    pub fn own_slots(&self) -> Vec<u32> {
        self.slots(|owned| !owned)
    }

    fn slots(&self, wanted: impl Fn(bool) -> bool) -> Vec<u32> {
        let rows = self.model.rows.iter().enumerate();
        rows.filter(|(_, row)| row.as_ref().is_some_and(|row| wanted(row.owned)))
            .map(|(slot, _)| slot as u32)
            .collect()
    }

    /// Slots in use, one that is not, and one out of range.
    fn any_slot(&self, at: Pick) -> u32 {
        let mut slots = self.slots(|_| true);
        slots.extend(self.model.rows.iter().position(Option::is_none).map(|slot| slot as u32));
        slots.push(self.model.rows.len() as u32);
        pick(&slots, at).expect("there is one at least")
    }

    fn allocate_slot(&mut self) -> Result<(), Wrong> {
        let allocated = self.library.allocate_slot();
        let can = self.model.can_allocate_slot();
        match agree("rkv_page_table_allocate_slot", allocated, can)? {
            Some((slot, ())) => self.model.allocate_slot(slot, false),
            None => Ok(()),
        }
    }

    fn erase(&mut self, at: Pick) -> Result<(), Wrong> {
        let slot = self.any_slot(at);
        let erased = self.library.erase(slot);
        if agree("rkv_page_table_free_slot", erased, self.model.erase(slot))?.is_some() {
            for lock in self.row_locks.remove(&slot).unwrap_or_default() {
                self.unlock(lock)?;
            }
        }
        Ok(())
    }

    fn free_some(&mut self, first: Pick, count: usize) -> Result<(), Wrong> {
        let loose = self.loose();
        let first = first as usize % loose.len().max(1);
        let pages: Vec<u32> = loose.into_iter().skip(first).take(count).collect();
        self.free(&pages)
    }

    fn map(&mut self, slot: u32, first: usize, pages: &[u32]) -> Result<bool, Wrong> {
        let mapped = self.library.map(slot, first, pages);
        let mapped = agree("rkv_page_table_map", mapped, self.model.map(slot, first, pages))?;
        Ok(mapped.is_some())
    }

    fn map_loose(&mut self, row: Pick, first: Pick, count: usize) -> Result<(), Wrong> {
        let Some(slot) = pick(&self.own_slots(), row) else { return Ok(()) };
        let loose = self.loose();
        let first = first as usize % loose.len().max(1);
        let pages: Vec<u32> = loose.into_iter().skip(first).take(count).collect();
        let length = self.model.row(slot).expect("it is in use").pages.len();
        self.map(slot, length, &pages)?;
        Ok(())
    }

    fn map_any(&mut self, slot: u16, index: u16, page: u16) -> Result<(), Wrong> {
        let slot = self.any_slot(slot);
        let page = u32::from(page) % (self.model.config.page_count as u32 + 1);
        if self.model.pages.get(page as usize) == Some(&Page::Cached) {
            return Ok(()); // Without a lock it may be evicted from under the row.
        }
        let length = self.model.row(slot).map_or(0, |row| row.pages.len());
        let first = if index == 0 { length } else { index as usize - 1 };
        self.map(slot, first, &[page])?;
        Ok(())
    }

    fn map_match(&mut self, row: Pick, ns: u8, prompt: &Prompt) -> Result<(), Wrong> {
        let Some(slot) = pick(&self.own_slots(), row) else { return Ok(()) };
        let (pages, locked) = self.lookup_unowned(ns, prompt, true)?;
        let Some(lock) = locked else { return Ok(()) };
        let length = self.model.row(slot).expect("it is in use").pages.len();
        if self.map(slot, length, &pages)? {
            self.row_locks.entry(slot).or_default().push(lock);
            return Ok(());
        }
        self.unlock(lock)
    }

    fn reserve(&mut self, at: Pick, positions: usize) -> Result<(), Wrong> {
        let slot = self.any_slot(at);
        let reserved = self.library.reserve(slot, positions);
        let plan = self.model.reserve_plan(slot, positions);
        let Some(((), lacking)) = agree("rkv_page_table_reserve", reserved, plan)? else {
            return Ok(());
        };
        let chosen = self.new_pages(slot, lacking)?;
        self.model.grow(slot, &chosen)
    }

    fn can_reserve(&mut self, at: Pick, positions: usize) -> Result<(), Wrong> {
        let slot = (!at.is_multiple_of(3)).then(|| self.any_slot(at / 3));
        let can = self.library.can_reserve(slot, positions);
        let ours = self.model.can_reserve(slot, positions);
        if let Some((can, ours)) = agree("rkv_page_table_can_reserve", can, ours)? {
            require!(can == ours, "can_reserve is {can} for {positions} positions of {slot:?}");
        }
        Ok(())
    }

    fn read_rows(&mut self, first: Pick, count: u16, seed: u16) -> Result<(), Wrong> {
        let mut batch = Vec::new();
        for at in 0..count {
            let slot = self.any_slot(first.wrapping_add(at));
            let capacity = self.read_row(slot, seed as usize)?;
            if let Some(capacity) = capacity {
                batch.push((slot, seed.wrapping_mul(at + 1) as usize % (capacity + 1)));
            }
        }
        self.read_batch(&batch)
    }

    /// Reads a row in every way. Returns its capacity when it is in use.
    fn read_row(&mut self, slot: u32, seed: usize) -> Result<Option<usize>, Wrong> {
        let page_size = self.model.config.page_size;
        let row = self.model.row(slot).map_err(Into::into);
        let capacity = self.library.capacity(slot);
        let Some((capacity, row)) = agree("rkv_page_table_row_capacity", capacity, row)? else {
            let answers = (self.library.row(slot, 0), self.library.slot_mapping(slot, &[]));
            let refused = (Err(Status::InvalidArgument), Err(Status::InvalidArgument));
            require!(answers == refused, "the unused slot {slot} is read: {answers:?}");
            return Ok(None);
        };
        let pages = &row.pages;
        require!(capacity == pages.len() * page_size, "row {slot} has room for {capacity}");
        let first = seed % (pages.len() + 1);
        let rest = self.library.row(slot, first);
        require!(rest.as_deref() == Ok(&pages[first..]), "row {slot} from {first} is {rest:?}");
        let beyond = self.library.row(slot, pages.len() + 1);
        require!(beyond == Err(Status::InvalidArgument), "row {slot} beyond its end: {beyond:?}");
        let place = |position: &u64| {
            let page = pages[*position as usize / page_size] as usize;
            (page * page_size + *position as usize % page_size) as i64
        };
        let positions: Vec<u64> =
            (0..capacity.min(9)).map(|at| ((at * 7 + seed) % capacity) as u64).collect();
        let mapping = self.library.slot_mapping(slot, &positions);
        let ours: Vec<i64> = positions.iter().map(place).collect();
        require!(mapping.as_ref() == Ok(&ours), "slot mapping {mapping:?}, in the model {ours:?}");
        let beyond = self.library.slot_mapping(slot, &[capacity as u64]);
        let refused = beyond == Err(Status::InvalidArgument);
        require!(refused, "the slot mapping of a position beyond row {slot} is {beyond:?}");
        Ok(Some(capacity))
    }

    fn read_batch(&mut self, batch: &[(u32, usize)]) -> Result<(), Wrong> {
        let page_size = self.model.config.page_size;
        let (mut indptr, mut indices, mut last) = (vec![0], Vec::new(), Vec::new());
        for &(slot, positions) in batch {
            let pages = &self.model.row(slot).expect("it is in use").pages;
            let used = &pages[..positions.div_ceil(page_size)];
            indices.extend(used.iter().map(|&page| page as i32));
            indptr.push(indices.len() as i32);
            last.push(if positions == 0 { 0 } else { ((positions - 1) % page_size) as i32 + 1 });
        }
        let room = indices.len();
        let ours = [indptr, indices, last];
        let arrays = self.library.batch(batch, room);
        require!(arrays.as_ref() == Ok(&ours), "batch of {batch:?} is {arrays:?}, not {ours:?}");
        if room > 0 {
            let small = self.library.batch(batch, room - 1);
            require!(small == Err(Status::BufferTooSmall), "batch into too little room: {small:?}");
        }
        if let Some(&(slot, _)) = batch.first() {
            let capacity = self.model.row(slot).expect("it is in use").pages.len() * page_size;
            let beyond = self.library.batch(&[(slot, capacity + 1)], capacity + 1);
            let refused = beyond == Err(Status::InvalidArgument);
            require!(refused, "a batch beyond row {slot} is {beyond:?}");
        }
        Ok(())
    }
}
