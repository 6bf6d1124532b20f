//! Whether what is timed is right: results beside attention in f64, and of one run beside another.
use crate::calls::Calls;
use crate::device::Memory;
use half::bf16;
use radixkv::attention::reference::Problem;
use radixkv::attention::{Dtype, Geometry, KvStrides, Params, e4m3_to_f32};

/// Keys of a query that is looked at, at most: of more the definition takes too long.
const KEYS: usize = 40_000;
/// Memory up to which all of it is read.
const WHOLE_BYTES: usize = 128 << 20;
/// How far results may be from those in f64, all of a KV head's together: weights and results are
/// rounded to bf16.
const TOLERANCE: f64 = 0.01;

/// Err says what is wrong; otherwise how far results are from those in f64.
pub fn check(calls: &Calls<'_>) -> Result<f64, String> {
    let out = &calls.inputs[0].out;
    let results = [0, 1].map(|_| {
        out.poison();
        calls.attend();
        // Without the room that a graph has besides.
        let of_query = calls.shape.query_heads * calls.shape.heads.v_head_dim * 2;
        out.bytes(0..calls.batch().query_count() * of_query)
    });
    if results[0] != results[1] {
        return Err("two runs differ".to_owned());
    }
    let (rows, shape) = (calls.batch().rows(), calls.shape);
    // The first query of the first row, the last one of the last row; heads at both ends.
    let last = (rows.len() - 1, shape.queries - 1, shape.kv_heads - 1);
    let mut most = 0f64;
    for (row, query, head) in [(0, 0, 0), last] {
        if rows[row].start + query < KEYS {
            most = most.max(error(calls, &results[0], (row, query, head)));
        }
    }
    // NaN is no error below the tolerance.
    match most < TOLERANCE && !most.is_nan() {
        true => Ok(most),
        false => Err(format!("off by {most:e}")),
    }
}

/// Of the query heads of a KV head, relative to what they should be.
fn error(calls: &Calls<'_>, results: &[u8], (row, query, head): (usize, usize, usize)) -> f64 {
    let (shape, batch, inputs) = (calls.shape, calls.batch(), &calls.inputs[0]);
    let (heads, group) = (shape.heads, shape.query_heads / shape.kv_heads);
    let start = batch.rows()[row].start + query;
    let number = row * shape.queries + query;
    let of_group = |dim: usize| {
        let first = (number * shape.query_heads + head * group) * dim;
        2 * first..2 * (first + group * dim)
    };
    let gather = |memory: &Memory, strides: KvStrides, dim: usize| -> Vec<f64> {
        let (size, page_size) = (calls.kv_dtype.bytes(), batch.page_size());
        // Rather all of it at once than very many pieces.
        let whole = (memory.len() <= WHOLE_BYTES).then(|| memory.bytes(0..memory.len()));
        let mut numbers = Vec::new();
        for (at, &page) in batch.pages_of(&batch.rows()[row]).iter().enumerate() {
            let first = page as usize * strides.page;
            let range = first * size..(first + strides.page) * size;
            let bytes = match &whole {
                Some(all) => all[range].to_vec(),
                None => memory.bytes(range),
            };
            for position in 0..page_size.min((start + 1).saturating_sub(at * page_size)) {
                let first = position * strides.position + head * strides.head;
                let bytes = &bytes[first * size..(first + dim) * size];
                numbers.extend(decode(bytes, calls.kv_dtype));
            }
        }
        numbers
    };
    let q = decode(&inputs.q.bytes(of_group(heads.head_dim)), Dtype::Bf16);
    let k = gather(&inputs.k_pages, calls.strides, heads.head_dim);
    let v = match heads.latent {
        true => gather(&inputs.k_pages, calls.strides, heads.v_head_dim),
        false => gather(&inputs.v_pages, calls.v_strides, heads.v_head_dim),
    };
    let geometry = Geometry { query_heads: group, kv_heads: 1, ..shape.geometry(1) };
    let params = Params::new(heads.head_dim);
    let expected = Problem {
        geometry,
        params,
        sinks: None,
        start,
        q: &q,
        k: &k,
        v: &v,
        regions: &[],
        tree: &[],
    }
    .attend();
    let found = decode(&results[of_group(heads.v_head_dim)], Dtype::Bf16);
    let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
    let off = square(&mut found.iter().zip(&expected.out).map(|(x, y)| x - y));
    (off / square(&mut expected.out.iter().copied())).sqrt()
}

fn decode(bytes: &[u8], dtype: Dtype) -> Vec<f64> {
    let number = |bytes: &[u8]| match dtype {
        Dtype::Fp8E4m3 => e4m3_to_f32(bytes[0]),
        _ => bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32(),
    };
    bytes.chunks_exact(dtype.bytes()).map(|bytes| f64::from(number(bytes))).collect()
}
