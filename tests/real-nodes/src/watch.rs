//! Samples the process tables of all machines at once, several times a second: all their processes are descendants of
//! this one.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::oracle::{Copy, Line, Sighting};

/// Copies that ran together for a shorter time are found by the volume's lock and log.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The folder of the volumes, on each machine and on the host: a folder for each identity.
pub(crate) const VOLUMES: &str = "/run/volumes";

/// How much of the end of a log is read.
const TAIL: u64 = 512;

/// The samples since it began. Dropping it ends the sampling.
pub(crate) struct Watch {
    seen: Arc<Mutex<Vec<Sighting>>>,
    looking: tokio::task::JoinHandle<()>,
}

impl Watch {
    pub(crate) fn begin() -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let looking = tokio::spawn(async move {
            loop {
                let sightings = together();
                if !sightings.is_empty() {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).extend(sightings);
                }
                tokio::time::sleep(SAMPLE_INTERVAL).await;
            }
        });
        Self { seen, looking }
    }

    /// Takes the sightings until now; each is returned once.
    pub(crate) fn sightings(&self) -> Vec<Sighting> {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// The copies that are alive: process and copy.
pub(crate) fn copies() -> Vec<(u32, Copy)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, copy(pid)?))).collect()
}

/// `None`: it is no copy of an identity, or it is dead.
fn copy(pid: u32) -> Option<Copy> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8(command).ok()?;
    let args: Vec<&str> = command.split_terminator('\0').collect();
    let ["/workload", identity, uid, node] = args.as_slice() else { return None };
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = status.rsplit_once(") ")?.1.chars().next()?;
    (!matches!(state, 'Z' | 'X')).then(|| Copy {
        identity: (*identity).to_owned(),
        uid: (*uid).to_owned(),
        node: (*node).to_owned(),
    })
}

/// The table is not read in one moment. So the process that was seen first is checked again when the other one was
/// seen: if it still lives, both lived at that moment.
fn together() -> Vec<Sighting> {
    let all = copies();
    let Ok(at) = uptime() else { return Vec::new() };
    let mut sightings = Vec::new();
    for (number, (pid, one)) in all.iter().enumerate() {
        for (_, other) in all.iter().skip(number + 1) {
            if one.identity == other.identity && one.uid != other.uid && copy(*pid).as_ref() == Some(one) {
                sightings.push(Sighting { at, copies: [one.clone(), other.clone()] });
            }
        }
    }
    sightings
}

/// The clock of the workload's log.
pub(crate) fn uptime() -> Result<f64> {
    let text = fs::read_to_string("/proc/uptime")?;
    Ok(text.split_whitespace().next().context("no uptime")?.parse()?)
}

/// All lines written to all volumes since then, in order for each volume.
pub(crate) fn lines(since: f64) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for volume in fs::read_dir(VOLUMES)?.flatten() {
        let log = fs::read_to_string(volume.path().join("log")).unwrap_or_default();
        lines.extend(log.lines().filter_map(Line::parse).filter(|line| line.at >= since));
    }
    Ok(lines)
}

/// The last line of an identity.
pub(crate) fn last_line(identity: &str) -> Option<Line> {
    let mut log = fs::File::open(Path::new(VOLUMES).join(identity).join("log")).ok()?;
    let length = log.metadata().ok()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut tail = String::new();
    log.read_to_string(&mut tail).ok()?;
    // Where the tail begins in the middle of a line, that part is no line.
    tail.lines().rev().find_map(Line::parse)
}
