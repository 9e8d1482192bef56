//! Checks the pages of docs/: one book, no broken links, and a diagram of the crates that equals their manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::{Source, manifest, repository, texts};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

const SUMMARY: &str = "docs/SUMMARY.md";
const PAGES: [&str; 6] = ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "charts", "docs"];
const ARCHITECTURE: &str = "docs/architecture.md";

/// A page as rendered.
#[derive(Default)]
struct Page {
    links: Vec<Link>,
    /// The anchors of its headings, as GitHub and mdbook make them.
    anchors: BTreeSet<String>,
}

struct Link {
    to: String,
    /// The text of the link, if it is code alone: an identifier of the file that it links to.
    names: Option<String>,
}

/// The possible link targets.
struct Tree<'a> {
    /// Pages by path from the root.
    pages: &'a BTreeMap<String, Page>,
    /// The text of any other file; empty for a folder; `None`: it does not exist.
    text: &'a dyn Fn(&str) -> Option<String>,
}

#[test]
fn every_page_is_in_the_summary_once() -> Result<()> {
    let pages = pages()?;
    let listed: Vec<&str> = pages[SUMMARY].links.iter().map(|link| link.to.as_str()).collect();
    for page in pages.keys().filter_map(|path| path.strip_prefix("docs/")).filter(|page| *page != "SUMMARY.md") {
        let times = listed.iter().filter(|path| **path == page).count();
        ensure!(times == 1, "{SUMMARY} lists {page} {times} times, not once");
    }
    Ok(())
}

#[test]
fn each_link_target_exists() -> Result<()> {
    let pages = pages()?;
    let text = |path: &str| {
        let path = repository().join(path);
        if path.is_dir() { Some(String::new()) } else { std::fs::read_to_string(path).ok() }
    };
    let tree = Tree { pages: &pages, text: &text };
    let links: Vec<_> = pages.iter().flat_map(|(from, page)| page.links.iter().map(move |link| (from, link))).collect();
    ensure!(links.len() > 300, "{} links: not all of them", links.len());
    let dead: Vec<_> = links
        .iter()
        .filter_map(|(from, link)| Some(format!("{from}: {}: {}", link.to, tree.lacks(from, link)?)))
        .collect();
    ensure!(dead.is_empty(), "{}", dead.join("\n"));
    Ok(())
}

#[test]
fn a_dead_link_is_detected() {
    let pages = BTreeMap::from([
        ("docs/a.md".to_owned(), parse_page("# One `two`\n\n## One two\n\n```text\n# no heading\n```\n")),
        ("docs/in/b.md".to_owned(), Page::default()),
    ]);
    let text = |path: &str| match path {
        "src/act.rs" => Some("fn force() {}".to_owned()),
        "src" | "docs/in" => Some(String::new()),
        _ => None,
    };
    let tree = Tree { pages: &pages, text: &text };
    for (from, written, lacks) in [
        ("docs/a.md", "[x](in/b.md)", None),
        ("docs/a.md", "[x](#one-two)", None),
        ("docs/in/b.md", "[x](../a.md#one-two-1)", None),
        ("docs/a.md", "[x](https://example.com/gone)", None),
        ("docs/a.md", "[x](../src)", None),
        ("docs/a.md", "[`force`](../src/act.rs)", None),
        ("docs/a.md", "[x](in)", Some("a folder is no page of the book")),
        ("docs/a.md", "`[x](gone.md)`", None),
        ("docs/a.md", "[x](gone.md)", Some("no such file")),
        ("docs/a.md", "| t |\n|---|\n| [x](gone.md) |", Some("no such file")),
        ("docs/a.md", "[x][y]\n\n[y]: gone.md", Some("no such file")),
        ("docs/a.md", "![x](gone.png)", Some("no such file")),
        ("docs/a.md", "[![x](https://example.com/x.png)](gone.md)", Some("no such file")),
        ("docs/in/b.md", "[x](a.md)", Some("no such file")),
        ("docs/a.md", "[x](../../etc/passwd)", Some("it leaves the repository")),
        ("docs/a.md", "[x](/docs/a.md)", Some("it leaves the repository")),
        ("docs/a.md", "[x](#no-heading)", Some("no such heading")),
        ("docs/in/b.md", "[x](../a.md#one-two-2)", Some("no such heading")),
        ("docs/a.md", "[x](../src/act.rs#L3)", Some("lines move: name what is there")),
        ("docs/a.md", "[`delete`](../src/act.rs)", Some("the file does not contain the text of the link")),
    ] {
        let missing = parse_page(written).links.iter().find_map(|link| tree.lacks(from, link));
        assert_eq!(missing, lacks, "{from}: {written}");
    }
}

#[test]
fn the_crate_diagram_equals_the_manifests() -> Result<()> {
    let page = std::fs::read_to_string(repository().join(ARCHITECTURE))?;
    let diagram = crate_diagram()?;
    ensure!(diagram.matches("-->").count() > 5, "not all of it:\n{diagram}");
    ensure!(page.contains(&diagram), "{ARCHITECTURE} needs this picture:\n{diagram}");
    Ok(())
}

/// The crates of the product, each above those that it uses, and the controllers in one box: crates of one shape. An arrow that others
/// imply is left out; so are dependencies of tests and optional features.
fn crate_diagram() -> Result<String> {
    let root = manifest("Cargo.toml")?;
    let folders = root["workspace"]["default-members"].as_array().context("default-members")?;
    let folders = folders.iter().map(|folder| folder.as_str().context("a path")).collect::<Result<Vec<_>>>()?;
    let manifests =
        folders.iter().map(|folder| manifest(Path::new(folder).join("Cargo.toml"))).collect::<Result<Vec<_>>>()?;
    let name = |manifest: &toml::Table| manifest["package"]["name"].as_str().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = manifests.iter().map(name).collect();
    let used_by = |manifest: &toml::Table| -> Vec<String> {
        let used = manifest.get("dependencies").and_then(toml::Value::as_table);
        let optional = |how: &toml::Value| how.get("optional").and_then(toml::Value::as_bool) == Some(true);
        let used = used.into_iter().flatten().filter(|(used, how)| names.contains(*used) && !optional(how));
        used.map(|(used, _)| used.clone()).collect()
    };
    let controllers: BTreeSet<String> =
        manifests.iter().filter(|one| used_by(one) == ["pod-safety-shared"]).map(name).collect();
    let id = |name: &str| match name.strip_prefix("pod-safety-") {
        Some(_) if controllers.contains(name) => "controller".to_owned(),
        Some(other) => other.to_owned(),
        None => "program".to_owned(),
    };
    let (mut boxes, mut uses) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for (folder, manifest) in folders.iter().zip(&manifests) {
        let name = name(manifest);
        boxes.insert(match id(&name).as_str() {
            "controller" => "    controller[\"each controller<br>controllers/NAME/\"]".to_owned(),
            id => format!("    {id}[\"{name}<br>{folder}/\"]"),
        });
        uses.entry(id(&name)).or_default().extend(used_by(manifest).iter().map(|used| id(used)));
    }
    let arrows = uses.iter().flat_map(|(name, used)| {
        let direct = used.iter().filter(|one| !used.iter().any(|other| other != *one && reaches(&uses, other, one)));
        direct.map(move |one| format!("    {name} --> {one}"))
    });
    let lines: Vec<String> = boxes.into_iter().chain(arrows).collect();
    Ok(format!("```mermaid\nflowchart TD\n{}\n```\n", lines.join("\n")))
}

fn reaches(uses: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    from == to || uses.get(from).is_some_and(|used| used.iter().any(|next| reaches(uses, next, to)))
}

impl Tree<'_> {
    /// What is missing at the target of a link on the page `from`.
    fn lacks(&self, from: &str, Link { to, names }: &Link) -> Option<&'static str> {
        let (path, anchor) = to.split_once('#').map_or((to.as_str(), None), |(path, anchor)| (path, Some(anchor)));
        if path.contains(':') {
            return None;
        }
        let Some(path) = resolved(from, path) else { return Some("it leaves the repository") };
        if let Some(page) = self.pages.get(&path) {
            let has_anchor = anchor.is_none_or(|anchor| page.anchors.contains(anchor));
            return (!has_anchor).then_some("no such heading");
        }
        let Some(text) = (self.text)(&path) else { return Some("no such file") };
        // mdbook makes no page of a folder; links to folders outside of docs/ show the repository.
        if text.is_empty() && path.starts_with("docs/") {
            return Some("a folder is no page of the book");
        }
        if anchor.is_some() {
            return Some("lines move: name what is there");
        }
        let named =
            names.as_deref().filter(|name| path.ends_with(".rs") && !name.contains('/') && !name.ends_with(".rs"));
        named.filter(|name| !text.contains(name)).map(|_| "the file does not contain the text of the link")
    }
}

/// The path from the root of a link target.
fn resolved(from: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(from.to_owned());
    }
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn parse_page(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    // A link may contain an image.
    let mut open: Vec<(String, Vec<Option<String>>)> = Vec::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match &event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                open.push((dest_url.to_string(), Vec::new()));
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                if let Some((to, mut words)) = open.pop() {
                    let names = if words.len() == 1 { words.pop().flatten() } else { None };
                    page.links.push(Link { to, names });
                }
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let first = (1..).map(|more| format!("{anchor}-{more}"));
                let first = std::iter::once(anchor.clone()).chain(first).find(|one| !page.anchors.contains(one));
                page.anchors.extend(first);
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(words);
                }
                if let Some((_, link_text)) = open.last_mut() {
                    link_text.push(matches!(event, Event::Code(_)).then(|| words.to_string()));
                }
            }
            _ => {}
        }
    }
    page
}

/// The anchor of a heading: lower case, dashes for spaces, and only letters, digits, dashes and underscores.
fn anchor(heading: &str) -> String {
    let to_anchor = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    };
    heading.trim().to_lowercase().chars().filter_map(to_anchor).collect()
}

/// The files of this repository that a text names in backticks.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    const FOLDERS: [&str; 6] = ["charts/", "controllers/", "devices/", "docs/", "shared/", "tests/"];
    const ENDINGS: [&str; 6] = [".json", ".md", ".rs", ".sh", ".txt", ".yaml"];
    let plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    let words = text.split('`').skip(1).step_by(2).filter(plain);
    words
        .filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)))
        .filter(|word| ENDINGS.iter().any(|ending| word.ends_with(ending)))
}

/// Documented file names must exist.
#[test]
fn bug_a_page_named_missing_files() -> Result<()> {
    let named: Vec<_> = named_files("`docs/gone.md` and `ls docs/x.md` and `README.md`").collect();
    ensure!(named == ["docs/gone.md"], "a planted one is noticed: {named:?}");
    let (mut count, mut gone) = (0, Vec::new());
    for Source { path, text } in texts(&PAGES, &["md"])? {
        for file in text.split("\n\n").flat_map(named_files) {
            count += 1;
            if !repository().join(file).exists() {
                gone.push(format!("{path}: {file}"));
            }
        }
    }
    ensure!(count > 50, "{count} files: not all of them");
    ensure!(gone.is_empty(), "no such files:\n{}", gone.join("\n"));
    Ok(())
}

/// The page about what an installation creates counts the objects of the chart.
#[test]
fn bug_the_page_of_what_changes_counted_other_objects_than_the_chart_has() -> Result<()> {
    let render = std::fs::read_to_string(repository().join("tests/control-plane/golden/chart/default.yaml"))?;
    let page = std::fs::read_to_string(repository().join("docs/what-changes.md"))?;
    let of = |kind: &str| render.lines().filter(|line| *line == format!("kind: {kind}")).count();
    let bound = of("ClusterRoleBinding");
    for (row, count) in [
        ("ValidatingAdmissionPolicies and their bindings", format!("{} each", of("ValidatingAdmissionPolicy"))),
        ("ClusterRoles of the process", bound.to_string()),
        ("ClusterRoles without a binding", (of("ClusterRole") - bound).to_string()),
        ("FlowSchemas", of("FlowSchema").to_string()),
        ("PriorityLevelConfigurations", of("PriorityLevelConfiguration").to_string()),
    ] {
        let line = page.lines().find(|line| line.starts_with(&format!("| {row}"))).context(row)?;
        ensure!(line.ends_with(&format!("| {count} |")), "{line}: the chart has {count}");
    }
    Ok(())
}

fn pages() -> Result<BTreeMap<String, Page>> {
    let pages_read = texts(&PAGES, &["md"])?;
    ensure!(pages_read.len() > 60, "{} pages: not all of them", pages_read.len());
    Ok(pages_read.into_iter().map(|Source { path, text }| (path, parse_page(&text))).collect())
}
