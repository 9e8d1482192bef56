//! Checks that the modules of a crate have no import cycles. Cargo already forbids cycles between crates.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use pod_safety_locks::{manifest, texts};
use syn::visit::{self, Visit};

/// The path of a module from the root of its crate.
type Module = Vec<String>;

/// The other modules that one file names by `crate` and `super`. A parent may name its children without either.
struct Names {
    /// The current module of the visitor: that of the file, and those within it.
    here: Module,
    named: Vec<Module>,
}

impl Names {
    fn path(&mut self, segments: &[String]) {
        let mut rest = segments;
        let mut from = match rest.first().map(String::as_str) {
            Some("crate") => Module::new(),
            Some("super" | "self") => self.here.clone(),
            _ => return,
        };
        while let Some((word, after)) =
            rest.split_first().filter(|(word, _)| ["crate", "super", "self"].contains(&word.as_str()))
        {
            if word == "super" {
                from.pop();
            }
            rest = after;
        }
        from.extend_from_slice(rest);
        self.named.push(from);
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.path(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.path(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.path(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(before, item)),
        }
    }
}

/// Whether it is compiled for tests only.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|one| match &one.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            text.starts_with("test") || text.starts_with("any (test") || text.contains("\"testing\"")
        }
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.here.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.here.pop();
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        self.path(&segments);
        visit::visit_path(self, path);
    }
}

/// The module path of a file of `src`.
fn module(path: &str) -> Module {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').filter(|name| !["lib", "main"].contains(name)).map(str::to_owned).collect()
}

/// The origin of the names that a module re-exports from a file below itself: `pub use decide::Config` in `lib.rs`.
fn handed_on(own: &Module, file: &syn::File) -> BTreeMap<Module, Module> {
    let mut names = Names { here: own.clone(), named: Vec::new() };
    let uses = file.items.iter().filter_map(|item| match item {
        syn::Item::Use(item) if !is_for_tests(&item.attrs) => Some(&item.tree),
        _ => None,
    });
    uses.for_each(|tree| names.tree(&["self".to_owned()], tree));
    let named = names.named.into_iter();
    named.filter_map(|from| Some(([&own[..], &[from.last()?.clone()]].concat(), from))).collect()
}

/// The imports of each file.
fn arrows(sources: &[(Module, String)]) -> Result<BTreeMap<Module, BTreeSet<Module>>> {
    let parsed =
        |(own, text): &(Module, String)| Ok((own.clone(), syn::parse_file(text).with_context(|| own.join("::"))?));
    let files: BTreeMap<Module, syn::File> = sources.iter().map(parsed).collect::<Result<_>>()?;
    let handed: BTreeMap<_, _> = files.iter().flat_map(|(own, file)| handed_on(own, file)).collect();
    let mut arrows = BTreeMap::new();
    for (own, file) in &files {
        let mut names = Names { here: own.clone(), named: Vec::new() };
        names.visit_file(file);
        let of_file = |mut named: Module| {
            let mut seen = BTreeSet::new();
            while let Some(from) = (1..=named.len()).rev().find_map(|n| handed.get(&named[..n])) {
                if !seen.insert(from.clone()) {
                    break;
                }
                named.clone_from(from);
            }
            while !named.is_empty() && !files.contains_key(&named) {
                named.pop();
            }
            named
        };
        let used = names.named.into_iter().map(of_file);
        arrows.insert(own.clone(), used.filter(|used| !used.is_empty() && used != own).collect::<BTreeSet<_>>());
    }
    Ok(arrows)
}

/// The files that are part of an import cycle.
fn in_cycles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<&Module> {
    let reaches_itself = |from: &&Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![*from]);
        while let Some(at) = next.pop() {
            let new = arrows.get(at).into_iter().flatten().filter(|used| seen.insert(*used));
            next.extend(new);
        }
        seen.contains(from)
    };
    arrows.keys().filter(reaches_itself).collect()
}

#[test]
fn modules_have_no_import_cycles() -> Result<()> {
    let root = manifest("Cargo.toml")?;
    let folders = root["workspace"]["default-members"].as_array().context("default-members")?;
    let mut cycles = Vec::new();
    for folder in folders.iter().filter_map(toml::Value::as_str) {
        let src = format!("{folder}/src/");
        let product = |path: &str| {
            !["tests", "testing", "fuzz"].iter().any(|word| path.split(['/', '.']).any(|part| part == *word))
        };
        let all = texts(&[&src], &["rs"])?.into_iter().filter(|source| product(&source.path));
        let sources: Vec<_> = all.map(|source| (module(source.path.trim_start_matches(&src)), source.text)).collect();
        ensure!(!sources.is_empty(), "{src} has no sources");
        let arrows = arrows(&sources)?;
        let circles: Vec<_> = in_cycles(&arrows).into_iter().map(|module| module.join("::")).collect();
        if !circles.is_empty() {
            cycles.push(format!("{folder}: {}", circles.join(", ")));
        }
    }
    assert!(cycles.is_empty(), "files that use each other in a circle:\n{}", cycles.join("\n"));
    Ok(())
}

#[test]
fn a_cycle_is_detected_and_a_parent_is_no_cycle() -> Result<()> {
    let circles = |sources: &[(&str, &str)]| -> Result<Vec<String>> {
        let sources: Vec<_> = sources.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect();
        let arrows = arrows(&sources)?;
        Ok(in_cycles(&arrows).into_iter().map(|module| module.join("::")).collect())
    };
    let both = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B;"),
        ("b/mod.rs", "fn f() { super::a::g(); }"),
    ])?;
    assert_eq!(both, ["a", "b"]);
    let by_the_root = circles(&[
        ("lib.rs", "mod a; mod b; pub use a::A;"),
        ("a.rs", "use super::b::B;"),
        ("b.rs", "fn f(_: crate::A) {}"),
    ])?;
    assert_eq!(by_the_root, ["a", "b"]);
    let parent = circles(&[("a.rs", "mod b; fn f() { b::g(); }"), ("a/b.rs", "use super::X;")])?;
    assert!(parent.is_empty(), "{parent:?}");
    let of_tests =
        circles(&[("a.rs", "use super::{b::{B}, C};"), ("b.rs", "#[cfg(test)] mod tests { use crate::a; }")])?;
    assert!(of_tests.is_empty(), "{of_tests:?}");
    let within = circles(&[("a.rs", "mod inner { use super::X; } use crate::b;"), ("b.rs", "")])?;
    assert!(within.is_empty(), "{within:?}");
    Ok(())
}
