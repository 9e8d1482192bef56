//! Golden files: content that a person has reviewed, compared with the current content.

use std::path::Path;

use crate::Error;

/// Set on CI machines, where the output is not reviewed.
const CI: &str = "CI";

/// Compares `now` with the file. If `variable` is `1`, the file is written; the comparison still fails, so that a variable that stays set
/// does not disable the check. If `CI` is set, nothing is written.
pub fn compare_golden(path: &Path, now: &str, variable: &str) -> Result<(), Error> {
    let was = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        read => Some(read.map_err(Error::file("read", path))?),
    };
    let word = std::env::var_os(variable).map(|word| word.to_string_lossy().into_owned());
    let (verdict, writes) = decide(was.as_deref(), now, word.as_deref(), std::env::var_os(CI).is_some(), variable);
    if writes {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
        std::fs::write(path, now).map_err(Error::file("write", path))?;
    }
    verdict.map_err(|why| Error::Golden { path: path.to_owned(), why })
}

/// The result of the comparison, and whether the file is written.
fn decide(was: Option<&str>, now: &str, word: Option<&str>, ci: bool, variable: &str) -> (Result<(), String>, bool) {
    match word {
        Some(_) if ci => return (Err(format!("{variable} is set, and CI writes nothing anew")), false),
        Some(word) if word != "1" => {
            return (Err(format!("{variable}={word}: only 1 means something")), false);
        }
        _ => {}
    }
    let Some(was) = was.filter(|was| *was != now) else {
        return match (was, word) {
            (Some(_), _) => (Ok(()), false),
            (None, None) => (Err(format!("there is none; {variable}=1 writes it")), false),
            (None, Some(_)) => (Err("it was written now: look at it, and run this again".to_owned()), true),
        };
    };
    let differs = was.lines().zip(now.lines()).position(|(one, other)| one != other);
    let line = differs.unwrap_or_else(|| was.lines().count().min(now.lines().count())) + 1;
    let differs = format!("differs at line {line}");
    if word.is_some() {
        return (Err(format!("{differs}, and was written anew: look at it, and run this again")), true);
    }
    (Err(format!("{differs}; {variable}=1 writes it anew")), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide_for(was: Option<&str>, word: Option<&str>, ci: bool) -> (bool, bool) {
        let (verdict, writes) = decide(was, "now\n", word, ci, "WRITE");
        (verdict.is_ok(), writes)
    }

    #[test]
    fn equal_content_passes_and_writes_nothing() {
        assert_eq!(decide_for(Some("now\n"), None, false), (true, false));
        assert_eq!(decide_for(Some("now\n"), Some("1"), false), (true, false));
        assert_eq!(decide_for(Some("now\n"), None, true), (true, false));
    }

    #[test]
    fn different_content_fails_even_if_it_is_written() {
        assert_eq!(decide_for(Some("once\n"), None, false), (false, false));
        assert_eq!(decide_for(None, None, false), (false, false));
        assert_eq!(decide_for(Some("once\n"), Some("1"), false), (false, true));
        assert_eq!(decide_for(None, Some("1"), false), (false, true));
    }

    #[test]
    fn ci_writes_nothing_and_fails_if_the_variable_is_set() {
        assert_eq!(decide_for(Some("once\n"), Some("1"), true), (false, false));
        assert_eq!(decide_for(Some("now\n"), Some("1"), true), (false, false));
        assert_eq!(decide_for(None, Some("1"), true), (false, false));
    }

    #[test]
    fn an_unknown_value_of_the_variable_is_an_error() {
        assert_eq!(decide_for(Some("now\n"), Some("0"), false), (false, false));
        assert_eq!(decide_for(Some("now\n"), Some(""), false), (false, false));
    }
}
