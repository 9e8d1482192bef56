//! The system's figures about this process.

/// A figure of `/proc/self/status`, in KiB.
pub(crate) fn memory(figure: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// How much the peak exceeds what was resident before, for each simulation.
pub(crate) fn memory_line(before: u64, simulations: usize) -> String {
    let peak = memory("VmHWM:");
    let each = peak.saturating_sub(before) / u64::try_from(simulations.max(1)).unwrap_or(1);
    format!(
        "memory: {before} KiB resident before, {peak} KiB at the peak: at most {each} KiB for each of {simulations} simulations at once"
    )
}
