//! Work that is divided alike whatever else there is.
use super::*;

#[test]
fn results_of_a_row_do_not_depend_on_others_when_asked() {
    let mut fixed = machine(8, 4);
    fixed.batch_invariant = true;
    let row = |number: usize| (5000, 3, own(number, 5003));
    let cuts = |batch: &Batch| -> BTreeSet<usize> {
        let work = divide(batch, &fixed);
        let of_first = work.items.iter().filter(|item| item.pages_of == 0);
        of_first.map(|item| item.key_begin).collect()
    };
    let alone = cuts(&batch(1, &[row(0)]));
    assert_eq!(cuts(&batch(1, &[row(0), row(1), (0, 700, own(2, 700))])), alone);
}

/// A piece that only queries before it see would move the others: sums are made by place.
#[test]
fn what_a_query_merges_does_not_depend_on_how_its_row_is_cut_when_asked() {
    let mut fixed = Machine { cascade: false, ..machine(2, 2) };
    fixed.batch_invariant = true;
    fixed.view.window = Some(4096);
    // The pieces that are merged for position 6160, in their order.
    let merged = |start: usize| -> Vec<usize> {
        let work = divide(&batch(16, &[(start, 6200 - start, own(0, 388))]), &fixed);
        let mut pieces = BTreeMap::new();
        for item in &work.items {
            let first = item.partial_begin.unwrap();
            for partial in first..first + item.row_count.div_ceil(fixed.group) {
                pieces.insert(partial, item.key_begin / 2048);
            }
        }
        let at = work.merged.iter().position(|&query| start + query as usize == 6160).unwrap();
        let range = work.merge_indptr[at] as usize..work.merge_indptr[at + 1] as usize;
        work.partials[range].iter().map(|&partial| pieces[&(partial as usize)]).collect()
    };
    assert_eq!(merged(6150), [1, 2, 3]);
    assert_eq!(merged(6140), [1, 2, 3]); // [0, 1, 2, 3] without the mend
    assert_eq!(merged(6160), [1, 2, 3]);
}
