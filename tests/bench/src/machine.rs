//! On what it was measured.

use serde::Serialize;

/// The machine, as far as numbers depend on it.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// What this process may use.
    pub(crate) cores: usize,
    /// The processor's name for itself.
    pub(crate) processor: String,
    /// In GiB.
    pub(crate) memory_gib: u64,
    /// Its release.
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let memory_kib =
            field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0_u64);
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            memory_gib: (memory_kib + (1 << 19)) >> 20,
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        }
    }
}

/// The first value of `name` in a `name : value` file; empty if there is none.
fn field(text: &str, name: &str) -> String {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}
