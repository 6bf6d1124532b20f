//! Records that lie behind the end of a bound that became smaller are copied to where there is
//! room; those that find none go.
use super::data::{Buffer, Data};
use super::entries::Entry;
use super::error::Cause;
use super::rows::Rows;
use crate::memory::{Arc, TryGrow};
use crate::tier::Record;
use crate::tier::disk::{read_exactly, write_exactly};
use crate::tier::records::{Changes, Kept, Place, Records};
use crate::tier::space::{Extent, NoSpace, Space, UNIT};

/// The space beside all that is kept. Rows stay in their order.
pub(super) fn relocate(
    rows: &mut Rows,
    records: &Records,
    data: &Data,
    units: u64,
) -> Result<Space, Cause> {
    let mut taken = Vec::new();
    taken.try_extend(rows.extents().map(|extent| inside(extent, units)))?;
    taken.retain(|extent| extent.units > 0);
    let mut space = Space::beside(taken.into_iter(), units)?;
    let mut changes = Changes::default();
    let mut old = Vec::new();
    let mut buffer = Buffer::new()?;
    for (entry, record) in rows.iter() {
        if is_inside(&entry.place, units) {
            continue;
        }
        old.try_extend(entry.place.extents.iter().map(|extent| inside(*extent, units)))?;
        match moved(entry, record, &mut space, data, &mut buffer)? {
            Some(new) => changes.put.try_push(new)?,
            None => changes.removed.try_push(record.key)?,
        }
    }
    if old.is_empty() {
        return Ok(space);
    }
    data.file.sync()?;
    records.commit(&changes)?;
    old.retain(|extent| extent.units > 0);
    space.promise(old.len())?;
    space.give(&old);
    let mut put = changes.put.into_iter().peekable();
    rows.retain(|_, entry, record| {
        if let Some(new) = put.next_if(|new| new.key == record.key) {
            (entry.place, entry.is_promised) = (new.place, true);
        }
        is_inside(&entry.place, units)
    })?;
    Ok(space)
}

fn is_inside(place: &Place, units: u64) -> bool {
    place.extents.iter().all(|extent| extent.end() <= units)
}

/// What of it lies before the end.
fn inside(extent: Extent, units: u64) -> Extent {
    Extent { start: extent.start, units: extent.end().min(units).saturating_sub(extent.start) }
}

/// The record in another place, `None` where there is none or it cannot be copied.
fn moved(
    Entry { place: old, used, .. }: &Entry,
    record: &Record,
    space: &mut Space,
    data: &Data,
    buffer: &mut Buffer,
) -> Result<Option<Kept>, Cause> {
    let extents = match space.take(old.bytes.div_ceil(UNIT)) {
        Ok(extents) => extents,
        Err(NoSpace::OutOfMemory) => return Err(Cause::OutOfMemory),
        Err(_) => return Ok(None),
    };
    let place = Place::new(old.bytes, extents)?;
    for piece in 0..place.pieces() {
        let bytes = place.piece_bytes(piece).next_multiple_of(UNIT as usize);
        let buffer = buffer.bytes(bytes);
        let (mut read, mut written) = (0, 0);
        for (at, bytes) in old.stretches(piece) {
            if read_exactly(&*data.file, &mut buffer[read..read + bytes], at).is_err() {
                space.give(&place.extents);
                return Ok(None);
            }
            read += bytes;
        }
        for (at, bytes) in place.stretches(piece) {
            // On a full disk there may be no block for it: there is room once the file is cut. The
            // file is longer than all that, and need not grow.
            let from = &buffer[written..written + bytes];
            if write_exactly(&*data.file, from, at).is_err() {
                space.give(&place.extents);
                return Ok(None);
            }
            written += bytes;
        }
        place.set_sum(piece, old.sum(piece));
    }
    let mut note = Vec::new();
    note.try_extend_from_slice(&record.note)?;
    let (place, note) = (Arc::new(place)?, note.into_boxed_slice());
    Ok(Some(Kept { key: record.key, place, note, used: *used }))
}
