//! Size limits of the kernel and of files, and the table of docs/proof.md.

use anyhow::{Context, Result, ensure};
use pod_safety_locks::{Source, manifest, repository, texts};

/// Lines of code of the kernel, at most. The limit only decreases, except for a new kind of evidence. The target is 800.
const KERNEL_MAX: usize = 1_549;
/// A longer file has two subjects.
const FILE_MAX: usize = 400;
/// Files that are longer, with their limits, which only decrease.
const LONGER_FILES: [(&str, usize); 1] = [("shared/cache/src/view.rs", 450)];

/// A larger crate has several subjects.
const CRATE_MAX: usize = 6_000;

/// The code that makes evidence of fencing. The rest of `shared/fence` evicts, notifies, and checks healthy devices, and makes no evidence.
const FENCED: &[&str] = &[
    "shared/fence/src/step_context.rs",
    "shared/fence/src/prepare.rs",
    "shared/fence/src/contradict.rs",
    "shared/fence/src/corroborate.rs",
    "shared/fence/src/evidence.rs",
    "shared/fence/src/hosts.rs",
    "shared/fence/src/identity.rs",
    "shared/fence/src/incident.rs",
    "shared/fence/src/instance.rs",
    "shared/fence/src/aggregate.rs",
    "shared/fence/src/aggregate/",
    "shared/fence/src/status_check.rs",
    "shared/fence/src/taint.rs",
    "shared/fence/src/names.rs",
    "shared/fence/src/objects.rs",
    "shared/fence/src/objects/",
    "shared/fence/src/orders.rs",
    "shared/fence/src/render.rs",
    "shared/fence/src/secrets.rs",
    "shared/fence/src/step.rs",
    "shared/fence/src/storage.rs",
    "shared/fence/src/confirm.rs",
    "shared/fence/src/actions.rs",
    "shared/fence/src/watchdog.rs",
    "shared/fence/src/quorum_read.rs",
    "devices/src/",
];

/// The code to read to trust a kind of evidence, besides the kernel and the code of all kinds.
const EVIDENCE: [(&str, &[&str]); 7] = [
    ("`NeverScheduled`, `KubeletTerminated`", &[]),
    (
        "`NodeGone`",
        &["shared/cache/src/absence.rs", "shared/cache/src/heartbeat.rs", "shared/fence/src/quorum_read.rs"],
    ),
    (
        "`PodsEnded`",
        &[
            "shared/src/authority/verify/pods_ended.rs",
            "shared/cache/src/watchdogs.rs",
            "controllers/agent/src/",
            "shared/watchdog/src/",
        ],
    ),
    (
        "`Confirmed`",
        &[
            "shared/fence/src/quorum_read.rs",
            "shared/fence/src/evidence.rs",
            "shared/src/authority/operator_requests.rs",
        ],
    ),
    ("`PowerOff`, `Decommissioned`, `InstanceStopped`, `InstanceGone`, `WatchdogLease`, `Remediated`", FENCED),
    ("the out-of-service taint", FENCED),
    (
        "the break of a volume's Lease, by detachment",
        &[
            "shared/fence/src/quorum_read.rs",
            "shared/src/authority/verify/volumes.rs",
            "shared/src/authority/volume.rs",
            "shared/cache/src/volumes.rs",
        ],
    ),
];

/// The code that all kinds depend on: reads, decoding, the cache of pods, the leader's term, and the sending layer.
const ALWAYS: [&str; 15] = [
    "shared/src/authority/verify.rs",
    "shared/src/authority/act.rs",
    "shared/leader/src/outcome.rs",
    "shared/leader/src/send.rs",
    "shared/leader/src/lease.rs",
    "shared/client/src/guard.rs",
    "shared/client/src/lib.rs",
    "shared/client/src/request.rs",
    "shared/cache/src/feed.rs",
    "shared/cache/src/object.rs",
    "shared/cache/src/sync.rs",
    "shared/cache/src/table.rs",
    "shared/cache/src/view.rs",
    "shared/wire/src/codec.rs",
    "shared/wire/src/messages.rs",
];

/// Neither blank nor a comment; `line` is trimmed.
fn is_written(line: &str) -> bool {
    !line.is_empty() && !line.starts_with("//")
}

/// Lines that are code: no blank ones, no comments, no tests.
fn code(source: &Source) -> usize {
    let mut lines = source.text.lines();
    let mut count = 0;
    while let Some(line) = lines.next().map(str::trim) {
        if line.starts_with("#[cfg(test)]")
            || line.starts_with("#[cfg(any(test")
            || line.starts_with("#[cfg(feature = \"testing\")]")
        {
            skip_item(&mut lines);
        } else if is_written(line) {
            count += 1;
        }
    }
    count
}

fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>) {
    let mut depth = 0;
    for line in lines {
        let (opened, closed) = (line.matches('{').count(), line.matches('}').count());
        depth = (depth + opened).saturating_sub(closed);
        if depth == 0 && (closed > 0 || line.trim_end().ends_with(';')) {
            return;
        }
    }
}

fn is_product(source: &&Source) -> bool {
    let name = source.path.rsplit('/').next().unwrap_or_default();
    let tests = [
        "tests.rs",
        "fuzz.rs",
        "testing.rs",
        "test_session.rs",
        "fixture.rs",
        "test_util.rs",
        "recorded.rs",
        "untrusted_text.rs",
    ];
    let folders = ["/tests/", "/testing/", "/testdata/"];
    !tests.contains(&name) && !folders.iter().any(|folder| source.path.contains(folder))
}

fn lines_of(places: &[&str]) -> Result<usize> {
    let places: Vec<_> = places.iter().map(|place| place.trim_end_matches('/')).collect();
    let all = texts(&places, &["rs"])?;
    ensure!(all.len() >= places.len(), "a file of the list is gone: {places:?}");
    Ok(all.iter().filter(is_product).map(code).sum())
}

#[test]
fn the_kernel_stays_within_its_size() -> Result<()> {
    let kernel = lines_of(&["shared/proof/src"])?;
    ensure!(kernel > 500, "{kernel} lines: something is not counted");
    ensure!(kernel <= KERNEL_MAX, "the kernel has {kernel} lines of code: what can leave it?");
    Ok(())
}

#[test]
fn files_stay_within_their_size() -> Result<()> {
    let all = texts(&["shared", "controllers", "devices"], &["rs"])?;
    ensure!(all.iter().filter(is_product).count() > 200, "something is not counted");
    for source in all.iter().filter(is_product) {
        let exception = LONGER_FILES.iter().find(|(path, _)| *path == source.path);
        let most = exception.map_or(FILE_MAX, |(_, most)| *most);
        let lines = code(source);
        ensure!(lines <= most, "{} has {lines} lines of code, and {most} are a long file", source.path);
        ensure!(exception.is_none() || lines > FILE_MAX, "{} is short enough: take it off the list", source.path);
    }
    Ok(())
}

/// `docs/proof.md` states how much must be read, to the nearest fifty lines.
#[test]
fn the_docs_say_how_much_must_be_read() -> Result<()> {
    let round = |lines: usize| (lines + 25) / 50 * 50;
    let (kernel, always) = (lines_of(&["shared/proof/src"])?, lines_of(&ALWAYS)?);
    let mut table = String::from("| to believe | kernel | always | besides | lines in all |\n|---|--:|--:|--:|--:|\n");
    for (what, places) in EVIDENCE {
        let besides = lines_of(places)?;
        let sum = round(kernel) + round(always) + round(besides);
        table += &format!("| {what} | {} | {} | {} | {sum} |\n", round(kernel), round(always), round(besides));
    }
    let page = std::fs::read_to_string(repository().join("docs/proof.md")).context("docs/proof.md")?;
    ensure!(page.contains(&table), "docs/proof.md should have this table:\n{table}");
    Ok(())
}

/// `docs/architecture.md` has the crates of the product from a thousand lines on by size, to the nearest hundred lines.
#[test]
fn the_docs_say_how_large_each_crate_is() -> Result<()> {
    let root = manifest("Cargo.toml")?;
    let folders = root["workspace"]["default-members"].as_array().context("default-members")?;
    let mut sizes = Vec::new();
    for folder in folders.iter().filter_map(toml::Value::as_str) {
        let lines = lines_of(&[&format!("{folder}/src")])?;
        ensure!(lines <= CRATE_MAX, "{folder} has {lines} lines of code, and {CRATE_MAX} are a large crate");
        sizes.push((format!("`{folder}`"), lines));
    }
    has_the_sizes("docs/architecture.md", "crate", sizes, 1_000)
}

/// Whether a page has the table of these sizes from `least` on, the largest first, each to the nearest hundred lines, and their sum
/// to the nearest thousand.
fn has_the_sizes(page: &str, head: &str, mut sizes: Vec<(String, usize)>, least: usize) -> Result<()> {
    sizes.iter_mut().for_each(|(_, lines)| *lines = (*lines + 50) / 100 * 100);
    sizes.sort_by_key(|(what, lines)| (std::cmp::Reverse(*lines), what.clone()));
    let mut table = format!("| {head} | lines of code |\n|---|--:|\n");
    let shown = sizes.iter().filter(|(_, lines)| *lines >= least);
    shown.for_each(|(what, lines)| table += &format!("| {what} | {lines} |\n"));
    let all: usize = sizes.iter().map(|(_, lines)| lines).sum();
    table += &format!("| all | {} |\n", (all + 500) / 1_000 * 1_000);
    let text = std::fs::read_to_string(repository().join(page))?;
    ensure!(text.contains(&table), "{page} should have this table:\n{table}");
    Ok(())
}

/// `docs/testing.md` has the size of the tests by folder, to the nearest hundred lines. All code outside of the product counts as tests.
#[test]
fn the_docs_say_how_many_lines_of_tests_there_are() -> Result<()> {
    let written = |source: &Source| source.text.lines().map(str::trim).filter(|line| is_written(line)).count();
    let crates = ["shared", "controllers", "devices"];
    let all: usize = texts(&crates, &["rs"])?.iter().map(written).sum();
    let mut sizes = vec![("in the crates of the product".to_owned(), all - lines_of(&crates)?)];
    for folder in std::fs::read_dir(repository().join("tests"))? {
        let folder = folder?;
        let name = format!("tests/{}", folder.file_name().to_string_lossy());
        let sources = if folder.path().is_dir() { texts(&[&name], &["rs"])? } else { Vec::new() };
        if !sources.is_empty() {
            sizes.push((format!("`{name}`"), sources.iter().map(written).sum()));
        }
    }
    has_the_sizes("docs/testing.md", "tests", sizes, 0)
}

#[test]
fn code_is_counted_without_tests_and_comments() {
    let counted = |text: &str| code(&Source { path: String::new(), text: text.to_owned() });
    assert_eq!(counted("//! page\n\nuse x;\n\n/// doc\nfn f() {\n    // why\n    g();\n}\n"), 4);
    assert_eq!(counted("fn f() {}\n#[cfg(test)]\nmod tests;\nfn g() {}\n"), 2);
    assert_eq!(counted("fn f() {}\n#[cfg(test)]\nmod tests {\n    fn t() {\n    }\n}\nfn g() {}\n"), 2);
}
