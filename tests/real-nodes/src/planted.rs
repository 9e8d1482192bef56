//! Whether the looks can see at all: two copies of one identity, started by hand on one volume, must be found by each of them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::process::{Child, Command};

use crate::machine::run;
use crate::oracle::{self, Violation};
use crate::watch::{self, VOLUMES, Watch};

const FOR: Duration = Duration::from_secs(2);

/// Starts one, sees nothing wrong, starts another, sees it.
pub(crate) async fn check(tools: &Path) -> Result<Vec<Violation>> {
    let (watch, since) = (Watch::begin(), watch::uptime()?);
    let _first = copy(tools, "uid-a", "n1").await?;
    tokio::time::sleep(FOR).await;
    let alone = oracle::judge(&watch::lines(since)?, &watch.sightings());
    ensure!(watch::copies().len() == 1 && alone.is_empty(), "one copy alone: {alone:?}");
    let _second = copy(tools, "uid-b", "n2").await?;
    tokio::time::sleep(FOR).await;
    let found = oracle::judge(&watch::lines(since)?, &watch.sightings());
    let kinds = [
        found.iter().any(|one| matches!(one, Violation::TwoRan { .. })),
        found.iter().any(|one| matches!(one, Violation::WroteOn { .. })),
        found.iter().any(|one| matches!(one, Violation::NotAlone { .. })),
    ];
    ensure!(kinds == [true; 3], "two copies on one volume, and what was seen is {found:?}");
    Ok(found)
}

/// A copy as in a container: the image's own files are its root, the volume is its /data.
async fn copy(tools: &Path, uid: &str, node: &str) -> Result<Child> {
    let root = PathBuf::from("/run/planted").join(uid);
    let volume = Path::new(VOLUMES).join("db-0");
    for folder in [&root.join("proc"), &volume] {
        std::fs::create_dir_all(folder)?;
    }
    let script = "tar -xf \"$1/images.tar\" -O ./layer.tar | tar -xC \"$0\" && mount --bind \"$2\" \"$0/data\" && mount -t proc proc \"$0/proc\"";
    let paths = [root.as_path(), tools, &volume].map(|path| path.to_string_lossy());
    run("bash", &["-euc", script, &paths[0], &paths[1], &paths[2]]).await?;
    let mut command = Command::new("chroot");
    command.arg(&root).args(["/workload", "db-0", uid, node]).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command.spawn()?)
}
