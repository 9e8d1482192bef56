//! The flags of exclusive volumes.

use std::time::Duration;

use clap::Args;
use pod_safety_shared::model::{BadName, parse_names};

use super::Config;

/// The flags of the volume guard.
#[derive(Debug, Args)]
#[command(next_help_heading = "Volume guard")]
#[group(skip)]
pub struct Flags {
    /// Storage classes whose volumes are exclusive whatever their access modes say
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "POD_SAFETY_EXCLUSIVE_STORAGE_CLASSES")]
    exclusive_storage_classes: Vec<String>,

    /// CSI drivers whose volumes are exclusive whatever their access modes say
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "POD_SAFETY_EXCLUSIVE_CSI_DRIVERS")]
    exclusive_csi_drivers: Vec<String>,

    /// CSI drivers whose storage accepts writes only from attached nodes (cloud disks; not iSCSI, not NFS)
    ///
    /// Their volumes may be detached from an unreachable node, and are free once they are detached.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "POD_SAFETY_EXCLUSIVE_BACKENDS")]
    exclusive_backends: Vec<String>,
}

impl Flags {
    /// The settings, with the quarantine of pod garbage collection.
    ///
    /// # Errors
    /// A name that the API does not accept.
    pub fn into_config(self, quarantine: Duration) -> Result<Config, BadName> {
        let Self { exclusive_storage_classes, exclusive_csi_drivers, exclusive_backends } = self;
        Ok(Config {
            quarantine,
            classes: parse_names("exclusive-storage-classes", exclusive_storage_classes)?,
            drivers: parse_names("exclusive-csi-drivers", exclusive_csi_drivers)?,
            backends: parse_names("exclusive-backends", exclusive_backends)?,
        })
    }
}
