//! Reads the traces of data/.

/// One prompt: ids of its units, each worth `unit` tokens but for the last.
pub struct Request {
    pub units: Vec<u32>,
    pub token_count: usize,
}

/// Reads data/<name>.trace; data/README.md describes the format.
pub fn read_trace(name: &str) -> (usize, Vec<Request>) {
    let path = format!("{}/data/{name}.trace", env!("CARGO_MANIFEST_DIR"));
    let data = std::fs::read(path).unwrap();
    let newline = data.iter().position(|&byte| byte == b'\n').unwrap();
    let head = std::str::from_utf8(&data[..newline]).unwrap();
    let words: Vec<&str> = head.split(' ').collect();
    assert_eq!(words[..3], ["rkv-trace", "1", name]);
    let unit: usize = words[4].parse().unwrap();
    let implied = words[6] == "implied";
    let mut bytes = data[newline + 1..].iter();
    let mut varint = || {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = *bytes.next().unwrap();
            value |= usize::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    };
    let mut next_unit = 0;
    let mut requests: Vec<Request> = Vec::new();
    for index in 0..words[8].parse().unwrap() {
        let (distance, kept, added) = (varint(), varint(), varint());
        let base = if distance > 0 { &requests[index - distance].units[..kept] } else { &[] };
        let mut units = base.to_vec();
        for _ in 0..added {
            units.push(if implied { next_unit } else { varint() as u32 });
            next_unit += u32::from(implied);
        }
        let last = if unit > 1 { varint() } else { 1 };
        varint(); // the output's length
        let token_count = (units.len() - 1) * unit + last;
        requests.push(Request { units, token_count });
    }
    (unit, requests)
}
