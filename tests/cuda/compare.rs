//! How far a result of the tensor cores may be from the exact one.
//!
//! Three roundings: weights to the queries' format before they are multiplied with the values, the
//! result to its format, and logits in f32. The first moves a mean of values by at most half a unit
//! in the last place of the weights, times the mean of the values' sizes; the weights' sum is taken
//! before rounding.
use super::numbers::rounding;
use radixkv::attention::Dtype;
use radixkv::attention::reference::Problem;

/// Units of 2^-24 by which a logit may err, relative to the sum of its products' sizes; the fast
/// exponential adds two.
const UNITS: f64 = 16.0;

/// Compares the results of one row; Err says what differs. Written so that NaN fails.
pub fn check_step(
    problem: &Problem<'_>,
    out: &[f32],
    lse: &[f32],
    dtype: Dtype,
) -> Result<(), String> {
    let (head_dim, v_head_dim) = (problem.geometry.head_dim, problem.geometry.v_head_dim);
    let (query_heads, kv_heads) = (problem.geometry.query_heads, problem.geometry.kv_heads);
    // Behind the values their sizes, whose means have the same weights.
    let with_sizes = |v: &[f64]| [v.to_vec(), v.iter().map(|v| v.abs()).collect()].concat();
    let v: Vec<f64> = problem.v.chunks_exact(v_head_dim).flat_map(with_sizes).collect();
    let mut geometry = problem.geometry;
    geometry.v_head_dim = 2 * v_head_dim;
    let exact = Problem { v: &v, geometry, ..*problem }.attend();
    let largest = problem.v.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    for (index, q) in problem.q.chunks_exact(head_dim).enumerate() {
        let (query, head) = (index / query_heads, index % query_heads);
        let keys = problem.k.chunks_exact(head_dim).skip(head / (query_heads / kv_heads));
        let products = |k: &[f64]| q.iter().zip(k).map(|(q, k)| (q * k).abs()).sum::<f64>();
        let logit = keys.step_by(kv_heads).map(products).fold(0.0, f64::max)
            * f64::from(problem.params.scale);
        let error = UNITS * 0.5f64.powi(24) * (1.0 + logit);
        let (values, spread) =
            exact.out[index * 2 * v_head_dim..][..2 * v_head_dim].split_at(v_head_dim);
        for (d, &found) in out[index * v_head_dim..][..v_head_dim].iter().enumerate() {
            let value = values[d];
            let tolerance =
                rounding(dtype) * 1.02 * (spread[d] + value.abs()) + 2.0 * error * largest + 1e-7;
            if (f64::from(found) - value).abs() <= tolerance {
                continue;
            }
            return Err(format!(
                "query {query}, head {head}, element {d}: {found} instead of {value}, \
                 {tolerance:e} allowed"
            ));
        }
        let tolerance = error + rounding(Dtype::F32) * 4.0 * exact.lse[index].abs();
        let near = (f64::from(lse[index]) - exact.lse[index]).abs() <= tolerance;
        if !near && f64::from(lse[index]) != exact.lse[index] {
            return Err(format!(
                "query {query}, head {head}: lse {} instead of {}, {tolerance:e} allowed",
                lse[index], exact.lse[index]
            ));
        }
    }
    Ok(())
}
