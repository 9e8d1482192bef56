//! An operator's consent to what cannot be undone: a phrase that is typed, or given by a script.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Context;

use super::Exit;
use super::print_stderr;
use super::terminal;

/// Refuses what can be refused before anything is read or waited for: the phrase of a script does not match, or there
/// is no terminal to type it on. A command calls this first.
pub(crate) fn check_confirm_flag(phrase: &str, given: Option<&str>) -> anyhow::Result<Option<Exit>> {
    match given {
        Some(given) => Ok((given.trim() != phrase).then(|| report_mismatch(phrase))),
        None => {
            let is_person = std::io::stdin().is_terminal();
            anyhow::ensure!(is_person, "standard input is not a terminal; add --confirm \"{phrase}\" if you are sure");
            Ok(None)
        }
    }
}

/// Prints that nothing was done.
pub(crate) fn report_mismatch(phrase: &str) -> Exit {
    print_stderr(&format!("pod-safety: the confirmation did not match: it is \"{phrase}\"; nothing was changed"));
    Exit::Refused
}

/// Whether the phrase was typed. A script gives it by a flag; an operator sees `page` first.
pub(crate) fn prompt(phrase: &str, given: Option<&str>, page: impl FnOnce() -> String) -> anyhow::Result<bool> {
    if check_confirm_flag(phrase, given)?.is_some() {
        return Ok(false);
    }
    if given.is_some() {
        return Ok(true);
    }
    print_stderr(&format!("{}\nType: {phrase}", terminal::for_stderr().wrap_page(&page())));
    std::io::stderr().flush().context("writing to the terminal")?;
    let mut typed = String::new();
    std::io::stdin().lock().read_line(&mut typed).context("reading from the terminal")?;
    if typed.trim() != phrase {
        report_mismatch(phrase);
        return Ok(false);
    }
    Ok(true)
}
