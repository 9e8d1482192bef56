//! Splits command lines like a shell.

/// Splits a line at unquoted separators, and removes its comment.
#[must_use]
pub fn split(line: &str, separators: &[&str]) -> Vec<String> {
    let (mut parts, mut quote, mut at) = (vec![String::new()], None, 0);
    while let Some(letter) = line[at..].chars().next() {
        let ahead = &line[at..];
        let begins_word = at == 0 || line[..at].ends_with(char::is_whitespace);
        match (quote, letter) {
            (None, '#') if begins_word => break,
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
        if let Some(separator) = separators.iter().find(|one| quote.is_none() && ahead.starts_with(**one)) {
            parts.push(String::new());
            at += separator.len();
            continue;
        }
        if let Some(last) = parts.last_mut() {
            last.push(letter);
        }
        at += letter.len_utf8();
    }
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// The words of a command, as a shell splits them.
#[must_use]
pub fn split_words(command: &str) -> Vec<String> {
    let (mut words, mut quote, mut is_inside) = (Vec::new(), None, false);
    for letter in command.chars() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None, _) if letter.is_whitespace() => {
                is_inside = false;
                continue;
            }
            _ if is_inside => words.last_mut().into_iter().for_each(|word: &mut String| word.push(letter)),
            _ => words.push(letter.to_string()),
        }
        if quote == Some(letter) && !is_inside {
            words.push(String::new());
        }
        is_inside = true;
    }
    words
}

/// Replaces names of the documentation by names that the test cluster has, wherever they occur as a word.
#[must_use]
pub fn with_stand_ins(text: &str, names: &[(&str, &str)]) -> String {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/');
    let mut done = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.find(|letter| !is_of_word(letter)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(length);
        // `pod/NAME` counts as two words.
        let words: Vec<&str> = word
            .split('/')
            .map(|word| names.iter().find(|(name, _)| *name == word).map_or(word, |(_, there)| *there))
            .collect();
        done.push_str(&words.join("/"));
        let next = behind.chars().next().map_or(0, char::len_utf8);
        let (letter, behind) = behind.split_at(next);
        done.push_str(letter);
        rest = behind;
    }
    done
}
