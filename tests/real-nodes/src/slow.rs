//! A machine whose packets are delayed, by `scripts/slow.py`: its cable ends at a bridge of its own, and the script
//! carries the frames between that and the common switch.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use pod_safety_control_plane::Program;

use crate::cluster::Cluster;
use crate::machine::{Machine, run, scripts};

const STARTS: Duration = Duration::from_secs(20);

/// A cable with such a delay.
pub(crate) struct Slow {
    machine: Machine,
    _carries: Program,
}

async fn ip(words: &str) -> Result<()> {
    run("ip", &words.split(' ').collect::<Vec<_>>()).await.map(drop)
}

fn bridge(machine: Machine) -> String {
    format!("slow-{}", machine.name())
}

impl Cluster {
    /// Delays each packet of the machine by this time, in each direction. A machine that is switched on gets a new
    /// cable.
    pub(crate) async fn slow(&mut self, machine: Machine, milliseconds: u32) -> Result<()> {
        let bridge = bridge(machine);
        ip(&format!("link add {bridge} type bridge")).await?;
        ip(&format!("link set {bridge} up")).await?;
        let (script, delay) = (scripts().join("slow.py"), milliseconds.to_string());
        let args = [script.as_os_str(), bridge.as_ref(), delay.as_ref()];
        let mut carries = self.plane.program(&bridge, Path::new("python3"), args, &[])?;
        let log = self.plane.log(&bridge);
        let ready = async || {
            let output = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
            output.ends_with("carries\n").then_some(()).ok_or(output)
        };
        carries.wait_for_within("carry", STARTS, ready).await?;
        ip(&format!("link set to-{} master {bridge}", machine.name())).await?;
        self.slow.push(Slow { machine, _carries: carries });
        Ok(())
    }

    /// Ends all delays. Packets under way are lost.
    pub(crate) async fn repair_slow(&mut self) -> Result<()> {
        for Slow { machine, .. } in std::mem::take(&mut self.slow) {
            if machine.is_on().await? {
                ip(&format!("link set to-{} master switch", machine.name())).await?;
            }
            ip(&format!("link delete {}", bridge(machine))).await?;
        }
        Ok(())
    }
}
