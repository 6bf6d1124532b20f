//! Records that lie behind the end of a bound that became smaller are copied to where there is
//! room; those that find none go.
use super::data::{Buffer, Data};
use super::error::Cause;
use crate::memory::{Arc, TryGrow};
use crate::tier::disk::{read_exactly, write_exactly};
use crate::tier::records::{Changes, FoundRow, Kept, Place, Records};
use crate::tier::space::{Extent, NoSpace, Space, UNIT, in_order};

/// The space beside all that is kept. Rows stay in their order.
pub(super) fn relocate(
    rows: &mut Vec<FoundRow>,
    records: &Records,
    data: &Data,
    units: u64,
) -> Result<Space, Cause> {
    let mut extents = super::open::extents_of(rows, 0)?;
    in_order(&mut extents, u64::MAX)?;
    let mut taken = Vec::new();
    taken.try_extend(extents.iter().map(|(extent, _)| inside(*extent, units)))?;
    taken.retain(|extent| extent.units > 0);
    drop(extents);
    let mut space = Space::beside(&taken, units)?;
    let mut changes = Changes::default();
    let mut old = Vec::new();
    let mut buffer = Buffer::new()?;
    for row in rows.iter() {
        if row.place.extents.iter().all(|extent| extent.end() <= units) {
            continue;
        }
        old.try_extend(row.place.extents.iter().map(|extent| inside(*extent, units)))?;
        match moved(row, &mut space, data, &mut buffer)? {
            Some(new) => changes.put.try_push(new)?,
            None => changes.removed.try_push(row.key)?,
        }
    }
    if old.is_empty() {
        return Ok(space);
    }
    data.file.sync()?;
    records.commit(&changes)?;
    old.retain(|extent| extent.units > 0);
    space.give(&old);
    let mut put = changes.put.into_iter().peekable();
    rows.retain_mut(|row| {
        if let Some(new) = put.next_if(|new| new.key == row.key) {
            row.place = new.place;
        }
        row.place.extents.iter().all(|extent| extent.end() <= units)
    });
    Ok(space)
}

/// What of it lies before the end.
fn inside(extent: Extent, units: u64) -> Extent {
    Extent { start: extent.start, units: extent.end().min(units).saturating_sub(extent.start) }
}

/// The record in another place, `None` where there is none or it cannot be copied.
fn moved(
    row: &FoundRow,
    space: &mut Space,
    data: &Data,
    buffer: &mut Buffer,
) -> Result<Option<Kept>, Cause> {
    let extents = match space.take(row.place.bytes.div_ceil(UNIT)) {
        Ok(extents) => extents,
        Err(NoSpace::Full) => return Ok(None),
        Err(NoSpace::OutOfMemory) => return Err(Cause::OutOfMemory),
    };
    let place = Place::new(row.place.bytes, extents)?;
    for piece in 0..place.pieces() {
        let bytes = place.piece_bytes(piece).next_multiple_of(UNIT as usize);
        let buffer = buffer.bytes(bytes);
        let (mut read, mut written) = (0, 0);
        for (at, bytes) in row.place.stretches(piece) {
            if read_exactly(&*data.file, &mut buffer[read..read + bytes], at).is_err() {
                space.give(&place.extents);
                return Ok(None);
            }
            read += bytes;
        }
        for (at, bytes) in place.stretches(piece) {
            data.grow(at + bytes as u64)?;
            write_exactly(&*data.file, &buffer[written..written + bytes], at)?;
            written += bytes;
        }
        place.set_sum(piece, row.place.sum(piece));
    }
    let mut note = Vec::new();
    note.try_extend_from_slice(&row.note)?;
    let (place, note) = (Arc::new(place)?, note.into_boxed_slice());
    Ok(Some(Kept { key: row.key, place, note, used: row.used }))
}
