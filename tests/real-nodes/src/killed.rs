//! Whether a world leaves anything behind when it is killed while one of its machines is frozen: frozen processes may
//! not die.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use pod_safety_control_plane::{check_that, eventually};

use crate::beside::World;
use crate::machine::scripts;

/// Seconds on an idle machine. Only a failure waits so long.
const WITHIN: Duration = Duration::from_secs(120);

/// A machine of one process, without a kubelet.
const FROZEN: &str = r#"source "$0/state.sh"; source "$0/cgroups.sh"
    group=$REAL_NODES_CGROUP/n1
    make_machine "$group"
    bash -euc 'source "$0"; become_machine "$1"; settle_machine "$1"; : >/run/ready; exec sleep infinity' "$0/cgroups.sh" "$group" &
    until_so "the machine is there" test -e /run/ready
    freeze_machine "$group"
    echo "$REAL_NODES_CGROUP"
    sleep infinity"#;

pub(crate) async fn check(world: &World) -> Result<()> {
    let mut command = Command::new(scripts().join("world.sh"));
    command.arg(&world.tools).args(["bash", "-euc", FROZEN]).arg(scripts());
    command.env("REAL_NODES_CGROUPS", world.cgroups.name()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("entering the world")?;
    let mut cgroup = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut cgroup)?;
    child.kill()?;
    child.wait()?;
    let cgroup = cgroup.trim();
    anyhow::ensure!(!cgroup.is_empty(), "no machine was frozen; it says why above");
    Ok(eventually("nothing is left of the world", WITHIN, async || {
        let remaining = remaining_cgroups(cgroup);
        check_that(remaining.is_empty(), format!("{remaining:?}"))
    })
    .await?)
}

/// Its cgroups, in whatever hierarchy.
fn remaining_cgroups(cgroup: &str) -> Vec<String> {
    let top = std::path::Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(top).into_iter().flatten().flatten().map(|one| one.path());
    let all = hierarchies.chain([top.to_owned()]).map(|one| one.join(cgroup));
    all.filter(|one| one.exists()).map(|one| one.display().to_string()).collect()
}
