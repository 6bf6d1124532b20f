//! What of the store is where, in a file of redb's: read when the store is opened, changed by one
//! transaction per batch.
mod backend;
mod place;

pub(crate) use place::{PIECE, Place, piece_sum};

use super::Key;
use super::disk::{Disk, DiskFile, Open};
use super::processors::{beside, processors, side_by_side};
use crate::memory::{Arc, OutOfMemory, TryGrow, grow_allocator};
use backend::Backend;
use redb::TableDefinition;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata};
use std::io;
use std::ops::{Bound, Deref};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const NAME: &str = "records.redb";
const NEW: &str = "records.new";
/// Of pages of the file, in memory.
const CACHE_BYTES: usize = 32 << 20;
/// Parts of the rows for each processor that reads them: one may be slower than another.
const PARTS: usize = 4;
/// Rows whose small blocks of memory are taken from the system together.
const BLOCKS: usize = 256;

const PLACES: TableDefinition<&Key, &[u8]> = TableDefinition::new("places");
/// When a record was used last, as a count of uses. Apart, so that using one rewrites little.
const USES: TableDefinition<&Key, u64> = TableDefinition::new("uses");

/// Why the records cannot be used.
#[derive(Debug)]
pub(crate) enum RecordsError {
    /// The file is not what was written.
    Damaged(String),
    Io(io::Error),
    OutOfMemory,
    /// A row that is there is not where its key leads to: it can't be removed.
    Misplaced,
}

impl From<OutOfMemory> for RecordsError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl<E: Into<redb::Error>> From<E> for RecordsError {
    fn from(error: E) -> Self {
        match error.into() {
            // What redb says of a file that ends too early, or of another one.
            redb::Error::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
                ) =>
            {
                Self::Damaged(error.to_string())
            }
            redb::Error::Io(error) => Self::Io(error),
            error => Self::Damaged(error.to_string()),
        }
    }
}

/// redb trusts what it reads of a file that was closed in order, and panics at what cannot be.
fn caught<T>(work: impl FnOnce() -> Result<T, RecordsError>) -> Result<T, RecordsError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(RecordsError::Damaged(text.unwrap_or("it makes no sense").to_owned()))
    })
}

/// A row that is written.
pub(crate) struct Kept {
    pub key: Key,
    pub place: Arc<Place>,
    pub note: Box<[u8]>,
    pub used: u64,
}

/// A row that was read.
pub(crate) struct Row<'a> {
    pub key: Key,
    pub place: Place,
    pub note: &'a [u8],
    pub used: u64,
}

/// What one transaction changes.
#[derive(Default)]
pub(crate) struct Changes {
    pub put: Vec<Kept>,
    pub removed: Vec<Key>,
    pub used: Vec<(Key, u64)>,
    /// All that is removed is there for sure.
    pub are_there: bool,
}

pub(crate) struct Records {
    rows: Rows,
    file: Arc<Box<dyn DiskFile>>,
    /// The same as in the backend.
    is_left: Arc<AtomicBool>,
}

/// redb writes once more when it is dropped, and then too it may panic at what it reads.
struct Rows(Option<Database>);

impl Deref for Rows {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().expect("it is there until this is dropped")
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        let rows = self.0.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(rows)));
    }
}

impl Records {
    /// Opens the file, or makes an empty one. It has its name once it is whole.
    pub fn open(disk: &dyn Disk) -> Result<Self, RecordsError> {
        if disk.exists(NAME).map_err(RecordsError::Io)? {
            return Self::open_as(disk, NAME, false);
        }
        disk.remove(NEW).map_err(RecordsError::Io)?;
        let new = Self::open_as(disk, NEW, true)?;
        new.commit(&Changes::default())?;
        drop(new);
        disk.rename(NEW, NAME).map_err(RecordsError::Io)?;
        disk.sync_names().map_err(RecordsError::Io)?;
        Self::open_as(disk, NAME, false)
    }

    /// Nothing more is written to the file, not even when this is dropped: it may be another one's.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Whether there is a file.
    pub fn exist(disk: &dyn Disk) -> io::Result<bool> {
        disk.exists(NAME)
    }

    fn open_as(disk: &dyn Disk, name: &str, create: bool) -> Result<Self, RecordsError> {
        let file = disk.open(name, Open { create, direct: false }).map_err(RecordsError::Io)?;
        if !create && file.length().map_err(RecordsError::Io)? == 0 {
            return Err(RecordsError::Damaged("the file is empty".to_owned()));
        }
        caught(|| {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE_BYTES);
            let file = Arc::new(file)?;
            let is_left = Arc::new(AtomicBool::new(false))?;
            let backend = Backend { file: file.clone(), is_left: is_left.clone() };
            let rows = builder.create_with_backend(backend)?;
            Ok(Self { rows: Rows(Some(rows)), file, is_left })
        })
    }

    /// Reads all rows, parts of the file side by side, and returns what `add` makes of each part.
    /// Parts, and rows in them, come in the order of their keys, unless the file is damaged; the
    /// keys of rows that make no sense are added to `damaged`.
    pub fn load<T: Default + Send>(
        &self,
        damaged: &mut Vec<Key>,
        add: impl Fn(&mut T, Row<'_>) -> Result<(), OutOfMemory> + Sync,
    ) -> Result<Vec<T>, RecordsError> {
        let mut bounds = caught(|| self.bounds())?.into_iter();
        let parts = bounds.len().saturating_sub(1);
        let mut from = bounds.next().unwrap_or_default();
        let ranges = (0..parts).map(|part| {
            let to = bounds.next().unwrap_or_default();
            (std::mem::replace(&mut from, to), to, part + 1 == parts)
        });
        let is_large = ranges.len() > 1;
        let read = || side_by_side(ranges, |range| caught(|| self.read_range(range, &add)));
        // Whoever reads rows waits for the disk less then.
        let read = beside(is_large, || is_large.then(|| self.file.read_ahead()), read).1?;
        let mut made = Vec::new();
        made.try_reserve_exact(read.len()).map_err(OutOfMemory::from)?;
        for part in read {
            let (rows, bad) = part?;
            damaged.try_extend_from_slice(&bad)?;
            made.push(rows);
        }
        Ok(made)
    }

    /// Where the parts of the file end that are read side by side: some keys, in order, of which
    /// the first and the last are those of the table.
    fn bounds(&self) -> Result<Vec<Key>, RecordsError> {
        let places = self.rows.begin_read()?.open_table(PLACES)?;
        let mut bounds = Vec::new();
        let (Some(first), Some(last)) = (places.first()?, places.last()?) else {
            return Ok(bounds);
        };
        let (first, last) = (*first.0.value(), *last.0.value());
        let count = match processors(usize::try_from(places.len()?).unwrap_or(usize::MAX)) {
            1 => 1,
            more => (more * PARTS) as u64,
        };
        let word = |key: &Key| u64::from_be_bytes(*key.first_chunk().expect("eight bytes"));
        let step = (word(&last) - word(&first)) / count;
        bounds.try_push(first)?;
        for part in 1..count {
            let mut bound = Key::default();
            bound[..8].copy_from_slice(&(word(&first) + part * step).to_be_bytes());
            bounds.try_push(bound.max(first))?;
        }
        bounds.try_push(last)?;
        Ok(bounds)
    }

    /// Reads the rows from a key to another one, which is one of them at the end of the table
    /// alone. Returns what was made of them, and the keys of those that make no sense.
    fn read_range<T: Default>(
        &self,
        (from, to, is_last): (Key, Key, bool),
        add: &impl Fn(&mut T, Row<'_>) -> Result<(), OutOfMemory>,
    ) -> Result<(T, Vec<Key>), RecordsError> {
        let read = self.rows.begin_read()?;
        let (places, uses) = (read.open_table(PLACES)?, read.open_table(USES)?);
        let end = if is_last { Bound::Included(&to) } else { Bound::Excluded(&to) };
        let range = (Bound::Included(&from), end);
        let mut uses = uses.range::<&Key>(range)?.peekable();
        let (mut rows, mut damaged) = (T::default(), Vec::new());
        for (number, row) in places.range::<&Key>(range)?.enumerate() {
            if number % BLOCKS == 0 {
                grow_allocator();
            }
            let (key, value) = row?;
            let key = *key.value();
            // Both tables are in the order of the keys.
            let mut used = 0;
            while let Some(use_row) = uses.peek() {
                let found = match use_row {
                    Ok((other, count)) if *other.value() <= key => {
                        (*other.value() == key).then(|| count.value())
                    }
                    Ok(_) => break,
                    Err(_) => None,
                };
                uses.next().transpose()?;
                if let Some(count) = found {
                    used = count;
                    break;
                }
            }
            match place::decode(&key, value.value())? {
                None => damaged.try_push(key)?,
                Some((place, note)) => add(&mut rows, Row { key, place, note, used })?,
            }
        }
        Ok((rows, damaged))
    }

    /// Changes the file. On return it is there after a crash, or it is unknown which of both states
    /// is, and the file must be opened again.
    pub fn commit(&self, changes: &Changes) -> Result<(), RecordsError> {
        caught(|| self.write(changes))
    }

    fn write(&self, changes: &Changes) -> Result<(), RecordsError> {
        let mut write = self.rows.begin_write()?;
        write.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
        // Without this, opening it after a crash takes as long as reading all of it.
        write.set_quick_repair(true);
        {
            let (mut places, mut uses) = (write.open_table(PLACES)?, write.open_table(USES)?);
            let mut row = Vec::new();
            for kept in &changes.put {
                place::encode(&mut row, &kept.key, &kept.place, &kept.note)?;
                places.insert(&kept.key, row.as_slice())?;
                uses.insert(&kept.key, kept.used)?;
            }
            for key in &changes.removed {
                let was_there = places.remove(key)?.is_some();
                if changes.are_there && !was_there {
                    return Err(RecordsError::Misplaced);
                }
                uses.remove(key)?;
            }
            for (key, used) in &changes.used {
                uses.insert(key, used)?;
            }
        }
        Ok(write.commit()?)
    }
}
