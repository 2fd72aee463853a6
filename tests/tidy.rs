//! The code base as a test subject: who imports whom, how long files are, how they begin.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use syn::visit_mut::{self, VisitMut};

/// Lines of a file under `cargo fmt` at width 100; more than one screenful of ideas needs a second
/// file.
const LINES_MAX: usize = 600;

/// Crates that only these modules may name. The raft crate, the store engine and the transport can
/// then be replaced behind one module's interface.
const CRATES: [(&str, &[&str]); 8] = [
    ("raft", &["consensus"]),
    ("protobuf2", &["consensus"]),
    ("redb", &["store"]),
    ("tonic", &["api", "peer", "edge", "proto"]),
    ("axum", &["admin", "edge", "api"]),
    ("bench_disk", &["main"]),
    ("prometheus", &["telemetry", "api"]),
    ("tracing_subscriber", &["telemetry"]),
];

/// Modules that are pure: time is an argument, and nothing runs beside them.
const PURE: [&str; 4] = ["consensus", "mvcc", "lease", "watch"];
/// What a pure module must not name.
const IMPURE: [&str; 5] = ["tokio", "Instant", "SystemTime", "HashMap", "HashSet"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("directory") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            if !path.ends_with("target") {
                rust_files(&path, out);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

fn all_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in ["src", "tests", "benches", "bench-disk"] {
        rust_files(&root().join(dir), &mut files);
    }
    files.sort();
    files
}

/// Removes items that are compiled for tests only.
struct WithoutTests;

impl VisitMut for WithoutTests {
    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if module.attrs.iter().any(is_cfg_test)
            && let Some((_, items)) = &mut module.content
        {
            items.clear();
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| match item {
            syn::Item::Fn(item) => !item.attrs.iter().any(is_cfg_test),
            syn::Item::Impl(item) => !item.attrs.iter().any(is_cfg_test),
            syn::Item::Use(item) => !item.attrs.iter().any(is_cfg_test),
            syn::Item::Struct(item) => !item.attrs.iter().any(is_cfg_test),
            _ => true,
        });
        visit_mut::visit_file_mut(self, file);
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
}

/// First path segments behind `crate::`, and all identifiers, of a token stream and its groups.
#[derive(Default)]
struct Names {
    modules: BTreeSet<String>,
    idents: BTreeSet<String>,
    /// Identifiers that stand in front of `::`.
    roots: BTreeSet<String>,
}

impl Names {
    fn of(source: &str) -> Names {
        let mut file = syn::parse_file(source).expect("parses");
        WithoutTests.visit_file_mut(&mut file);
        let mut names = Names::default();
        names.collect(quote(&file));
        names
    }

    fn collect(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.collect(group.stream()),
                TokenTree::Ident(ident) => {
                    let ident = ident.to_string();
                    let path = is_colons(&tokens, at + 1);
                    if path {
                        self.roots.insert(ident.clone());
                    }
                    if path && ident == "crate" {
                        match tokens.get(at + 3) {
                            Some(TokenTree::Ident(module)) => {
                                self.modules.insert(module.to_string());
                            }
                            Some(TokenTree::Group(group)) => self.use_group(group.stream()),
                            _ => {}
                        }
                    }
                    self.idents.insert(ident);
                }
                _ => {}
            }
        }
    }

    /// `crate::{a::b, c}`: the first identifier of each member.
    fn use_group(&mut self, tokens: TokenStream) {
        let mut first = true;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ',' => first = true,
                TokenTree::Ident(ident) if first => {
                    self.modules.insert(ident.to_string());
                    first = false;
                }
                _ => {}
            }
        }
    }
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    (at..at + 2)
        .all(|at| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':'))
}

/// The tokens of a parsed file.
fn quote(file: &syn::File) -> TokenStream {
    use quote::ToTokens;
    file.to_token_stream()
}

/// Module of a source file: its first directory, or its own name directly below `src`.
fn module_of(file: &Path) -> Option<String> {
    let relative = file.strip_prefix(root().join("src")).ok()?;
    let first = relative.components().next()?.as_os_str().to_str()?;
    Some(first.trim_end_matches(".rs").to_string())
}

/// The table of allowed imports in `ARCHITECTURE.md`: lines `module: what it may use`.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let block = text.split("```imports\n").nth(1).expect("an ```imports block");
    let block = block.split("```").next().expect("its end");
    block
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let (module, uses) = line.split_once(':').expect("module: uses");
            let uses = uses.split_whitespace().map(str::to_string).collect();
            (module.trim().to_string(), uses)
        })
        .collect()
}

fn is_test_file(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests")
        || file.file_stem().is_some_and(|stem| stem == "tests" || stem == "testing")
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let allowed = allowed();
    let mut wrong = Vec::new();
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in all_files() {
        let Some(module) = module_of(&file) else { continue };
        if module == "lib" || is_test_file(&file) {
            continue;
        }
        let names = Names::of(&std::fs::read_to_string(&file).expect("source"));
        let uses = allowed.get(&module);
        assert!(uses.is_some(), "module {module} is not in the table of ARCHITECTURE.md");
        for other in names.modules {
            if other != module && !uses.is_some_and(|uses| uses.contains(&other)) {
                wrong.push(format!("{}: uses crate::{other}", file.display()));
            }
            used.entry(module.clone()).or_default().insert(other);
        }
        for (name, owners) in CRATES {
            if names.roots.contains(name) && !owners.contains(&module.as_str()) {
                wrong.push(format!("{}: names the crate {name}", file.display()));
            }
        }
        if PURE.contains(&module.as_str()) {
            for name in IMPURE {
                if names.idents.contains(name) {
                    wrong.push(format!("{}: {module} is pure, but names {name}", file.display()));
                }
            }
        }
    }
    for (module, uses) in &allowed {
        for other in uses {
            if module != "main" && !used.get(module).is_some_and(|used| used.contains(other)) {
                wrong.push(format!("ARCHITECTURE.md: {module} does not use {other} any more"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_scan_sees_every_form_of_path() {
    let names = Names::of(
        "use crate::{a::{self, b}, c}; fn f() { crate::d::g(); x!(crate::e::h); raft::i() }
         #[cfg(test)] mod tests { use crate::only_in_tests::x; }",
    );
    let modules: Vec<&str> = names.modules.iter().map(String::as_str).collect();
    assert_eq!(modules, ["a", "c", "d", "e"]);
    assert!(names.roots.contains("raft"));
    assert!(TokenStream::from_str("a :: b").is_ok());
}

#[test]
fn files_are_short_and_begin_with_what_they_are_for() {
    let mut wrong = Vec::new();
    for file in all_files() {
        let text = std::fs::read_to_string(&file).expect("source");
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{}: {lines} lines, {LINES_MAX} are allowed", file.display()));
        }
        if !text.starts_with("//!") {
            wrong.push(format!("{}: does not begin with a //! text", file.display()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
