//! Token lists: the caller's array as it is, or a list with items that are not text.
use std::ptr::{null, null_mut};

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::array::{Array, Kind, empty, no_numbers, output};
use crate::c::*;
use crate::handle::{Raw, long};
use crate::pickle::{Remade, by_method};
use crate::space::{Namespace, Space};
use crate::status::{check, check_room};

/// From so many tokens on a call lets other threads run.
pub const LONG: usize = 2048;

/// Who holds the ids: kept, never looked at.
#[allow(dead_code)]
enum Source<'py> {
    /// The caller's array.
    Array(Array),
    /// A copy: of a list, or of 64-bit ids.
    Copy(Vec<u32>),
    Tokens(Bound<'py, Tokens>),
}

/// An argument that is a list of tokens.
pub struct TokenArg<'py> {
    _source: Source<'py>,
    raw: rkv_tokens,
}

fn text(ids: *const u32, count: usize) -> rkv_tokens {
    let ids = if count == 0 { null() } else { ids };
    rkv_tokens { ids, count, ..rkv_tokens::sized() }
}

/// Looks at all ids before it copies any: two loops without a way out, of which each takes several
/// ids at a time.
fn narrow(ids: &[i64], name: &str) -> PyResult<Vec<u32>> {
    let is_token = |id: i64| u32::try_from(id).is_ok();
    if !is_token(ids.iter().fold(0, |bits, id| bits | id)) {
        let id = ids.iter().copied().find(|&id| !is_token(id)).unwrap_or_default();
        return Err(PyOverflowError::new_err(format!("{name}: {id} is no token id")));
    }
    Ok(ids.iter().map(|&id| id as u32).collect())
}

/// The ids of a list of Python's own integers, which is what engines have; nothing for any other,
/// for those who say what is wrong with it. No count of references is touched: without the
/// interpreter's lock, that of the list keeps others from writing it meanwhile.
fn plain(list: &Bound<'_, PyList>) -> Option<Vec<u32>> {
    with_critical_section(list, || ids_of_list(list))
}

fn ids_of_list(list: &Bound<'_, PyList>) -> Option<Vec<u32>> {
    let count = list.len();
    let mut ids = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: the list has so many items and keeps them; what is asked of an integer runs
        // nobody's code.
        let id = unsafe {
            let item = ffi::PyList_GetItem(list.as_ptr(), at as ffi::Py_ssize_t);
            if ffi::PyLong_CheckExact(item) == 0 {
                return None;
            }
            ffi::PyLong_AsLong(item)
        };
        let Ok(id) = u32::try_from(id) else {
            drop(PyErr::take(list.py()));
            return None;
        };
        ids.push(id);
    }
    Some(ids)
}

impl<'py> TokenArg<'py> {
    /// `name` is the argument's, for messages.
    #[inline]
    pub fn of(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        Self::up_to(object, name, usize::MAX, false)
    }

    /// Tokens of many sequences, one after another: of any shape, as a step of decoding has a
    /// column of them.
    pub fn of_many(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        Self::up_to(object, name, usize::MAX, true)
    }

    /// Those from `limit` on need not be there: of 64-bit ids they are not copied.
    fn up_to(
        object: &Bound<'py, PyAny>,
        name: &str,
        limit: usize,
        are_many: bool,
    ) -> PyResult<Self> {
        if let Ok(tokens) = object.cast::<Tokens>() {
            let raw = tokens.get().c();
            return Ok(TokenArg { _source: Source::Tokens(tokens.clone()), raw });
        }
        if let Some(ids) = object.cast::<PyList>().ok().and_then(plain) {
            return Self::copied(ids);
        }
        if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
            let refused = |reason: PyErr| no_numbers(object.py(), name, &reason);
            return Self::copied(object.extract().map_err(refused)?);
        }
        let array = Array::of(object, name, false)?;
        if array.kind != Kind::Integer || !matches!(array.item_size, 4 | 8) {
            let message = format!("{name}: 32-bit integers are needed (64-bit ones are copied)");
            return Err(PyTypeError::new_err(message));
        }
        if !are_many && !array.is_list() {
            // Of a padded batch, all prompts would be one.
            let shape = array.shape();
            let message = format!("{name}: a shape of (tokens,) is needed, not {shape:?}");
            return Err(PyValueError::new_err(message));
        }
        let size = array.item_size;
        let array = array.readable(name)?;
        if size == 8 {
            // SAFETY: the size was checked.
            let ids = unsafe { array.read::<i64>() };
            return Self::copied(narrow(&ids[..limit.min(ids.len())], name)?);
        }
        let raw = text(array.data(), array.count);
        Ok(TokenArg { _source: Source::Array(array), raw })
    }

    /// The same, of text alone: the ids in the places of items mean nothing without those.
    fn of_text(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        let given = Self::of(object, name)?;
        if given.raw.item_count > 0 {
            return Err(PyTypeError::new_err(format!("{name}: text alone is needed")));
        }
        Ok(given)
    }

    /// The first tokens of an argument that may have more, all of them text.
    pub fn head(object: &Bound<'py, PyAny>, name: &str, count: usize) -> PyResult<Self> {
        let mut all = Self::up_to(object, name, count, false)?;
        if all.raw.item_count > 0 {
            return Err(PyTypeError::new_err(format!("{name}: text alone is needed")));
        }
        if all.raw.count < count {
            let message = format!("{name}: {count} are needed, {} are there", all.raw.count);
            return Err(PyValueError::new_err(message));
        }
        all.raw.count = count;
        Ok(all)
    }

    fn copied(ids: Vec<u32>) -> PyResult<Self> {
        let raw = text(ids.as_ptr(), ids.len());
        Ok(TokenArg { _source: Source::Copy(ids), raw })
    }

    #[inline]
    pub fn c(&self) -> *const rkv_tokens {
        &self.raw
    }

    /// The ids, copied once; nothing for a list with items.
    pub fn to_vec(&self) -> Option<Vec<u32>> {
        let (ids, count) = self.ids()?;
        if count == 0 {
            return Some(Vec::new());
        }
        // SAFETY: the argument holds so many ids.
        Some(unsafe { std::slice::from_raw_parts(ids, count) }.to_vec())
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.raw.count
    }

    /// Ids and their number; nothing for a list with items.
    pub fn ids(&self) -> Option<(*const u32, usize)> {
        (self.raw.item_count == 0).then_some((self.raw.ids, self.raw.count))
    }

    #[inline]
    pub fn is_long(&self) -> bool {
        self.raw.count >= LONG
    }
}

/// A token that is not text. Made by `coord()`, `size()` and `image()`.
#[pyclass(frozen, eq, from_py_object, module = "radixkv")]
#[derive(Clone)]
pub struct TokenItem(rkv_token_item);

impl PartialEq for TokenItem {
    fn eq(&self, other: &Self) -> bool {
        let key = |item: &rkv_token_item| {
            (item.token_index, item.kind, item.position_count, item.bin, item.height_bin)
        };
        key(&self.0) == key(&other.0) && self.0.digest == other.0.digest
    }
}

#[pymethods]
impl TokenItem {
    /// A coordinate at a token index; `bin` in [0, 1024).
    #[staticmethod]
    fn coord(index: u64, bin: u32) -> Self {
        let zero = rkv_token_item::zeroed();
        TokenItem(rkv_token_item { token_index: index, kind: RKV_TOKEN_COORD, bin, ..zero })
    }

    /// A size at a token index; both bins in [0, 1024).
    #[staticmethod]
    fn size(index: u64, width_bin: u32, height_bin: u32) -> Self {
        let (bin, zero) = (width_bin, rkv_token_item::zeroed());
        let (token_index, kind) = (index, RKV_TOKEN_SIZE);
        TokenItem(rkv_token_item { token_index, kind, bin, height_bin, ..zero })
    }

    /// An image at a token index that takes so many KV positions; `digest` as `image_digest()`
    /// gives it, 16 bytes.
    #[staticmethod]
    fn image(index: u64, position_count: u32, digest: [u8; 16]) -> Self {
        let (token_index, kind, zero) = (index, RKV_TOKEN_IMAGE, rkv_token_item::zeroed());
        TokenItem(rkv_token_item { token_index, kind, position_count, digest, ..zero })
    }

    /// Index of the token in its list.
    #[getter]
    fn index(&self) -> u64 {
        self.0.token_index
    }

    /// KV positions that it takes.
    #[getter]
    fn position_count(&self) -> u32 {
        self.0.position_count.max(1)
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Remade<'py>> {
        let item = &this.get().0;
        let at = item.token_index;
        match item.kind {
            RKV_TOKEN_COORD => by_method(this, ("coord", at, item.bin), None),
            RKV_TOKEN_SIZE => by_method(this, ("size", at, item.bin, item.height_bin), None),
            _ => {
                let digest = PyBytes::new(this.py(), &item.digest);
                by_method(this, ("image", at, item.position_count, digest), None)
            }
        }
    }

    fn __repr__(&self) -> String {
        let item = &self.0;
        let at = item.token_index;
        match item.kind {
            RKV_TOKEN_COORD => format!("TokenItem.coord({at}, {})", item.bin),
            RKV_TOKEN_SIZE => format!("TokenItem.size({at}, {}, {})", item.bin, item.height_bin),
            _ => format!("TokenItem.image({at}, {}, {:?})", item.position_count, item.digest),
        }
    }
}

/// A token list with tokens that are not text: `items` with ascending indices, and an id for each
/// token (those at the items are not read). All calls that take tokens take it; lists of text alone
/// need none: pass the array. It is a copy.
///
/// Raises TypeError; the calls that take it raise InvalidArgument for what is no token list.
#[pyclass(frozen, module = "radixkv")]
pub struct Tokens {
    ids: Vec<u32>,
    items: Vec<rkv_token_item>,
}

impl Tokens {
    fn c(&self) -> rkv_tokens {
        let mut raw = text(self.ids.as_ptr(), self.ids.len());
        if !self.items.is_empty() {
            raw.item_size = size_of::<rkv_token_item>() as u32;
            (raw.items, raw.item_count) = (self.items.as_ptr(), self.items.len());
        }
        raw
    }
}

fn unboxed(items: Vec<TokenItem>) -> Vec<rkv_token_item> {
    items.into_iter().map(|item| item.0).collect()
}

#[pymethods]
impl Tokens {
    #[new]
    #[pyo3(signature = (ids, items=Vec::new()), text_signature = "(ids, items=())")]
    fn new(ids: &Bound<'_, PyAny>, items: Vec<TokenItem>) -> PyResult<Self> {
        let given = TokenArg::of_text(ids, "ids")?;
        let mut copy = Vec::with_capacity(given.count());
        if given.count() > 0 {
            // SAFETY: the argument holds so many ids.
            copy.extend_from_slice(unsafe {
                std::slice::from_raw_parts(given.raw.ids, given.raw.count)
            });
        }
        Ok(Tokens { ids: copy, items: unboxed(items) })
    }

    /// Puts items between the ids of a prompt: each stands before the prompt id at its index, and
    /// the prompt's length puts it at the end.
    ///
    /// Raises InvalidArgument for indices that do not ascend or lie beyond the prompt.
    #[staticmethod]
    fn build(py: Python<'_>, prompt: &Bound<'_, PyAny>, items: Vec<TokenItem>) -> PyResult<Tokens> {
        let prompt = TokenArg::of_text(prompt, "prompt")?;
        let items = unboxed(items);
        let mut made = items.clone();
        let mut ids = vec![0; prompt.count() + items.len()];
        let mut raw = prompt.raw;
        raw.item_size = size_of::<rkv_token_item>() as u32;
        (raw.items, raw.item_count) = (items.as_ptr(), items.len());
        let mut count = 0;
        // SAFETY: the arrays have the sizes that are stated.
        check(py, unsafe {
            rkv_tokens_build(&raw, ids.as_mut_ptr(), ids.len(), made.as_mut_ptr(), &mut count)
        })?;
        ids.truncate(count);
        Ok(Tokens { ids, items: made })
    }

    /// For pickle and copy.
    fn __getnewargs__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<TokenItem>)> {
        Ok((self.ids(py)?, self.items()))
    }

    fn __len__(&self) -> usize {
        self.ids.len()
    }

    /// The ids, as a new array of uint32.
    #[getter]
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let array = empty(py, self.ids.len(), "u4")?;
        let into = Array::integers(&array, "ids", 4, true)?;
        // SAFETY: an array of just this size that nobody else has.
        unsafe { into.data::<u32>().copy_from(self.ids.as_ptr(), self.ids.len()) };
        Ok(array)
    }

    /// The items, in order.
    #[getter]
    fn items(&self) -> Vec<TokenItem> {
        self.items.iter().map(|item| TokenItem(*item)).collect()
    }

    /// KV positions that all tokens take. Raises InvalidArgument for what is no token list.
    #[getter]
    fn position_count(&self, py: Python<'_>) -> PyResult<usize> {
        let mut count = 0;
        // SAFETY: a list that is kept.
        check(py, unsafe { rkv_tokens_position_count(&self.c(), &mut count) })?;
        Ok(count)
    }

    /// The KV positions [start, end) of each image, ascending: those attend in both directions.
    fn regions(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        let mut found = vec![rkv_region::zeroed(); self.items.len()];
        let mut count = 0;
        // SAFETY: room for every item.
        check(py, unsafe {
            rkv_tokens_regions(&self.c(), found.as_mut_ptr(), found.len(), &mut count)
        })?;
        Ok(found[..count].iter().map(|region| (region.start, region.end)).collect())
    }

    /// Digests of the whole pages of a token list, each over the page and all before it: the same
    /// in every process, and those of the block-hash index. `digests` receives them, a dense array
    /// of uint8 with 32 bytes for each; None asks for their number. `parent` is the 32 bytes of
    /// the page before `first_page`, to go on from.
    ///
    /// Returns the number of whole pages. Raises BufferTooSmall.
    #[staticmethod]
    #[pyo3(signature = (tokens, page_size, digests=None, *, space=None, parent=None, first_page=0))]
    fn page_digests(
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        page_size: u32,
        digests: Option<&Bound<'_, PyAny>>,
        space: Option<&Bound<'_, Namespace>>,
        parent: Option<[u8; 32]>,
        first_page: u64,
    ) -> PyResult<usize> {
        let tokens = TokenArg::of(tokens, "tokens")?;
        let digests = digests.map(|it| Array::integers(it, "digests", 1, true)).transpose()?;
        let (into, room) = output(&digests);
        let (space, parent) = (Space::of(space), parent.map(|bytes| rkv_page_digest { bytes }));
        let args = rkv_tokens_page_digests_args {
            page_size,
            space: space.c(),
            tokens: tokens.c(),
            parent: parent.as_ref().map_or(null(), |parent| parent),
            first_page,
            ..rkv_tokens_page_digests_args::sized()
        };
        let mut count = 0;
        let call = Raw((&args, into.cast(), &raw mut count));
        let status = long(py, tokens.count() >= 64, || {
            let (args, into, count) = call.get();
            // SAFETY: room for room / 32 digests of 32 bytes.
            unsafe { rkv_tokens_page_digests(args, into, room / 32, count) }
        });
        let asked = into.is_null() && status == RKV_STATUS_BUFFER_TOO_SMALL;
        if !asked {
            check_room(py, status, count)?;
        }
        Ok(count)
    }
}

/// Content digest of an image: the first 16 bytes of SHA-256 over its raw bytes. `data` is anything
/// dense with the buffer protocol, of any element type.
#[pyfunction]
pub fn image_digest<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let array = Array::of(data, "data", false)?.on_host("data")?;
    let bytes = array.count * array.item_size;
    let mut digest = [0_u8; 16];
    let call = Raw((array.data::<std::ffi::c_void>(), digest.as_mut_ptr()));
    let status = long(py, bytes >= 1024, || {
        let (from, into) = call.get();
        let from = if bytes == 0 { null_mut() } else { from };
        // SAFETY: the array has so many bytes, a digest 16.
        unsafe { rkv_image_digest(from, bytes, into) }
    });
    check(py, status)?;
    Ok(PyBytes::new(py, &digest))
}
