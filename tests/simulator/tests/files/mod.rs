//! The committed files of the simulator, and what the system says of this process.

use std::path::PathBuf;

use pod_safety_simulator::campaign::{Entry, page, subject};
use pod_safety_simulator::world::{Launch, run, stricken};

/// `tests/simulator/corpus`.
pub(crate) fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The table of planted bugs.
pub(crate) fn teeth() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulator-teeth.md")
}

/// The entries of the corpus with their names, in order.
pub(crate) fn entries() -> anyhow::Result<Vec<(String, Entry)>> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(corpus())? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let entry = serde_json::from_slice(&std::fs::read(&path)?)
            .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        entries.push((name, entry));
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

/// The page of an entry: the first subject that breaks something, up to where it
/// does.
pub(crate) fn page_of(entry: &Entry, launch: Launch) -> Option<String> {
    let (name, rules) = entry.expect.iter().find(|(_, rules)| !rules.is_empty())?;
    let (rule, subject) = (rules.first()?, subject(name, launch)?);
    let outcome = match &entry.strike {
        None => run(&entry.plan, subject),
        Some(strike) => stricken(&entry.plan, subject, strike).0,
    };
    Some(page(&format!("{}\n\nsubject: {name}; broken: {rule}", entry.why), &entry.plan, &outcome, rule))
}

/// A figure of `/proc/self/status`, in KiB.
pub(crate) fn memory(figure: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// How much more the peak is than what was resident before, by simulation.
pub(crate) fn memory_line(before: u64, simulations: usize) -> String {
    let peak = memory("VmHWM:");
    let each = peak.saturating_sub(before) / u64::try_from(simulations.max(1)).unwrap_or(1);
    format!(
        "memory: {before} KiB resident before, {peak} KiB at the peak: at most {each} KiB for each of {simulations} simulations at once"
    )
}
