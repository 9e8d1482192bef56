//! A person's consent to what cannot be taken back: a phrase that has to be typed, or given by a script.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Context;

use super::say;

/// Whether `wanted` was typed. A script gives it beforehand; a person sees `page` first.
pub(crate) fn consents(
    wanted: &str,
    given: Option<&str>,
    page: impl FnOnce() -> String,
) -> anyhow::Result<bool> {
    if let Some(given) = given {
        return Ok(given.trim() == wanted);
    }
    let is_person = std::io::stdin().is_terminal();
    anyhow::ensure!(is_person, "standard input is not a terminal; add --confirm {wanted:?} if you are sure");
    say(&format!("{}\nType: {wanted}", page()));
    std::io::stderr().flush().context("writing to the terminal")?;
    let mut typed = String::new();
    std::io::stdin().lock().read_line(&mut typed).context("reading from the terminal")?;
    Ok(typed.trim() == wanted)
}
