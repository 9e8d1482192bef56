//! Writes the tables of `docs/scale.md`: measurements on synthetic clusters, one after the other.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser as _;

use crate::plan::{Command, Plan};
use crate::results::Origin;
use crate::{mass, page, pictures, scale, unreachable};

const PAGE: &str = "scale.md";

/// Measures on clusters that are made up, and writes the page.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Sizes {
    /// The pod-safety to measure
    #[arg(long, value_name = "FILE")]
    pod_safety: PathBuf,

    /// The folder of the page, and of its pictures
    #[arg(long, value_name = "FOLDER", default_value = "docs")]
    docs: PathBuf,
}

/// Runs each part with its defaults. If a part fails, the results of earlier parts remain.
pub(crate) async fn run(plan: &Sizes) -> Result<()> {
    let Origin { commit, date, machine, .. } = Origin::this(Vec::new());
    fill(plan, "run", &format!("Commit `{commit}`, {date}, `make scale`; {machine}.\n"))?;
    let program = plan.pod_safety.display().to_string();
    for name in ["scale", "silent", "mass"] {
        let table = match Plan::try_parse_from(["bench", name, "--pod-safety", &program])?.command {
            Some(Command::Scale(plan)) => scale::run(plan).await?,
            Some(Command::Silent(plan)) => unreachable::run(plan).await?,
            Some(Command::Mass(plan)) => mass::run(plan).await?,
            _ => continue,
        };
        fill(plan, name, &table)?;
    }
    pictures::draw_scale(&plan.docs).map(drop)
}

fn fill(plan: &Sizes, name: &str, text: &str) -> Result<()> {
    let file = plan.docs.join(PAGE);
    let page = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(std::fs::write(&file, page::filled(&page, name, text)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_part() {
        let page = include_str!("../../../docs/scale.md");
        for name in ["run", "scale", "silent", "mass"] {
            page::filled(page, name, "").unwrap();
        }
    }
}
