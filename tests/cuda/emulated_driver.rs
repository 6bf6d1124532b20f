//! The emulated libcuda.so, built from the kernels' own source.
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles the kernels and the driver, unless they are unchanged; returns the library. In its
/// folder it is there by the name, too, that drivers have where they are installed.
pub fn build() -> PathBuf {
    let kernels = root().join("kernels");
    let mut files: Vec<PathBuf> = [kernels.clone(), kernels.join("emulation")]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    FLAGS.hash(&mut hasher);
    files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut hasher));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("emulated-driver-{:016x}", hasher.finish()));
    let library = folder.join("libcuda.so");
    if library.is_file() {
        return library;
    }
    fs::create_dir_all(&folder).unwrap();
    let dims = [64, 96, 128, 256].map(|dim| format!("-DRKV_HEAD_DIM={dim}"));
    let mut sources: Vec<(&str, Option<&String>)> =
        dims.iter().rev().map(|dim| ("attn_mma.cu", Some(dim))).collect();
    sources.extend([3, 2, 0].map(|dim| ("attn_sm90.cu", Some(&dims[dim]))));
    let others = ["machine", "units", "products", "driver", "graphs"]
        .map(|name| format!("emulation/{name}.cpp"));
    sources.push(("memory.cu", None));
    sources.extend(others.iter().map(|source| (source.as_str(), None)));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut objects = Vec::new();
    for round in sources.chunks(jobs) {
        let running: Vec<(Child, PathBuf)> = round
            .iter()
            .map(|(source, dim)| {
                let object = folder.join(format!("{}-{}.o", std::process::id(), objects.len()));
                objects.push(object.clone());
                let mut command = Command::new("g++");
                command.args(FLAGS).args(*dim).args(["-x", "c++", "-c"]);
                command.arg(kernels.join(source)).arg("-o").arg(&object);
                (command.spawn().expect("g++ runs"), object)
            })
            .collect();
        for (mut child, object) in running {
            assert!(child.wait().unwrap().success(), "{}", object.display());
        }
    }
    let part = folder.join(format!("{}.so", std::process::id()));
    let linked = Command::new("g++")
        .args(["-shared", "-Wl,-soname,libcuda.so", "-o"])
        .arg(&part)
        .args(&objects)
        .status();
    assert!(linked.expect("g++ runs").success());
    // Others may have come first.
    let _ = symlink("libcuda.so", folder.join("libcuda.so.1"));
    fs::rename(part, &library).unwrap();
    library
}

const FLAGS: [&str; 6] = ["-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror"];
