//! A test of the detectors: two copies of one identity, started by hand on one volume, must be found by each detector.
//! And the detectors must find no more than there is: on a volume that admits one copy, the second waits, and is no
//! copy before the first is gone.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use pod_safety_control_plane::{check_that, eventually};
use tokio::process::{Child, Command};

use crate::machine::run;
use crate::objects::ALONE;
use crate::oracle::{self, Violation};
use crate::watch::{self, VOLUMES, Watch};

/// No violation may be found for this long. A slow machine takes fewer samples.
const FOR: Duration = Duration::from_secs(2);
/// The longest time until a violation is found.
const WITHIN: Duration = Duration::from_secs(120);

/// Waits until this copy was the last to write.
async fn writes(identity: &str, uid: &str) -> Result<()> {
    let what = format!("{uid} of {identity} writes");
    Ok(eventually(&what, WITHIN, async || {
        let last = watch::last_line(identity).map(|line| line.uid);
        check_that(last.as_deref() == Some(uid), format!("it is {last:?}"))
    })
    .await?)
}

/// Runs both tests. Returns the violations of the two copies.
pub(crate) async fn check(tools: &Path) -> Result<Vec<Violation>> {
    one_at_a_time(tools).await?;
    two_at_once(tools).await
}

/// Starts one copy, finds no violation, starts another one, finds a violation.
async fn two_at_once(tools: &Path) -> Result<Vec<Violation>> {
    let (watch, since) = (Watch::begin(), watch::uptime()?);
    let _first = copy(tools, &["db-0", "uid-a", "n1"]).await?;
    writes("db-0", "uid-a").await?;
    tokio::time::sleep(FOR).await;
    let alone = oracle::check(&watch::lines(since)?, &watch.sightings());
    ensure!(watch::copies().len() == 1 && alone.is_empty(), "one copy alone: {alone:?}");
    let _second = copy(tools, &["db-0", "uid-b", "n2"]).await?;
    let mut sightings = Vec::new();
    let violations = eventually("each look sees the two copies on one volume", WITHIN, async || {
        sightings.extend(watch.sightings());
        let lines = watch::lines(since).map_err(|error| error.to_string())?;
        let violations = oracle::check(&lines, &sightings);
        let kinds = [
            violations.iter().any(|one| matches!(one, Violation::TwoRan { .. })),
            violations.iter().any(|one| matches!(one, Violation::WroteOn { .. })),
            violations.iter().any(|one| matches!(one, Violation::NotAlone { .. })),
        ];
        check_that(kinds == [true; 3], format!("what was seen is {violations:?}")).map(|()| violations)
    })
    .await?;
    Ok(violations)
}

/// Starts two copies on an exclusive volume, kills the one that was admitted, and sees the other one take its place.
async fn one_at_a_time(tools: &Path) -> Result<()> {
    let (watch, since) = (Watch::begin(), watch::uptime()?);
    let _first = copy(tools, &["exclusive", ALONE, "uid-a", "n1"]).await?;
    writes(ALONE, "uid-a").await?;
    let _second = copy(tools, &["exclusive", ALONE, "uid-b", "n2"]).await?;
    tokio::time::sleep(FOR).await;
    let copies = watch::copies();
    let [(pid, one)] = copies.as_slice() else { bail!("two that must be let in: {copies:?}") };
    ensure!(one.uid == "uid-a", "the second was let in: {one:?}");
    run("kill", &["-KILL", &pid.to_string()]).await?;
    writes(ALONE, "uid-b").await?;
    let violations = oracle::check(&watch::lines(since)?, &watch.sightings());
    ensure!(violations.is_empty(), "one after the other: {violations:?}");
    for (pid, _) in watch::copies() {
        run("kill", &["-KILL", &pid.to_string()]).await?;
    }
    Ok(())
}

/// A copy as in a container: the image's own files are its root, the volume is its /data.
async fn copy(tools: &Path, args: &[&str]) -> Result<Child> {
    let [.., identity, uid, _node] = args else { bail!("a copy is not told by {args:?}") };
    let root = PathBuf::from("/run/planted").join(identity).join(uid);
    let volume = Path::new(VOLUMES).join(identity);
    for folder in [&root.join("proc"), &volume] {
        std::fs::create_dir_all(folder)?;
    }
    let script = "tar -xf \"$1/images.tar\" -O ./layer.tar | tar -xC \"$0\" && mount --bind \"$2\" \"$0/data\" && mount -t proc proc \"$0/proc\"";
    let paths = [root.as_path(), tools, &volume].map(|path| path.to_string_lossy());
    run("bash", &["-euc", script, &paths[0], &paths[1], &paths[2]]).await?;
    let mut command = Command::new("chroot");
    command.arg(&root).arg("/workload").args(args).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command.spawn()?)
}
