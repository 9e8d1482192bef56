//! The documentation names only commands and flags that this program has.

use std::ffi::OsString;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use pod_safety_locks::documents::{TestedBy, commands, quoted, split, split_words};

use pod_safety_cli::move_global_flags;

use crate::cli::{Cli, Command};

/// Parses the arguments of a command. A missing argument is accepted: a sentence names no node.
fn parse_command(command: &str) -> Result<(), String> {
    let mut words = split_words(command);
    if words.first().is_some_and(|word| word == "kubectl") {
        words.remove(0);
    }
    match Cli::try_parse_from(move_global_flags(words.into_iter().map(OsString::from))) {
        Ok(Cli { command: Command::Demo(args) }) if !args.knows_its_scenario() => {
            Err("there is no such scenario".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayVersion
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand => Ok(()),
            ErrorKind::InvalidValue if has_no_value(&error) => Ok(()),
            _ => Err(error.to_string()),
        },
    }
}

/// Whether a flag is named without its value.
fn has_no_value(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
}

/// Fills in the placeholders of a sentence: `[pod|node NAME]`, `--reason TEXT`, `…`.
fn fill_placeholders(quoted: &str) -> String {
    let plain = quoted.replace(['[', ']', '\\'], "").replace('…', "x");
    let word = |word: &str| {
        // The only placeholder whose format is checked.
        let word = if word == "BOOT" { "0d7c8f3e-52a1-4b6e-9a57-3c1d2e4f5a6b" } else { word };
        let first = word.split('|').next().unwrap_or_default();
        let is_open = first.chars().all(|letter| letter.is_ascii_uppercase() || letter == '-');
        if is_open { first.to_lowercase() } else { first.to_owned() }
    };
    plain.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn bug_the_documentation_named_commands_that_do_not_exist() {
    let quoted = quoted().unwrap();
    let copied = commands().unwrap();
    assert!(quoted.len() > 80, "{} commands in sentences", quoted.len());
    let quoted = quoted.into_iter().map(|(place, text)| {
        let ours = split(&text, &[" | "]).into_iter().next().unwrap_or_default();
        (place, fill_placeholders(&ours))
    });
    let is_of_a_shell = |text: &str| text.starts_with("export ");
    let ours = copied.into_iter().filter(|command| {
        matches!(command.tested_by, TestedBy::Demo | TestedBy::Flags) && !is_of_a_shell(&command.text)
    });
    let copied = ours.map(|command| {
        let ours = split(&command.text, &["|"]).into_iter().next().unwrap_or_default();
        // Names of Kubernetes objects are in lower case.
        (command.place, fill_placeholders(&ours))
    });
    let wrong = quoted.chain(copied).filter_map(|(place, text)| {
        let why = parse_command(&text).err()?;
        Some(format!("{place}: {text}: {why}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_does_not_exist_is_noticed() {
    assert_eq!(parse_command("kubectl pod-safety --context prod status"), Ok(()));
    assert_eq!(parse_command("pod-safety fence"), Ok(()), "a sentence may name no node");
    assert_eq!(parse_command("pod-safety pause --policy"), Ok(()), "and no value");
    for wrong in [
        "pod-safety fence a --yes",
        "pod-safety frobnicate",
        "pod-safety explain pod A_B",
        "pod-safety demo --scenario none",
        "pod-safety demo --serve 1.2.3.4:80",
    ] {
        assert!(parse_command(wrong).is_err(), "{wrong}");
    }
    assert_eq!(fill_placeholders("pod-safety timeline [node|pod NAME] …"), "pod-safety timeline node name x");
}
