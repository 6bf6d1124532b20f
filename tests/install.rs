//! `scripts/install.sh` into a prefix with a space in its path, then programs outside the tree that
//! find the library the usual ways: pkg-config, shared and static, CMake, and as the README says.
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

#[path = "install/built.rs"]
mod built;
#[path = "native/go.rs"]
mod go;
#[path = "install/places.rs"]
mod places;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn soname() -> String {
    format!("libradixkv.so.{}", VERSION.rsplit_once('.').unwrap().0)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder of this test alone, outside any other: empty, with a space in its name.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("install {name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Runs a command, which must succeed, and returns what it printed.
fn run(command: &mut Command) -> String {
    let made = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    assert!(made.status.success(), "{command:?}: {}\n{out}{err}", made.status);
    out.into_owned()
}

/// The prefix, installed once for all tests here.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = scratch("prefix");
        run(&mut script(&prefix));
        prefix
    })
}

fn script(prefix: &Path) -> Command {
    let mut script = as_a_user("bash");
    script.arg(root().join("scripts/install.sh")).env("PREFIX", prefix);
    script
}

/// A command without what this run, or a `make` around it, has set for itself.
fn as_a_user(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in [
        "PREFIX",
        "LIBDIR",
        "DESTDIR",
        "MAKEFLAGS",
        "RUSTFLAGS",
        "LD_LIBRARY_PATH",
        "SUDO_UID",
        "CARGO_BUILD_TARGET",
    ] {
        command.env_remove(name);
    }
    command.env("CARGO_TARGET_DIR", target());
    command
}

/// The target folder of this run: CARGO_TARGET_TMPDIR is its `tmp`.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// Whether the tools are here; says loudly what is not shown otherwise.
fn have(test: &str, tools: &[&str]) -> bool {
    use std::io::Write;
    let missing = |tool: &&str| match *tool {
        "go" => go::missing(&root().join("bindings/go")),
        _ if Command::new(tool).arg("--version").output().is_ok() => None,
        _ => Some(format!("{tool} is not installed")),
    };
    let reason = tools.iter().find_map(missing);
    if let Some(reason) = &reason {
        // Past the capture of the test harness, which hides what a passing test prints.
        let reason = format!("SKIP {test}: {reason}\n");
        std::io::stderr().write_all(reason.as_bytes()).unwrap();
    }
    reason.is_none()
}

fn assert_runs(program: &Path) {
    let library_path = prefix().join("lib");
    let said = run(Command::new(program).env("LD_LIBRARY_PATH", library_path));
    assert_eq!(said.trim_end(), format!("radixkv {VERSION}"));
}

fn needs_shared_library(program: &Path) -> bool {
    run(Command::new("readelf").arg("-d").arg(program)).contains(&format!("[{}]", soname()))
}

#[test]
fn the_files_are_where_they_belong() {
    let lib = prefix().join("lib");
    let headers = ["include/radixkv.h", "include/radixkv_spatial.h", "include/radixkv.hpp"];
    for file in headers.into_iter().chain(["lib/libradixkv.a"]) {
        assert!(prefix().join(file).is_file(), "{file}");
    }
    let link = |name: &str| fs::read_link(lib.join(name)).unwrap().into_os_string();
    assert_eq!(link("libradixkv.so"), *soname());
    assert_eq!(link(&soname()), *format!("libradixkv.so.{VERSION}"));

    let dynamic = run(Command::new("readelf").arg("-d").arg(lib.join("libradixkv.so")));
    assert!(dynamic.contains(&format!("Library soname: [{}]", soname())), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(!dynamic.contains("RUNPATH") && !dynamic.contains("RPATH"), "{dynamic}");
}

/// With all kernels it is to stay below 25 MB: what only debuggers read stays in the target folder.
#[test]
fn the_shared_library_is_small() {
    let library = prefix().join("lib").join(format!("libradixkv.so.{VERSION}"));
    let bytes = fs::metadata(&library).unwrap().len();
    assert!(bytes < 25_000_000, "{} has {bytes} bytes", library.display());
    let sections = run(Command::new("readelf").args(["-S", "-W"]).arg(&library));
    assert!(!sections.contains(".debug_info"), "{sections}");
    // Names of functions are for backtraces.
    assert!(sections.contains(".symtab"), "{sections}");
}

/// `make build` and `make install` share what they build.
#[test]
fn nothing_is_built_twice() {
    prefix();
    let again = scratch("again");
    let output = script(&again).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Finished") && !said.contains("Compiling"), "{said}");
    let lib = again.join("lib");
    let same = run(Command::new("cmp").arg(lib.join("libradixkv.a")).arg(release("a")));
    assert_eq!(same, "");
    let names = |library: &Path| {
        let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
        let names = symbols.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&lib.join("libradixkv.so")), names(&release("so")));
}

fn release(ending: &str) -> PathBuf {
    target().join("release/libradixkv").with_extension(ending)
}

#[test]
fn another_libdir_and_destdir_and_back() {
    let stage = scratch("stage");
    let mut install = script(Path::new("/opt/some where"));
    install.env("DESTDIR", &stage).env("LIBDIR", "lib/x86_64-linux-gnu");
    run(&mut install);
    let placed = stage.join("opt/some where");
    let text = |file: &str| fs::read_to_string(placed.join(file)).unwrap();
    let pc = text("lib/x86_64-linux-gnu/pkgconfig/radixkv.pc");
    assert!(pc.starts_with("prefix=/opt/some where\nlibdir=${prefix}/lib/x86_64-linux-gnu\n"));
    let config = text("lib/x86_64-linux-gnu/cmake/radixkv/radixkvConfig.cmake");
    assert!(config.contains("${_radixkv_prefix}/../../../..\" ABSOLUTE"), "{config}");
    assert!(!pc.contains('@') && !config.contains('@'), "{pc}{config}");

    run(install.arg("--uninstall"));
    let left = run(Command::new("find").arg(&stage).args(["!", "-type", "d"]));
    assert_eq!(left, "");
}

/// Compiles the consumer as a Makefile would: flags from pkg-config, through the shell.
fn build_with_pkg_config(program: &Path, package: &str) {
    let flags = format!("$(pkg-config --cflags --libs {package})");
    let shell = format!("eval cc -Wall -Werror -o '\"$OUT\"' '\"$SOURCE\"' \"{flags}\"");
    run(Command::new("sh")
        .args(["-c", &shell])
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"))
        .env("SOURCE", root().join("tests/install/consumer.c"))
        .env("OUT", program)
        .current_dir(env::temp_dir()));
}

#[test]
fn a_consumer_finds_the_shared_library_with_pkg_config() {
    if have("shared library by pkg-config", &["pkg-config"]) {
        let program = scratch("pkg-config shared").join("consumer");
        build_with_pkg_config(&program, "radixkv");
        assert!(needs_shared_library(&program));
        assert_runs(&program);
    }
}

#[test]
fn a_consumer_links_the_static_library_with_pkg_config() {
    if have("static library by pkg-config", &["pkg-config"]) {
        let program = scratch("pkg-config static").join("consumer");
        build_with_pkg_config(&program, "radixkv-static");
        assert!(!needs_shared_library(&program));
        assert_runs(&program);
    }
}

/// The text of the first fence of a page that begins like this, without its first line.
fn fence(page: &Path, beginning: &str) -> String {
    let text = fs::read_to_string(page).unwrap();
    let found = text.split("```").find(|text| text.starts_with(beginning));
    let found = found.unwrap_or_else(|| panic!("{}: {beginning}", page.display()));
    found.split_once('\n').unwrap().1.to_owned()
}

fn shell(commands: &str, folder: &Path) -> String {
    run(as_a_user("sh").args(["-ec", commands]).current_dir(folder))
}

/// A place for an installation without a space in its path: there the shell takes flags apart.
fn plain_prefix(name: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("install-{name}"));
    let _ = fs::remove_dir_all(&prefix);
    prefix
}

/// What README.md says about a prefix that the loader does not search: installed and linked like
/// that, programs start with no variable set.
#[test]
fn the_commands_of_the_readme_link_and_run() {
    if !have("the README's commands", &["make", "pkg-config"]) {
        return;
    }
    let commands = fence(&root().join("README.md"), "sh\nmake install");
    let commands = commands.replace("/opt/radixkv", plain_prefix("readme").to_str().unwrap());
    let (install, link) = commands.split_once('\n').unwrap();
    shell(install, root());
    let folder = scratch("readme");
    fs::copy(root().join("tests/install/consumer.c"), folder.join("engine.c")).unwrap();
    shell(link, &folder);
    for (name, shared) in [("engine", true), ("engine-static", false)] {
        let program = folder.join(name);
        assert_eq!(needs_shared_library(&program), shared, "{name}");
        let said = run(&mut as_a_user(program.to_str().unwrap()));
        assert_eq!(said.trim_end(), format!("radixkv {VERSION}"), "{name}");
    }
}

#[test]
fn a_consumer_finds_the_package_with_cmake() {
    if !have("CMake package", &["cmake", "make"]) {
        return;
    }
    // Moved after the installation: the package is found by its own place.
    let moved = scratch("moved");
    run(Command::new("cp").arg("-a").arg(prefix().join(".")).arg(&moved));
    let build = scratch("cmake");
    run(Command::new("cmake")
        .args(["-G", "Unix Makefiles", "-S"])
        .arg(root().join("tests/install"))
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    run(Command::new("ctest").arg("--output-on-failure").current_dir(&build));
    for (program, shared) in [("c_shared", true), ("c_static", false), ("cpp_shared", true)] {
        assert_eq!(needs_shared_library(&build.join(program)), shared, "{program}");
        assert_runs(&build.join(program));
    }
}

#[test]
fn the_go_binding_finds_the_library_with_pkg_config() {
    let binding = root().join("bindings/go");
    if have("Go binding by pkg-config", &["go", "pkg-config"]) {
        run(Command::new("go")
            .args(["test", "-count=1", "."])
            .current_dir(binding)
            .env("GOTOOLCHAIN", "local")
            .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"))
            .env("LD_LIBRARY_PATH", prefix().join("lib")));
    }
}

/// As bindings/go/README.md says: its program in a module of its own, by its commands.
#[test]
fn the_program_of_the_go_readme_runs() {
    if !have("the Go README", &["go", "pkg-config"]) {
        return;
    }
    let page = root().join("bindings/go/README.md");
    let program = fence(&page, "go\npackage main");
    let prefix = plain_prefix("go");
    run(&mut script(&prefix));
    let folder = scratch("go readme");
    fs::write(folder.join("main.go"), &program).unwrap();
    assert_eq!(run(Command::new("gofmt").arg("-l").arg(&folder)), "");
    // Nothing comes from the network, nor from another module around this one.
    let commands = "export GOTOOLCHAIN=local GOPROXY=off GOWORK=off GOFLAGS=\n".to_owned()
        + &fence(&page, "sh\ngo mod init")
            .replace("/opt/radixkv", prefix.to_str().unwrap())
            .replace("/path/to/radixkv", root().to_str().unwrap());
    let said = shell(&commands, &folder);
    let expected: Vec<_> = program.lines().filter_map(|line| line.split("// ").nth(1)).collect();
    let expected: Vec<_> = expected.into_iter().filter(|text| text.ends_with(" cached")).collect();
    assert_eq!(expected.len(), 3, "the program calls request() three times");
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn cmake_refuses_another_series() {
    if !have("CMake version check", &["cmake", "make"]) {
        return;
    }
    let project = scratch("cmake version");
    let series = VERSION.rsplit_once('.').unwrap().0;
    let asked = [(series, true), (VERSION, true), ("0.1", false), ("0.99", false), ("1.0", false)];
    for (wanted, found) in asked {
        let text = format!(
            "cmake_minimum_required(VERSION 3.16)\nproject(version NONE)\n\
             find_package(radixkv {wanted} CONFIG QUIET)\n\
             message(STATUS \"found=${{radixkv_FOUND}}\")\n"
        );
        fs::write(project.join("CMakeLists.txt"), text).unwrap();
        let said = run(Command::new("cmake")
            .args(["-G", "Unix Makefiles", "-S"])
            .arg(&project)
            .arg("-B")
            .arg(project.join(format!("build {wanted}")))
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
        assert_eq!(said.contains("found=1"), found, "{wanted}: {said}");
    }
}

/// What examples/engine/CMakeLists.txt says: without a library of this tree the installed one.
#[test]
fn the_examples_take_the_installed_package() {
    if !have("examples by the CMake package", &["cmake", "make"]) {
        return;
    }
    let project = scratch("cmake example");
    let text = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(example CXX)\n\
         include(\"{0}/examples/radixkv.cmake\")\nadd_library(example OBJECT example.cpp)\n\
         target_include_directories(example PRIVATE \"{0}/examples/engine\")\n\
         target_link_libraries(example PRIVATE radixkv)\n",
        root().display()
    );
    fs::write(project.join("CMakeLists.txt"), text).unwrap();
    let source = "#include <radixkv.hpp>\n\n#include \"serve/net_library.hpp\"\n";
    fs::write(project.join("example.cpp"), source).unwrap();
    let build = project.join("build");
    run(Command::new("cmake")
        .args(["-G", "Unix Makefiles", "-S"])
        .arg(&project)
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    run(Command::new("cmake").arg("--build").arg(&build));
}

/// As shells complete folders; and a compiler with an option.
#[test]
fn slashes_at_the_end_change_nothing() {
    let stage = scratch("slashes");
    let mut install = script(Path::new("/opt/radixkv/"));
    run(install.env("DESTDIR", &stage).env("LIBDIR", "lib64/").env("CC", "cc -pipe"));
    let placed = stage.join("opt/radixkv/lib64");
    let text = |file: &str| fs::read_to_string(placed.join(file)).unwrap();
    let config = text("cmake/radixkv/radixkvConfig.cmake");
    assert!(config.contains("${_radixkv_prefix}/../../..\" ABSOLUTE"), "{config}");
    assert!(config.contains("/lib64/libradixkv.a\""), "{config}");
    let pc = text("pkgconfig/radixkv.pc");
    assert!(pc.starts_with("prefix=/opt/radixkv\nlibdir=${prefix}/lib64\n"), "{pc}");
}

/// Where /lib is a link to usr/lib, CMake may find the package by the link.
#[test]
fn cmake_finds_the_package_behind_a_link() {
    if !have("the CMake package behind a link", &["cmake", "make"]) {
        return;
    }
    let stage = fs::canonicalize(scratch("merged")).unwrap();
    run(&mut script(&stage.join("usr")));
    symlink("usr/lib", stage.join("lib")).unwrap();
    let project = scratch("merged project");
    let text = "cmake_minimum_required(VERSION 3.16)\nproject(merged NONE)\n\
                find_package(radixkv CONFIG REQUIRED)\n\
                get_target_property(library radixkv::radixkv IMPORTED_LOCATION)\n\
                get_target_property(headers radixkv::radixkv INTERFACE_INCLUDE_DIRECTORIES)\n\
                message(STATUS \"library=${library} headers=${headers}\")\n";
    fs::write(project.join("CMakeLists.txt"), text).unwrap();
    let said = run(Command::new("cmake")
        .args(["-G", "Unix Makefiles", "-S"])
        .arg(&project)
        .arg("-B")
        .arg(project.join("build"))
        .arg(format!("-Dradixkv_DIR={}", stage.join("lib/cmake/radixkv").display())));
    let usr = stage.join("usr");
    let expected =
        format!("library={0}/lib/libradixkv.so.{VERSION} headers={0}/include\n", usr.display());
    assert!(said.contains(&expected), "{said}");
}
