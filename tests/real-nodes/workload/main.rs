//! The program in the pods: one copy of one identity, which writes its identity, again and again, to a log on its
//! volume that outlives it. It takes the volume's lock too, and goes on without the lock: as a program on storage
//! without exclusion does.
//!
//! `workload IDENTITY UID NODE` writes; `workload exclusive IDENTITY UID NODE` writes once the volume admits it, which
//! it does when no other copy is admitted; `workload pause` only waits, for sandboxes. It needs the standard library
//! alone, because the image contains nothing but this.

#![expect(clippy::disallowed_methods, reason = "it has no runtime that this could block, and no time but the real one")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The interval between two lines: short compared with everything that a cluster does.
const BETWEEN: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.as_slice() {
        [identity, uid, node] => write(identity, uid, node),
        [how, copy @ ..] if how == "exclusive" => let_in(copy),
        _ => loop {
            std::thread::park();
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Storage with exclusion: there is no copy before the volume is free, and the volume is taken for as long as the copy
/// lives. The waiting process is another process than the copy, and the process table distinguishes them.
fn let_in(copy: &[String]) -> std::io::Result<()> {
    let volume = File::create("/data/volume")?;
    volume.lock()?;
    // The copy holds it too, so that it is taken for as long as either lives.
    let mut copy = Command::new("/workload").args(copy).stdin(volume).spawn()?;
    copy.wait().map(drop)
}

fn write(identity: &str, uid: &str, node: &str) -> std::io::Result<()> {
    let lock = File::create("/data/lock")?;
    let mut log = OpenOptions::new().create(true).append(true).open("/data/log")?;
    let mut held = false;
    loop {
        held = held || lock.try_lock().is_ok();
        let word = if held { "alone" } else { "not-alone" };
        // One write for one line: lines of two writers are never mixed.
        log.write_all(format!("{identity} {uid} {node} {} {word}\n", uptime()?).as_bytes())?;
        std::thread::sleep(BETWEEN);
    }
}

/// Seconds since the host started: one clock for all nodes, which is never set.
fn uptime() -> std::io::Result<String> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}
