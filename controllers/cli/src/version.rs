//! `pod-safety version`.

use clap::{Args as ClapArgs, ValueEnum};
use pod_safety_doctor::MINORS;
use serde::Serialize;

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("version"))]
pub struct Args {
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    /// The commit, if the build knew it.
    revision: Option<&'static str>,
    /// The Kubernetes versions that this version is tested with.
    kubernetes: String,
}

impl Args {
    pub(crate) fn main(&self) -> std::io::Result<()> {
        let (oldest, newest) = MINORS;
        let version = Version {
            version: env!("CARGO_PKG_VERSION"),
            revision: option_env!("POD_SAFETY_REVISION"),
            kubernetes: format!("1.{oldest}-1.{newest}"),
        };
        let text = match self.output {
            Output::Text => {
                let revision = version.revision.map(|revision| format!(" ({revision})")).unwrap_or_default();
                format!("pod-safety {}{revision}, for Kubernetes {}\n", version.version, version.kubernetes)
            }
            Output::Json => format!("{}\n", serde_json::to_string(&version).map_err(std::io::Error::other)?),
        };
        super::print(&text)
    }
}
