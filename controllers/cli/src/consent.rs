//! A person's consent to what cannot be taken back: a phrase that has to be typed, or given by a script.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Context;

use super::Exit;
use super::say;
use super::terminal;

/// What can be refused before anything is read or waited for: the words of a script do not match, or nobody is there to type
/// them. With this a command begins.
pub(crate) fn refused_at_once(wanted: &str, given: Option<&str>) -> anyhow::Result<Option<Exit>> {
    match given {
        Some(given) => Ok((given.trim() != wanted).then(|| did_not_match(wanted))),
        None => {
            let is_person = std::io::stdin().is_terminal();
            anyhow::ensure!(
                is_person,
                "standard input is not a terminal; add --confirm \"{wanted}\" if you are sure"
            );
            Ok(None)
        }
    }
}

/// That nothing was done.
pub(crate) fn did_not_match(wanted: &str) -> Exit {
    say(&format!("pod-safety: the confirmation did not match: it is \"{wanted}\"; nothing was changed"));
    Exit::Refused
}

/// Whether `wanted` was typed. A script gives it beforehand; a person sees `page` first.
pub(crate) fn consents(
    wanted: &str,
    given: Option<&str>,
    page: impl FnOnce() -> String,
) -> anyhow::Result<bool> {
    if refused_at_once(wanted, given)?.is_some() {
        return Ok(false);
    }
    if given.is_some() {
        return Ok(true);
    }
    say(&format!("{}\nType: {wanted}", terminal::of_stderr().lines(&page())));
    std::io::stderr().flush().context("writing to the terminal")?;
    let mut typed = String::new();
    std::io::stdin().lock().read_line(&mut typed).context("reading from the terminal")?;
    if typed.trim() != wanted {
        did_not_match(wanted);
        return Ok(false);
    }
    Ok(true)
}
