//! The file that says what the others are: read first, written before there are others.
use super::Contents;
use super::error::{Cause, FORMAT};
use crate::tier::disk::{Disk, Open, read_exactly, write_exactly};
use std::fmt::Write;

pub(super) const NAME: &str = "format";
const NEW: &str = "format.new";
const TITLE: &str = "radixkv store";

/// A store's, as the file says it.
pub(super) type Whose<'a> = (Contents, &'a [u8; 32]);

fn word(contents: Contents) -> &'static str {
    match contents {
        Contents::Snapshots => "snapshots",
        Contents::Pages => "pages",
    }
}

fn text((contents, fingerprint): Whose<'_>) -> String {
    let contents = word(contents);
    let mut text = format!("{TITLE}\nversion {FORMAT}\ncontents {contents}\nfingerprint ");
    for byte in fingerprint {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    text
}

/// Whether the file is that of a store, of whatever version; None when there is none.
pub(super) fn is_ours(disk: &dyn Disk) -> Result<Option<bool>, Cause> {
    if !disk.exists(NAME)? {
        return Ok(None);
    }
    let file = disk.open(NAME, Open::default())?;
    let mut title = [0; TITLE.len()];
    if file.length()? < title.len() as u64 {
        return Ok(Some(false));
    }
    read_exactly(&*file, &mut title, 0)?;
    Ok(Some(title == *TITLE.as_bytes()))
}

/// Refuses what another version, another kind of cache or another model wrote. Returns whether the
/// file is there.
pub(super) fn check(disk: &dyn Disk, whose: Whose<'_>) -> Result<bool, Cause> {
    if !disk.exists(NAME)? {
        return Ok(false);
    }
    let file = disk.open(NAME, Open::default())?;
    let wrong = || Cause::Damaged("the file `format` is not that of a store".to_owned());
    let length = file.length()?;
    let mut bytes = [0; 512];
    let bytes = bytes.get_mut(..length as usize).ok_or_else(wrong)?;
    read_exactly(&*file, bytes, 0)?;
    let found = str::from_utf8(bytes).map_err(|_| wrong())?;
    let rest = found.strip_prefix(TITLE).and_then(|rest| rest.strip_prefix("\nversion "));
    let (version, rest) = rest.and_then(|rest| rest.split_once('\n')).ok_or_else(wrong)?;
    let version: u32 = version.parse().map_err(|_| wrong())?;
    if version != FORMAT {
        return Err(Cause::Version(version));
    }
    let (contents, rest) = rest.split_once('\n').ok_or_else(wrong)?;
    let contents = contents.strip_prefix("contents ").ok_or_else(wrong)?;
    let digits = rest.strip_prefix("fingerprint ").and_then(|rest| rest.strip_suffix('\n'));
    let digits = digits.filter(|digits| digits.len() == 64).ok_or_else(wrong)?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let kinds = [Contents::Snapshots, Contents::Pages];
    let of = kinds.into_iter().find(|&of| word(of) == contents).ok_or_else(wrong)?;
    if of != whose.0 {
        return Err(Cause::Contents(word(of)));
    }
    if found == text(whose) { Ok(true) } else { Err(Cause::Fingerprint) }
}

/// Writes it. It has its name once it is whole.
pub(super) fn write(disk: &dyn Disk, whose: Whose<'_>) -> Result<(), Cause> {
    let file = disk.open(NEW, Open { create: true, direct: false })?;
    file.set_length(0)?;
    write_exactly(&*file, text(whose).as_bytes(), 0)?;
    file.sync()?;
    disk.rename(NEW, NAME)?;
    Ok(disk.sync_names()?)
}
