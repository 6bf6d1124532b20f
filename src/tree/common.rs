//! How far two lists of keys are the same: what every match comes down to.

/// Keys that two lists have in common at the start.
///
/// One comparison of everything decides the usual case, a segment that matches whole, at the speed
/// of memcmp; only a difference is searched for, in ever smaller blocks.
#[inline]
pub(crate) fn common_start(left: &[u32], right: &[u32]) -> usize {
    let len = left.len().min(right.len());
    let (left, right) = (&left[..len], &right[..len]);
    if left == right {
        return len;
    }
    let mut at = 0;
    for block in [1024, 64] {
        while at + block <= len && left[at..at + block] == right[at..at + block] {
            at += block;
        }
    }
    let rest = left[at..].iter().zip(&right[at..]).take_while(|(left, right)| left == right);
    at + rest.count()
}
