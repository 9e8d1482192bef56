//! `make workflows`: runs the `run:` steps of .github/workflows in a shell. Each job starts with a clean clone of the last commit and has
//! the archives of earlier jobs. Arguments select jobs: each must be part of `FILE JOB`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::repository;
use pod_safety_locks::workflows::{Job, jobs, shell};

#[expect(clippy::disallowed_methods, reason = "says how long each step took")]
fn main() -> Result<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let scratch = repository().join("target/workflows");
    std::fs::create_dir_all(scratch.join("archives"))?;
    let mut jobs = jobs()?;
    jobs.retain(|job| chosen.iter().all(|part| job.place.contains(part)));
    ensure!(!jobs.is_empty(), "no job is called {chosen:?}");
    for job in jobs {
        let clone = clean_clone(&scratch)?;
        for step in &job.steps {
            if let Some(needs) = step.needs() {
                print_line(&format!("== {}: not run, it needs {needs}", step.place));
                continue;
            }
            print_line(&format!("== {}: {}", step.place, step.run.trim()));
            let began = Instant::now();
            let status = shell(step, &clone, &scratch)?.status()?;
            ensure!(status.success(), "{} failed: {status}", step.place);
            print_line(&format!("== {}: {:.1} s", step.place, began.elapsed().as_secs_f64()));
        }
        keep_archives(&job, &clone, &scratch.join("archives"))?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a program for a terminal")]
fn print_line(line: &str) {
    println!("{line}");
}

/// Copies the archives of earlier jobs into the clone, as actions/download-artifact does.
fn clean_clone(scratch: &Path) -> Result<std::path::PathBuf> {
    let clone = scratch.join("clone");
    if clone.exists() {
        std::fs::remove_dir_all(&clone)?;
    }
    let cloned = Command::new("git").args(["clone", "--quiet"]).arg(repository()).arg(&clone).status()?;
    ensure!(cloned.success(), "git clone: {cloned}");
    for archive in std::fs::read_dir(scratch.join("archives"))? {
        let archive = archive?;
        std::fs::copy(archive.path(), clone.join(archive.file_name()))?;
    }
    Ok(clone)
}

/// The archive of this machine is copied for the other platforms, too: steps that handle archives do not run their content.
fn keep_archives(job: &Job, clone: &Path, archives: &Path) -> Result<()> {
    for entry in std::fs::read_dir(clone)? {
        let name = entry?.file_name().into_string().ok().context("a name that is no text")?;
        if job.others.is_empty() || !(name.starts_with("pod-safety-") && name.ends_with(".tar.gz")) {
            continue;
        }
        std::fs::copy(clone.join(&name), archives.join(&name))?;
        for other in &job.others {
            std::fs::copy(clone.join(&name), archives.join(format!("pod-safety-{other}.tar.gz")))?;
        }
    }
    Ok(())
}
