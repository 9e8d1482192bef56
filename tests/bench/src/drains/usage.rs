//! Measures a command with all its child processes: CPU like `time` of the shell, and their total memory.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// User and system time, in seconds.
    pub(super) cpu: f64,
    /// The peak of their total memory, in MiB; shared pages count once.
    pub(super) memory: f64,
}

/// Runs a command to its end; it must succeed.
pub(super) async fn of_command(command: &str) -> Result<Usage> {
    let script = format!("TIMEFORMAT='%U %S'; time {{ {{ {command}; }} >/dev/null 2>errors; }}");
    let folder = tempfile::tempdir()?;
    // An argument of the shell may not be as long as a thousand names.
    let file = folder.path().join("script");
    std::fs::write(&file, script)?;
    let mut shell = Command::new("bash");
    shell.arg(&file).current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let child = shell.stderr(Stdio::piped()).kill_on_drop(true).spawn().context("starting bash")?;
    let pid = child.id().context("it has ended")?;
    let mut memory = 0;
    let mut ends = Box::pin(child.wait_with_output());
    let output = loop {
        tokio::select! {
            biased;
            output = &mut ends => break output?,
            () = tokio::time::sleep(POLL_INTERVAL) => memory = memory.max(children_kib(pid)),
        }
    };
    let errors = std::fs::read_to_string(folder.path().join("errors")).unwrap_or_default();
    let last: Vec<&str> = errors.lines().rev().take(5).collect();
    ensure!(output.status.success(), "it ended with {}: {last:?}", output.status);
    let times = String::from_utf8_lossy(&output.stderr).into_owned();
    let times: Vec<f64> = times.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    ensure!(times.len() == 2, "bash says {times:?}");
    Ok(Usage { cpu: times.iter().sum(), memory: crate::contender::mib(memory) })
}

/// The proportional memory of all descendants of this process, a shell that itself does not count.
fn children_kib(shell: u32) -> u64 {
    let Ok(all) = std::fs::read_dir("/proc") else { return 0 };
    let parents: Vec<(u32, u32)> = all
        .filter_map(|one| {
            let pid: u32 = one.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut family = BTreeSet::from([shell]);
    loop {
        let born: Vec<u32> = parents
            .iter()
            .filter(|(pid, of)| family.contains(of) && !family.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if born.is_empty() {
            break;
        }
        family.extend(born);
    }
    family.remove(&shell);
    family.into_iter().filter_map(kib).sum()
}

fn kib(pid: u32) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn usage_includes_children_and_a_failed_command_is_an_error() {
        let used = of_command("bash -c 'for ((i = 0; i < 200000; i++)); do :; done; sleep 0.3'").await.unwrap();
        assert!(used.cpu > 0.01 && used.memory > 0.5, "{used:?}");
        let failed = of_command("echo why >&2; false").await.unwrap_err().to_string();
        assert!(failed.contains("why"), "{failed}");
    }
}
