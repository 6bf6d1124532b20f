//! Instructions that only Hopper has.
use super::{Body, list};

impl Body {
    pub(super) fn hopper(&self, opcode: &str, o: &[String]) -> String {
        let words: Vec<&str> = opcode.split('.').collect();
        let has = |word: &str| words.contains(&word);
        let barrier = |at: usize| self.address(&o[at], "u32");
        match words[0] {
            "setmaxnreg" => String::new(),
            "fence" if has("mbarrier_init") => "barrier_init_fence();".to_owned(),
            "fence" if has("async") => "fence_async_proxy();".to_owned(),
            "mbarrier" if has("init") => {
                format!("barrier_init({}, {});", barrier(0), self.value(&o[1], "s32"))
            }
            "mbarrier" if has("expect_tx") => {
                format!("barrier_arrive_expect({}, {});", barrier(1), self.value(&o[2], "s32"))
            }
            "mbarrier" if has("arrive") => format!("barrier_arrive({});", barrier(1)),
            // It may come back in vain, and here never does.
            "mbarrier" if has("try_wait") && has("parity") => {
                let wait = format!("barrier_wait({}, {});", barrier(1), self.value(&o[2], "s32"));
                wait + &self.set(&o[0], "pred", "true")
            }
            "prefetch" => {
                let map = self.address(&o[0], "u64");
                format!("prefetch_map(reinterpret_cast<const TensorMap *>({map}));")
            }
            "cp" if has("prefetch") && has("tensor") && has("4d") => {
                format!("prefetch_box({});", self.box_at(&o[0]))
            }
            "cp" if has("prefetch") => {
                let (from, bytes) = (self.address(&o[0], "u64"), self.value(&o[1], "s32"));
                format!("prefetch_bytes(reinterpret_cast<const void *>({from}), {bytes});")
            }
            "cp" if has("tensor") && has("4d") => {
                let at = self.box_at(&o[1]);
                let (map, place) = at.split_once(", ").expect("a place");
                format!("copy_box({}, {map}, {}, {place});", barrier(0), barrier(2))
            }
            "wgmma" if has("mma_async") => self.product(&words, o),
            "wgmma" => String::new(),
            _ => panic!("the translator does not know {opcode} {o:?}"),
        }
    }

    /// A map, and where a box of it begins.
    fn box_at(&self, operand: &str) -> String {
        let (map, place) = operand.trim_matches(['[', ']']).split_once(',').expect("a place");
        let place: Vec<_> = list(place.trim()).iter().map(|at| self.value(at, "s32")).collect();
        let map = self.value(map, "u64");
        format!("reinterpret_cast<const TensorMap *>({map}), {}", place.join(", "))
    }

    /// d (+)= left * right by four warps; the left one in shared memory, or in registers, and then
    /// the right one's rows are across the sum.
    fn product(&self, words: &[&str], o: &[String]) -> String {
        let sums = list(&o[0]);
        let columns: usize = words[4].split(['n', 'k']).nth(1).unwrap().parse().unwrap();
        assert_eq!(sums.len(), columns / 2, "{words:?}");
        let format = if words.last() == Some(&"bf16") { "Bf16" } else { "F16" };
        let in_registers = o[1].starts_with('{');
        // Nothing negated; which operands are transposed.
        let rest: Vec<&str> = o[4..].iter().map(String::as_str).collect();
        let expected = if in_registers { &["1", "1", "1"][..] } else { &["1", "1", "0", "0"] };
        assert_eq!(rest, expected, "{words:?}");
        let values: Vec<_> = sums.iter().map(|name| self.value(name, "f32")).collect();
        let sets: String = (0..sums.len())
            .map(|at| self.set(&sums[at], "f32", &format!("d[{}][{}]", at / 4, at % 4)))
            .collect();
        let (right, is_added) = (self.value(&o[2], "u64"), self.value(&o[3], "pred"));
        let multiply = if in_registers {
            let left: Vec<_> = list(&o[1]).iter().map(|name| self.value(name, "b32")).collect();
            // The word always adds.
            format!(
                "const uint32_t left[4] = {{{}}}; if (!({is_added})) abort(); \
                 multiply_registers({format}{{}}, d, left, {right});",
                left.join(", ")
            )
        } else {
            let left = self.value(&o[1], "u64");
            format!("multiply_shared({format}{{}}, d, {left}, {right}, {is_added});")
        };
        format!(
            "{{ float d[{}][4] = {{{}}}; products_begin(); {multiply} products_commit(); \
             products_wait<0>(); {sets} }}",
            sums.len() / 4,
            values.join(", ")
        )
    }
}
