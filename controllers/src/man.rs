//! `pod-safety man`: the manual, made of the same definition as `--help`.

use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use pod_safety_cli::print_as_it_is;

use crate::cli::Cli;

/// What it is asked for.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write a page for each command into this folder, instead of the first page to standard output
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ManError {
    #[error("--into {}: the pages cannot be written", folder.display())]
    Write { folder: PathBuf, source: io::Error },
    #[error("the page cannot be printed")]
    Print(#[from] io::Error),
}

impl Args {
    pub(super) fn main(self) -> Result<(), ManError> {
        match self.into {
            Some(folder) => write_all(&folder).map_err(|source| ManError::Write { folder, source }),
            None => Ok(print_as_it_is(&page()?)?),
        }
    }
}

fn write_all(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), folder)
}

fn page() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command().disable_help_subcommand(true)).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `packaging` says in our name must be what the command line understands.
    #[test]
    fn what_k9s_runs_is_a_command_of_ours() {
        let file: serde_json::Value =
            serde_saphyr::from_str(include_str!("../../packaging/k9s.yaml")).unwrap();
        let plugins = file["plugins"].as_object().unwrap();
        assert!(!plugins.is_empty());
        for (name, plugin) in plugins {
            let script = plugin["args"][1].as_str().unwrap();
            // The shell's parameters are names.
            let words = ["\"$1\"", "\"$2\"", "\"$3\""];
            let line = words
                .iter()
                .fold(script.split(" | ").next().unwrap().to_owned(), |line, word| line.replace(word, "x"));
            let parsed = Cli::command().try_get_matches_from(line.split(' '));
            assert!(parsed.is_ok(), "{name}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let folder = std::env::temp_dir().join(format!("pod-safety-man-{}", std::process::id()));
        write_all(&folder).unwrap();
        let missing: Vec<_> = Cli::command()
            .get_subcommands()
            .map(|command| folder.join(format!("pod-safety-{}.1", command.get_name())))
            .filter(|page| !page.exists())
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(String::from_utf8(page().unwrap()).unwrap().contains(".TH pod-safety 1"));
    }
}
