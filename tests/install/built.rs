//! Root, by sudo, has no cargo: what `make build` made of this tree is installed, and nothing else.
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::places::write_program;
use crate::{as_a_user, root, run, scratch, soname};

/// A tree of its own, with a library that takes no time to make.
struct Tree {
    folder: PathBuf,
    /// Every program of the system but cargo, which is not among them anyway where rustup is.
    tools: PathBuf,
}

impl Tree {
    fn new(name: &str) -> Self {
        let (folder, tools) = (scratch(name), scratch(&format!("{name} tools")));
        for place in ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"] {
            for entry in fs::read_dir(place).into_iter().flatten().map(|entry| entry.unwrap()) {
                if entry.file_name() != "cargo" {
                    let _ = symlink(entry.path(), tools.join(entry.file_name()));
                }
            }
        }
        let mut copy = Command::new("cp");
        copy.arg("-r").args(["Makefile", "Cargo.toml", "Cargo.lock", "build.rs", "scripts"]);
        copy.args(["src", "include", "kernels", "cmake"]).arg(&folder).current_dir(root());
        run(&mut copy);
        fs::create_dir_all(folder.join("target/release")).unwrap();
        Self { folder, tools }
    }

    /// As a build would leave it.
    fn library(&self, number: u32) {
        self.library_in("target/release", number);
    }

    fn library_in(&self, folder: &str, number: u32) {
        let folder = self.folder.join(folder);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            r#"echo 'int puts(const char *); int rkv(void) {{ return puts("{number}"); }}' >l.c
             cc -c -fPIC l.c -o l.o && cc -shared l.o -o libradixkv.so && rm -f libradixkv.a
             ar rc libradixkv.a l.o"#
        );
        run(Command::new("sh").args(["-ec", &text]).current_dir(folder));
    }

    /// `make build`, where cargo finds that all is built.
    fn make(&self) {
        self.make_with("true", "target/release");
    }

    /// `make build`, where cargo does this, and says that what it built is in that folder.
    fn make_with(&self, build: &str, folder: &str) -> String {
        let folder = self.folder.join(folder);
        let at = |kind: &str| format!("{}/libradixkv.{kind}", folder.display());
        let other = r#"{"reason":"compiler-artifact","filenames":["/x/liblibc.rlib"]}"#;
        let artifact = format!(
            r#"{{"reason":"compiler-artifact","filenames":["{}","{}"],"fresh":true}}"#,
            at("so"),
            at("a")
        );
        let said = format!("{build}\ncat <<'END'\n{other}\n{artifact}\n{other}\nEND");
        write_program(&self.folder.join("cargo"), &said);
        let mut make = as_a_user("make");
        make.args(["build", "CARGO=./cargo"]).current_dir(&self.folder);
        let output = make.env_remove("CARGO_TARGET_DIR").output().unwrap();
        let said = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
        assert!(output.status.success(), "{said}");
        said
    }

    /// Whether there is something to install, and what is said.
    fn install(&self, by_sudo: bool) -> (bool, String) {
        let to = self.folder.join("installed");
        let _ = fs::remove_dir_all(&to);
        let mut install = as_a_user("bash");
        install.arg(self.folder.join("scripts/install.sh")).env("PREFIX", &to);
        install.env("PATH", &self.tools).env("HOME", &self.tools).env_remove("CARGO_TARGET_DIR");
        install.envs(by_sudo.then_some(("SUDO_UID", "1000")));
        let output = install.output().unwrap();
        let is_installed = to.join("lib/libradixkv.so").exists();
        assert_eq!(output.status.success(), is_installed);
        let said = [output.stderr, output.stdout].concat();
        (is_installed, String::from_utf8(said).unwrap())
    }

    /// In the place of a program of the system.
    fn program(&self, name: &str, text: &str) {
        let path = self.tools.join(name);
        let _ = fs::remove_file(&path); // not what a link leads to
        write_program(&path, text);
    }

    fn refuses(&self) {
        for by_sudo in [false, true] {
            let (success, said) = self.install(by_sudo);
            assert!(!success && said.contains("as yourself: make build"), "{said}");
        }
    }
}

#[test]
fn without_cargo_what_is_built_is_installed() {
    let tree = Tree::new("nothing built");
    let (success, said) = tree.install(true);
    assert!(!success && said.contains("as yourself: make build"), "{said}");
    let (success, said) = tree.install(false);
    assert!(!success && said.contains("rustup.rs"), "{said}");
    tree.library(1);
    tree.make();
    for by_sudo in [false, true] {
        let (success, said) = tree.install(by_sudo);
        assert!(success && said.contains("libradixkv.so of 2"), "{said}");
    }
}

/// New headers and a new SONAME with an old library would be what the SONAME is to prevent.
#[test]
fn what_was_built_of_another_tree_is_not_installed() {
    let tree = Tree::new("tree that changes");
    let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    let changes = [
        ("Cargo.toml", &*version, "version = \"0.99.0\""),
        ("src/lib.rs", "//!", "// Another.\n//!"),
        ("include/radixkv.h", "/*", "/* Another. */ /*"),
    ];
    for (number, (file, from, to)) in changes.into_iter().enumerate() {
        tree.library(number as u32);
        tree.make();
        assert!(tree.install(true).0);
        let path = tree.folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
        tree.refuses();
    }
}

/// Stages of `make test` build there too, without kernels for one.
#[test]
fn what_another_command_built_is_not_installed() {
    let tree = Tree::new("library that changes");
    tree.library(1);
    tree.refuses();
    tree.make();
    assert!(tree.install(true).0);
    tree.library(2);
    tree.refuses();
    tree.make();
    assert!(tree.install(true).0);
}

/// A build takes minutes, in which files are saved, or pulled: it may have read either.
#[test]
fn what_was_built_while_the_tree_changed_is_not_installed() {
    let tree = Tree::new("tree that changes meanwhile");
    tree.library(1);
    for file in ["src/lib.rs", "include/radixkv.h"] {
        tree.make();
        assert!(tree.install(true).0);
        tree.library(2);
        let said = tree.make_with(&format!("echo '// Another.' >>{file}"), "target/release");
        assert!(said.contains("make it again"), "{said}");
        tree.refuses();
    }
    tree.make();
    assert!(tree.install(true).0);
}

/// A file of cargo's may name another folder than is looked at: what is in this one is old.
#[test]
fn what_was_built_elsewhere_vouches_for_nothing_here() {
    let tree = Tree::new("library elsewhere");
    tree.library(1);
    tree.library_in("target/other/release", 2);
    tree.make_with("true", "target/other/release");
    tree.refuses();
    tree.make();
    assert!(tree.install(true).0);
}

/// A build that fails says so, and leaves what was there as it was.
#[test]
fn a_build_that_fails_is_a_failure() {
    let tree = Tree::new("build that fails");
    tree.library(1);
    tree.make();
    let mut make = as_a_user("make");
    make.args(["build", "CARGO=false"]).current_dir(&tree.folder);
    assert!(!make.env_remove("CARGO_TARGET_DIR").status().unwrap().success());
    assert!(tree.install(true).0);
}

/// Whoever may write to /usr/local is not always root, and the loader looks there by its cache.
#[test]
fn who_cannot_tell_the_loader_is_told() {
    let tree = Tree::new("loader's cache");
    tree.library(1);
    tree.make();
    let lib = tree.folder.join("installed/lib");
    for (user, cached, is_told) in
        [(1000, "libc.so.6", true), (1000, &*soname(), false), (0, "libc.so.6", false)]
    {
        tree.program("id", &format!("echo {user}"));
        let lib = lib.display();
        let known = format!("echo \"\t{cached} (libc6,x86-64) => {lib}/{cached}\"; exit");
        let searched = format!("echo \"{lib}: (from /etc/ld.so.conf.d/libc.conf:2)\"");
        tree.program("ldconfig", &format!("[ \"$1\" != -p ] || {{ {known}; }}\n{searched}"));
        let (success, said) = tree.install(true);
        let hint = said.contains("as root: ldconfig");
        assert!(success && !said.contains("does not search"), "{said}");
        assert_eq!(hint, is_told, "{user} {cached}: {said}");
    }
}
