//! The results: every single measurement is kept, tables show medians.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::contender::Running;
use crate::plan::{Phase, Plan};
use crate::print_line;
use crate::requests::{self, Requests};

pub(crate) const OWN_CPU: &str = "own CPU, s";
/// Without its idle use.
pub(crate) const API_CPU: &str = "API server CPU, s";
pub(crate) const OF_A_CORE: &str = "of a core, %";
pub(crate) const PEAK: &str = "highest resident memory, MiB";
pub(crate) const RESIDENT: &str = "resident memory at its end, MiB";
pub(crate) const RATE: &str = "pods/s since the quarantine was over";
pub(crate) const SYNCED: &str = "start to synced caches, s";
pub(crate) const STATUSES: &str = "cold start to all statuses, s";
pub(crate) const P50: &str = "p50, ms";
pub(crate) const P99: &str = "p99, ms";
pub(crate) const BACKGROUND_BEFORE: &str = "others' reads before it, p99, ms";
pub(crate) const BACKGROUND_P50: &str = "others' reads meanwhile, p50, ms";
pub(crate) const BACKGROUND_P99: &str = "others' reads meanwhile, p99, ms";
pub(crate) const MAX_TEXT: &str = "longest, ms";

#[derive(Debug, Serialize)]
pub(crate) struct Results {
    #[serde(flatten)]
    pub(crate) origin: Origin,
    pub(crate) plan: Plan,
    pub(crate) samples: Vec<Sample>,
}

/// Which command measured which commit on which machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) command: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) versions: Vec<String>,
}

impl Origin {
    /// The current command, on the current tree.
    pub(crate) fn this(versions: Vec<String>) -> Self {
        let flags = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let git = std::process::Command::new("git")
            .args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=8"])
            .output();
        let commit = git.map_or_else(|_| String::new(), |git| String::from_utf8_lossy(&git.stdout).trim().to_owned());
        let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        Self { command: format!("pod-safety-bench {flags}"), commit, date, machine: Machine::this(), versions }
    }
}

/// One measurement: contender, scene, and its numbers in the order of the tables. Unknown numbers are absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) phase: Phase,
    pub(crate) who: String,
    pub(crate) scene: String,
    pub(crate) values: Vec<(String, f64)>,
    #[serde(default, skip_serializing_if = "Requests::is_empty")]
    pub(crate) requests: Requests,
}

impl Sample {
    pub(crate) fn new(phase: Phase, who: impl Into<String>, scene: impl Into<String>) -> Self {
        let (who, scene) = (who.into(), scene.into());
        Self { phase, who, scene, values: Vec::new(), requests: Requests::new() }
    }

    /// Adds or replaces the number of that name.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Option<f64>>) -> Self {
        if let Some(value) = value.into() {
            match self.values.iter_mut().find(|(of, _)| of == name) {
                Some((_, old)) => *old = value,
                None => self.values.push((name.to_owned(), value)),
            }
        }
        self
    }

    /// Durations of many events. Events that `never` happened count as longest.
    pub(crate) fn spread(self, mut times: Vec<Duration>, never: usize) -> Self {
        times.sort();
        let of = |percent| percentile(&times, never, percent);
        self.with(P50, of(50)).with(P99, of(99)).with(MAX_TEXT, of(100))
    }

    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(of, _)| of == name).map(|(_, value)| *value)
    }
}

impl Results {
    pub(crate) fn add(&mut self, sample: Sample) {
        print_line(&format!("{sample:.2?}"));
        self.samples.push(sample);
    }

    pub(crate) fn samples_of(&self, phase: Phase, scene: &str, who: &str) -> impl Iterator<Item = &Sample> {
        select_samples(&self.samples, phase, scene, who)
    }

    /// The median of the numbers of this name.
    pub(crate) fn median(&self, phase: Phase, scene: &str, who: &str, name: &str) -> Option<f64> {
        median_of(&self.samples, phase, scene, who, name)
    }

    /// Each scene once, in the order in which they were first measured.
    pub(crate) fn scenes(&self) -> Vec<(Phase, &str)> {
        each_once(self.samples.iter().map(|sample| (sample.phase, &*sample.scene)))
    }
}

fn select_samples<'a>(samples: &'a [Sample], phase: Phase, scene: &str, who: &str) -> impl Iterator<Item = &'a Sample> {
    samples.iter().filter(move |one| one.phase == phase && one.scene == scene && one.who == who)
}

/// The median of the numbers of this name.
pub(crate) fn median_of(samples: &[Sample], phase: Phase, scene: &str, who: &str, name: &str) -> Option<f64> {
    median(select_samples(samples, phase, scene, who).filter_map(|one| one.value(name)))
}

pub(crate) fn each_once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut seen, one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
        seen
    })
}

/// Resource use of a contender and the API server from its start on.
pub(crate) struct Meter {
    began: Instant,
    apiserver: f64,
    own: f64,
    requests: Requests,
}

impl Meter {
    /// From now on, except for the requests, which may have been counted earlier.
    pub(crate) fn start(requests: Requests, cluster: &mut Cluster, running: &mut Running) -> Result<Self> {
        let (began, apiserver) = (Instant::now(), cluster.apiserver_cpu()?);
        Ok(Self { began, apiserver, own: running.cpu()?, requests })
    }

    /// From the start of the contender.
    pub(crate) fn since_start(requests: Requests, running: &Running) -> Self {
        Self { began: running.started, apiserver: running.apiserver_before, own: 0.0, requests }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Adds all numbers to `sample`. The API server's idle use, a share of `idle` of a core, is subtracted.
    pub(crate) async fn read(
        &self,
        sample: Sample,
        idle: f64,
        cluster: &mut Cluster,
        running: &mut Running,
    ) -> Result<Sample> {
        let own = running.cpu()? - self.own;
        let apiserver = cluster.apiserver_cpu()? - self.apiserver - idle * self.seconds();
        let sample = sample.with(OWN_CPU, own).with(API_CPU, apiserver);
        let mut sample = sample.with(PEAK, running.peak_mib()?).with(RESIDENT, running.resident_mib()?);
        sample.requests = requests::between(&self.requests, &cluster.requests().await?);
        Ok(sample)
    }
}

/// The percentile of `sorted` times and `never` missing ones, in milliseconds; `None` if it is a missing one, or there are no times.
pub(crate) fn percentile(sorted: &[Duration], never: usize, percent: usize) -> Option<f64> {
    let rank = ((sorted.len() + never) * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).map(|time| time.as_secs_f64() * 1_000.0)
}

/// A count as a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "counts of a test run are far below 2^52")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

/// The middle of `values`, or the mean of the two middle ones; `None` without values.
fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// The properties of the machine that affect the numbers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The cores that this process may use.
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cores, processor, memory_gib, kernel } = self;
        write!(f, "{cores} cores of {processor}, {memory_gib} GiB, {kernel}")
    }
}

impl Machine {
    pub(crate) fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0_u64);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn a_missing_event_counts_as_the_longest() {
        let times: Vec<_> = (1..=98).map(Duration::from_millis).collect();
        let of = |times: &[Duration], never| {
            let sample = Sample::new(Phase::Nodes, "", "").spread(times.to_vec(), never);
            [P50, P99, MAX_TEXT].map(|name| sample.value(name))
        };
        assert_eq!(of(&times, 2), [Some(50.0), None, None]);
        assert_eq!(of(&times, 0)[1], Some(98.0));
        assert_eq!(of(&[], 0), [None; 3]);
        assert_eq!(percentile(&times, 2, 98), Some(98.0));
    }
}
