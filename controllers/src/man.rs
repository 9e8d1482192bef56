//! `pod-safety man`: the manual, made from the same definition as `--help`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use pod_safety_cli::print_raw;

/// The arguments of `man`.
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
    /// Prints the manual of this command.
    pub(super) fn main(self, command: Command) -> Result<(), ManError> {
        match self.into {
            Some(folder) => write_all(command, &folder).map_err(|source| ManError::Write { folder, source }),
            None => Ok(print_raw(&page(command)?)?),
        }
    }
}

fn write_all(command: Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), folder)
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.disable_help_subcommand(true)).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// The commands in `packaging` must be valid command lines.
    #[test]
    fn the_commands_of_the_k9s_plugin_are_valid() {
        let file: serde_json::Value = serde_saphyr::from_str(include_str!("../../packaging/k9s.yaml")).unwrap();
        let plugins = file["plugins"].as_object().unwrap();
        assert!(!plugins.is_empty());
        for (name, plugin) in plugins {
            let script = plugin["args"][1].as_str().unwrap();
            // The shell's parameters are names.
            let words = ["\"$1\"", "\"$2\"", "\"$3\""];
            let line =
                words.iter().fold(script.split(" | ").next().unwrap().to_owned(), |line, word| line.replace(word, "x"));
            let parsed = Cli::command().try_get_matches_from(line.split(' '));
            assert!(parsed.is_ok(), "{name}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let folder = std::env::temp_dir().join(format!("pod-safety-man-{}", std::process::id()));
        write_all(Cli::command(), &folder).unwrap();
        let missing: Vec<_> = Cli::command()
            .get_subcommands()
            .map(|command| folder.join(format!("pod-safety-{}.1", command.get_name())))
            .filter(|page| !page.exists())
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(String::from_utf8(page(Cli::command()).unwrap()).unwrap().contains(".TH pod-safety 1"));
    }
}
