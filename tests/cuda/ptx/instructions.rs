//! Instructions of every GPU, and what memory they load and store.
use super::{Body, list, value_type};

impl Body {
    /// One in C++.
    pub(super) fn instruction(&self, opcode: &str, o: &[String]) -> String {
        let words: Vec<&str> = opcode.split('.').collect();
        let ty = *words.last().unwrap();
        let is_float = ty == "f32";
        let v = |at: usize| self.value(&o[at], ty);
        let unsigned = |at: usize| self.value(&o[at], &ty.replace('s', "u"));
        let set = |value: String| self.set(&o[0], ty, &value);
        let operator = |sign: &str| set(format!("{} {sign} {}", unsigned(1), unsigned(2)));
        let has = |word: &str| words.contains(&word);
        match words[0] {
            "mov" if o[0].starts_with('{') => {
                let (parts, bits) = (list(&o[0]), if ty == "b64" { 32 } else { 16 });
                let part = if ty == "b64" { "b32" } else { "b16" };
                self.set(&parts[0], part, &v(1))
                    + &self.set(&parts[1], part, &format!("{} >> {bits}", v(1)))
            }
            "mov" if o[1].starts_with('{') => {
                let (parts, bits) = (list(&o[1]), if ty == "b64" { 32 } else { 16 });
                let part = if ty == "b64" { "b32" } else { "b16" };
                let half = |at: usize| {
                    format!("static_cast<{}>({})", value_type(ty), self.value(&parts[at], part))
                };
                set(format!("{} | {} << {bits}", half(0), half(1)))
            }
            "mov" | "cvta" => set(v(1)),
            "add" => operator("+"),
            "sub" => operator("-"),
            "mul" if has("wide") => {
                let wide = ty.replace("32", "64");
                let factor = |at: usize| format!("static_cast<{}>({})", value_type(&wide), v(at));
                self.set(&o[0], &wide, &format!("{} * {}", factor(1), factor(2)))
            }
            // Divisions by a constant: by 7 and 14 with a factor that is negative.
            "mul" if has("hi") => set(format!("ptx::multiply_high({}, {})", v(1), v(2))),
            "mul" if ty == "f16x2" => {
                let word = |at: usize| self.value(&o[at], "b32");
                self.set(&o[0], "b32", &format!("F16::multiply({}, {})", word(1), word(2)))
            }
            "mul" => operator("*"),
            "mad" if has("lo") => {
                set(format!("{} * {} + {}", unsigned(1), unsigned(2), unsigned(3)))
            }
            "fma" if ty == "bf16x2" => {
                let word = |at: usize| self.value(&o[at], "b32");
                let value = format!("ptx::fma_bf16x2({}, {}, {})", word(1), word(2), word(3));
                self.set(&o[0], "b32", &value)
            }
            "fma" => set(format!("fmaf({}, {}, {})", v(1), v(2), v(3))),
            "div" => set(format!("{} / {}", v(1), v(2))),
            "rem" => set(format!("{} % {}", v(1), v(2))),
            "rcp" => set(format!("1.0f / {}", v(1))),
            "ex2" => set(format!("exp2f({})", v(1))),
            "lg2" => set(format!("log2f({})", v(1))),
            "neg" if is_float => set(format!("-{}", v(1))),
            "neg" => set(format!("0 - {}", unsigned(1))),
            "not" if ty == "pred" => set(format!("!{}", v(1))),
            "not" => set(format!("~{}", v(1))),
            "and" => operator("&"),
            "or" => operator("|"),
            "xor" => operator("^"),
            "shl" => set(format!("ptx::shift_left({}, {})", v(1), self.value(&o[2], "u32"))),
            "shr" => set(format!("ptx::shift_right({}, {})", v(1), self.value(&o[2], "u32"))),
            "min" | "max" if is_float => set(format!("f{}f({}, {})", words[0], v(1), v(2))),
            "min" | "max" => set(format!("std::{}({}, {})", words[0], v(1), v(2))),
            "setp" => {
                let (a, b) = (v(1), v(2));
                let sign = |name: &str| match name {
                    "eq" => "==",
                    "ne" => "!=",
                    "lt" => "<",
                    "le" => "<=",
                    "gt" => ">",
                    "ge" => ">=",
                    _ => panic!("{opcode}"),
                };
                let value = match words[1].strip_suffix('u').filter(|_| is_float) {
                    Some(name) => format!("!ptx::is_ordered({a}, {b}) || {a} {} {b}", sign(name)),
                    None if is_float => {
                        format!("ptx::is_ordered({a}, {b}) && {a} {} {b}", sign(words[1]))
                    }
                    None => format!("{a} {} {b}", sign(words[1])),
                };
                self.set(&o[0], "pred", &value)
            }
            "selp" => set(format!("{} ? {} : {}", self.value(&o[3], "pred"), v(1), v(2))),
            "cvt" if ty == "f16" => {
                self.set(&o[0], "f32", &format!("F16::widen({})", self.value(&o[1], "b16")))
            }
            // The first one becomes the upper half.
            "cvt" if has("bf16x2") || has("f16x2") => {
                let format = if has("bf16x2") { "Bf16" } else { "F16" };
                self.set(&o[0], "b32", &format!("{format}::pack({}, {})", v(2), v(1)))
            }
            "cvt" if has("e4m3x2") => {
                let narrow = |at: usize| format!("ptx::narrow_e4m3({})", v(at));
                self.set(&o[0], "b16", &format!("{} << 8 | {}", narrow(1), narrow(2)))
            }
            "cvt" => self.set(&o[0], words[1], &v(1)),
            "prmt" => {
                set(format!("ptx::permute({}, {}, {})", v(1), v(2), self.value(&o[3], "u32")))
            }
            "bfi" => {
                let place = |at: usize| self.value(&o[at], "u32");
                let ty = value_type(ty);
                set(format!(
                    "ptx::insert_bits<{ty}>({}, {}, {}, {})",
                    v(1),
                    v(2),
                    place(3),
                    place(4)
                ))
            }
            "ld" | "st" => self.access(&words, o),
            "atom" if has("add") && o[2] == "1" => {
                let counter = self.address(&o[1], "u64");
                set(format!("take_number(reinterpret_cast<uint32_t *>({counter}))"))
            }
            "atom" if has("inc") => {
                let (counter, last) = (self.address(&o[1], "u64"), self.value(&o[2], "u32"));
                set(format!("count_round(reinterpret_cast<uint32_t *>({counter}), {last})"))
            }
            "shfl" => {
                let to = o[0].split('|').next().unwrap();
                let (value, lane) = (v(1), self.value(&o[2], "s32"));
                let word = if has("bfly") { "shuffle_xor" } else { "shuffle_from" };
                let value = match word {
                    "shuffle_from" => format!("{word}(static_cast<int>({value}), {lane} & 31)"),
                    _ => format!("{word}({value}, {lane})"),
                };
                self.set(to, ty, &value)
            }
            "vote" if has("any") => set(format!("any_lane({})", v(1))),
            // What comes next is let in by the emulated driver.
            "griddepcontrol" if has("launch_dependents") => String::new(),
            "griddepcontrol" if has("wait") => "begin_launch();".to_owned(),
            "bar" if has("warp") => "sync_warp();".to_owned(),
            "bar" if opcode == "bar.sync" && o == ["0"] => "sync_block();".to_owned(),
            "bar" if o.len() == 2 => {
                let word = if words[1] == "arrive" { "arrive" } else { "sync" };
                format!("{word}_some<{}, {}>();", o[0], o[1])
            }
            "bra" => format!("goto {};", self.label(&o[0])),
            "ret" => "return;".to_owned(),
            "cp" if has("commit_group") => "copy_async_commit();".to_owned(),
            "cp" if has("wait_group") => format!("copy_async_wait<{}>();", o[0]),
            // 16 bytes, of which so many are read; the others become zeros.
            "cp" if has("cg") && o[2] == "16" => format!(
                "copy_async16({}, reinterpret_cast<const void *>({}), {} == 16);",
                self.address(&o[0], "u32"),
                self.address(&o[1], "u64"),
                self.value(&o[3], "u32")
            ),
            "ldmatrix" if has("m8n8") && has("x4") => {
                let word = if has("trans") { "load_matrix4_transposed" } else { "load_matrix4" };
                let sets: String = list(&o[0])
                    .iter()
                    .enumerate()
                    .map(|(at, to)| self.set(to, "b32", &format!("r[{at}]")))
                    .collect();
                format!("{{ uint32_t r[4]; {word}(r, {}); {sets} }}", self.address(&o[1], "u32"))
            }
            "mma" if has("m16n8k16") && has("row") && has("col") => {
                let format = if has("bf16") { "Bf16" } else { "F16" };
                let all = |at: usize, ty: &str| {
                    let values: Vec<_> =
                        list(&o[at]).iter().map(|name| self.value(name, ty)).collect();
                    values.join(", ")
                };
                let sets: String = list(&o[0])
                    .iter()
                    .enumerate()
                    .map(|(at, to)| self.set(to, "f32", &format!("c[{at}]")))
                    .collect();
                format!(
                    "{{ float c[4] = {{{}}}; const uint32_t a[4] = {{{}}}; \
                     {format}::multiply_add(c, a, {}); {sets} }}",
                    all(3, "f32"),
                    all(1, "b32"),
                    all(2, "b32")
                )
            }
            _ => self.hopper(opcode, o),
        }
    }

    fn access(&self, words: &[&str], o: &[String]) -> String {
        let ty = *words.last().unwrap();
        let count = words.iter().find_map(|word| word.strip_prefix('v')?.parse().ok()).unwrap_or(1);
        let several = format!("<{}, {count}>", value_type(ty));
        let space = words.iter().find(|word| ["param", "global", "shared"].contains(word));
        let space = *space.unwrap_or_else(|| panic!("the space of {words:?}"));
        let width = if space == "shared" { "u32" } else { "u64" };
        if words[0] == "st" {
            let from = if count == 1 { vec![o[1].clone()] } else { list(&o[1]) };
            let values: Vec<_> = from.iter().map(|name| self.value(name, ty)).collect();
            let to = self.address(&o[0], width);
            let values = values.join(", ");
            return format!("ptx::store_{space}{several}({to}, {{{{{values}}}}});");
        }
        let from = self.address(&o[1], width);
        match space {
            "param" => {
                let from = format!(
                    "ptx::load_bytes<ptx::Several{several}>(reinterpret_cast<const void *>({from}))"
                );
                self.load(o, ty, count, &from)
            }
            space => self.load(o, ty, count, &format!("ptx::load_{space}{several}({from})")),
        }
    }
}
